"""Fuzzes the parsers of annotations and of containers: python -m tests.fuzz.parsers --minutes 60 --seed 1

Each case is a small input of a source with a file or two damaged. It is detected and read twice, as the
pipeline does, in a child process. A finding is an exception that is not the project's own, a message that is
more than a line or names no file, more time or memory than the bounds, or a second reading that differs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import pathlib
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.shards.references import pack_record, unpack_record
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.fuzz.parser_mutations import mutated
from tests.fuzz.parser_seeds import Files, Seed, seeds

SECONDS = 10
"""That a case may take: two readings, on a machine that does other things too."""

_MEMORY = 3 << 30  # of addresses, beyond what the process has
_BATCH = 50
_LONGEST_MESSAGE = 3_000
_NOT_MUTATED = (".png", ".JPEG")


class Finding(NamedTuple):
    """What a case showed.

    Attributes:
        kind: the same for the same fault.
        detail: for people.
    """

    kind: str
    detail: str


class Case(NamedTuple):
    """A damaged input: the same for the same seed and number.

    Attributes:
        name: of the seed's input.
        seed: that input.
        files: as they are after the damage.
    """

    name: str
    seed: Seed
    files: Files


def case_of(all_seeds: dict[str, Seed], seed: int, number: int) -> Case:
    """The case of a number."""
    rng = random.Random(f"{seed} {number}")
    name = rng.choice(list(all_seeds))
    chosen = all_seeds[name]
    files = dict(chosen.files)
    readable = [path for path in files if not path.endswith(_NOT_MUTATED)] or list(files)
    for path in rng.sample(readable, min(len(readable), rng.choice((1, 1, 1, 2)))):
        files[path] = mutated(rng, path, files[path])
    return Case(name, chosen, files)


def examine(case: Case, folder: pathlib.Path) -> Finding | None:
    """Reads a case; what is wrong with how it went."""
    root = folder / "in"
    for path, data in case.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    place = str(root / case.seed.place).rstrip("/")
    annotations = tuple(str(root / path) for path in case.seed.annotations)
    given = SourceConfig(case.seed.kind, place, annotations=annotations, **case.seed.options)
    auto = SourceConfig("auto", place, annotations=annotations, **case.seed.options)
    names = [str(root), *(path.rpartition("/")[2] for path in case.files)]
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
                return Finding(f"{case.seed.kind}: two readings differ", f"{first} and {second}"[:2000])
            _check_items(first)
    except UnclearError as error:
        return Finding(f"{case.seed.kind}: unclear: {_shape(str(error))}", str(error)[:2000])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "/transforms/" in frame.filename][-1:]
        place = f"{pathlib.Path(ours[0].filename).name}:{ours[0].name}" if ours else "?"
        text = "".join(traceback.format_exception(error))[-3000:]
        return Finding(f"{case.seed.kind}: {type(error).__name__} in {place}", text)
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


def _child(all_seeds: dict[str, Seed], seed: int, numbers: range, results: IO[str], seconds: float) -> None:
    """Examines some cases; writes a line before and after each."""
    size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
    for number in numbers:
        results.write(json.dumps([number]) + "\n")
        results.flush()
        case = case_of(all_seeds, seed, number)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            faulthandler.dump_traceback_later(seconds, exit=True, file=results)
            found = examine(case, pathlib.Path(folder))
            faulthandler.cancel_dump_traceback_later()
        if found is not None:
            results.write(json.dumps([number, *found]) + "\n")
    results.flush()


def _batch(
    all_seeds: dict[str, Seed], seed: int, numbers: range, seconds: float
) -> Iterator[tuple[int, Finding]]:
    """The findings of some cases, in a child process; in another one, those after a case that ended it."""
    while numbers:
        with tempfile.TemporaryFile("w+") as results:
            sys.stdout.flush()
            child = os.fork()
            if not child:
                status = 1
                try:
                    _child(all_seeds, seed, numbers, results, seconds)
                    status = 0
                finally:
                    results.flush()
                    os._exit(status)
            status = os.waitpid(child, 0)[1]
            results.seek(0)
            lines = results.read().splitlines()
        last, rest = numbers.start, []
        for line in lines:
            if not line.startswith("["):
                rest.append(line)
                continue
            last, *found = json.loads(line)
            if found:
                yield last, Finding(*found)
        if not status:
            return
        name = case_of(all_seeds, seed, last).seed.kind
        ours = [line for line in rest if "/transforms/" in line][:1]
        what = "more than the seconds" if "Timeout" in "".join(rest[:1]) else f"status {status}"
        where = re.sub(r".*/", "", ours[0]) if ours else ""
        yield last, Finding(f"{name}: {what}: {where}", "\n".join(rest)[:3000])
        numbers = range(last + 1, numbers.stop)


def run(
    seed: int, minutes: float = 0, cases: int = 0, keep: str = "", only: str = "", seconds: float = SECONDS
) -> int:
    """Examines cases until the time is over or so many are done; prints what was found.

    Args:
        seed: of the random numbers.
        minutes: that it may take.
        cases: that are examined; 0 for as many as there is time for.
        keep: a folder for the files of the first case of each kind of finding.
        only: a part of the names of the inputs that are damaged.
        seconds: that a case may take.

    Returns:
        The number of kinds of findings.
    """
    all_seeds = {name: one for name, one in seeds().items() if only in name}
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    kinds: collections.Counter[str] = collections.Counter()
    done = 0
    while time.monotonic() < end and (not cases or done < cases):
        numbers = range(done, min(done + _BATCH, cases or done + _BATCH))
        for number, finding in _batch(all_seeds, seed, numbers, seconds):
            kinds[finding.kind] += 1
            if kinds[finding.kind] == 1:
                case = case_of(all_seeds, seed, number)
                print(f"case {number} of {case.name}: {finding.kind}\n{finding.detail}\n", flush=True)
                if keep:
                    _keep(case, finding, pathlib.Path(keep) / f"{seed}-{number}-{case.name}")
        done = numbers.stop
    print(f"{done} inputs tried, {sum(kinds.values())} findings of {len(kinds)} kinds")
    for kind, count in kinds.most_common():
        print(f"  {count:6} {kind}")
    return len(kinds)


def _keep(case: Case, finding: Finding, folder: pathlib.Path) -> None:
    for path, data in case.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "FINDING.txt").write_text(f"{finding.kind}\n{finding.detail}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.parsers", description="Fuzzes the parsers.")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--cases", type=int, default=0, help="examine so many, whatever time it takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep the files of each kind of finding")
    parser.add_argument("--only", default="", metavar="NAME", help="a part of the names of inputs")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a case may take")
    args = parser.parse_args(argv)
    found: Any = run(
        args.seed, 0 if args.cases else args.minutes, args.cases, args.keep, args.only, args.seconds
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
