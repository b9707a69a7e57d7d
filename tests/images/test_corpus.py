"""Real and odd images: all of them kept are decoded by TensorFlow, and their pixels are TensorFlow's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.store import store_image
from recordmill.transforms.records import BadInput
from tests.images.drawn import psnr, tensorflow_pixels

CORPUS = os.environ.get("RECORDMILL_CORPUS", "")
SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".gif",
    ".bmp",
    ".webp",
    ".apng",
    ".mpo",
    ".tif",
    ".tga",
    ".pgm",
    ".jp2",
    ".avif",
)
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="RECORDMILL_CORPUS names no folder of real inputs"),
]

FAILURES = {
    "LICENSE.Pillow": "not an image",
    "broken.png": "corrupt",
    "broken_data_stream.png": "corrupt",
    "decompression_bomb.gif": "truncated",
    "hopper_bad_exif.jpg": "corrupt",  # its entropy-coded data is damaged
    "libtiff_segfault.tif": "corrupt",
    "monkey12.jpg": "not supported",
    "truncated_end_chunk.png": "truncated",
    "truncated_image.png": "truncated",
    "truncated_jpeg.jpg": "truncated",
}


def images(*folders: str) -> list[Path]:
    paths = (path for folder in folders for path in (Path(CORPUS) / folder).rglob("*"))
    return sorted(path for path in paths if path.suffix.lower() in SUFFIXES or path.name == "LICENSE.Pillow")


def decoded(data: bytes, dtype: str = "uint8") -> np.ndarray | None:
    try:
        return tensorflow_pixels(data, dtype)
    except Exception:
        return None


@pytest.mark.parametrize(
    "folder",
    ["pngsuite", "odd_inputs", "layouts", "coco64/images", "palette_masks", "cats_dogs", "coco64/semantic"],
)
def test_kept_or_failed_for_the_true_reason(folder: str) -> None:
    for path in images(folder):
        data = path.read_bytes()
        try:
            image = store_image(data, ImagePolicy())
        except BadInput as error:
            if folder == "odd_inputs":
                assert FAILURES[path.name] == error.reason
            else:
                assert decoded(data) is None, path
                assert path.name.startswith(("x", "iphone_")), path
            continue
        assert path.name not in FAILURES
        pixels = tensorflow_pixels(image.data, image.dtype)
        assert pixels.shape == (image.height, image.width, image.channels), path
        if image.actions == ("kept",):
            assert image.data == data


@pytest.mark.parametrize("folder", ["pngsuite", "odd_inputs", "palette_masks"])
def test_raw_pixels_are_tensorflows(folder: str) -> None:
    for path in images(folder):
        data = path.read_bytes()
        try:
            raw = store_image(data, ImagePolicy("raw", exif="ignore"))
        except BadInput:
            continue
        expected = decoded(data, raw.dtype)
        if expected is None:
            continue
        pixels = np.frombuffer(raw.data, raw.dtype).reshape(raw.height, raw.width, raw.channels)
        colors = expected.shape[2]  # TensorFlow drops the alpha of a single transparent colour
        np.testing.assert_array_equal(pixels[:, :, :colors], expected, err_msg=str(path))


def test_every_orientation_comes_out_upright() -> None:
    for name in ("Landscape", "Portrait"):
        pictures = []
        for orientation in range(1, 9):
            data = (Path(CORPUS) / "exif_orientation" / f"{name}_{orientation}.jpg").read_bytes()
            image = store_image(data, ImagePolicy())
            assert ("rotated" in image.actions) == (orientation != 1)
            assert len(image.data) < 1.04 * len(data)
            pictures.append(tensorflow_pixels(image.data))
        assert len({picture.shape for picture in pictures}) == 1
        # Eight files of one scene; each was drawn and compressed on its own.
        assert all(psnr(pictures[0], picture) > 20 for picture in pictures[1:])
