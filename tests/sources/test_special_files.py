"""A pipe, a socket, a folder, an unreadable file or a broken link under each name that a source reads."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.records import BadInput, Failure, ImageRecord, JobError
from recordmill.transforms.shards.references import files_of as refs_of
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.storage.reader import ImageReader
from tests.sources.special_cases import ALL, CASES, KINDS, failing_on_alarm, files_of, put, put_special

_SECONDS = 5
_FIRST = ("pipe", "unreadable")


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Fails what does not answer."""
    with failing_on_alarm():
        yield


def config_of(name: str, root: Path) -> SourceConfig:
    one = ALL[name]
    return SourceConfig(one.kind, str(root / one.place), **one.options)


def answers(config: SourceConfig, scratch: Path) -> list[str]:
    """What a source says of an input: the one line that it is refused with, or each failure."""
    source, reader, said = SOURCES[config.kind], ImageReader(), []
    signal.alarm(_SECONDS)
    try:
        source.check(config)
        source.split_names(config)
        source.schemas(config)
        for item in source.read(config, str(scratch)):
            if isinstance(item, Failure):
                said.append(f"{item.key} {item.reason} {item.detail}")
            elif isinstance(item, ImageRecord):
                for ref in refs_of(item):
                    try:
                        reader.read(ref)
                    except BadInput as fault:
                        said.append(str(fault))
    except (ValueError, JobError) as error:
        said = [str(error)]
    finally:
        signal.alarm(0)
        reader.close()
    return said


@pytest.mark.parametrize(
    "kind",
    [one if one in _FIRST else pytest.param(one, marks=pytest.mark.slow) for one in KINDS],
)
@pytest.mark.parametrize("name", ALL)
def test_each_has_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    expected = {
        "pipe": ("it is a pipe", "is a pipe", "not a file"),
        "socket": ("it is a socket", "not a file"),
        "folder": (),  # folders are looked into: one of such a name holds nothing
        "unreadable": ("permission denied",),
        "broken link": ("where nothing is", "not found", "link to nothing", "there is no such file"),
    }[kind]
    for at, key in enumerate(files_of(name)):
        root, scratch = tmp_path / str(at) / "in", tmp_path / str(at) / "scratch"
        put(root, files_of(name))
        scratch.mkdir()
        with monkeypatch.context() as patched:
            if kind == "unreadable":
                _make_unreadable(root / key, patched)
            else:
                put_special(root / key, kind)
            config = config_of(name, root)
            said = answers(config, scratch)
            assert not [line for line in said if "\n" in line]
            about = [line for line in said if os.path.basename(key) in line]
            named = [line for line in about if any(word in line.lower() for word in expected)]
            assert named or not expected, (key, said)
            _detect(config)


def _make_unreadable(path: Path, patched: pytest.MonkeyPatch) -> None:
    """Takes away the permission, also from root, who has all."""
    really = os.open

    def refuse(target: str, *args: int, **options: int) -> int:
        if target == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", target)
        return really(target, *args, **options)

    patched.setattr("recordmill.transforms.storage.local.os.open", refuse)


def _detect(config: SourceConfig) -> None:
    """Detection answers too, with a source or one line."""
    signal.alarm(_SECONDS)
    try:
        detect(dataclasses.replace(config, kind="auto", include_annotations=()))
    except ValueError as error:
        assert "\n" not in str(error)
    finally:
        signal.alarm(0)


def test_every_source_has_cases() -> None:
    assert {ALL[name].kind for name, _ in CASES} == SOURCES.keys()
