"""Damaged images through the image step and TensorFlow.

Whatever is stored is decoded by TensorFlow to the shape that the record states, or the image fails by name.
All else is a finding: another exception, another shape, other pixels than ours, an image that takes long.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, StoredImage
from tests.fuzz.driver import Case, Finding
from tests.fuzz.image_damage import damaged
from tests.fuzz.image_seeds import seeds
from tests.images.drawn import tensorflow_pixels

POLICIES = {
    "keep": ImagePolicy(),
    "png": ImagePolicy("png"),
    "png, optimised": ImagePolicy("png", optimize="lossless"),
    "keep, optimised": ImagePolicy(optimize="lossless"),
    "keep, as it lies": ImagePolicy(exif="ignore"),
    "keep, stripped": ImagePolicy(metadata="strip"),
    "keep, lies stripped": ImagePolicy(metadata="strip", exif="ignore"),
    "keep, flat": ImagePolicy(alpha="flatten"),
    "keep, small": ImagePolicy(max_side=16),
    "keep, grey": ImagePolicy(color="gray"),
    "jpeg": ImagePolicy("jpeg", jpeg_quality=80),
    "jpeg, always": ImagePolicy("jpeg", reencode="always", alpha="flatten"),
    "webp": ImagePolicy("webp"),
    "webp, needed": ImagePolicy("webp", reencode="needed", size=(20, 30), fit="pad"),
    "raw": ImagePolicy("raw"),
    "tensor": ImagePolicy("tensor", color="rgb"),
}
_PIXELS = ("raw", "tensor")
# TensorFlow would take gigabytes to decode more.
_MOST_PIXELS = 30_000_000


class Images:
    """The fuzzer of images; the names of its cases are `format, policy`."""

    name = "images"
    seconds = 20.0
    batch = 5_000

    def __init__(self) -> None:
        self.seeds = seeds()

    def case(self, seed: int, number: int) -> Case:
        rng = random.Random(f"{seed} {number}")
        kind = rng.choice(sorted(self.seeds))
        data = damaged(rng.choice(self.seeds[kind]), kind, self.seeds[kind], rng)
        policy = "keep" if rng.random() < 0.4 else rng.choice(sorted(POLICIES))
        return Case(f"{kind}, {policy}", {"image": data})

    def examine(self, case: Case, folder: Path) -> Finding | None:
        policy = case.name.partition(", ")[2]
        word, detail = finding(case.files["image"], POLICIES[policy])
        return Finding(f"{case.name}: {word}", detail[:300]) if word else None


def finding(data: bytes, policy: ImagePolicy) -> tuple[str, str]:
    """What is wrong with how an image is stored, in a word and in full; nothing where all is well."""
    try:
        image = store_image(data, policy)
    except BadInput as error:
        return "", f"{error.reason}: {error.detail}"
    except Exception as error:
        return type(error).__name__, str(error)
    return refusal(data, image)


def refusal(data: bytes, image: StoredImage) -> tuple[str, str]:
    """How TensorFlow's reading of a stored image differs from what its record states."""
    stated = (image.height, image.width, image.channels)
    if image.image_format == "raw":
        size = image.height * image.width * image.channels * np.dtype(image.dtype).itemsize
        return (
            ("", "stored") if size == len(image.data) else ("LENGTH", f"{len(image.data)} bytes for {stated}")
        )
    if image.image_format in _PIXELS or image.height * image.width > _MOST_PIXELS:
        return "", "stored"
    try:
        pixels = tensorflow_pixels(image.data, image.dtype)
    except Exception as error:
        return "TFREFUSES", f"{image.actions} {image.image_format} {stated}: {error}"
    if pixels.shape != stated or pixels.dtype != image.dtype:
        return "SHAPE", f"{image.actions} {image.image_format} {stated} {image.dtype}, not {pixels.shape}"
    if image.actions[0] == "kept" and image.data == data and image.image_format != "jpeg":
        ours = _own_pixels(data)
        if ours is not None and not np.array_equal(ours[:, :, : image.channels], pixels):
            return "PIXELS", f"{image.image_format} {stated}: ours are others"
    return "", "stored"


def _own_pixels(data: bytes) -> np.ndarray | None:
    try:
        raw = store_image(data, ImagePolicy("raw", exif="ignore"))
    except BadInput:
        return None
    return np.frombuffer(raw.data, raw.dtype).reshape(raw.height, raw.width, raw.channels)
