"""Every bad choice is one line that names the flag, its value, and what it may be."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.transforms.images.policy import ImagePolicy


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"jpeg_quality": 101}, "ImagePolicy.jpeg_quality is 101; it may be 1 to 100"),
        ({"jpeg_quality": 0}, "ImagePolicy.jpeg_quality is 0; it may be 1 to 100"),
        (
            {"image_format": "gif"},
            "ImagePolicy.image_format is 'gif'; it may be keep, jpeg, png, webp, raw or tensor",
        ),
        ({"validate": "none"}, "ImagePolicy.validate is 'none'; it may be decode or header"),
        ({"exif": "keep"}, "ImagePolicy.exif is 'keep'; it may be apply or ignore"),
    ],
)
def test_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ImagePolicy(**choice)
    assert str(caught.value) == message


def test_defaults() -> None:
    assert ImagePolicy() == ImagePolicy("keep", 90, "decode", "apply")
