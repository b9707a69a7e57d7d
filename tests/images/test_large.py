"""Images that are larger than what is stored: decoded in strips, and only to be cut."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images import raster, reasons
from recordmill.transforms.images.opened import opened, opened_array
from recordmill.transforms.images.reasons import larger_images
from recordmill.transforms.records import BadInput
from tests.images.drawn import encoded, gradient


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "CMYK", "I;16", "1"])
@pytest.mark.parametrize("at_once", [1, 40, 41, 399])
def test_strips(mode: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = gradient(10, 40)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 100)
    elif mode != "RGB":
        image = image.convert(mode)
    out = io.BytesIO()
    image.save(out, "TIFF")
    expected = opened(out.getvalue()).decode()
    monkeypatch.setattr(raster, "_COPIED_AT_ONCE", at_once)
    found = opened(out.getvalue()).decode()
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert (found.palette, found.pixels.dtype) == (expected.palette, expected.pixels.dtype)


def test_a_larger_image_is_only_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "MAX_PIXELS", 500)
    monkeypatch.setattr(reasons, "_MOST_CUT", 700)
    data, before = encoded(gradient(20, 30), "PNG"), Image.MAX_IMAGE_PIXELS
    with pytest.raises(BadInput, match="its header claims 30x20 pixels; at most 500 are decoded"):
        opened(data)
    with larger_images():
        image = opened(data)
        pixels = image.decode().pixels
        with pytest.raises(BadInput, match="30x30 pixels; at most 700 are decoded"):
            opened(encoded(gradient(30, 30), "PNG"))
    assert before == Image.MAX_IMAGE_PIXELS
    with pytest.raises(BadInput, match="too many pixels"):
        opened_array(pixels, image, "apply", None)
    assert opened_array(pixels[:10], image, "apply", None).pixels == 300
