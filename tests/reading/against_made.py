"""Records, their settings and what is stored of them, for the tests of the comparison with a source."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import (
    Annotations,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.totals import total
from tests.protos import Example

WIDTH, HEIGHT = 40, 30
TRIANGLE = ((2.0, 2.0, 30.0, 2.0, 2.0, 20.0),)
CAT = Annotations(labels=("cat",))
ENCODED, MASK = "image/encoded", "image/segmentation/class/encoded"


def photo(seed: int = 0) -> Image.Image:
    """Soft shapes that differ by seed, as JPEG likes them."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)


def as_file(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def record(folder: Path, data: bytes, annotations: Annotations = CAT, key: str = "a") -> ImageRecord:
    path = folder / key
    path.write_bytes(data)
    return ImageRecord(key, ImageRef(str(path)), "train", annotations)


def settings_of(records: list[ImageRecord], **config: Any) -> RecordSettings:
    return record_settings(total(records), DatasetConfig(**config))


def stored(one: ImageRecord, settings: RecordSettings) -> bytes:
    return RecordEncoder(settings).encode(one).payload


def changed(payload: bytes, change: Callable[[Any], None]) -> bytes:
    example = Example.FromString(payload)
    change(example.features.feature)
    return bytes(example.SerializeToString(deterministic=True))


def rgba() -> Image.Image:
    image = photo().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def deep() -> bytes:
    values = np.arange(WIDTH * HEIGHT, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 50
    return as_file(Image.fromarray(values), "PNG")


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return as_file(photo(), "JPEG", quality=90, exif=exif)


def set_value(name: str, kind: str, value: Any, number: int = 0) -> Callable[[Any], None]:
    def change(feature: Any) -> None:
        getattr(feature[name], kind).value[number] = value

    return change


JPEG, FINE_JPEG = as_file(photo(), "JPEG", quality=80), as_file(photo(), "JPEG", quality=100)
PNG, RGBA = as_file(photo(), "PNG"), as_file(rgba(), "PNG")
GRAY, PALETTE = as_file(photo().convert("L"), "PNG"), as_file(photo().quantize(16), "PNG")
OPAQUE = as_file(photo().convert("RGBA"), "PNG")
WEBP, LOSSLESS_WEBP = as_file(photo(), "WEBP"), as_file(photo(), "WEBP", lossless=True)
GIF, TIFF, CMYK = (
    as_file(photo(), "GIF"),
    as_file(photo(), "TIFF"),
    as_file(photo().convert("CMYK"), "JPEG", quality=95),
)
