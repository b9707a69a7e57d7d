"""A stored record against its source: nothing where it is the source's, and each kind of damage by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.reading.against import SourceComparer, class_differences, split_differences
from recordmill.transforms.reading.against_features import Difference
from recordmill.transforms.records import (
    Annotations,
    ImageRecord,
    ImageRef,
    Steps,
)
from recordmill.transforms.shards.record_encoder import RecordSettings
from tests.protos import SequenceExample
from tests.reading.against_made import (
    CMYK,
    ENCODED,
    FINE_JPEG,
    GIF,
    GRAY,
    HEIGHT,
    JPEG,
    LOSSLESS_WEBP,
    OPAQUE,
    PALETTE,
    PNG,
    RGBA,
    TIFF,
    WEBP,
    WIDTH,
    as_file,
    changed,
    deep,
    photo,
    record,
    set_value,
    settings_of,
    stored,
    turned,
)


@pytest.mark.parametrize(
    ("data", "policy", "action"),
    [
        (JPEG, {}, "kept"),
        (PALETTE, {}, "kept"),
        (GIF, {}, "kept"),
        (LOSSLESS_WEBP, {}, "kept"),
        (CMYK, {}, "kept"),
        (TIFF, {}, "lossless"),
        (JPEG, {"optimize": "lossless"}, "kept"),
        (JPEG, {"optimize": "lossless-progressive"}, "lossless"),
        (turned(6), {"exif": "ignore"}, "kept"),
        (turned(6), {"exif": "ignore", "metadata": "strip"}, "lossless"),
        (turned(6), {}, "lossy"),
        (turned(3), {"image_format": "png"}, "lossless"),
        (JPEG, {"image_format": "png"}, "lossless"),
        (PALETTE, {"image_format": "png", "optimize": "lossless"}, "kept"),
        (as_file(photo(), "PNG", compress_level=0), {"optimize": "lossless"}, "lossless"),
        (deep(), {"image_format": "raw"}, "lossless"),
        (deep(), {"image_format": "tensor"}, "lossless"),
        (deep(), {"image_format": "jpeg", "reencode": "always"}, "lossy"),
        (RGBA, {"image_format": "raw", "alpha": "flatten", "background": (200, 0, 0)}, "lossless"),
        (PNG, {"image_format": "jpeg", "reencode": "always", "jpeg_quality": 95}, "lossy"),
        (PNG, {"image_format": "jpeg", "reencode": "always", "jpeg_quality": 3}, "lossy"),
        (FINE_JPEG, {"image_format": "jpeg", "jpeg_quality": 60}, "lossy"),
        (JPEG, {"image_format": "jpeg", "jpeg_quality": 85}, "kept"),
        (RGBA, {"image_format": "jpeg"}, "kept"),
        (RGBA, {"image_format": "jpeg", "alpha": "flatten"}, "lossy"),
        (RGBA, {"image_format": "webp", "reencode": "always"}, "lossy"),
        (WEBP, {"image_format": "webp"}, "kept"),
        (OPAQUE, {"alpha": "flatten"}, "kept"),
        (RGBA, {"alpha": "flatten"}, "lossless"),
        (GRAY, {"color": "rgb"}, "lossless"),
        (PNG, {"color": "gray"}, "lossless"),
        (JPEG, {"color": "gray"}, "lossy"),
        (PNG, {"size": (24, 24), "fit": "crop"}, "lossless"),
        (GRAY, {"size": (24, 24), "fit": "pad", "background": (9, 8, 7)}, "lossless"),
        (JPEG, {"max_side": 20}, "lossy"),
        (JPEG, {"max_side": 70_000}, "kept"),
        (turned(6), {"max_side": 70_000}, "lossy"),
        (JPEG, {"short_side": 10, "image_format": "raw"}, "lossless"),
        (FINE_JPEG, {"image_format": "jpeg", "target_ssim": 0.9, "reencode": "always"}, "lossy"),
        (JPEG, {"image_format": "jpeg", "target_ssim": 0.999}, "kept"),
    ],
)
def test_what_convert_stores_is_what_the_source_says(
    tmp_path: Path, data: bytes, policy: dict[str, Any], action: str
) -> None:
    one = record(tmp_path, data)
    settings = settings_of([one], policy=ImagePolicy(**policy))
    payload = stored(one, settings)
    found = SourceComparer(settings).compare(payload, one)
    assert found.differences == ()
    assert found.action == action
    if action == "lossy":
        assert found.ssim is not None and 0 < found.ssim < 1
        assert found.psnr is not None and math.isfinite(found.psnr)
    else:
        assert found.ssim is found.psnr is None


def test_raw_pixels_of_the_source(tmp_path: Path) -> None:
    pixels = np.asarray(photo())
    one = record(tmp_path, pixels.tobytes())
    assert one.image is not None
    one = ImageRecord("a", ImageRef(one.image.uri, pixels=(HEIGHT, WIDTH, 3)), "train", one.annotations)
    for image_format, action in (("raw", "kept"), ("keep", "lossless"), ("webp", "lossy")):
        settings = settings_of([one], policy=ImagePolicy(image_format))
        found = SourceComparer(settings).compare(stored(one, settings), one)
        assert (found.action, found.differences) == (action, ())


def a_clip(folder: Path) -> tuple[ImageRecord, RecordSettings]:
    frames = []
    for number in range(3):
        path = folder / f"{number}.jpg"
        path.write_bytes(as_file(photo(number), "JPEG"))
        frames.append(ImageRef(str(path)))
    steps = Steps(tuple(frames), (("run",), ("run",), ("jump",)), {"speed": (1.0, 2.0, 3.5)})
    one = ImageRecord("clip", None, "train", Annotations(labels=("sport",), steps=steps))
    policy = ImagePolicy("jpeg", reencode="always", jpeg_quality=85)
    return one, settings_of([one], policy=policy, rename={ENCODED: "frame", "speed": "v"})


def test_a_sequence(tmp_path: Path) -> None:
    one, settings = a_clip(tmp_path)
    payload = stored(one, settings)
    found = SourceComparer(settings).compare(payload, one)
    assert (found.differences, found.action) == ((), "lossy")
    example = SequenceExample.FromString(payload)
    lists = example.feature_lists.feature_list
    lists["v"].feature[1].float_list.value[0] = 2.5
    lists["image/class/text"].feature[2].bytes_list.value[0] = b"sit"
    lists["frame"].feature[1].CopyFrom(lists["frame"].feature[0])
    found = SourceComparer(settings).compare(example.SerializeToString(), one)
    assert [(one.feature, one.where) for one in found.differences] == [
        ("frame", "step 1"),
        ("image/class/text", "step 2"),
        ("v", "step 1"),
    ]
    del lists["v"].feature[2]
    found = SourceComparer(settings).compare(example.SerializeToString(), one)
    assert ("3 steps", "2 steps") in {(one.expected, one.found) for one in found.differences}


def test_features_alone(tmp_path: Path) -> None:
    one = ImageRecord("row", None, "train", Annotations(features={"height": 1.5}))
    settings = settings_of([one])
    payload = stored(one, settings)
    comparer = SourceComparer(settings)
    found = comparer.compare(payload, one)
    assert (found.differences, found.action) == ((), "")
    other = changed(payload, set_value("height", "float_list", float("nan")))
    (difference,) = comparer.compare(other, one).differences
    assert difference == Difference("height", "1.5", "nan")


def test_the_split_that_a_record_belongs_to() -> None:
    one = ImageRecord("a", None, "val", Annotations(features={"who": "x"}))
    assert split_differences(one, "val", DatasetConfig()) == ()
    assert split_differences(one, "train", DatasetConfig()) == (Difference("split", "val", "train"),)
    config = DatasetConfig(splits={"x": 0.5, "y": 0.5}, group_by="who")
    assert sorted(len(split_differences(one, split, config)) for split in ("x", "y")) == [0, 1]
    config = DatasetConfig(splits={"x": 1.0}, group_by="whom")
    (missing,) = split_differences(one, "x", config)
    assert "no value to group by" in missing.found


def test_classes_that_are_called_otherwise(tmp_path: Path) -> None:
    settings = settings_of([record(tmp_path, PNG)])
    assert list(class_differences({0: "cat"}, settings)) == []
    assert list(class_differences({0: "dog", 1: "cow"}, settings)) == [
        "labels id 0: expected 'cat', found 'dog'",
        "labels id 1: expected no class, found 'cow'",
    ]
