"""What a verification finds in a record: each fault by itself, and nothing in a sound one."""

import dataclasses
import hashlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from recordmill.transforms.examples.features import Feature, build_example, build_sequence_example
from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.reading.verify_dataset import Expected
from recordmill.transforms.reading.verify_record import RecordChecker

WIDTH, HEIGHT = 40, 30
Features = dict[str, Feature]


def encoded(image_format: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    draw("circle", 1, WIDTH, HEIGHT).convert(mode).save(out, image_format, **options)
    return out.getvalue()


def mask(values: list[int], size: tuple[int, int] = (WIDTH, HEIGHT), mode: str = "L") -> bytes:
    pixels = np.resize(np.array(values, np.uint8), size[0] * size[1]).reshape(size[1], size[0])
    out = io.BytesIO()
    Image.fromarray(pixels, mode).save(out, "PNG")
    return out.getvalue()


def of_bytes(*values: bytes) -> Feature:
    return Feature("bytes_list", values)


def of_ints(*values: int) -> Feature:
    return Feature("int64_list", values)


def of_floats(*values: float) -> Feature:
    return Feature("float_list", values)


JPEG = encoded(quality=90)
BOX, CLASS = "image/object/bbox/", "image/object/class/"
GOOD: Features = {
    "image/encoded": of_bytes(JPEG),
    "image/format": of_bytes(b"jpeg"),
    "image/height": of_ints(HEIGHT),
    "image/width": of_ints(WIDTH),
    "image/channels": of_ints(3),
    "image/colorspace": of_bytes(b"RGB"),
    "image/filename": of_bytes(b"a/1.jpg"),
    "image/key/sha256": of_bytes(hashlib.sha256(JPEG).hexdigest().encode()),
    "image/class/label": of_ints(1),
    "image/class/text": of_bytes(b"cat"),
    BOX + "xmin": of_floats(0, 0.25),
    BOX + "xmax": of_floats(1, 0.25),
    BOX + "ymin": of_floats(0.5, 0),
    BOX + "ymax": of_floats(0.75, 1),
    CLASS + "label": of_ints(1, 2),
    CLASS + "text": of_bytes(b"cat", b"dog"),
    "image/object/mask": of_bytes(mask([0, 1]), mask([1])),
    "image/object/difficult": of_ints(0, 1),
    "image/segmentation/class/encoded": of_bytes(mask([0, 1, 2, 255])),
    "image/segmentation/instance/encoded": of_bytes(mask([0, 77])),
    "score": of_floats(1.5, 2.5),
}
DTYPES = {"bytes_list": "string", "int64_list": "int64", "float_list": "float32"}
LISTS = ("image/object/", "image/segmentation/")


def specs(features: Features) -> dict[str, FeatureSpec]:
    found = {}
    for name, feature in features.items():
        shape: tuple[int | None, ...] = (None,) if name.startswith(LISTS) else ()
        found[name] = FeatureSpec(DTYPES[feature.kind], (2,) if name == "score" else shape)  # type: ignore[arg-type]
    return found


LABELS = {1: "cat", 2: "dog"}
EXPECTED = Expected(specs(GOOD), labels=LABELS)


def faults(features: Features, expected: Expected = EXPECTED) -> list[tuple[str, str]]:
    return RecordChecker(expected).check(build_example(features)).faults


def test_a_sound_record_has_no_fault() -> None:
    checked = RecordChecker(EXPECTED).check(build_example(GOOD))
    assert checked == ("a/1.jpg", [], 1, 4)
    assert faults(GOOD, dataclasses.replace(EXPECTED, pillow_at=(90,))) == []


def set_to(name: str, feature: Feature) -> Callable[[Features], None]:
    return lambda features: features.__setitem__(name, feature)


def without(name: str) -> Callable[[Features], None]:
    return lambda features: features.__delitem__(name)


CUT = JPEG[:-200]
TABLE: list[tuple[Callable[[Features], None], str, str]] = [
    (without("score"), "features differ from the manifest", "score is missing"),
    (set_to("more", of_ints(1)), "features differ from the manifest", "more is not in the manifest"),
    (set_to("score", of_ints(1, 2)), "features differ from the manifest", "score is a list of int64"),
    (
        set_to("score", of_floats(1)),
        "features differ from the manifest",
        "score has 1 values; its shape is [2]",
    ),
    (
        set_to("image/height", of_ints(HEIGHT, 2)),
        "features differ from the manifest",
        "image/height has 2 values; its shape is []",
    ),
    (set_to("image/class/label", of_ints(3)), "class id without a label", "image/class/label is 3"),
    (
        set_to("image/class/text", of_bytes(b"dog")),
        "label text differs from the manifest",
        "image/class/text is 'dog'; class 1 is 'cat'",
    ),
    (set_to(CLASS + "label", of_ints(1, 0)), "class id without a label", f"{CLASS}label is 0"),
    (
        set_to(CLASS + "text", of_bytes(b"cat", b"cat")),
        "label text differs from the manifest",
        f"{CLASS}text is 'cat'; class 2 is 'dog'",
    ),
    (set_to(BOX + "xmax", of_floats(1, 0.2)), "box outside the image", "x 0.25 to 0.2"),
    (set_to(BOX + "xmax", of_floats(1.01, 0.25)), "box outside the image", "x 0 to 1.01"),
    (set_to(BOX + "ymin", of_floats(-0.1, 0)), "box outside the image", "y -0.1 to 0.75"),
    (set_to(BOX + "ymin", of_floats(float("nan"), 0)), "box outside the image", "y nan to 0.75"),
    (set_to(BOX + "ymin", of_floats(0)), "lists of different lengths", "2 xmin, 2 xmax, 1 ymin, 2 ymax"),
    (
        set_to("image/object/difficult", of_ints(0)),
        "lists of different lengths",
        "2 boxes and 1 image/object/diff",
    ),
    (
        set_to("image/object/mask", of_bytes(mask([1]))),
        "lists of different lengths",
        "2 boxes and 1 image/object/mask",
    ),
    (
        set_to("image/object/mask", of_bytes(mask([1]), mask([2]))),
        "class id without a label",
        "pixels of the mask are 2",
    ),
    (
        set_to("image/object/mask", of_bytes(mask([1]), mask([1], (30, 30)))),
        "mask that does not fit",
        "30x30 pixels, on an image of 40x30",
    ),
    (
        set_to("image/segmentation/class/encoded", of_bytes(mask([0, 1, 9]))),
        "class id without a label",
        "pixels of the mask are 9",
    ),
    (
        set_to("image/segmentation/class/encoded", of_bytes(mask([0, 1])[:-30])),
        "mask that does not fit",
        "truncated",
    ),
    (set_to("image/key/sha256", of_bytes(b"0" * 64)), "image differs from its SHA-256", "another image's"),
    (set_to("image/height", of_ints(WIDTH)), "image of another shape", "40x30 pixels; the record says 40x40"),
    (set_to("image/channels", of_ints(1)), "image of another shape", "3 channels; the record says 1"),
    (set_to("image/format", of_bytes(b"png")), "image of another format", "JPEG, and its format is 'png'"),
    (set_to("image/format", of_bytes(b"\xff")), "image of another format", "its format is '\ufffd'"),
    (
        set_to("image/colorspace", of_bytes(b"Grayscale")),
        "image of another format",
        "RGB; the record says Grayscale",
    ),
    (set_to("image/encoded", of_bytes(CUT)), "image that cannot be decoded", ""),
]


@pytest.mark.parametrize(("change", "kind", "told"), TABLE)
@pytest.mark.parametrize("pillow_at", [(), (90,)])
def test_a_fault_is_found_and_told(
    change: Callable[[Features], None], kind: str, told: str, pillow_at: tuple[int, ...]
) -> None:
    features = dict(GOOD)
    change(features)
    found = faults(features, dataclasses.replace(EXPECTED, pillow_at=pillow_at))
    assert kind in {one for one, _ in found}
    assert any(told in what for one, what in found if one == kind), found
    others = {one for one, _ in found} - {kind}
    consequences = {
        "image/encoded": "image differs from its SHA-256",
        "image/height": "mask that does not fit",
    }
    assert others <= set(consequences.values()), found


def test_a_scan_that_ends_early_is_damage_where_libjpeg_only_warns() -> None:
    features = {**GOOD, "image/encoded": of_bytes(CUT + b"\xff\xd9")}
    for pillow_at in ((), (89,)):  # of another quality: simplejpeg has not encoded it
        found = faults(features, dataclasses.replace(EXPECTED, pillow_at=pillow_at))
        assert "image that cannot be decoded" in {kind for kind, _ in found}


def test_renamed_features_are_known() -> None:
    features = {("pic" if name == "image/encoded" else name): one for name, one in GOOD.items()}
    expected = Expected(specs(features), labels=LABELS, renames={"pic": "image/encoded"})
    assert faults(features, expected) == []
    features["pic"] = of_bytes(CUT)
    assert "image that cannot be decoded" in {kind for kind, _ in faults(features, expected)}


def pixel_features(data: bytes, image_format: str, dtype: str = "uint8") -> Features:
    return {
        "image/encoded": of_bytes(data),
        "image/format": of_bytes(image_format.encode()),
        "image/height": of_ints(2),
        "image/width": of_ints(3),
        "image/channels": of_ints(3),
        "image/dtype": of_bytes(dtype.encode()),
    }


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_pixels_have_the_size_that_is_told(dtype: str) -> None:
    pixels = np.arange(18, dtype=dtype).reshape(2, 3, 3)
    for data, image_format in ((pixels.tobytes(), "raw"), (tensor_bytes(pixels), "tensor")):
        features = pixel_features(data, image_format, dtype)
        expected = Expected(specs(features))
        assert faults(features, expected) == []
        for bad in (data[:-1], data + b"\0", b""):
            found = faults({**features, "image/encoded": of_bytes(bad)}, expected)
            assert [kind for kind, _ in found] == ["image of another shape"]
    turned = tensor_bytes(pixels.transpose(1, 0, 2))
    features = pixel_features(turned, "tensor", dtype)
    assert [kind for kind, _ in faults(features, Expected(specs(features)))] == ["image of another shape"]


def test_the_classic_keys() -> None:
    pixels = bytes(range(18))
    features = {
        "image_raw": of_bytes(pixels),
        "height": of_ints(2),
        "width": of_ints(3),
        "depth": of_ints(3),
        "dtype": of_bytes(b"uint8"),
        "label": of_ints(2),
        "mask_raw": of_bytes(bytes([0, 1, 2, 255, 0, 1])),
    }
    expected = Expected(specs(features), labels=LABELS)
    assert faults(features, expected) == []
    for name, feature, kind in (
        ("label", of_ints(5), "class id without a label"),
        ("mask_raw", of_bytes(bytes([0, 1, 2, 255, 0, 7])), "class id without a label"),
        ("mask_raw", of_bytes(bytes(5)), "mask that does not fit"),
        ("image_raw", of_bytes(pixels[:-1]), "image that cannot be decoded"),
    ):
        assert kind in {one for one, _ in faults({**features, name: feature}, expected)}


def test_a_sequence_is_looked_at_step_by_step() -> None:
    context = {"sequence/key": of_bytes(b"clip"), "image/class/label": of_ints(1)}
    png = encoded("PNG")
    lists = {
        "image/encoded": [of_bytes(JPEG), of_bytes(png)],
        "image/format": [of_bytes(b"jpeg"), of_bytes(b"png")],
        "image/height": [of_ints(HEIGHT)] * 2,
        "image/width": [of_ints(WIDTH)] * 2,
        "speed": [of_floats(1.0)] * 3,
    }
    of_lists = {name: specs({name: steps[0]})[name] for name, steps in lists.items()}
    checker = RecordChecker(Expected(specs(context), of_lists, LABELS))
    assert checker.check(build_sequence_example(context, lists)) == ("clip", [], 2, 0)
    lists["image/width"] = [of_ints(WIDTH), of_ints(WIDTH + 1)]
    found = checker.check(build_sequence_example(context, lists)).faults
    assert found == [("image of another shape", "step 1: 40x30 pixels; the record says 41x30")]
    lists["image/width"] = [of_ints(WIDTH)]
    found = checker.check(build_sequence_example(context, lists)).faults
    assert (
        "lists of different lengths",
        "a sequence with 2 image/encoded, 2 image/format, 2 image/height, 1 image/width",
    ) in found
    lists["image/width"] = []
    found = checker.check(build_sequence_example(context, lists)).faults
    assert "lists of different lengths" not in [kind for kind, _ in found]  # these frames have no widths
    found = checker.check(build_sequence_example(context, {**lists, "image/encoded": []})).faults
    assert "lists of different lengths" in [kind for kind, _ in found]
    del lists["speed"]
    found = checker.check(build_sequence_example(context, lists)).faults
    assert ("features differ from the manifest", "the feature list speed is missing") in found


def test_what_is_no_example_is_told() -> None:
    found = RecordChecker(EXPECTED).check(b"\xff\xff").faults
    assert [kind for kind, _ in found] == ["record that is no Example"]
    assert RecordChecker(Expected()).check(b"").faults[0][0] == "record that is no Example"


def test_foreign_records_are_checked_as_far_as_they_tell() -> None:
    features = {
        "image": of_bytes(encoded("PNG")),
        "image/object/bbox/xmin": of_floats(0.5),
        "image/object/bbox/xmax": of_floats(0.1),
        "image/object/bbox/ymin": of_floats(0.5),
        "image/object/bbox/ymax": of_floats(0.6),
        "image/object/class/text": of_bytes(),
        "label": of_ints(99),
    }
    checked = RecordChecker(Expected()).check(build_example(features))
    assert checked.images == 1 and [kind for kind, _ in checked.faults] == ["box outside the image"]
    features["image"] = of_bytes(encoded("PNG")[:-40])
    assert "image that cannot be decoded" in {kind for kind, _ in faults(features, Expected())}


@pytest.mark.parametrize("image_format", [b"raw", b"tensor"])
@pytest.mark.parametrize(
    "side", [of_ints(-1), of_floats(float("nan")), of_floats(float("inf")), of_ints(1 << 62)]
)
def test_sizes_that_are_none_are_told(image_format: bytes, side: Feature) -> None:
    features = {
        "image/encoded": of_bytes(b"abc"),
        "image/format": of_bytes(image_format),
        "image/height": side,
        "image/width": side,
        "image/channels": of_ints(3),
    }
    ((kind, _),) = faults(features, Expected())
    assert kind in ("image that cannot be decoded", "image of another shape")


def test_a_label_that_is_no_number_is_unknown() -> None:
    found = faults({**GOOD, "image/class/label": of_floats(float("nan"))})
    assert ("class id without a label", "image/class/label is nan") in found


def test_a_mask_beside_no_size_is_not_measured() -> None:
    assert faults({"mask_raw": of_bytes(b"\0\1\2")}, Expected()) == []
