"""Annotations in archives: an archive that holds them is refused, unless the source is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.sources.archives.archive import ArchiveSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.detection.refusals import unread_member
from tests.sources.sniffing import sniff
from tests.sources.test_archives import listed, packed, records, tar_bytes, zip_bytes

SOURCE = ArchiveSource()
PHOTOS = ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/3.jpg")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("train2017/1.jpg", "annotations/instances_train2017.json"), "annotations/instances_train2017.json"),
        (("train/1.jpg", "train/_annotations.coco.json"), "train/_annotations.coco.json"),
        (("ds/JPEGImages/1.jpg", "ds/ImageSets/Main/x.txt"), "ds/ImageSets/Main/x.txt"),
        (("JPEGImages/1.jpg", "Annotations/1.xml"), "Annotations/1.xml"),
        (("train/1.jpg", "train/1.xml", "valid/2.jpg", "valid/2.xml"), "train/1.xml"),
        (("images/train/1.jpg", "data.yaml"), "data.yaml"),
        (("data/obj/1.jpg", "data/obj.data"), "data/obj.data"),
        (("images/1.jpg", "images/2.jpg", "images/3.jpg", "labels/1.txt", "labels/2.txt"), "labels/1.txt"),
        (("1.jpg", "1.json", "2.jpg"), "1.json"),
        ((*PHOTOS, "labels.csv"), "labels.csv"),
        ((*PHOTOS, "meta/train.txt"), "meta/train.txt"),
        ((*PHOTOS, "labels.json"), "labels.json"),
        (("img_align_celeba/1.jpg", "list_attr_celeba.txt"), "list_attr_celeba.txt"),
        (("jpg/1.jpg", "imagelabels.mat"), "imagelabels.mat"),
        (("images/a/1.jpg", "masks/a/1.png"), "masks/a/1.png"),
        (("images/1.jpg", "mask/1.png"), "mask/1.png"),
        (("ds/photos/1.jpg", "ds/SegmentationClass/1.png"), "ds/SegmentationClass/1.png"),
        (("CamVid/train/1.png", "CamVid/trainannot/1.png"), "CamVid/trainannot/1.png"),
        (("ISIC/images/1.jpg", "ISIC/masks/1_segmentation.png"), "ISIC/masks/1_segmentation.png"),
        (("1.jpg", "1_mask.png", "2.jpg", "2_mask.png"), "1_mask.png"),
        ((*PHOTOS, "README.md", "readme.txt", "LICENSE", "notes.json", "dataset-metadata.json"), None),
        ((*PHOTOS, "classes.txt", "index.html"), None),
        ((*PHOTOS, "cat/1.txt"), None),
        (("mask/1.jpg", "mask/2.jpg", "no_mask/1.jpg", "no_mask/2.jpg"), None),
        (("images/cat/1.jpg", "images/label/1.jpg"), None),
        (("masks/1.png", "masks/2.png"), None),
        (("labels/9.jpg", "labels/8.jpg", "cat/1.jpg"), None),
        (("train/cat/1.jpg", "test/cat/1.jpg"), None),
    ],
)
def test_names_of_annotations(names: tuple[str, ...], found: str | None) -> None:
    assert unread_member(names) == found


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
def test_a_detected_archive_with_annotations_is_refused(tmp_path: Path, name: str) -> None:
    files = {"ds/JPEGImages/1.jpg": b"1", "ds/Annotations/1.xml": b"<annotation/>"}
    (tmp_path / name).write_bytes(packed(name, files))
    for place in (tmp_path, tmp_path / name):
        with pytest.raises(ValueError) as refused:
            detect(SourceConfig("auto", str(place)))
        assert str(refused.value) == (
            f"--input is {str(place)!r}: the archive {str(tmp_path / name)!r} holds 'ds/Annotations/1.xml', "
            "and annotations of archives are not read: unpack it and give the folder; or give "
            "--source archive, which reads images and folders only"
        )
    items = listed(tmp_path / name, tmp_path)
    assert [one.key for one in records(items)] == ["ds/JPEGImages/1.jpg"]
    assert sniff(SOURCE, SourceConfig("archive", str(tmp_path))) is not None


def test_a_detected_archive_of_images_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes(dict.fromkeys((*PHOTOS, "README.txt"), b"1")))
    why = detect(SourceConfig("auto", str(tmp_path))).why
    assert why == "'a.zip' is an archive that holds images such as 'cat/1.jpg'"


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ({"images.zip": ("1.jpg", "2.jpg"), "labels.zip": ("1.txt", "2.txt")}, "labels.zip' holds '1.txt'"),
        ({"images.zip": ("1.jpg", "2.jpg"), "masks.zip": ("1.png", "2.png")}, "masks.zip' holds '1.png'"),
        (
            {"train.zip": ("1.jpg",), "annotations/instances_train.json": ()},
            "instances_train.json' lies next to",
        ),
    ],
)
def test_annotations_in_another_file(tmp_path: Path, files: dict[str, tuple[str, ...]], shown: str) -> None:
    for name, members in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(zip_bytes(dict.fromkeys(members, b"1")))
    with pytest.raises(ValueError, match=shown):
        detect(SourceConfig("auto", str(tmp_path)))


def test_archives_of_splits_with_the_same_names_are_read(tmp_path: Path) -> None:
    for name in ("train.zip", "val.zip"):
        (tmp_path / name).write_bytes(zip_bytes({"cat/1.jpg": b"1", "dog/1.jpg": b"1"}))
    assert detect(SourceConfig("auto", str(tmp_path))) is not None


def test_a_compressed_tar_is_not_unpacked_further_than_before(tmp_path: Path) -> None:
    files = {f"{number:03}.jpg": b"1" for number in range(200)} | {"labels.csv": b"1"}
    for name in ("a.tgz", "a.tar"):
        (tmp_path / name).write_bytes(tar_bytes(files, "w:gz" if name == "a.tgz" else "w"))
    assert detect(SourceConfig("auto", f"{tmp_path}/a.tgz")) is not None
    with pytest.raises(ValueError, match=r"holds 'labels\.csv'"):
        detect(SourceConfig("auto", f"{tmp_path}/a.tar"))
