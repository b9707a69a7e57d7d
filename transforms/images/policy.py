"""What is done with images: the choices of one conversion."""

from __future__ import annotations

import dataclasses

IMAGE_FORMATS = ("keep", "jpeg", "png", "raw", "tensor")
VALIDATIONS = ("decode", "header")
EXIF_POLICIES = ("apply", "ignore")


@dataclasses.dataclass(frozen=True, slots=True)
class ImagePolicy:
    """How images are stored.

    Attributes:
        image_format: `keep` stores the file's own bytes wherever TensorFlow decodes them; `jpeg`, `png`,
            `raw` (pixels, row by row) and `tensor` (what tf.io.parse_tensor reads) store that format.
        jpeg_quality: 1 to 100, for `jpeg`.
        validate: `decode` decodes every image that is kept; `header` reads its structure only.
        exif: `apply` turns images upright by their EXIF orientation; `ignore` leaves them.

    Raises:
        ValueError: a value that may not be; the message names the flag.
    """

    image_format: str = "keep"
    jpeg_quality: int = 90
    validate: str = "decode"
    exif: str = "apply"

    def __post_init__(self) -> None:
        _check_choice("--image_format", self.image_format, IMAGE_FORMATS)
        _check_choice("--validate", self.validate, VALIDATIONS)
        _check_choice("--exif", self.exif, EXIF_POLICIES)
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"--jpeg_quality is {self.jpeg_quality}; it may be 1 to 100")


def _check_choice(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{flag} is {value!r}; it may be {', '.join(allowed[:-1])} or {allowed[-1]}")
