"""Names of splits: a year and the case do not count, in any source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.folder import FolderSource
from recordmill.transforms.sources.names import (
    is_split_name,
    next_in_split_name,
    normal_split,
    split_named,
    splits_in,
    without_year,
)
from recordmill.transforms.sources.registry import SOURCES
from tests.buckets.server import BucketServer
from tests.sources import small_inputs
from tests.sources.small_inputs import INPUTS, Files, mask, picture


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("TRAIN", "train"),
        ("train2017", "train"),
        ("Val_2012", "val"),
        ("test-1999", "test"),
        ("validation2020", "validation"),
        ("train3000", None),
        ("train201", None),
        ("train20170", None),
        ("2017", None),
        ("trains", None),
        ("trainval2017", None),
        ("", None),
    ],
)
def test_a_name_of_a_split(name: str, split: str | None) -> None:
    assert split_named(name) == split
    assert is_split_name(name) == (split is not None)
    assert normal_split(name) == (split or name)


def test_names_with_a_year_and_with_parts() -> None:
    assert without_year("minival2014") == "minival"
    assert without_year("test-dev2017") == "test-dev"
    assert splits_in("flowers-Train2017-00000.tar") == {"train"}
    assert splits_in("train_and_test") == {"train", "test"}


@pytest.mark.parametrize("name", ["train", "training2017", "DEV_2020", "val-1999", "Eval"])
def test_each_name_is_found_character_by_character(name: str) -> None:
    assert all(f"{name}/"[at] in next_in_split_name(name[:at]) for at in range(len(name) + 1))
    assert next_in_split_name(f"{name}/") == set()


def test_no_other_name_is_looked_for() -> None:
    assert next_in_split_name("trainx") == set()
    assert next_in_split_name("train3") == set()
    assert next_in_split_name("train20171") == set()
    assert next_in_split_name("val") == {"/", "-", "_", "1", "2", "i", "I"}


def _moved(kind: str, old: str, new: str) -> Files:
    """A small input, once with each of two spellings of a folder or a part of a file's name."""
    files = INPUTS[kind].files((1,))
    return {name.replace(old, new, 1): data for name, data in files.items()}


def _table(spellings: tuple[str, ...]) -> Files:
    rows = [f"photos/{at}.png,{one}" for at, one in enumerate(spellings)]
    images = {f"photos/{at}.png": picture(at) for at in range(len(spellings))}
    return {**images, "m.csv": "\n".join(("image,split", *rows)).encode()}


def _lines(spellings: tuple[str, ...]) -> Files:
    rows = [json.dumps({"image": f"photos/{at}.png", "split": one}) for at, one in enumerate(spellings)]
    images = {f"photos/{at}.png": picture(at) for at in range(len(spellings))}
    return {**images, "m.jsonl": "\n".join(rows).encode()}


def _coco(*names: str) -> bytes:
    images = [{"id": at, "file_name": one, "height": 4, "width": 6} for at, one in enumerate(names, 1)]
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}]
    categories = [{"id": 1, "name": "cat"}]
    return json.dumps({"images": images, "annotations": boxes, "categories": categories}).encode()


def _split_folder(kind: str, old: str, spellings: tuple[str, ...]) -> Files:
    files: Files = {}
    for one in spellings:
        files |= _moved(kind, old, one)
    return files


def _images_and(table: str, text: str, row: str) -> Files:
    """Images in folders of splits, and a table without a column of splits."""
    images = {f"{one}/{at}.png": picture(at) for at, one in NUMBERED}
    return {**images, table: text.format("".join(map(row.format, images))).encode()}


SPELLINGS = ("Train2017", "VAL", "val")
NUMBERED = tuple(enumerate(SPELLINGS))
_BOXED = "filename,xmin,ymin,xmax,ymax,class"
LAYOUTS: dict[str, tuple[str, str, Files, dict[str, Any]]] = {
    "folder": ("folder", "", _split_folder("folder", "cat/", tuple(f"{s}/cat/" for s in SPELLINGS)), {}),
    "frames": ("frames", "", _split_folder("frames", "walk/", tuple(f"{s}/walk/" for s in SPELLINGS)), {}),
    "masks": (
        "masks",
        "",
        {f"{top}/{one}/{at}.png": mask() for top in ("images", "masks") for at, one in NUMBERED},
        {},
    ),
    "masks next to images": (
        "masks",
        "",
        {f"{one}{end}/{at}.png": mask() for end in ("", "_masks") for at, one in NUMBERED},
        {},
    ),
    "lists of masks": (
        "masks",
        "",
        {
            **{f"{top}/{at}.png": mask() for top in ("images", "masks") for at in range(3)},
            **{f"{one}.txt": f"{at}\n".encode() for at, one in NUMBERED},
        },
        {},
    ),
    "yolo": (
        "yolo",
        "",
        {
            **{f"images/{one}/{at}.png": picture(at) for at, one in NUMBERED},
            **{f"labels/{one}/{at}.txt": b"0 0.5 0.5 0.5 0.5" for at, one in NUMBERED},
        },
        {},
    ),
    "lists of yolo": (
        "yolo",
        "",
        {
            **{f"images/{at}.png": picture(at) for at in range(3)},
            "labels/0.txt": b"0 0.5 0.5 0.5 0.5",
            **{f"{one}.txt": f"images/{at}.png\n".encode() for at, one in NUMBERED},
        },
        {},
    ),
    "voc": (
        "voc",
        "",
        {
            f"{one}/{name.replace('0.', f'{at}.')}": data
            for at, one in NUMBERED
            for name, data in INPUTS["voc"].files((at,)).items()
        },
        {},
    ),
    "lists of voc": (
        "voc",
        "",
        {
            **INPUTS["voc"].files((1, 2, 3)),
            **{f"ImageSets/Main/{one}.txt": f"{at}\n".encode() for at, one in NUMBERED},
        },
        {},
    ),
    "labelme": (
        "labelme",
        "",
        {f"{one}/{name}": data for one in SPELLINGS for name, data in INPUTS["labelme"].files((1,)).items()},
        {},
    ),
    "coco": (
        "coco",
        "",
        {
            **{f"{one}/{at}.png": picture(at) for at, one in NUMBERED},
            **{f"annotations/instances_{one}.json": _coco(f"{at}.png") for at, one in NUMBERED},
        },
        {},
    ),
    "openimages": (
        "openimages",
        "",
        {
            name.replace("/train/", f"/{one}/").replace("train-", f"{one}-").replace("/0", f"/{at}"): (
                data.replace(b"0_m.png,0,", f"{at}_m.png,{at},".encode())
            )
            for at, one in NUMBERED
            for name, data in INPUTS["openimages"].files((1,)).items()
        },
        {"include_annotations": ("masks",)},
    ),
    "imagenet": ("imagenet", "", _split_folder("imagenet", "train/", tuple(f"{s}/" for s in SPELLINGS)), {}),
    "archives": ("archive", "", _split_folder("zip", "a.", tuple(f"a-{s}." for s in SPELLINGS)), {}),
    "folders of an archive": (
        "archive",
        "a.zip",
        {"a.zip": small_inputs._zip({f"{one}/cat/1.png": picture(at) for at, one in NUMBERED})},
        {},
    ),
    "webdataset": (
        "webdataset",
        "",
        _split_folder("webdataset", "train", SPELLINGS),
        {},
    ),
    "tfrecord": (
        "tfrecord",
        "",
        {f"{one}-00000-of-00001.tfrecord": small_inputs._tfrecord((at,)) for at, one in NUMBERED},
        {},
    ),
    "parquet": (
        "parquet",
        "",
        {
            **{
                f"{one}-00000-of-00001.parquet": small_inputs._parquet((1,))["x/train.parquet"]
                for one in SPELLINGS
            },
            "first.png": picture(1),
        },
        {},
    ),
    "numpy": (
        "numpy",
        "",
        {f"x_{one}.npy": small_inputs._npy((at,)) for at, one in NUMBERED},
        {},
    ),
    "csv": ("csv", "m.csv", _table(SPELLINGS), {}),
    "jsonl": ("jsonl", "m.jsonl", _lines(SPELLINGS), {}),
    "images of a table": ("csv", "m.csv", _images_and("m.csv", "image,label\n{}", "{},cat\n"), {}),
    "images of boxes": ("csv", "m.csv", _images_and("m.csv", f"{_BOXED}\n{{}}", "{0},1,1,4,3,a\n" * 2), {}),
    "images of lines": ("jsonl", "m.jsonl", _images_and("m.jsonl", "{}", '{{"image": "{}"}}\n'), {}),
    "images of coco": (
        "coco",
        "",
        {
            **{f"{one}/{at}.png": picture(at) for at, one in NUMBERED},
            "annotations.json": _coco(*(f"{one}/{at}.png" for at, one in NUMBERED)),
        },
        {},
    ),
    "images of voc": (
        "voc",
        "",
        {
            name.replace("JPEGImages/", f"images/{one}/").replace("0.", f"{at}."): (
                data.replace(b"<size>", f"<filename>{at}.png</filename><size>".encode())
            )
            for at, one in NUMBERED
            for name, data in INPUTS["voc"].files((at,)).items()
            if name.startswith(("Annotations/", "JPEGImages/"))
        },
        {},
    ),
    "names of tables": (
        "csv",
        "",
        {
            **{f"photos/{at}.png": picture(at) for at in range(3)},
            **{f"{one}_labels.csv": f"image\nphotos/{at}.png".encode() for at, one in NUMBERED},
        },
        {"annotations": tuple(f"{one}_labels.csv" for one in SPELLINGS)},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_spellings_are_one_split(tmp_path: Path, layout: str) -> None:
    kind, place, files, options = LAYOUTS[layout]
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    config = SourceConfig(kind, str(tmp_path / place), **options)
    source = SOURCES[kind]
    source.check(config)
    (tmp_path / "scratch").mkdir()
    config = SourceConfig(kind, str(tmp_path / place), skip_dirs=(str(tmp_path / "scratch"),), **options)
    records = [one for one in source.read(config, f"{tmp_path}/scratch") if isinstance(one, ImageRecord)]
    assert [one.split for one in sorted(records, key=lambda one: (str(one.split), one.key))] == [
        "train",
        "val",
        "val",
    ]
    assert source.split_names(config) in (None, () if layout.startswith("images of") else ("train", "val"))


@pytest.mark.parametrize(("column", "split"), [("split", None), ("other", "val")])
def test_an_empty_cell_of_a_split_column_is_no_split(tmp_path: Path, column: str, split: str | None) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val/0.png").write_bytes(picture(0))
    (tmp_path / "m.csv").write_text(f"image,{column}\nval/0.png,\n")
    (record,) = SOURCES["csv"].read(SourceConfig("csv", str(tmp_path / "m.csv")), "")
    assert isinstance(record, ImageRecord)
    assert record.split == split


@pytest.mark.parametrize("name", ["train2017", "Val-2012"])
def test_a_buckets_folders_with_years_are_found_in_few_requests(
    bucket: str, bucket_server: BucketServer, name: str
) -> None:
    for number in range(200):
        bucket_server.put(f"{bucket}/in/{name}/{number:04}.jpg", b"x")
    bucket_server.page_size = 10
    config = SourceConfig("folder", f"{bucket}/in")
    bucket_server.clear()
    parts = list(FolderSource().parts(config, 4))
    assert len(bucket_server.requests) < 120
    records = [item for part in parts for item in FolderSource().read(config, "/nowhere", part)]
    assert {item.split for item in records if isinstance(item, ImageRecord)} == {split_named(name)}
    assert len(records) == 200
