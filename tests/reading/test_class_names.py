"""Names of classes as what lies beside TFRecords tells them."""

from pathlib import Path

import pytest

from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.reading.dataset import class_names, find_dataset

LABEL_MAP = """
item { name: "/m/04dr76w" id: 7 display_name: "Bottle" }
item { id: 2 name: "cat" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two empty files below a folder, each in its own."""
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "x-00000-of-00001.tfrecord").write_bytes(b"")
    return tmp_path


def test_a_label_map_beside_the_folders_of_the_files(folder: Path) -> None:
    (folder / "label_map.pbtxt").write_text(LABEL_MAP)
    found = class_names(find_dataset(str(folder)))
    assert list(found.names.items()) == [(2, "cat"), (7, "/m/04dr76w")]
    assert found.shown == {2: "cat", 7: "Bottle"}
    assert not found.fault


@pytest.mark.parametrize("path", ["val", "val/x-*", "val/x-00000-of-00001.tfrecord"])
def test_a_label_file_of_tfds(folder: Path, path: str) -> None:
    (folder / "val/label.labels.txt").write_text("cat\ndog\n")
    assert class_names(find_dataset(f"{folder}/{path}")).names == {0: "cat", 1: "dog"}


def test_names_that_contradict_each_other_are_not_heeded(folder: Path) -> None:
    (folder / "train/label.labels.txt").write_text("cat\ndog\n")
    (folder / "val/label.labels.txt").write_text("dog\ncat\n")
    found = class_names(find_dataset(str(folder)))
    assert not found.names and not found.shown
    assert "class 0 is called 'cat' and 'dog'" in found.fault
    assert class_names(find_dataset(f"{folder}/train")).names == {0: "cat", 1: "dog"}


def test_nothing_beside_tells_any(folder: Path) -> None:
    assert class_names(find_dataset(str(folder))) == ({}, {}, "")


def test_damage_has_its_fault_apart() -> None:
    error = DamagedRecordError(3, 70, "its length: wrong")
    assert (error.fault, str(error)) == ("its length: wrong", "record 3 at byte 70: its length: wrong")
