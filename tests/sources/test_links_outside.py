"""A link below the input that leads outside of it, and of every image root: no source reads through it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.transforms.records import Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.local import LocalFileSystem
from tests.sources import special_cases
from tests.sources.small_inputs import INPUTS
from tests.sources.special_cases import ALL, NUMBERS, files_of, put

CASES = [
    (name, key)
    for name, key in special_cases.CASES
    if key not in (ALL[name].place, *ALL[name].options.get("annotations", ()))  # the caller names these
]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The real paths of the files that sources open."""
    paths: list[str] = []
    really = LocalFileSystem.open

    def open_file(system: LocalFileSystem, path: str) -> Any:
        file = really(system, path)
        paths.append(os.path.realpath(path))
        return file

    monkeypatch.setattr(LocalFileSystem, "open", open_file)
    return paths


def read(name: str, root: Path, scratch: Path, **options: Any) -> list[Item]:
    one = ALL[name]
    config = SourceConfig(one.kind, str(root / one.place), **one.options, **options)
    source = SOURCES[one.kind]
    source.check(config)
    return list(source.read(config, str(scratch)))


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_link_that_leads_outside_is_not_followed(
    tmp_path: Path, opened: list[str], name: str, key: str
) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    put(root, files_of(name))
    outside.mkdir()
    (root / key).rename(outside / os.path.basename(key))
    (root / key).symlink_to(outside / os.path.basename(key))
    try:
        items = read(name, root, tmp_path)
    except (ValueError, JobError) as error:
        assert "outside the input" in str(error) or "no " in str(error)
    else:
        assert "outside the input root" in {one.reason for one in items if isinstance(one, Failure)}
        refs = [one.image.uri for one in items if isinstance(one, ImageRecord) and one.image is not None]
        assert not [uri for uri in refs if uri.startswith(f"{outside}/")]
    assert not [path for path in opened if path.startswith(f"{outside}/")]


@pytest.mark.parametrize(
    ("kind", "files", "side"),
    [
        ("idx", INPUTS["idx"].files(NUMBERS), "train-labels-idx1-ubyte"),
        ("numpy", INPUTS["npy"].files(NUMBERS), "y_train.npy"),
        ("tfrecord", INPUTS["tfrecord"].files(NUMBERS), "label_map.pbtxt"),
    ],
)
def test_files_next_to_a_lone_one_are_links_to_where_that_leads_at_most(
    tmp_path: Path, opened: list[str], kind: str, files: dict[str, bytes], side: str
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    (name,) = files
    put(store, {**files, side: _side(kind)})
    put(outside, {side: _side(kind)})
    for case, leads_to in (("near", store), ("far", outside)):
        root = tmp_path / case
        root.mkdir()
        (root / name).symlink_to(store / name)
        (root / side).symlink_to(leads_to / side)
    source, options = SOURCES[kind], INPUTS[kind].options if kind in INPUTS else {}
    near, far = (SourceConfig(kind, str(tmp_path / case / name), **options) for case in ("near", "far"))
    source.check(near)
    assert len([one for one in source.read(near, str(tmp_path)) if isinstance(one, ImageRecord)]) == 2
    assert str(store / side) in opened
    if kind == "tfrecord":
        source.check(far)
        assert list(source.read(far, str(tmp_path)))
    else:
        with pytest.raises(
            ValueError, match=f"{side}': it leads to .*, outside the input root; give --image_root"
        ):
            source.check(far)
    assert str(outside / side) not in opened


def test_the_latest_version_is_not_a_link_to_the_outside(tmp_path: Path, opened: list[str]) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    put(root, {"latest.json": b'{"format_version": 1, "version": "1.0.0"}'})
    put(outside, files_of("tfrecord"))
    (root / "1.0.0").symlink_to(outside)
    source, config = SOURCES["tfrecord"], SourceConfig("tfrecord", str(root))
    with pytest.raises(ValueError, match="1.0.0': it leads to .*, outside the input root"):
        source.check(config)
    assert not [path for path in opened if path.startswith(f"{outside}/")]
    given = SourceConfig("tfrecord", str(root), image_roots=(str(outside),))
    assert len([one for one in source.read(given, str(tmp_path)) if isinstance(one, ImageRecord)]) == 2
    (root / "latest.json").rename(outside / "latest.json")
    (root / "latest.json").symlink_to(outside / "latest.json")
    assert {one.reason for one in source.read(config, str(tmp_path)) if isinstance(one, Failure)} == {
        "outside the input root"
    }


def _side(kind: str) -> bytes:
    if kind == "idx":
        return files_of("idx")["train-labels-idx1-ubyte"]
    if kind == "tfrecord":
        return files_of("tfrecord")["label_map.pbtxt"]
    stream = io.BytesIO()
    np.save(stream, np.array([1, 2]))
    return stream.getvalue()
