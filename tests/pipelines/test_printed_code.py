"""The printed code is run: what it parses is what was written, name by name and pixel by pixel."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.input.code import parsing_code
from recordmill.pipelines.input.layout import layout_of
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.storage.layout import FORMAT_VERSION
from tests.lazy import tf
from tests.pipelines.test_same_tensors import compare

PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4


def feature(value: Any) -> tf.train.Feature:
    """A feature of a value or a list of them, by their type."""
    values = value if isinstance(value, list) else [value]
    if all(isinstance(one, bytes) for one in values):
        return tf.train.Feature(bytes_list={"value": values})
    if all(isinstance(one, int) for one in values):
        return tf.train.Feature(int64_list={"value": values})
    return tf.train.Feature(float_list={"value": values})


def features(values: Mapping[str, Any]) -> tf.train.Features:
    return tf.train.Features(feature={name: feature(value) for name, value in values.items()})


def write(path: Path, records: list[bytes], options: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)


def example(**values: Any) -> bytes:
    data: bytes = tf.train.Example(
        features=features({name.replace("__", "/"): value for name, value in values.items()})
    ).SerializeToString()
    return data


def png(pixels: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def run(path: Path | str) -> dict[str, Any]:
    """The names that the printed module defines, whose tensors are those of `load_dataset`."""
    dataset = find_dataset(str(path))
    code = parsing_code(dataset, layout_of(dataset))
    made: dict[str, Any] = {"__name__": "printed"}
    exec(compile(code, "printed", "exec"), made)
    compare(made, path)
    return made


def published(folder: Path, specs: Mapping[str, Any], **more: Any) -> None:
    """A manifest of ours for the shards that lie in a folder, all of the split `train`."""
    shards = [
        {"file": path.name, "records": 2, "bytes": path.stat().st_size, "sha256": "0" * 64}
        for path in sorted(folder.glob("*.tfrecord"))
    ]
    manifest = {
        "format_version": FORMAT_VERSION,
        "config": {"rename": more.pop("rename", {})},
        "splits": {"train": {"records": 2 * len(shards), "shards": shards}},
        "features": {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in specs.items()},
        "labels": {},
        **more,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.slow
def test_images_and_labels_of_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "train.tfrecord"
    write(path, [example(image=png(PIXELS), label=n, tags=[b"a"] * n, it=b"it's \"x\\") for n in (1, 2)])
    made = run(path)
    first, second = made["load"]().as_numpy_iterator()
    np.testing.assert_array_equal(first["image"], PIXELS)
    assert [first["label"], second["label"]] == [1, 2]
    assert [one["tags"].tolist() for one in (first, second)] == [[b"a"], [b"a", b"a"]]
    assert first["it"] == b"it's \"x\\"
    assert made["load"]().element_spec["image"].shape.as_list() == [None, None, 3]


@pytest.mark.slow
def test_an_alpha_channel_among_images_that_have_none(tmp_path: Path) -> None:
    see_through = np.dstack([PIXELS, np.full((5, 4), 7, np.uint8)])
    jpeg = tf.io.encode_jpeg(PIXELS).numpy()
    write(
        tmp_path / "train.tfrecord", [example(image=data) for data in (png(see_through), jpeg, png(PIXELS))]
    )
    first, second, third = (one["image"] for one in run(tmp_path)["load"]().as_numpy_iterator())
    np.testing.assert_array_equal(first, see_through)
    np.testing.assert_array_equal(second[:, :, :3], tf.io.decode_image(jpeg))
    np.testing.assert_array_equal(third[:, :, :3], PIXELS)
    assert set(np.unique([second[:, :, 3], third[:, :, 3]])) == {255}


def test_names_that_want_escaping(tmp_path: Path) -> None:
    folder = tmp_path / 'a\'b {c} "d"'
    name = "key'\n\\\"{x}"
    for shard in range(2):
        data = tf.train.Example(features=features({name: shard})).SerializeToString()
        write(folder / f"tr{{ain-{shard:05d}-of-00002.tfrecord", [data, data])
    published(folder, {name: ("int64", [])}, labels={"0": "'''\n\"\"\"", "7": "é"})
    made = run(folder)
    assert made["CLASS_NAMES"] == {0: "'''\n\"\"\"", 7: "é"}
    assert made["RECORDS"] == {"train": 4}
    assert [Path(path).is_file() for path in made["FILES"]["train"]] == [True, True]
    assert sorted(one[name] for one in made["load"]().as_numpy_iterator()) == [0, 0, 1, 1]
    assert made["load"]().cardinality() == 4


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("uint16", marks=pytest.mark.slow)])
def test_raw_pixels(tmp_path: Path, dtype: str) -> None:
    pixels = PIXELS.astype(dtype) * (256 if dtype == "uint16" else 1)
    values = {"height": 5, "width": 4, "depth": 3, "dtype": dtype.encode(), "label": 3}
    mask = np.arange(20, dtype=np.uint8).reshape(5, 4, 1)
    data = example(image_raw=pixels.tobytes(), mask_raw=mask.tobytes(), **values)
    write(tmp_path / "train-00000-of-00001.tfrecord", [data, data])
    strings = dict.fromkeys(("image_raw", "mask_raw", "dtype"), ("string", []))
    numbers = dict.fromkeys(("height", "width", "depth", "label"), ("int64", []))
    published(tmp_path, {**strings, **numbers})
    one, _ = run(tmp_path)["load"]().as_numpy_iterator()
    np.testing.assert_array_equal(one["image_raw"], pixels)
    np.testing.assert_array_equal(one["mask_raw"], mask)
    assert one["image_raw"].dtype == dtype


@pytest.mark.slow
def test_tensors_and_renamed_features(tmp_path: Path) -> None:
    data = example(picture=tf.io.serialize_tensor(PIXELS).numpy(), image__format=b"tensor")
    write(tmp_path / "train-00000-of-00001.tfrecord", [data, data])
    specs = {"picture": ("string", []), "image/format": ("string", [])}
    published(tmp_path, specs, rename={"image/encoded": "picture"})
    one, _ = run(tmp_path)["load"]().as_numpy_iterator()
    np.testing.assert_array_equal(one["picture"], PIXELS)


def test_boxes_and_masks(tmp_path: Path) -> None:
    masks = [np.eye(5, 4, k, dtype=np.uint8) for k in range(2)]
    sides = {"xmin": [0.0, 0.25], "ymin": [0.5, 0.125], "xmax": [1.0, 0.5], "ymax": [0.75, 0.25]}
    boxes = {f"image/object/bbox/{side}": values for side, values in sides.items()}
    objects = {
        **boxes,
        "image/object/mask": [png(mask) for mask in masks],
        "image/object/class/label": [3, 4],
    }
    none: dict[str, Any] = {name: feature(values) for name, values in objects.items()}
    for one in none.values():  # typed lists without a value
        getattr(one, one.WhichOneof("kind")).ClearField("value")
    image = {"image/encoded": feature(png(PIXELS))}
    records = [
        tf.train.Example(features=tf.train.Features(feature={**image, **values})).SerializeToString()
        for values in ({name: feature(values) for name, values in objects.items()}, none)
    ]
    write(tmp_path / "val.tfrecord", records)
    found, empty = run(tmp_path)["load"]("val").as_numpy_iterator()
    np.testing.assert_array_equal(found["image/encoded"], PIXELS)
    assert found["image/object/bbox"].tolist() == [[0.5, 0.0, 0.75, 1.0], [0.125, 0.25, 0.25, 0.5]]
    np.testing.assert_array_equal(found["image/object/mask"], masks)
    assert found["image/object/class/label"].tolist() == [3, 4]
    assert (empty["image/object/bbox"].shape, empty["image/object/mask"].shape) == ((0, 4), (0, 5, 4))


def sequence(context: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> bytes:
    made = tf.train.SequenceExample(context=features(context))
    for name, values in lists.items():
        made.feature_lists.feature_list[name].feature.extend(map(feature, values))
    data: bytes = made.SerializeToString()
    return data


@pytest.mark.slow
def test_sequences(tmp_path: Path) -> None:
    clip = [PIXELS, PIXELS[::-1], PIXELS[:, ::-1]]
    lists = {
        "image/encoded": list(map(png, clip)),
        "word": [b"a", b"b", b"c"],
        "at": [[1.0], [2.0, 3.0], [4.0]],
    }
    context = {"user": 7, "word": b"whole"}
    write(tmp_path / "train.tfrecord", [sequence(context, lists)])
    (one,) = run(tmp_path)["load"]()
    np.testing.assert_array_equal(one["image/encoded"], clip)
    assert one["at"].to_list() == [[1.0], [2.0, 3.0], [4.0]]
    assert (one["word"].numpy().tolist(), one["context/word"].numpy()) == ([b"a", b"b", b"c"], b"whole")
    assert one["user"].numpy() == 7


@pytest.mark.slow
def test_raw_frames_of_each_steps_own_shape(tmp_path: Path) -> None:
    clip = [PIXELS, PIXELS[::-1].copy()]
    lists: dict[str, list[Any]] = {
        "image/encoded": [one.tobytes() for one in clip],
        **{f"image/{name}": [size] * 2 for name, size in (("height", 5), ("width", 4), ("channels", 3))},
        "image/format": [b"raw"] * 2,
    }
    write(tmp_path / "train.tfrecord", [sequence({"user": 1}, lists)])
    (one,) = run(tmp_path)["load"]()
    np.testing.assert_array_equal(one["image/encoded"], clip)


def test_sequences_of_a_context_with_any_number_of_values(tmp_path: Path) -> None:
    contexts: list[dict[str, Any]] = [{}, {"label": [3]}, {"label": [3, 4]}]
    steps: list[Any] = [png(PIXELS), []]
    write(tmp_path / "train.tfrecord", [sequence(context, {"image": steps}) for context in contexts])
    parsed = list(run(tmp_path)["load"]())
    assert [one["label"].numpy().tolist() for one in parsed] == [[], [3], [3, 4]]
    assert [one["image"].to_list() for one in parsed] == 3 * [[[png(PIXELS)], []]]


def test_any_number_of_images_are_left_as_they_are_stored(tmp_path: Path) -> None:
    images = [[png(PIXELS)], [png(PIXELS), png(PIXELS[:2])]]
    write(tmp_path / "train.tfrecord", [example(image__encoded=data) for data in images])
    assert [one["image/encoded"].numpy().tolist() for one in run(tmp_path)["load"]()] == images


@pytest.mark.slow
def test_compressed_files_of_several_splits(tmp_path: Path) -> None:
    for split, number in (("train", 1), ("test", 2)):
        write(tmp_path / f"{split}.tfrecord.gz", [example(label=number)], "GZIP")
    assert gzip.decompress((tmp_path / "test.tfrecord.gz").read_bytes())
    made = run(tmp_path)
    assert [one["label"] for one in made["load"]("test").as_numpy_iterator()] == [2]
    assert [one["label"] for one in made["load"]().as_numpy_iterator()] == [1]


def test_class_names_beside_a_foreign_file(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", [example(label=1)])
    (tmp_path / "label_map.pbtxt").write_text("item { id: 2 name: 'cat' }\nitem { id: 1 name: 'dog' }\n")
    assert run(tmp_path)["CLASS_NAMES"] == {1: "dog", 2: "cat"}


def test_shuffled_the_records_are_the_same(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", [example(label=number) for number in range(50)])
    made = run(tmp_path)
    orders = [
        [one["label"] for one in made["load"](shuffle=50, seed=seed).as_numpy_iterator()] for seed in (1, 2)
    ]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == list(range(50))
