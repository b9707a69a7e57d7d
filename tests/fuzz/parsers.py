"""Damaged inputs of every source, read as the pipeline does.

Each case is a small input of a source with a file or two damaged. It is detected and read twice. A finding is
an exception that is not the project's own, a message that is more than a line or names no file, more time or
memory than the bounds, or a second reading that differs.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence

from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.shards.references import pack_record, unpack_record
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.fuzz.driver import Case, Finding
from tests.fuzz.parser_mutations import mutated
from tests.fuzz.parser_seeds import Seed, seeds

_LONGEST_MESSAGE = 3_000
_NOT_MUTATED = (".png", ".JPEG")


class Parsers:
    """The fuzzer of sources; `only` is a part of the names of the inputs that are damaged."""

    name = "parsers"
    batch = 50

    def __init__(self, only: str = "", seconds: float = 10) -> None:
        self.seconds = seconds
        self.seeds = {name: one for name, one in seeds().items() if only in name}

    def case(self, seed: int, number: int) -> Case:
        return case_of(self.seeds, seed, number)

    def examine(self, case: Case, folder: pathlib.Path) -> Finding | None:
        return examine(self.seeds[case.name], case.files, folder)


def case_of(all_seeds: dict[str, Seed], seed: int, number: int) -> Case:
    """The case of a number."""
    rng = random.Random(f"{seed} {number}")
    name = rng.choice(list(all_seeds))
    chosen = all_seeds[name]
    files = dict(chosen.files)
    readable = [path for path in files if not path.endswith(_NOT_MUTATED)] or list(files)
    for path in rng.sample(readable, min(len(readable), rng.choice((1, 1, 1, 2)))):
        files[path] = mutated(rng, path, files[path])
    return Case(name, files)


def written(files: Mapping[str, bytes], root: pathlib.Path) -> None:
    """Writes the files of a case."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def examine(seed: Seed, files: Mapping[str, bytes], folder: pathlib.Path) -> Finding | None:
    """Reads the files of a case; what is wrong with how it went."""
    root = folder / "in"
    written(files, root)
    place = str(root / seed.place).rstrip("/")
    annotations = tuple(str(root / path) for path in seed.annotations)
    given = SourceConfig(seed.kind, place, annotations=annotations, **seed.options)
    auto = SourceConfig("auto", place, annotations=annotations, **seed.options)
    names = [str(root), *(path.rpartition("/")[2] for path in files)]
    first: list[Item] | None = None
    try:
        with _clear(names):
            found = detect(auto)
            if found.kind != given.kind:
                list(_read(SourceConfig(found.kind, found.input, annotations=annotations), folder / "other"))
        with _clear(names):
            first = list(_read(given, folder / "one"))
        if first is not None:
            second = list(_read(given, folder / "one"))
            if repr(first) != repr(second):  # NaN is not equal to itself
                return Finding(f"{seed.kind}: two readings differ", f"{first} and {second}"[:2000])
            _check_items(first)
    except UnclearError as error:
        return Finding(f"{seed.kind}: unclear: {_shape(str(error))}", str(error)[:2000])
    return None


class UnclearError(Exception):
    """A message that does not help: of several lines, too long, or without the name of a file."""


@contextlib.contextmanager
def _clear(names: Sequence[str]) -> Iterator[None]:
    """Takes the errors of a wrong call and of a bad input, where they are clear."""
    try:
        yield
    except (JobError, ValueError) as error:
        text = str(error)
        own = type(error) in (JobError, ValueError)
        if not own or "\n" in text or len(text) > _LONGEST_MESSAGE or not any(name in text for name in names):
            raise UnclearError(f"{type(error).__name__}: {text}") from error


def _read(config: SourceConfig, scratch: pathlib.Path) -> Iterator[Item]:
    """All that a source lists, after what is asked before that."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    source = SOURCES[config.kind]
    source.check(config)
    source.split_names(config)
    source.schemas(config)
    try:
        yield from source.read(config, str(scratch))
    except ValueError as error:
        raise RuntimeError(f"read raised {error!r}, not JobError") from error


def _check_items(items: Sequence[Item]) -> None:
    """Does with items what a pipeline does: packs them, and reads their images."""
    reader = ImageReader()
    for item in items:
        if isinstance(item, Failure):
            json.dumps(
                [*item._asdict().values()] if hasattr(item, "_asdict") else [item.key, item.detail]
            ).encode()
            f"{item.key}{item.reason}{item.detail}".encode()
        elif isinstance(item, ImageRecord):
            with contextlib.suppress(BadInput):  # an integer of more than 64 bits
                unpack_record(pack_record(item))
            masks = [one.mask for one in item.annotations.objects]
            for ref in (item.image, *masks):
                if ref is not None and hasattr(ref, "uri"):
                    with contextlib.suppress(BadInput):
                        reader.read(ref)
        elif isinstance(item, ClassNames):
            json.dumps(
                {str(number): name for number, name in item.names.items()}, ensure_ascii=False
            ).encode()


def _shape(text: str) -> str:
    """A message without what differs from case to case."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", text.replace("\n", "\\n"))[:160]
