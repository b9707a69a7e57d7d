"""A sweep as one could have been found, with names that a page or a table must not take for its own."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
from PIL import Image

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sweeping.results import Crop, Row, Setting, Sweep

EVIL = '<script>alert("1")</script>&\'$x$'
SIDE = 8


def picture(seed: int) -> bytes:
    """A PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def row(setting: Setting, size: int, mean: float | None, worst: float | None) -> Row:
    """Ten images of 1,000 bytes."""
    return Row(
        setting=setting,
        images=10,
        failed=0,
        source_bytes=10_000,
        tfrecord_bytes=size,
        image_bytes=size - 500,
        encode_seconds=4.0,
        decode_seconds=0.005,
        compared=0 if mean is None else 10,
        ssim_mean=mean,
        ssim_worst=worst,
        ssim_worst_key=None if mean is None else EVIL,
        psnr_mean=None if mean is None or mean == 1 else 38.25,
        identical=10 if mean == 1 else 0,
        qualities={},
    )


def lossy(group: str, name: str, quality: int, **policy: str) -> Setting:
    """JPEG of one quality."""
    chosen = ImagePolicy("jpeg", quality, alpha="flatten", background=(255, 0, 16), **policy)  # type: ignore[arg-type]
    return Setting(name, group, quality, chosen)


RAW = Setting("raw pixels", "pixels", None, ImagePolicy("raw"))
FILES = Setting("files as they are", "files", None, ImagePolicy())
BETTER = lossy("re-encoded", "re-encoded, q90", 90, reencode="always")
WORSE = lossy("re-encoded", "re-encoded, q75", 75, reencode="always")
TARGET = Setting("SSIM 0.98", "target ssim", 0.98, ImagePolicy("jpeg", target_ssim=0.98))


def crops(key: str, seed: int) -> tuple[Crop, ...]:
    """One image at every setting: the same picture where nothing is lost."""
    source = picture(seed)
    found = ((RAW, 1.0, source, 192), (FILES, 1.0, source, 90), (BETTER, 0.97, picture(seed + 1), 60))
    return tuple(
        Crop(key, setting.name, ssim, png, source, (3, 5, SIDE, SIDE), size)
        for setting, ssim, png, size in found
    )


def sweep() -> Sweep:
    """Five rows and two of the worst images, the first with an evil name."""
    target = row(TARGET, 3_000, 0.985, 0.98004)
    return Sweep(
        input=f"photos/{EVIL}",
        source_kind="folder",
        images=10,
        failures={f"no image {EVIL}": 2, "empty": 1},
        started="2026-01-02T03:04:05+00:00",
        rows=(
            row(RAW, 83_000, 1.0, 1.0),
            row(FILES, 10_500, 1.0, 1.0),
            dataclasses.replace(row(BETTER, 4_000, 0.99996, 0.95), failed=3),
            row(WORSE, 2_500, 0.9, 0.7),
            dataclasses.replace(target, qualities={0: 4, 71: 1, 75: 2, 88: 3}),
        ),
        crops=(*crops(EVIL, 1), *crops("dog.png", 10)),
        notes=(f"note {EVIL}",),
        packages={"pillow": "12.0", "<b>": "&"},
    )
