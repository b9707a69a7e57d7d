"""Folders that are no classes: refused with what is wrong, and with a call that reads the dataset."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import source_of
from tests.sources.small_inputs import INPUTS, Files


def grow(root: Path, *names: str) -> str:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return str(root)


def facts_of(path: str, kind: str = "auto", exclude: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    """The key, split and labels of each record."""
    config = SourceConfig(kind, path, exclude=exclude)
    one = detect(config)
    config = SourceConfig(one.kind, one.input, exclude=exclude)
    source_of(config).check(config)
    items = source_of(config).read(config, "")
    return [(one.key, one.split, one.annotations.labels) for one in items if isinstance(one, ImageRecord)]


def refused(path: str) -> str:
    """The message."""
    with pytest.raises(ValueError) as caught:
        detect(SourceConfig("auto", path))
    message = str(caught.value)
    assert message.startswith(f"--input is {path!r}, where ") and "\n" not in message
    assert message.endswith("; or --source folder, which reads images and folders only")
    assert detect(SourceConfig("folder", path)).kind == "folder"
    return message


SPLITS = ("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg")
READ = [("train/cat/1.jpg", "train", ("cat",)), ("train/dog/2.jpg", "train", ("dog",))]
READ += [("val/cat/3.jpg", "val", ("cat",))]


@pytest.mark.parametrize("place", ["sample/1.jpg", "my docs/a/figure.png"])
def test_splits_next_to_another_folder(tmp_path: Path, place: str) -> None:
    root = grow(tmp_path, *SPLITS, place)
    other = place.partition("/")[0]
    message = refused(root)
    assert (
        f"'train' and 'val' are named like splits, and {other!r} is not: move it elsewhere; give" in message
    )
    assert (
        f"--input {root}/train; --input {root}/val; --input {shlex.quote(f'{root}/{other}')}; or" in message
    )
    (tmp_path / other).rename(tmp_path.parent / f"{tmp_path.name} elsewhere")
    assert facts_of(root) == READ


def test_a_message_lists_some_of_many_folders(tmp_path: Path) -> None:
    message = refused(grow(tmp_path, *SPLITS, *(f"part{at}/1.jpg" for at in range(30))))
    assert "'part0' is not" in message and "; and 12 more; or" in message


def test_an_image_next_to_splits(tmp_path: Path) -> None:
    root = grow(tmp_path, *SPLITS, "a view.png")
    message = refused(root)
    assert "'train' is named like a split, and 'a view.png' is in none" in message
    assert "leave it out with --exclude 'a view.png'; give one of them: --input" in message
    assert facts_of(root, exclude=("a view.png",)) == READ


@pytest.mark.parametrize(
    "names",
    [
        ("cat/1.jpg", "dog/1.jpg", "test/1.jpg"),
        ("cat/1.jpg", "dog/1.jpg", "train/1.jpg"),
        ("apple/1.jpg", "banana/1.jpg", "images/1.jpg"),
        ("bicycle/1.jpg", "bus/1.jpg", "test_tube/1.jpg", "train_station/1.jpg", "tram/1.jpg"),
        ("bullet_train/1.jpg", "steam_train/1.jpg", "tram/1.jpg"),
        ("mask/1.jpg", "no_mask/1.jpg"),
        ("latest/1.jpg", "device/1.jpg"),
        ("cat/indoor/1.jpg", "cat/outdoor/1.jpg", "dog/1.jpg", "dog/2.jpg"),
        ("cat/train/1.jpg", "dog/1.jpg"),
    ],
)
def test_classes_stay_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    place = grow(tmp_path, *names)
    assert {labels for _, _, labels in facts_of(place)} == {(name.partition("/")[0],) for name in names}


@pytest.mark.parametrize(
    ("names", "evidence"),
    [
        (("train_images/1.jpg", "test_images/2.jpg"), "'test_images' and 'train_images' are named after"),
        (("train/1.jpg", "test1/2.jpg"), "'test1' and 'train' are named after splits"),
        (("training_set/training_set/cat/1.jpg", "test_set/test_set/cat/1.jpg"), "'test_set' and 'training_"),
        (("seg_train/a/1.jpg", "seg_test/a/1.jpg", "seg_pred/1.jpg"), "'seg_test' and 'seg_train' are"),
        (("a/b/train_images/1.jpg",), "'a/b/train_images' is named like a part of a dataset, and no class"),
        (("train_images/1.jpg",), "'train_images' is named like a part of a dataset, and no class"),
        (("Images/1.png", "Masks/m.png", "Scribbles/s.png"), "'Images' and 'Masks' are named like parts"),
        (("train/images/1.jpg", "test/images/2.jpg"), "'test/images' and 'train/images' are named like"),
    ],
)
def test_structural_names_are_no_classes(tmp_path: Path, names: tuple[str, ...], evidence: str) -> None:
    assert evidence in refused(grow(tmp_path, *names))


@pytest.mark.parametrize(
    ("names", "evidence"),
    [
        (("cat/truth/3.jpg", "dog/1.jpg"), "'cat/test' and 'cat/train' are named like splits and lie below"),
        (
            ("dog/train/1.jpg", "dog/test/2.jpg"),
            "several folders have splits of their own, such as 'cat/test'",
        ),
    ],
)
def test_splits_below_classes(tmp_path: Path, names: tuple[str, ...], evidence: str) -> None:
    place = grow(tmp_path, "cat/train/1.jpg", "cat/test/2.jpg", *names)
    message = refused(place)
    assert evidence in message and f"--input {place}/cat" in message


def test_annotations_next_to_several_trees_of_splits_are_named_first(tmp_path: Path) -> None:
    grow(tmp_path, "a/train/1.jpg", "a/test/2.jpg", "b/1.jpg")
    (tmp_path / "a/annotations.xml").write_text("<annotations><version>1.1</version></annotations>")
    with pytest.raises(ValueError, match=r"'a/annotations\.xml' holds annotations in CVAT's own XML"):
        detect(SourceConfig("auto", str(tmp_path)))


def test_one_category_with_splits_in_a_wrapper(tmp_path: Path) -> None:
    grow(tmp_path, "cat/train/good/1.jpg", "cat/test/bad/2.jpg", "cat/truth/bad/3.jpg")
    for place in (tmp_path, tmp_path / "cat"):
        with pytest.raises(ValueError, match="'test' and 'train' are named like splits, and 'truth' is not"):
            detect(SourceConfig("auto", str(place)))


@pytest.mark.parametrize("wrappers", ["", "a/", "a/b/", "1/2/3/4/5/6/7/8/"])
def test_an_image_next_to_classes(tmp_path: Path, wrappers: str) -> None:
    place = grow(tmp_path, *(f"{wrappers}{name}" for name in ("cat/1.jpg", "dog/2.jpg", "3.jpg")))
    wanted = [("3.jpg", None, ()), ("cat/1.jpg", None, ("cat",)), ("dog/2.jpg", None, ("dog",))]
    assert facts_of(place) == facts_of(place, "folder") == wanted
    assert detect(SourceConfig("auto", place)).input == f"{place}/{wrappers}".rstrip("/")


def test_images_of_one_class_with_folders_are_a_class(tmp_path: Path) -> None:
    place = grow(tmp_path, "cat/a/1.jpg", "cat/b/1.jpg", *(f"cat/{at}.jpg" for at in range(9)))
    assert detect(SourceConfig("auto", place)).input == place


def test_a_figure_next_to_a_folder_of_classes(tmp_path: Path) -> None:
    place = grow(tmp_path, "flowers/daisy/1.jpg", "flowers/rose/2.jpg", "docs/figure.png")
    message = refused(place)
    assert "'flowers' has folders of classes, and the images of 'docs' lie outside it" in message
    assert f"give one of them: --input {place}/flowers; --input {place}/docs" in message
    assert [labels for _, _, labels in facts_of(f"{place}/flowers")] == [("daisy",), ("rose",)]


@pytest.mark.parametrize(
    "bound", ["look._FOLDERS", "detection.detect._SNIFFED", "detection.detect._WRAPPERS"]
)
def test_a_search_that_was_cut_is_no_single_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    notes = [f"{at:03}/x/notes.md" for at in range(20)]
    place = grow(tmp_path, *notes, "zoo/1.jpg", "zoo/a/b/c/d/notes.md")
    assert [labels for _, _, labels in facts_of(place)] == [("zoo",)]
    monkeypatch.setattr(f"recordmill.transforms.sources.{bound}", 3)
    assert refused(place).endswith(
        "give the dataset's own folder; or --source folder, which reads images and folders only"
    )


@pytest.mark.parametrize("picture", ["preview.png", "docs/figure.png"])
def test_tfrecords_next_to_an_image_are_not_left_behind(tmp_path: Path, picture: str) -> None:
    files: Files = INPUTS["tfrecord"].files([1, 2])
    grow(tmp_path, picture)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError) as caught:
        detect(SourceConfig("auto", str(tmp_path)))
    assert "'train.tfrecord' holds TFRecords, which are not read" in str(caught.value)
    assert f"give --input {tmp_path} --source tfrecord; for the images" in str(caught.value)
    assert detect(SourceConfig("tfrecord", str(tmp_path))).input == str(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"{}")  # as next to the files that this program writes
    assert detect(SourceConfig("auto", str(tmp_path))).kind == "folder"
