"""Damaged images through the image step and TensorFlow: `python -m tests.fuzz.images --minutes 60`.

Whatever is stored is decoded by TensorFlow to the shape that the record states, or the image fails by name.
All else is a finding: another exception, another shape, other pixels than ours, an image that takes long.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput, StoredImage
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


def inputs(seed: int, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes, str]]:
    """Format, damaged image and the name of a policy, without end; the same for the same seed."""
    found = {kind: files for kind, files in seeds().items() if not kinds or kind in kinds}
    rng = random.Random(seed)
    while True:
        kind = rng.choice(sorted(found))
        data = damaged(rng.choice(found[kind]), kind, found[kind], rng)
        yield kind, data, "keep" if rng.random() < 0.4 else rng.choice(sorted(POLICIES))


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


def main() -> None:
    """Runs for a while, and prints what was tried and found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.images", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="formats, with commas: gif, png, webp, bmp, jpeg, other")
    parser.add_argument("--slow", type=float, default=10, help="seconds that are a finding, too")
    parser.add_argument("--samples", help="a folder for the images that findings are about")
    flags = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(flags.samples) if flags.samples else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    tried: collections.Counter[tuple[str, str]] = collections.Counter()
    slowest: dict[str, float] = {}
    end = time.monotonic() + 60 * flags.minutes
    for kind, data, name in inputs(flags.seed, tuple(filter(None, flags.kinds.split(",")))):
        if time.monotonic() > end:
            break
        path = folder / f"running-{os.getpid()}" if folder else None
        if path:
            path.write_bytes(data)  # what ends the process is found there
        start = time.monotonic()
        word, detail = finding(data, POLICIES[name])
        seconds = time.monotonic() - start
        slowest[kind] = max(slowest.get(kind, 0), seconds)
        if seconds > flags.slow and not word:
            word, detail = "SLOW", f"{seconds:.1f} s, {detail}"
        tried[kind, word or ("stored" if detail == "stored" else "failed")] += 1
        if word:
            digest = hashlib.sha256(data).hexdigest()[:10]
            print(f"{word}_{digest}.{kind} under {name!r}: {detail[:300]}", flush=True)
            if folder:
                (folder / f"{word}_{digest}.{kind}").write_bytes(data)
    if folder:
        (folder / f"running-{os.getpid()}").unlink(missing_ok=True)
    for kind in sorted(slowest):
        words = ", ".join(f"{count:,} {word}" for (one, word), count in sorted(tried.items()) if one == kind)
        print(f"{kind}: {words}; the slowest took {slowest[kind]:.1f} s")


if __name__ == "__main__":
    main()
