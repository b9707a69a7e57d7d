"""What people really have, from the folder that RECORDMILL_CORPUS names."""

from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

from recordmill.transforms.records import AnnotatedObject, Box, Failure, ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place

pytestmark = pytest.mark.corpus


def listed(path: Path | str, scratch: Path, **options: object) -> tuple[str, list[ImageRecord | Failure]]:
    config = SourceConfig("auto", str(path), **options)  # type: ignore[arg-type]
    kind = detect(config).kind
    SOURCES[kind].check(config)
    return kind, list(SOURCES[kind].read(config, str(scratch)))


@pytest.mark.parametrize(
    ("folder", "records", "skipped"),
    [("raccoon/images", 200, 0), ("pngsuite", 181, 0), ("odd_inputs", 59, 1), ("exif_orientation", 18, 0)],
)
def test_flat_folders(corpus: Path, tmp_path: Path, folder: str, records: int, skipped: int) -> None:
    kind, items = listed(corpus / folder, tmp_path)
    found = [item for item in items if isinstance(item, ImageRecord)]
    assert (kind, len(found), len(items) - len(found)) == ("folder", records, skipped)
    assert {(item.split, item.annotations.labels) for item in found} == {(None, ())}
    assert sorted(os.listdir(corpus / folder)) == [item.key for item in items]


def test_cats_and_dogs_by_their_names(corpus: Path, tmp_path: Path) -> None:
    _, items = listed(corpus / "cats_dogs", tmp_path, label_pattern=r"^([a-z]+)_\d")
    labels = collections.Counter(item.annotations.labels for item in items if isinstance(item, ImageRecord))
    assert labels == {("cat",): 5, ("dog",): 5}
    assert sum(item.size for item in items if isinstance(item, ImageRecord)) == 1_206_206


def test_mnist(corpus: Path, tmp_path: Path) -> None:
    kind, items = listed(corpus / "mnist", tmp_path)
    records = [item for item in items if isinstance(item, ImageRecord) and item.image]
    assert (kind, len(records), len(items)) == ("idx", 10_000, 10_000)
    assert [item.annotations.labels[0] for item in records[:10]] == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    digits = collections.Counter(item.annotations.labels[0] for item in records)
    assert [digits[digit] for digit in range(10)] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert records[0].image is not None and records[0].image.pixels == (28, 28, 1)
    assert sum(ImageReader().read(records[0].image)) == 18454


def test_raccoon_boxes_as_rows(corpus: Path, tmp_path: Path) -> None:
    manifest = str(corpus / "raccoon/data/train_labels.csv")
    kind, items = listed(corpus / "raccoon/images", tmp_path, annotations=(manifest,))
    first = items[0]
    assert isinstance(first, ImageRecord)
    assert (kind, first.key, first.origin) == ("csv", "raccoon-17.jpg", "train_labels.csv, line 2")
    assert first.size == os.path.getsize(corpus / "raccoon/images/raccoon-17.jpg")
    assert first.annotations.size == (194, 259)
    assert first.annotations.objects == (AnnotatedObject("raccoon", Box(95, 60, 167, 118)),)
    records = [item for item in items if isinstance(item, ImageRecord)]
    assert sum(len(record.annotations.objects) for record in records) == 173


# What each tree is taken for; or what is said of it.
LAYOUTS = {
    "camvid_dataset": "the masks are in colours",
    "celeba_dataset/dataset": "CelebA's lists, which are not read",
    "celeba_dataset/dataset_with_meta_file": "CelebA's lists, which are not read",
    "coco_dataset/coco": "coco",
    "coco_dataset/coco_captions": "give --include_annotations=captions",
    "coco_dataset/coco_image_info": "coco",
    "coco_dataset/coco_instances": "coco",
    "coco_dataset/coco_labels": "coco",
    "coco_dataset/coco_panoptic": "coco",
    "coco_dataset/coco_person_keypoints": "coco",
    "coco_dataset/coco_roboflow": "coco",
    "coco_dataset/coco_stuff": "coco",
    "coco_dataset/mmdet_coco": "coco",
    "cvat_dataset/for_images": "CVAT's own XML, which are not read",
    "cvat_dataset/for_video": "CVAT's own XML, which are not read",
    "image_dir_dataset": "folder",
    "image_zip_dataset": "archive",
    "imagenet_dataset": "folder",
    "imagenet_txt_dataset/basic": "imagenet",
    "imagenet_txt_dataset/custom_labels": "imagenet",
    "imagenet_txt_dataset/no_labels": "imagenet",
    "labelme_dataset": "labelme",
    # its headers are wrong: 1568 images of 28 bytes, and 2 labels
    "mnist_dataset": "labels$",
    "open_images_dataset/v5": "openimages",
    "open_images_dataset/v6": "openimages",
    "tf_detection_api_dataset": "tfrecord",
    "voc_dataset/voc_dataset1": "voc",
    "voc_dataset/voc_dataset2": "voc",
    "voc_dataset/voc_dataset3": "voc",
    "yolo_dataset/annotations": "yolo",
    "yolo_dataset/labels": "yolo",
    "yolo_dataset/strict": "yolo",
}


# All that they list is failed as not there.
WITHOUT_IMAGES = {
    "voc_dataset/voc_dataset2",
    "imagenet_txt_dataset/custom_labels",
    "imagenet_txt_dataset/no_labels",
}


def test_the_layouts_are_those_there_are(corpus: Path) -> None:
    assert {name.partition("/")[0] for name in LAYOUTS} == set(os.listdir(corpus / "layouts"))


@pytest.mark.parametrize("folder", LAYOUTS)
def test_every_layout_is_read_or_refused_with_a_reason(corpus: Path, tmp_path: Path, folder: str) -> None:
    expected = LAYOUTS[folder]
    if expected not in SOURCES:
        with pytest.raises(ValueError, match=expected):
            listed(corpus / "layouts" / folder, tmp_path)
        return
    kind, items = listed(corpus / "layouts" / folder, tmp_path)
    assert kind == expected
    if folder not in WITHOUT_IMAGES:
        assert any(isinstance(item, ImageRecord) for item in items)
    assert all(item.reason for item in items if isinstance(item, Failure))


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("raccoon/images", {"annotations": ("raccoon/data/train_labels.csv",)}),
        ("cats_dogs", {"label_pattern": r"^([a-z]+)_\d"}),
        ("mnist", {}),
        ("odd_inputs", {}),
    ],
)
def test_a_bucket_gives_what_the_disk_gives(
    corpus: Path,
    tmp_path: Path,
    bucket: str,
    bucket_server: BucketServer,
    folder: str,
    options: dict[str, object],
) -> None:
    def read(root: str) -> tuple[str, list[ImageRecord | Failure]]:
        given = {name: tuple(f"{root}/{one}" for one in value) for name, value in manifests.items()}
        return listed(f"{root}/{folder}", tmp_path, **{**options, **given})

    manifests = {name: value for name, value in options.items() if isinstance(value, tuple)}
    for name in (folder, *(os.path.dirname(one) for value in manifests.values() for one in value)):
        bucket_server.upload_folder(corpus / name, f"{bucket}/{name}")
    (kind, remote), expected = read(bucket), read(str(corpus))
    assert len(remote) > 9
    assert (kind, list(map(without_place, remote))) == (expected[0], list(map(without_place, expected[1])))
    # what is packed is unpacked to the scratch folder
    for item in remote if kind != "idx" else ():
        assert isinstance(item, Failure) or (item.image and item.image.uri.startswith(f"{bucket}/{folder}/"))
