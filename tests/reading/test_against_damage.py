"""Each kind of damage to a stored record is found, and named."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.reading.against import Compared, SourceComparer
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ImageRecord,
    ImageRef,
    MaskImage,
)
from recordmill.transforms.shards.record_encoder import RecordSettings
from tests.protos import Example
from tests.reading.against_made import (
    ENCODED,
    HEIGHT,
    JPEG,
    MASK,
    PNG,
    RGBA,
    TRIANGLE,
    WEBP,
    WIDTH,
    as_file,
    changed,
    photo,
    record,
    set_value,
    settings_of,
    stored,
    turned,
)


def an_annotated(folder: Path) -> tuple[ImageRecord, RecordSettings]:
    """A record with a value of every kind."""
    mask = folder / "mask.png"
    Image.fromarray(np.arange(WIDTH * HEIGHT, dtype=np.uint8).reshape(HEIGHT, WIDTH) % 3).save(mask)
    objects = (
        AnnotatedObject(
            "cat", Box(1.5, 2.0, 20.0, 25.0), TRIANGLE, ((3.0, 4.0, 2),), attributes={"area": 9.5}
        ),
        AnnotatedObject("dog", Box(5.0, 5.0, 9.0, 9.0), TRIANGLE, ((6.0, 7.0, 1),), attributes={"area": 7.0}),
    )
    annotations = Annotations(
        labels=("cat",),
        objects=objects,
        captions=("a cat", "a dog"),
        masks={"class": MaskImage(ImageRef(str(mask)))},
        features={"weight": 0.1, "place": "here", "count": 3},
    )
    one = record(folder, PNG, annotations)
    other = record(folder, PNG, Annotations(labels=("dog", "cow")), "b")
    return one, settings_of(
        [one, other], schema="detection,segmentation", rename={"image/caption": "text", "place": "at"}
    )


def compared(folder: Path, change: Callable[[Any], None]) -> Compared:
    one, settings = an_annotated(folder)
    return SourceComparer(settings).compare(changed(stored(one, settings), change), one)


def next_float(feature: Any) -> None:
    values = feature["image/object/bbox/xmin"].float_list.value
    values[1] = float(np.nextafter(np.float32(values[1]), np.float32(1)))


def without_last_object(feature: Any) -> None:
    for name in ("xmin", "xmax", "ymin", "ymax"):
        del feature[f"image/object/bbox/{name}"].float_list.value[-1:]


def with_mask_pixel(feature: Any, name: str = MASK, number: int = 0, row: int = 4, column: int = 7) -> None:
    values = feature[name].bytes_list.value
    pixels = np.asarray(Image.open(io.BytesIO(values[number]))).copy()
    pixels[row, column] = 2 if pixels[row, column] != 2 else 1
    values[number] = as_file(Image.fromarray(pixels), "PNG")


def other_mask_bytes(feature: Any) -> None:
    values = feature[MASK].bytes_list.value
    values[0] = as_file(Image.open(io.BytesIO(values[0])), "PNG", compress_level=1)


def another_pixel(feature: Any) -> None:
    pixels = np.asarray(photo()).copy()
    pixels[3, 5, 1] ^= 1
    feature[ENCODED].bytes_list.value[0] = as_file(Image.fromarray(pixels), "PNG")


@pytest.mark.parametrize(
    ("change", "names", "where"),
    [
        (next_float, ["image/object/bbox/xmin"], "value 1 of 2"),
        (set_value("image/class/label", "int64_list", 2), ["image/class/label"], ""),
        (set_value("image/class/text", "bytes_list", b"dog"), ["image/class/text"], ""),
        (
            set_value("image/object/class/label", "int64_list", 1, 1),
            ["image/object/class/label"],
            "value 1 of 2",
        ),
        (set_value("text", "bytes_list", b"a bird", 1), ["text"], "value 1 of 2"),
        (set_value("at", "bytes_list", b"there"), ["at"], ""),
        (set_value("count", "int64_list", 4), ["count"], ""),
        (set_value("weight", "float_list", 0.1000001), ["weight"], ""),
        (
            set_value("image/object/keypoint/visibility", "int64_list", 2, 1),
            ["image/object/keypoint/visibility"],
            "value 1 of 2",
        ),
        (set_value("image/object/area", "float_list", 9.25), ["image/object/area"], "value 0 of 2"),
        (set_value("image/height", "int64_list", 31), ["image/height"], ""),
        (set_value("image/filename", "bytes_list", b"b"), ["image/filename"], ""),
        (set_value("image/key/sha256", "bytes_list", b"0" * 64), ["image/key/sha256"], ""),
        (with_mask_pixel, [MASK], "row 4, column 7, the first of 1 pixel"),
        (
            lambda feature: with_mask_pixel(feature, "image/object/mask", 1),
            ["image/object/mask"],
            "value 1 of 2, row 4, column 7, the first of 1 pixel",
        ),
        (
            without_last_object,
            [f"image/object/bbox/{name}" for name in ("xmax", "xmin", "ymax", "ymin")],
            "",
        ),
        (lambda feature: feature.pop("text"), ["text"], ""),
        (lambda feature: feature["new"].int64_list.value.append(1), ["new"], ""),
        (
            another_pixel,
            [ENCODED, "image/key/sha256"],
            "row 3, column 5, the first of 1 pixel",
        ),
    ],
)
def test_each_damage_is_found_and_named(
    tmp_path: Path, change: Callable[[Any], None], names: list[str], where: str
) -> None:
    found = compared(tmp_path, change)
    assert [one.feature for one in found.differences] == names
    assert found.differences[0].where == where
    assert (found.action == "") == (ENCODED in names)


def test_floats_are_told_in_full_and_lengths_by_count(tmp_path: Path) -> None:
    (one,) = compared(tmp_path, next_float).differences
    assert one.expected == "0.125"
    assert float(one.found) == float(np.nextafter(np.float32(0.125), np.float32(1)))
    assert {(one.expected, one.found) for one in compared(tmp_path, without_last_object).differences} == {
        ("2 values", "1 value")
    }


def test_a_mask_of_other_bytes_and_the_same_pixels_is_no_difference(tmp_path: Path) -> None:
    one, settings = an_annotated(tmp_path)
    payload = stored(one, settings)
    other = changed(payload, other_mask_bytes)
    assert other != payload
    assert SourceComparer(settings).compare(other, one).differences == ()


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        ({}, "an_image"),
        ({"image_format": "raw"}, "raw"),
        ({"image_format": "tensor"}, "tensor"),
        ({"image_format": "jpeg", "reencode": "always", "jpeg_quality": 95}, "jpeg"),
        ({"image_format": "jpeg", "reencode": "always", "jpeg_quality": 8}, "coarse"),
        ({"image_format": "jpeg", "target_ssim": 0.9, "reencode": "always"}, "target"),
        ({"max_side": 20}, "resized"),
    ],
)
def test_the_image_of_another_key_is_found(tmp_path: Path, policy: dict[str, Any], action: str) -> None:
    one = record(tmp_path, PNG)
    other = record(tmp_path, as_file(photo(1), "PNG"), key="b")
    settings = settings_of([one, other], policy=ImagePolicy(**policy))
    theirs = Example.FromString(stored(other, settings)).features.feature

    def exchanged(feature: Any) -> None:
        for name in (ENCODED, "image/key/sha256"):
            feature[name].CopyFrom(theirs[name])

    payload = stored(one, settings)
    found = SourceComparer(settings).compare(changed(payload, exchanged), one)
    assert [difference.feature for difference in found.differences] == [ENCODED]
    assert found.action == ""


def test_another_image_in_place_of_one_that_would_have_been_kept(tmp_path: Path) -> None:
    for policy in (ImagePolicy("jpeg", jpeg_quality=85), ImagePolicy("webp", jpeg_quality=1)):
        one = record(tmp_path, WEBP if policy.image_format == "webp" else JPEG)
        settings = settings_of([one], policy=policy)
        other = as_file(photo(2), policy.image_format, quality=90)
        payload = changed(stored(one, settings), set_value(ENCODED, "bytes_list", other))
        difference = SourceComparer(settings).compare(payload, one).differences[0]
        assert difference.feature == ENCODED and "an SSIM of about" in difference.expected


@pytest.mark.parametrize(
    ("image", "policy", "expected", "found"),
    [
        (PNG[:-40], {}, "an image", "decode: truncated"),
        (b"no image", {}, "an image", "decode: "),
        (JPEG, {}, "PNG", "JPEG"),
        (as_file(photo().resize((20, 15)), "PNG"), {}, "pixel", "pixels"),
        (as_file(photo().resize((41, 30)), "PNG"), {}, "40x30 pixels", "41x30 pixels"),
        (b"x" * 10, {"image_format": "raw"}, "40x30 pixels of 3 channels", "10 bytes"),
        (b"x" * 10, {"image_format": "tensor"}, "40x30 pixels of 3 channels", "a tensor of DataType 0"),
    ],
)
def test_a_bad_image_is_named(
    tmp_path: Path, image: bytes, policy: dict[str, Any], expected: str, found: str
) -> None:
    one = record(tmp_path, PNG)
    settings = settings_of([one], policy=ImagePolicy(**policy))
    payload = changed(stored(one, settings), set_value(ENCODED, "bytes_list", image))
    difference = SourceComparer(settings).compare(payload, one).differences[0]
    assert difference.feature == ENCODED
    assert expected in difference.expected and found in difference.found


def test_what_was_to_be_flattened_resized_or_turned_may_not_stay(tmp_path: Path) -> None:
    for data, policy, expected, told in (
        (RGBA, {"alpha": "flatten"}, "3 channels", "4 channels"),
        (PNG, {"max_side": 20}, "20x15 pixels", "40x30 pixels"),
        (turned(6), {}, "30x40 pixels", "40x30 pixels"),
        (PNG, {"color": "gray"}, "grey pixels", "3 channels"),
    ):
        one = record(tmp_path, data)
        kept = stored(one, settings_of([one], policy=ImagePolicy(exif="ignore")))
        settings = settings_of([one], policy=ImagePolicy(**policy))
        difference = SourceComparer(settings).compare(kept, one).differences[0]
        assert (difference.expected, difference.found) == (expected, told)


def test_what_is_no_example_or_has_no_source_any_more(tmp_path: Path) -> None:
    one = record(tmp_path, PNG)
    settings = settings_of([one])
    comparer = SourceComparer(settings)
    payload = stored(one, settings)
    (difference,) = comparer.compare(b"\xff" * 9, one).differences
    assert (difference.expected, difference.feature) == ("an Example", "")
    (difference,) = comparer.compare(changed(payload, lambda feature: feature.pop(ENCODED)), one).differences
    assert (difference.expected, difference.found) == ("1 image", "0 images")
    (tmp_path / "a").write_bytes(PNG[:-40])
    (difference,) = comparer.compare(payload, one).differences
    assert difference.found.startswith("decode: truncated") or difference.feature == ENCODED
    (tmp_path / "a").unlink()
    (difference,) = comparer.compare(payload, one).differences
    assert "load: not found" in difference.found
