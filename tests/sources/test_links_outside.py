"""A link below the input that leads outside of it, and of every image root: no source reads through it."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.small_inputs import INPUTS
from transforms.records import Failure, ImageRecord, JobError
from transforms.sources.registry import SOURCES
from transforms.sources.source import Item, SourceConfig
from transforms.storage import local

NUMBERS = (1, 2)
_BOXES = b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n0,xclick,/m/c,1,0.1,0.5,0.1,0.5\n"
_NAMES = b"cat\ndog\n"
FURTHER: dict[str, dict[str, bytes]] = {
    "yolo": {"data.yaml": b"path: .\ntrain: images\nnames: [cat]\n", "labels/classes.txt": _NAMES},
    "openimages": {"train-annotations-bbox.csv": _BOXES},
    "imagenet": {"train/LOC_synset_mapping.txt": b"n01440764 tench\n"},
    "masks": {"classes.txt": _NAMES, "train.txt": b"0\n1\n"},
    "voc": {"labelmap.txt": b"cat:::\n", "ImageSets/Main/train.txt": b"0\n1\n"},
    "idx": {"train-labels-idx1-ubyte": b"\0\0\x08\x01\0\0\0\x02\1\2"},
    "idx.gz": {"train-labels-idx1-ubyte.gz": gzip.compress(b"\0\0\x08\x01\0\0\0\x02\1\2")},
    "tfrecord": {"label_map.pbtxt": b"item {\n  id: 1\n  name: 'cat'\n}\n"},
}
CASES = [
    (name, key)
    for name, one in INPUTS.items()
    for key in {**one.files(NUMBERS), **FURTHER.get(name, {})}
    if key != one.place
]


def put(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The real paths of the files that sources open."""
    paths: list[str] = []
    really = local.open_file

    def open_file(path: str) -> Any:
        paths.append(os.path.realpath(path))
        return really(path)

    monkeypatch.setattr(local, "open_file", open_file)
    return paths


def read(name: str, root: Path, scratch: Path, **options: Any) -> list[Item]:
    one = INPUTS[name]
    config = SourceConfig(one.kind, str(root / one.place), **one.options, **options)
    source = SOURCES[one.kind]
    source.check(config)
    return list(source.read(config, str(scratch)))


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_link_that_leads_outside_is_not_followed(
    tmp_path: Path, opened: list[str], name: str, key: str
) -> None:
    root, outside = tmp_path / "in", tmp_path / "outside"
    put(root, {**INPUTS[name].files(NUMBERS), **FURTHER.get(name, {})})
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
        with pytest.raises(ValueError, match=f"{side} is outside the input root; .*give --image_root"):
            source.check(far)
    assert str(outside / side) not in opened


def _side(kind: str) -> bytes:
    if kind == "idx":
        return FURTHER["idx"]["train-labels-idx1-ubyte"]
    if kind == "tfrecord":
        return FURTHER["tfrecord"]["label_map.pbtxt"]
    stream = io.BytesIO()
    np.save(stream, np.array([1, 2]))
    return stream.getvalue()
