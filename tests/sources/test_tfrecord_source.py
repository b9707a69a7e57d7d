"""Source `tfrecord`, on files that TensorFlow wrote."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.examples.framing import masked_crc32c
from recordmill.transforms.records import (
    AnnotatedObject,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
    JobError,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.tfrecord.files import is_tfrecord_name, read_label_map, split_of
from recordmill.transforms.sources.tfrecord.source import TfrecordSource
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.lazy import tf
from tests.sources.placeless import without_place
from tests.sources.sniffing import sniff

SOURCE = TfrecordSource()


def encoded(number: int = 0, kind: str = "JPEG", size: tuple[int, int] = (6, 4)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (number, 20, 30)).save(out, kind)
    return out.getvalue()


def feature(value: Any) -> tf.train.Feature:
    values = value if isinstance(value, list) else [value]
    if values and isinstance(values[0], (bytes, str)):
        texts = [text.encode() if isinstance(text, str) else text for text in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**features: Any) -> bytes:
    named = {name.replace("__", "/"): feature(value) for name, value in features.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString())


def write(path: Path, records: Sequence[bytes], compression: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


def read(path: Path | str, scratch: Path | str, **options: Any) -> list[Item]:
    config = SourceConfig("tfrecord", str(path), **options)
    SOURCE.check(config)
    return list(SOURCE.read(config, str(scratch)))


def one(tmp_path: Path, **features: Any) -> Item:
    items = read(write(tmp_path / "in" / "x.tfrecord", [example(**features)]), tmp_path)
    return next(item for item in items if not isinstance(item, ClassNames))


def record_of(item: Item) -> ImageRecord:
    assert isinstance(item, ImageRecord), item
    return item


def bytes_of(ref: ImageRef | None) -> bytes:
    assert ref is not None
    return ImageReader().read(ref)


BOXES = {
    "image__object__bbox__xmin": [0.25, 0.5],
    "image__object__bbox__xmax": [0.5, 1.0],
    "image__object__bbox__ymin": [0.0, 0.125],
    "image__object__bbox__ymax": [0.75, 0.25],
}


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_images_and_labels(tmp_path: Path, compression: str) -> None:
    images = [encoded(number) for number in range(5)]
    records = [
        example(
            image__encoded=data, image__class__label=number % 2, image__filename=f"{number}.jpg", score=0.5
        )
        for number, data in enumerate(images)
    ]
    name = "train.tfrecord" + (".gz" if compression == "GZIP" else "")
    path = write(tmp_path / "in" / name, records, compression)
    items = [record_of(item) for item in read(tmp_path / "in", tmp_path)]
    assert [item.key for item in items] == [f"{name}/{number:08}" for number in range(5)]
    assert [bytes_of(item.image) for item in items] == images
    assert [item.size for item in items] == list(map(len, images))
    assert [item.annotations.labels for item in items] == [(0,), (1,), (0,), (1,), (0,)]
    assert items[3].annotations.features == {"score": 0.5, "source_filename": "3.jpg"}
    assert {item.split for item in items} == {"train"}
    for item in items:
        assert item.image is not None
        assert (item.image.uri == os.path.realpath(path)) == (not compression)
    config = SourceConfig("tfrecord", str(tmp_path / "in"))
    assert sniff(SOURCE, config) == f"{name!r} is a TFRecord file"
    assert (SOURCE.split_names(config), SOURCE.schemas(config)) == (("train",), ("classification",))


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_the_limit_keeps_what_was_unpacked(tmp_path: Path, compression: str) -> None:
    records = [
        example(image__encoded=encoded(number), label=number, image__class__text=f"c{number}")
        for number in range(5)
    ]
    for name in ("a.tfrecord", "b.tfrecord"):
        write(tmp_path / "in" / name, records, compression)
    listed = read(tmp_path / "in", tmp_path, limit=7)
    items = [item for item in listed if isinstance(item, ImageRecord)]
    assert [bytes_of(item.image)[:3] for item in items] == [b"\xff\xd8\xff"] * 7
    assert bytes_of(items[6].image) == encoded(1)
    names = [dict(item.names) for item in listed if isinstance(item, ClassNames)]
    assert names == [{number % 5: f"c{number % 5}"} for number in range(7)]


@pytest.mark.parametrize("told", ["image", "plain", "no depth", "tensor", "tensor alone", "raw"])
def test_raw_pixels(tmp_path: Path, told: str) -> None:
    pixels = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    tensor = bytes(tf.io.serialize_tensor(pixels).numpy())
    features: dict[str, dict[str, Any]] = {
        "image": {
            "image__encoded": pixels.tobytes(),
            "image__height": 5,
            "image__width": 4,
            "image__channels": 3,
        },
        "plain": {"image_raw": pixels.tobytes(), "height": 5, "width": 4, "depth": 3, "dtype": "uint8"},
        "no depth": {"image": pixels.tobytes(), "height": 5, "width": 4},
        "tensor": {"image__encoded": tensor, "image__format": "tensor"},
        "tensor alone": {"image": tensor},
        "raw": {
            "image__encoded": b"\xff\xd8\xff" + pixels.tobytes()[3:],
            "image__format": "raw",
            "image__height": 5,
            "image__width": 4,
        },
    }
    found = record_of(one(tmp_path, **features[told]))
    assert found.image is not None
    assert (found.image.pixels, found.annotations.features) == ((5, 4, 3), {})
    assert bytes_of(found.image)[3:] == pixels.tobytes()[3:]


@pytest.mark.parametrize(
    ("features", "reason", "detail"),
    [
        ({"image_raw": b"\x01\xff" * 9, "rows": 3}, "image of no known format", "rows; --input_features"),
        (
            {"image_raw": bytes(96), "height": 4, "width": 4, "depth": 3, "dtype": "uint16"},
            "pixels are not uint8",
            "they are uint16",
        ),
        (
            {"image": lambda: bytes(tf.io.serialize_tensor(np.zeros((2, 2, 3), np.float32)).numpy())},
            "pixels are not uint8",
            "the tensor is float32",
        ),
        ({"image__encoded": b""}, "empty image", "'image/encoded' has no bytes"),
        ({"image__encoded": encoded(), "image__class__label": 1, **BOXES}, "", ""),
        ({"image__encoded": encoded(), **BOXES}, "object without a class", "image/object/class/label"),
        (
            {"image__encoded": encoded(), "image__object__class__label": [1], **BOXES},
            "lists of different lengths",
            "2 boxes and 1 labels",
        ),
        (
            {"image__encoded": encoded(), **BOXES, "image__object__bbox__ymax": [90.0, 20.0]},
            "box in pixels",
            "90.0",
        ),
    ],
)
def test_records_that_cannot_be_used(
    tmp_path: Path, features: dict[str, Any], reason: str, detail: str
) -> None:
    found = one(tmp_path, **{name: made() if callable(made) else made for name, made in features.items()})
    if not reason:
        assert [thing.label for thing in record_of(found).annotations.objects] == [1, 1]
        return
    if isinstance(found, Failure):
        assert (found.key, found.reason, found.skipped) == ("x.tfrecord/00000000", reason, False)
        assert detail in found.detail
    else:
        pytest.fail(f"{found}")


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    points = {f"image__object__keypoint__{name}": [0.5, 0.5] for name in "xy"}
    seen = {"image__object__keypoint__visibility": [float("inf"), 2.0]}
    image = {"image__encoded": encoded(), "image__height": float("inf"), "label": 1}
    path = write(tmp_path / "x.tfrecord", [example(**image, **BOXES, **points, **seen)])
    found = record_of(read(path, tmp_path)[0])
    assert (found.image is not None, found.annotations.size) == (True, None)
    (failure,) = read(path, tmp_path, include_annotations=("keypoints",))
    assert isinstance(failure, Failure)
    assert failure.reason == "visibility of a keypoint is not a number"


def test_objects_with_all_there_is(tmp_path: Path) -> None:
    masks = [encoded(number, "PNG") for number in (1, 2)]
    record = example(
        image__encoded=encoded(),
        image__height=4,
        image__width=6,
        image__source_id="17",
        image__object__class__label=[3, 5],
        image__object__class__text=["cat", "dog"],
        image__object__is_crowd=[0, 1],
        image__object__view=["Left", "Right"],
        image__object__mask=masks,
        image__object__keypoint__x=[0.25, 0.5, 0.75, 0.0],
        image__object__keypoint__y=[0.5, 0.25, 0.125, 0.0],
        image__object__keypoint__visibility=[2, 1, 2, 0],
        image__caption=["a cat", "a dog"],
        **BOXES,
    )
    path = write(tmp_path / "x.tfrecord", [record])
    include = ("masks", "keypoints", "captions")
    item, names = read(path, tmp_path, include_annotations=include)
    known = record_of(item).annotations
    assert names == ClassNames({3: "cat", 5: "dog"}, optional=True)
    assert (known.size, known.relative, known.source_id, known.features) == ((4, 6), True, "17", {})
    assert known.captions == ("a cat", "a dog")
    first, second = known.objects
    assert isinstance(second.mask, ImageRef)
    assert bytes_of(second.mask) == masks[1]
    assert (first.label, first.box, first.attributes) == (
        3,
        Box(0.25, 0.0, 0.5, 0.75),
        {"is_crowd": 0, "view": "Left"},
    )
    assert first.keypoints == ((0.25, 0.5, 2), (0.5, 0.25, 1))
    bare = record_of(read(path, tmp_path)[0]).annotations
    assert bare.objects[1] == AnnotatedObject(
        5, Box(0.5, 0.125, 1.0, 0.25), attributes={"is_crowd": 1, "view": "Right"}
    )
    assert (bare.captions, bare.features) == ((), {})
    assert SOURCE.schemas(SourceConfig("tfrecord", str(path))) == ("detection",)


def test_masks_of_whole_images(tmp_path: Path) -> None:
    png = encoded(3, "PNG")
    first = example(image__encoded=encoded(), image__segmentation__class__encoded=png)
    raw = example(image_raw=bytes(24), mask_raw=bytes(range(8)), height=2, width=4, depth=3)
    panoptic = example(
        image__encoded=encoded(),
        image__panoptic__category__encoded=png,
        image__panoptic__instance__encoded=encoded(4, "PNG"),
    )
    path = write(tmp_path / "x.tfrecord", [first, raw, panoptic])
    masks = [record_of(item).annotations.masks for item in read(path, tmp_path)]
    assert [sorted(found) for found in masks] == [["class"], ["class"], ["class", "instance"]]
    assert bytes_of(masks[0]["class"].image) == bytes_of(masks[2]["class"].image) == png
    assert masks[1]["class"].image.pixels == (2, 4, 1)
    assert bytes_of(masks[1]["class"].image) == bytes(range(8))
    assert SOURCE.schemas(SourceConfig("tfrecord", str(path))) == ("segmentation",)


def test_features_alone_and_under_other_names(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.tfrecord", [example(pic=encoded(), cls=4, note="ä", parts=[1, 2], raw=b"\xff")]
    )
    bare = record_of(read(path, tmp_path)[0])
    assert bare.image is None
    assert bare.annotations.features["note"] == "ä"
    assert SOURCE.schemas(SourceConfig("tfrecord", str(path))) == ()
    renames = (("pic", "image/encoded"), ("cls", "image/class/label"), ("note", "remark"))
    item = record_of(read(path, tmp_path, input_features=renames)[0])
    assert bytes_of(item.image) == encoded()
    assert item.annotations.labels == (4,)
    assert item.annotations.features == {"remark": "ä", "parts": (1, 2), "raw": b"\xff"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_features": (("nope", "x"),)},
            r"--input_features is nope=x: .*they have image/encoded, label",
        ),
        ({"input_features": (("label", "image/encoded"),)}, "there is a feature 'image/encoded'"),
        ({"label_column": "x"}, "--label_column is 'x', and --source tfrecord does not use it"),
        ({"include": ("[z-a]",)}, "--include is"),
    ],
)
def test_wrong_calls(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "x.tfrecord", [example(image__encoded=encoded(), label=1)])
    with pytest.raises(ValueError, match=message):
        read(path, tmp_path, **options)


def test_what_is_no_tfrecord(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")
    with pytest.raises(ValueError, match="no file is named like a TFRecord file"):
        read(tmp_path / "in", tmp_path)
    (tmp_path / "in" / "a-00000-of-00001").write_text("x" * 99)
    with pytest.raises(ValueError, match="none of its first files begins with a record"):
        read(tmp_path / "in", tmp_path)
    assert sniff(SOURCE, SourceConfig("tfrecord", str(tmp_path / "in"))) is None


def test_a_folder_of_images_with_a_tfrecord_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.tfrecord", [example(label=1)])
    (tmp_path / "in" / "b.jpg").write_bytes(encoded())
    assert sniff(SOURCE, SourceConfig("tfrecord", str(tmp_path / "in"))) is None


def flip(data: bytearray) -> None:
    data[-1] ^= 1


def cut(data: bytearray) -> None:
    del data[-7:]


@pytest.mark.parametrize("damage", [flip, cut])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_damage(tmp_path: Path, damage: Callable[[bytearray], None], compression: str) -> None:
    records = [example(image__encoded=encoded(number)) for number in range(3)]
    path = write(tmp_path / "in" / "a.tfrecord", [records[0], b"\xff", *records[1:]], compression)
    write(tmp_path / "in" / "b.tfrecord", [records[0]])
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    items = read(tmp_path / "in", tmp_path)
    failures = [item for item in items if isinstance(item, Failure)]
    good = [item.key for item in items if isinstance(item, ImageRecord)]
    assert [(item.key, item.stage, item.reason) for item in failures] == [
        ("a.tfrecord/00000001", "manifest", "not a tf.train.Example"),
        (failures[-1].key, "manifest", "damaged TFRecord"),
    ]
    assert good[0] == "a.tfrecord/00000000"
    assert good[-1] == "b.tfrecord/00000000"
    assert [bytes_of(item.image) for item in items if isinstance(item, ImageRecord)][-1] == encoded(0)
    if not compression:
        assert failures[-1].key == "a.tfrecord/00000003"
        rest = os.path.getsize(path) - (2 * (len(records[0]) + 16) + 17)
        assert f"the {rest} bytes from there on are not read" in failures[-1].detail


def test_a_dataset_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    image = {"image__encoded": encoded(), "image__class__label": 7}
    write(folder / "hold-00000-of-00001.tfrecord", [example(**image, image__filename="a/1.jpg")])
    write(folder / "old-00000-of-00001.tfrecord", [example(**image, image__filename="a/2.jpg")])
    shards = [{"file": "hold-00000-of-00001.tfrecord"}, {"file": "hold-00000-of-00002.tfrecord"}]
    content = {"format_version": 1, "splits": {"holdout": {"shards": shards}}, "labels": {"7": "cat"}}
    (folder / "manifest.json").write_text(json.dumps(content))
    (folder / "report.html").write_text("x")
    names, *items = read(folder, tmp_path)
    assert names == ClassNames({7: "cat"})
    found = record_of(next(item for item in items if isinstance(item, ImageRecord)))
    assert (found.key, found.split, found.annotations.features) == ("a/1.jpg", "holdout", {})
    assert [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)] == [
        ("report.html", "not a TFRecord file by name", True),
        ("hold-00000-of-00002.tfrecord", "not found", False),
        ("old-00000-of-00001.tfrecord", "not listed in manifest.json", True),
    ]
    assert SOURCE.split_names(SourceConfig("tfrecord", str(folder))) == ("holdout",)


def test_classes_of_records_that_contradict_each_other(tmp_path: Path) -> None:
    records = [example(image__encoded=encoded(), image__class__label=1, image__class__text=t) for t in "ab"]
    with pytest.raises(JobError, match="class 1 is called 'a' and 'b' in '.*/x.tfrecord'; make them one"):
        read(write(tmp_path / "x.tfrecord", records), tmp_path)


def test_an_empty_label_is_none(tmp_path: Path) -> None:
    found = record_of(one(tmp_path, image_raw=encoded(), label=[], height=4, width=6, depth=3, dtype="uint8"))
    assert (found.annotations.labels, found.annotations.features) == ((), {})


def test_synsets(tmp_path: Path) -> None:
    record = example(
        image__encoded=encoded(),
        image__class__label=2,
        image__class__synset="n01",
        image__class__text="goldfish",
    )
    item, names = read(write(tmp_path / "x.tfrecord", [record]), tmp_path)
    assert names == ClassNames({2: "n01"}, {"n01": "goldfish"}, optional=True)
    assert record_of(item).annotations.labels == (2,)


def test_label_files(tmp_path: Path) -> None:
    record = example(image__encoded=encoded(), label=1, image__class__text="other")
    write(tmp_path / "in" / "x.tfrecord", [record])
    (tmp_path / "in" / "label.labels.txt").write_text("cat\ndog\n")
    assert read(tmp_path / "in", tmp_path)[0] == ClassNames({0: "cat", 1: "dog"})
    (tmp_path / "in" / "my_label_map.pbtxt").write_text("item { id: 1 name: 'wolf' }")
    assert read(tmp_path / "in", tmp_path)[0] == ClassNames({1: "wolf"})


def test_label_map() -> None:
    text = (
        "# classes\nitem {\n  name: \"/m/01\"\n id: 3\n display_name: 'it\\'s \\303\\251'\n"
        "  keypoints { id: 9 label: 'nose' }\n}\nitem: < id: 4, name: 'b}' >\n"
    )
    assert read_label_map(text) == ClassNames({3: "/m/01", 4: "b}"}, {"/m/01": "it's é"})
    for wrong in ("", "item { name: 'a' }", "item { id: 1 name: 'a' } item { id: x name: 'b' }"):
        with pytest.raises(ValueError, match="item"):
            read_label_map(wrong)


def test_sequences(tmp_path: Path) -> None:
    lists: dict[str, list[Any]] = {
        "image/encoded": [encoded(number) for number in range(3)],
        "image/class/label": [1, 2, 2],
        "words": [["a", "b"], ["c"], []],
        "time": [0.0, 0.5, 1.0],
    }
    message = tf.train.SequenceExample(
        context=tf.train.Features(feature={"image/class/label": feature(4), "fps": feature(2.0)}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                name: tf.train.FeatureList(feature=list(map(feature, values)))
                for name, values in lists.items()
            }
        ),
    )
    path = write(tmp_path / "x.tfrecord", [message.SerializeToString()])
    item = record_of(read(path, tmp_path)[0])
    assert (item.image, item.annotations.labels, item.annotations.features) == (None, (4,), {"fps": 2.0})
    steps = item.annotations.steps
    assert steps is not None
    assert [bytes_of(frame) for frame in steps.frames] == lists["image/encoded"]
    assert steps.labels == ((1,), (2,), (2,))
    assert steps.lists == {"words": (("a", "b"), ("c",), ()), "time": (0.0, 0.5, 1.0)}
    assert SOURCE.schemas(SourceConfig("tfrecord", str(path))) == ("sequence",)


def test_selection_and_labels_from_keys(tmp_path: Path) -> None:
    for name in ("cat.tfrecord", "dog.tfrecord"):
        write(tmp_path / "in" / name, [example(image__encoded=encoded(), label=1)])
    items = read(tmp_path / "in", tmp_path, exclude=("dog*/**",), label_pattern=r"^([a-z]+)\.")
    assert record_of(items[0]).annotations.labels == ("cat",)
    assert items[1:] == [
        Failure("dog.tfrecord/00000000", "list", "excluded by --include/--exclude", skipped=True)
    ]


@pytest.mark.parametrize(
    ("key", "split"),
    [
        ("train-00000-of-00016.tfrecord", "train"),
        ("train.tfrecord", "train"),
        ("mnist-train.tfrecord-00000-of-00001", "train"),
        ("validation-00000-of-00128", "validation"),
        ("val/flowers00-230.tfrec", "val"),
        ("flowers00-230.tfrec", None),
        ("test/a/x.record.gz", "test"),
    ],
)
def test_splits(key: str, split: str | None) -> None:
    assert is_tfrecord_name(key.rpartition("/")[2])
    assert split_of(key) == split


@pytest.mark.parametrize("name", ["x.tar", "a.parquet", "data-00000-of-00001.parquet", ".tfrecord", "x.json"])
def test_other_names(name: str) -> None:
    assert not is_tfrecord_name(name)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_bucket_gives_what_the_disk_gives(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, compression: str
) -> None:
    records = [example(image__encoded=encoded(number), label=number) for number in range(4)]
    write(tmp_path / "in" / "train" / "a.tfrecord", records, compression)
    (tmp_path / "in" / "label_map.pbtxt").write_text("item { id: 1 name: 'wolf' }")
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    config = SourceConfig("tfrecord", f"{bucket}/in")
    assert sniff(SOURCE, config) == "'train/a.tfrecord' is a TFRecord file"
    assert SOURCE.split_names(config) == ("train",)
    names, *expected = read(tmp_path / "in", tmp_path)
    for place in (f"{bucket}/in", f"{bucket}/in/train/a.tfrecord"):
        found = read(place, f"{bucket}/scratch")
        items = [item for item in found if isinstance(item, ImageRecord)]
        assert [bytes_of(item.image) for item in items] == [encoded(number) for number in range(4)]
        if place.endswith("/in"):
            assert found[0] == names
            assert list(map(without_place, items)) == [without_place(record_of(item)) for item in expected]


@pytest.mark.corpus
def test_a_published_layout(corpus: Path, tmp_path: Path) -> None:
    folder = f"{corpus}/layouts/tf_detection_api_dataset"
    names, *items = read(folder, tmp_path)
    assert names == ClassNames({number + 1: f"label_{number}" for number in range(10)})
    found = [record_of(item) for item in items]
    assert [item.split for item in found] == ["test", "train", "val"]
    assert found[1].annotations.size == (16, 16)
    for item in found:
        (record,) = tf.data.TFRecordDataset(f"{folder}/{item.split}.tfrecord")
        known = tf.train.Example.FromString(record.numpy()).features.feature
        assert bytes_of(item.image) == known["image/encoded"].bytes_list.value[0]
        boxes = zip(
            *(known[f"image/object/bbox/{side}"].float_list.value for side in Box._fields), strict=True
        )
        assert [thing.box for thing in item.annotations.objects] == list(boxes)
        labels = list(known["image/object/class/label"].int64_list.value)
        assert [thing.label for thing in item.annotations.objects] == labels


def test_an_empty_first_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", [])
    write(tmp_path / "b.tfrecord", [example(label=1)])
    assert sniff(SOURCE, SourceConfig("tfrecord", str(tmp_path))) == "'b.tfrecord' is a TFRecord file"
    assert [record_of(item).key for item in read(tmp_path, tmp_path)] == ["b.tfrecord/00000000"]


def test_the_split_within_a_name() -> None:
    assert split_of("flowers_train_00000-of-00005.tfrecord") == "train"
    assert split_of("x_train_val_00000-of-00005.tfrecord") is None


def test_a_record_of_gigabytes_is_damage(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 33)
    head = length + struct.pack("<I", masked_crc32c(length))
    good = write(tmp_path / "good", [example(label=1)]).read_bytes()
    (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress(good + head + bytes(100)))
    _, failure = read(tmp_path / "a.tfrecord.gz", tmp_path)
    assert isinstance(failure, Failure) and "its length is 8589934592 bytes" in failure.detail


def test_the_key_of_a_sequence_of_ours(tmp_path: Path) -> None:
    tokens = tf.train.FeatureList(feature=[feature(1), feature(2)])
    record = tf.train.SequenceExample(
        context=tf.train.Features(feature={"sequence/key": feature("clip/1")}),
        feature_lists=tf.train.FeatureLists(feature_list={"tokens": tokens}),
    ).SerializeToString()
    write(tmp_path / "train.tfrecord", [record])
    (foreign,) = map(record_of, read(tmp_path, tmp_path))
    assert foreign.key == "train.tfrecord/00000000"
    assert foreign.annotations.features == {"source_filename": "clip/1"}
    shards = {"train": {"shards": [{"file": "train.tfrecord"}]}}
    manifest = {"format_version": 1, "splits": shards, "labels": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (ours,) = map(record_of, read(tmp_path, tmp_path))
    assert (ours.key, ours.annotations.features) == ("clip/1", {})


def test_what_is_beside_a_dataset_of_ours_is_not_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.tfrecord", [example(label=1)])
    (tmp_path / "index").mkdir()
    for name in ("failures.jsonl", "index/a.idx", "features.json"):
        (tmp_path / name).write_bytes(b"")
    assert [record_of(item).key for item in read(tmp_path, tmp_path)] == ["a.tfrecord/00000000"]
