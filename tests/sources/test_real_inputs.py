"""What people really have, from the folder that RECORDMILL_CORPUS names."""

from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place
from transforms.records import Failure, ImageRecord
from transforms.sources.registry import SOURCES, detect
from transforms.sources.source import SourceConfig
from transforms.storage.local import LocalReader

pytestmark = pytest.mark.corpus


@pytest.fixture
def corpus() -> Path:
    folder = os.environ.get("RECORDMILL_CORPUS")
    if not folder:
        pytest.skip("RECORDMILL_CORPUS does not name the folder of real inputs")
    return Path(folder)


def listed(path: Path | str, scratch: Path, **options: object) -> tuple[str, list[ImageRecord | Failure]]:
    config = SourceConfig("auto", str(path), **options)  # type: ignore[arg-type]
    kind, _ = detect(config)
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
    assert sum(LocalReader().read(records[0].image)) == 18454


def test_raccoon_boxes_as_rows(corpus: Path, tmp_path: Path) -> None:
    manifest = str(corpus / "raccoon/data/train_labels.csv")
    kind, items = listed(corpus / "raccoon/images", tmp_path, annotations=(manifest,))
    assert (kind, len(items)) == ("csv", 173)
    (first, *_) = items
    assert isinstance(first, ImageRecord)
    assert (first.key, first.origin) == ("raccoon-17.jpg", "train_labels.csv, line 2")
    assert first.size == os.path.getsize(corpus / "raccoon/images/raccoon-17.jpg")
    cells = {"width": "259", "height": "194", "xmin": "95", "ymin": "60", "xmax": "167", "ymax": "118"}
    assert first.annotations.features == cells
    assert {item.annotations.labels for item in items if isinstance(item, ImageRecord)} == {("raccoon",)}


@pytest.mark.parametrize("folder", ["mnist_dataset", "image_zip_dataset", "tf_detection_api_dataset"])
def test_layouts_that_are_refused(corpus: Path, tmp_path: Path, folder: str) -> None:
    # this mnist_dataset's headers are wrong: 1568 images of 28 bytes, and 2 labels
    with pytest.raises(ValueError, match="labels$|which holds no input that is known"):
        listed(corpus / "layouts" / folder, tmp_path)


def test_every_other_layout_is_a_folder_of_images(corpus: Path, tmp_path: Path) -> None:
    refused = {"mnist_dataset", "image_zip_dataset", "tf_detection_api_dataset"}
    for folder in sorted(set(os.listdir(corpus / "layouts")) - refused):
        kind, items = listed(corpus / "layouts" / folder, tmp_path)
        files = sum(len(names) for _, _, names in os.walk(corpus / "layouts" / folder))
        assert (kind, len(items)) == ("folder", files), folder
        assert all(isinstance(item, ImageRecord) or item.skipped for item in items), folder


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
