"""Inputs of many files in parts, listed side by side: together what one listing of all has."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from pathlib import Path

import pytest

from recordmill.transforms.records import ClassNames, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Item
from recordmill.transforms.storage.reader import ImageReader
from tests.sources.small_inputs import INPUTS, picture

_CONTAINED = [
    name for name, one in INPUTS.items() if one.kind in ("archive", "webdataset", "tfrecord", "parquet")
]


def told(items: list[Item], scratch: Path) -> Counter[str]:
    """Entries as text, but for where they were unpacked; classes together, as they may come repeatedly."""
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    optional = set()
    found: Counter[str] = Counter()
    for item in items:
        if isinstance(item, ClassNames):
            names.update(item.names)
            texts.update(item.texts)
            optional.add(item.optional)
        else:
            found[repr(item).replace(str(scratch), "")] += 1
    found[repr((sorted(names.items()), sorted(texts.items()), optional))] += 1
    return found


def listed_apart(config: SourceConfig, scratch: Path) -> tuple[int, list[Item]]:
    """How many parts there are, and what they have."""
    source = SOURCES[config.kind]
    parts = pickle.loads(pickle.dumps(list(source.parts(config, 10))))
    items: list[Item] = []
    for part in reversed(parts):
        items += source.read(config, str(scratch), part)
    return len(parts), items


@pytest.mark.parametrize("name", _CONTAINED)
def test_files_of_containers(name: str, tmp_path: Path) -> None:
    one = INPUTS[name]
    numbers = 0
    for folder in ("in/a", "in/b", "in/val/c"):
        for path, data in one.files(range(numbers, numbers + 3)).items():
            file = tmp_path / folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        numbers += 3
    (tmp_path / "in/notes.txt").write_text("no records")
    (tmp_path / "in/b/broken.tar").write_bytes(b"no archive")
    (tmp_path / "in/b/broken.parquet").write_bytes(b"no table")
    (tmp_path / "in/b/broken.tfrecord").write_bytes(b"no record")
    config = SourceConfig(one.kind, str(tmp_path / "in"), exclude=("a/**0*",), **one.options)
    scratches = [tmp_path / "scratch1", tmp_path / "scratch2"]
    for scratch in scratches:
        scratch.mkdir()
    whole = list(SOURCES[one.kind].read(config, str(scratches[0])))
    count, apart = listed_apart(config, scratches[1])
    assert count >= 3
    assert told(apart, scratches[1]) == told(whole, scratches[0])
    assert sum(isinstance(item, ImageRecord) for item in apart) >= 6


@pytest.mark.parametrize("name", _CONTAINED)
def test_one_file_is_one_part(name: str, tmp_path: Path) -> None:
    one = INPUTS[name]
    for path, data in one.files([1, 2]).items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    config = SourceConfig(one.kind, str(tmp_path / one.place if one.place else file), **one.options)
    count, apart = listed_apart(config, tmp_path)
    assert (count, sum(isinstance(item, ImageRecord) for item in apart)) == (1, 2)


@pytest.mark.slow
def test_records_of_ours_with_names_beside_them(tmp_path: Path) -> None:
    from tests.pipelines.conversion import convert

    for label in ("cat", "dog"):
        for number in range(6):
            path = tmp_path / f"photos/{label}/{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(number))
    assert convert("--input", tmp_path / "photos", "--output", tmp_path / "in", "--num_shards=3") == 0
    (tmp_path / "in/train-00000-of-00009.tfrecord").write_bytes(b"not of the manifest")
    (tmp_path / "in/manifest.json").touch()
    config = SourceConfig("tfrecord", str(tmp_path / "in"))
    count, apart = listed_apart(config, tmp_path)
    assert told(apart, tmp_path) == told(list(SOURCES["tfrecord"].read(config, str(tmp_path))), tmp_path)
    assert sum(isinstance(item, ImageRecord) for item in apart) == 12
    assert [item for item in apart if isinstance(item, ClassNames)] == [ClassNames({0: "cat", 1: "dog"})]
    assert count > 4


def test_texts_of_classes_are_told_whatever_the_order() -> None:
    from recordmill.transforms.shards.totals import Classes

    parts = [ClassNames({1: "n1"}, {"n1": text}) for text in ("tench", "a fish", "zander")]
    for order in (parts, parts[::-1], [parts[1], parts[0], parts[2]]):
        classes = Classes()
        for part in order:
            classes.add(part)
        assert classes.texts == {"n1": "a fish"}
    assert dataclasses.astuple(Classes()) == ({}, {}, {})


@pytest.mark.parametrize("name", ["tar.gz", "parquet"])
def test_two_keys_of_one_file_of_which_less_is_taken_by_one(name: str, tmp_path: Path) -> None:
    """What is unpacked for one must not be read for the other."""
    one = INPUTS[name]
    for path, data in one.files(range(4)).items():
        file = tmp_path / "in/a" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tmp_path / "in/b").symlink_to("a")
    exclude = ("b/**/cat/0.png", "b/**/00000000")
    config = SourceConfig(one.kind, str(tmp_path / "in"), exclude=exclude, **one.options)
    (tmp_path / "scratch").mkdir()
    reader = ImageReader()
    records = [
        item
        for item in SOURCES[one.kind].read(config, str(tmp_path / "scratch"))
        if isinstance(item, ImageRecord)
    ]
    assert len(records) == 7
    seen = {record.key: reader.read(record.image) for record in records if record.image is not None}
    for key, data in seen.items():
        if key.startswith("b/"):
            assert data == seen["a/" + key.removeprefix("b/")]
    assert len(set(seen.values())) == 4
