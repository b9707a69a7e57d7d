"""Images and masks of load_dataset: formats, shapes, sizes, against Pillow and TensorFlow's own functions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill import load_dataset
from tests.lazy import tf

HEIGHT, WIDTH = 21, 34
SHAPE = (HEIGHT, WIDTH)


def feature(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if not values or isinstance(values[0], (bytes, str)):
        data = [one.encode() if isinstance(one, str) else one for one in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=data))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def write(path: Path, *records: dict[str, Any], options: str = "") -> str:
    with tf.io.TFRecordWriter(str(path), options or None) as writer:
        for record in records:
            features = tf.train.Features(feature={name: feature(value) for name, value in record.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return str(path)


def pixels(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def file_of(image: Image.Image, image_format: str, **options: Any) -> bytes:
    stored = io.BytesIO()
    image.save(stored, image_format, **options)
    return stored.getvalue()


def record(data: bytes, shape: tuple[int, int] = SHAPE, key: str = "a.png", **more: Any) -> dict[str, Any]:
    sides = {"image/height": shape[0], "image/width": shape[1]}
    return {"image/encoded": data, "image/filename": key, **sides, **more}


def only(path: str, **options: Any) -> np.ndarray:
    [element] = load_dataset(path, **options)
    return element["image/encoded"].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("image_format", ["PNG", "WEBP", "GIF", "BMP"])
def test_lossless_formats(tmp_path: Path, image_format: str, channels: int) -> None:
    if image_format in ("GIF", "BMP") and channels != 3:
        pytest.skip("it has palettes of three channels")
    values = pixels(HEIGHT, WIDTH, channels)
    if image_format == "GIF":
        values = values // 128 * 255
    image = Image.fromarray(values[..., 0] if channels == 1 else values)
    data = file_of(
        image, image_format, **({"lossless": True, "exact": True} if image_format == "WEBP" else {})
    )
    found = load_dataset(write(tmp_path / "a.tfrecord", record(data)))
    expected = values
    if image_format == "WEBP" and channels == 1:
        expected = np.repeat(values, 3, 2)  # the format has no grey
    [element] = found
    assert np.array_equal(element["image/encoded"], expected)
    assert found.element_spec["image/encoded"].shape.as_list() == [None, None, expected.shape[2]]


def test_jpeg_is_as_tensorflow_decodes_it(tmp_path: Path) -> None:
    data = file_of(Image.fromarray(pixels(HEIGHT, WIDTH, 3)), "JPEG", quality=90)
    path = write(tmp_path / "a.tfrecord", record(data))
    assert np.array_equal(only(path), tf.io.decode_jpeg(data))
    [element] = load_dataset(path, decode=False)
    assert element["image/encoded"].numpy() == data


@pytest.mark.slow
def test_sixteen_bits(tmp_path: Path) -> None:
    values = pixels(HEIGHT, WIDTH, dtype=np.uint16)
    path = write(tmp_path / "a.tfrecord", record(file_of(Image.fromarray(values), "PNG")))
    found = only(path)
    assert found.dtype == np.uint16 and np.array_equal(found[..., 0], values)
    assert np.array_equal(only(path, dtype="uint8")[..., 0], values >> 8)
    shallow = file_of(Image.fromarray(pixels(HEIGHT, WIDTH)), "PNG")
    deep = file_of(Image.fromarray(values), "PNG")
    records = [record(shallow)] * 64 + [record(deep, key="deep.png")]
    mixed = load_dataset(write(tmp_path / "mixed.tfrecord", *records))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"deep\.png.*PNG of 16 bits"):
        list(mixed)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_raw_pixels_and_tensors(tmp_path: Path, channels: int, dtype: Any) -> None:
    values = pixels(HEIGHT, WIDTH, channels, dtype=dtype)
    plain = {"height": HEIGHT, "width": WIDTH, "depth": channels, "dtype": dtype, "label": 3}
    path = write(tmp_path / "raw.tfrecord", {"image_raw": values.tobytes(), **plain})
    [(image, label)] = load_dataset(path, as_supervised=True, batch_size=1)
    assert image.dtype == dtype and np.array_equal(image[0], values) and label.numpy() == [3]
    data = tf.io.serialize_tensor(values).numpy()
    more = {"image/format": "tensor", "image/channels": channels, "image/dtype": dtype}
    found = only(write(tmp_path / "tensor.tfrecord", record(data, **more)))
    assert found.dtype == dtype and np.array_equal(found, values)


@pytest.mark.slow
def test_a_shape_that_is_not_the_stored_one(tmp_path: Path) -> None:
    data = file_of(Image.fromarray(pixels(HEIGHT, WIDTH, 3)), "PNG")
    path = write(tmp_path / "a.tfrecord", record(data), record(data, (WIDTH, HEIGHT), "turned.png"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)turned\.png.*\[21 34 3\].*\[34 21\]"):
        list(load_dataset(path))
    raw = {"height": HEIGHT, "width": WIDTH, "depth": 1, "image/filename": "short"}
    records = [{"image_raw": bytes(HEIGHT * WIDTH - less), **raw} for less in (0, 3)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)short.*711.*values"):
        list(load_dataset(write(tmp_path / "raw.tfrecord", *records)))


@pytest.mark.slow
def test_channels(tmp_path: Path) -> None:
    grey, colour, alpha = pixels(HEIGHT, WIDTH), pixels(HEIGHT, WIDTH, 3), pixels(HEIGHT, WIDTH, 4)
    records = [record(file_of(Image.fromarray(one), "PNG")) for one in (grey, colour, alpha)]
    opaque = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    grey3 = np.repeat(grey[..., None], 3, 2)
    found = load_dataset(write(tmp_path / "all.tfrecord", *records), batch_size=3)
    [element] = found
    expected = [np.concatenate([grey3, opaque], 2), np.concatenate([colour, opaque], 2), alpha]
    assert np.array_equal(element["image/encoded"], expected)
    [element] = load_dataset(write(tmp_path / "all.tfrecord", *records), batch_size=3, channels=3)
    assert np.array_equal(element["image/encoded"], [grey3, colour, alpha[..., :3]])
    [element] = load_dataset(write(tmp_path / "two.tfrecord", *records[:2]), batch_size=2, channels=1)
    luma = tf.image.rgb_to_grayscale(colour)
    assert np.array_equal(element["image/encoded"], [grey[..., None], luma])
    each = [one["image/encoded"].shape[2] for one in load_dataset(str(tmp_path / "all.tfrecord"), channels=0)]
    assert each == [1, 3, 4]


@pytest.mark.parametrize(
    ("first", "later"), [pytest.param(*("L", "RGB"), marks=pytest.mark.slow), ("RGB", "RGBA")]
)
def test_nothing_is_lost_unasked(tmp_path: Path, first: str, later: str) -> None:
    image = Image.fromarray(pixels(HEIGHT, WIDTH, 4), "RGBA")
    records = [record(file_of(image.convert(first), "PNG"))] * 64
    records.append(record(file_of(image.convert(later), "PNG"), key="later.png"))
    path = write(tmp_path / "a.tfrecord", *records)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"later\.png.*Give channels="):
        list(load_dataset(path))
    assert len(list(load_dataset(path, channels=3))) == 65


def test_batches_need_one_size(tmp_path: Path) -> None:
    records = [record(file_of(Image.new("L", (8, 6 + more)), "PNG"), (6 + more, 8)) for more in (0, 2)]
    with pytest.raises(ValueError, match=r"images differ in size \(6x8 and 8x8\); give size="):
        load_dataset(write(tmp_path / "a.tfrecord", *records), batch_size=2)
    path = write(tmp_path / "b.tfrecord", *[records[0]] * 8, records[1])
    found = load_dataset(path, batch_size=3)
    assert found.element_spec["image/encoded"].shape.as_list() == [None, 6, 8, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="give size="):
        list(found)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(13, 50), (40, 15), (64, 64), (21, 34), 16])
@pytest.mark.parametrize("resize", ["stretch", "pad", "crop_or_pad"])
def test_sizes_are_as_tensorflow_makes_them(tmp_path: Path, resize: Any, size: Any) -> None:
    values, classes = pixels(HEIGHT, WIDTH, 3), pixels(HEIGHT, WIDTH, seed=1) % 7
    masks = {"image/segmentation/class/encoded": file_of(Image.fromarray(classes), "PNG")}
    path = write(tmp_path / "a.tfrecord", record(file_of(Image.fromarray(values), "PNG"), **masks))
    found = load_dataset(path, size=size, resize=resize, batch_size=1, as_supervised=True)
    height, width = (size, size) if isinstance(size, int) else size
    image_spec, mask_spec = found.element_spec
    assert image_spec.shape.as_list() == [None, height, width, 3]
    assert mask_spec.shape.as_list() == [None, height, width, 1]
    make = {
        "stretch": lambda image, method: tf.image.resize(image, (height, width), method),
        "pad": lambda image, method: tf.image.resize_with_pad(image, height, width, method),
        "crop_or_pad": lambda image, _: tf.image.resize_with_crop_or_pad(image, height, width),
    }[resize]
    [(image, mask)] = found
    assert np.array_equal(image[0], np.round(make(values, "bilinear")).astype(np.uint8))
    expected = make(classes[..., None] + np.uint8(1), "nearest").numpy().astype(int) - 1
    assert np.array_equal(mask[0], np.where(expected < 0, 255, expected))


@pytest.mark.slow
def test_antialias(tmp_path: Path) -> None:
    values = pixels(HEIGHT, WIDTH, 3)
    path = write(tmp_path / "a.tfrecord", record(file_of(Image.fromarray(values), "PNG")))
    expected = np.round(tf.image.resize(values, (5, 6), antialias=True)).astype(np.uint8)
    assert np.array_equal(only(path, size=(5, 6), antialias=True), expected)
    assert not np.array_equal(only(path, size=(5, 6)), expected)


@pytest.mark.slow
def test_masks_of_instances_keep_their_numbers(tmp_path: Path) -> None:
    image = file_of(Image.fromarray(pixels(HEIGHT, WIDTH, 3)), "PNG")
    deep, shallow = pixels(HEIGHT, WIDTH, dtype=np.uint16), pixels(HEIGHT, WIDTH)
    records = [
        record(image, **{"image/panoptic/instance/encoded": file_of(Image.fromarray(one), "PNG")})
        for one in (deep, shallow)
    ]
    records.append(record(image, **{"image/panoptic/instance/encoded": []}))
    found = list(load_dataset(write(tmp_path / "a.tfrecord", *records)))
    masks = [element["image/panoptic/instance/encoded"][..., 0].numpy() for element in found]
    assert np.array_equal(masks, [deep, shallow, np.zeros_like(deep)])


def test_a_record_without_its_mask(tmp_path: Path) -> None:
    image, mask = pixels(HEIGHT, WIDTH, 3), pixels(HEIGHT, WIDTH)
    raw = {"image_raw": image.tobytes(), "height": HEIGHT, "width": WIDTH, "depth": 3}
    path = write(tmp_path / "a.tfrecord", {**raw, "mask_raw": mask.tobytes()}, {**raw, "mask_raw": []})
    [first, second] = load_dataset(path, features=["mask_raw"])
    assert np.array_equal(first["mask_raw"][..., 0], mask)
    assert np.array_equal(second["mask_raw"], np.full((HEIGHT, WIDTH, 1), 255))
    [stored, absent] = load_dataset(path, features=["mask_raw"], decode=False)
    assert stored["mask_raw"].numpy() == mask.tobytes() and absent["mask_raw"].numpy() == b""


def test_only_what_is_wanted_is_parsed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", *[{"label": 1, "image/encoded": b"\xff\xd8\xff damaged"}] * 2)
    assert [int(one["label"]) for one in load_dataset(path, features=["label"])] == [1, 1]
    with pytest.raises(
        ValueError, match="TensorFlow cannot decode an image in 'image/encoded'.*decode=False"
    ):
        load_dataset(path)


@pytest.mark.parametrize(
    ("options", "name"), [("GZIP", "a.tfrecord.gz"), ("ZLIB", "a.tfrecord"), ("GZIP", "a.record")]
)
def test_compressed_files(tmp_path: Path, options: str, name: str) -> None:
    path = write(tmp_path / name, *({"number": number} for number in range(40)), options=options)
    found = [int(one["number"]) for one in load_dataset(path)]
    assert found == list(range(40))
    part = load_dataset(path, "train[-25%:]")
    assert [int(one["number"]) for one in part] == list(range(30, 40)) and int(part.cardinality()) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image_format", "damage"),
    [
        ("JPEG", lambda data: data[: len(data) // 2]),
        ("JPEG", lambda data: b""),
        ("PNG", lambda data: data[:-30] + bytes(30)),
        ("PNG", lambda data: data[:20_000] + bytes(9) + data[20_009:]),
        ("WEBP", lambda data: data[:40]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"size": 8, "batch_size": 2}])
def test_the_record_of_a_damaged_image_is_named(
    tmp_path: Path, image_format: str, damage: Any, options: dict[str, Any]
) -> None:
    data = file_of(Image.fromarray(pixels(120, 120, 3)), image_format)
    records = [record(data, (120, 120))] * 8 + [record(damage(data), (120, 120), "damaged.png")]
    path = write(tmp_path / "a.tfrecord", *records)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)damaged\.png.*TensorFlow cannot decode"):
        list(load_dataset(path, **options))


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("drop", [False, True])
def test_batches_of_small_images_are_what_records_are(tmp_path: Path, channels: int, drop: bool) -> None:
    values = [pixels(HEIGHT, WIDTH, channels, seed=seed).squeeze() for seed in range(11)]
    files = [file_of(Image.fromarray(one), "PNG") for one in values]
    files[9] = (
        file_of(Image.fromarray(values[9]), "WEBP", lossless=True, exact=True) if channels > 1 else files[9]
    )
    files[10] += b"after its end"
    records = [record(file, key=f"{number}.png", label=number) for number, file in enumerate(files)]
    found = load_dataset(
        write(tmp_path / "a.tfrecord", *records), batch_size=4, drop_remainder=drop, one_hot=12
    )
    batches = list(found)
    assert [len(batch["label"]) for batch in batches] == ([4, 4] if drop else [4, 4, 3])
    each = [values[number].reshape(HEIGHT, WIDTH, channels) for number in range(8 if drop else 11)]
    assert np.array_equal(np.concatenate([batch["image/encoded"] for batch in batches]), each)
    assert np.array_equal(np.concatenate([batch["label"] for batch in batches]), np.eye(12)[: len(each)])
    assert b"".join(b"".join(batch["image/filename"].numpy()) for batch in batches).startswith(b"0.png1.png")


@pytest.mark.slow
def test_a_small_image_unlike_the_others_of_its_batch(tmp_path: Path) -> None:
    colour, grey = pixels(HEIGHT, WIDTH, 3), pixels(HEIGHT, WIDTH)
    files = [file_of(Image.fromarray(one), "PNG") for one in (*[colour] * 65, grey)]
    [*_, last] = load_dataset(write(tmp_path / "a.tfrecord", *map(record, files)), batch_size=3)
    assert np.array_equal(last["image/encoded"], [colour, colour, np.repeat(grey[..., None], 3, 2)])
    other = record(file_of(Image.fromarray(colour.transpose(1, 0, 2)), "PNG"), SHAPE[::-1], "turned.png")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)turned\.png.*give size="):
        list(load_dataset(write(tmp_path / "b.tfrecord", *map(record, files), other), batch_size=3))
    wrong = record(files[0], (5, 5), "wrong.png")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)wrong\.png.*stored are"):
        list(load_dataset(write(tmp_path / "c.tfrecord", *map(record, files), wrong), batch_size=3))
    deep = record(file_of(Image.fromarray(pixels(*SHAPE, dtype=np.uint16)), "PNG"), key="deep.png")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)deep\.png"):
        list(load_dataset(write(tmp_path / "d.tfrecord", *map(record, files), deep), batch_size=3))
