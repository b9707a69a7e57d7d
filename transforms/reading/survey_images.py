"""What the header of an image tells; no pixel is decoded."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from typing import Any

from recordmill.transforms.examples.record_view import is_encoded
from recordmill.transforms.records import BadInput

_MOST_SIZES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of an image.

    Attributes:
        image_format: as its bytes tell it; `raw` for pixels.
        height: pixels, as stored; 0 where it is not known.
        width: pixels, likewise.
        channels: values a pixel; 0 where it is not known.
        orientation: EXIF, 1 to 8.
        fault: what is wrong with it; empty where nothing is seen to be.
    """

    image_format: str
    height: int = 0
    width: int = 0
    channels: int = 0
    orientation: int = 1
    fault: str = ""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {"format": self.image_format}
        if self.height:
            found |= {"height": self.height, "width": self.width}
        if self.channels:
            found["channels"] = self.channels
        if self.orientation != 1:
            found["orientation"] = self.orientation
        return found | ({"fault": self.fault} if self.fault else {})


def image_facts(data: bytes, expected: bool = False) -> ImageFacts | None:
    """What the header of an image file tells; None where none is expected, and none begins like this."""
    if not expected and not is_encoded(data[:16]):
        return None
    # decoders take a while to import, and there may be no image
    from recordmill.transforms.images.opened import image_kind, opened

    kind = "unknown"
    try:
        kind = image_kind(data)
        image = opened(data)
    except BadInput as error:
        shown = "unknown" if kind == "tga" else kind  # TGA has no signature: all else is taken for it
        return ImageFacts(shown, fault=f"{error.reason}: {error.detail}" if error.detail else error.reason)
    if image.kept is not None:
        kept = image.kept
        return ImageFacts(kind, kept.height, kept.width, kept.channels, image.orientation)
    height, width, channels = _size(data)
    return ImageFacts(kind, height, width, channels, image.orientation)


def _size(data: bytes) -> tuple[int, int, int]:
    """Height, width and channels of an image that would not be stored as it is."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.height, image.width, len(image.getbands())
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return 0, 0, 0


@dataclasses.dataclass(slots=True)
class Images:
    """What is known of the images of a feature.

    Attributes:
        count: of them.
        formats: how many have each.
        sizes: how many have each (height, width), of the first `_MOST_SIZES` of them; 0 for unknown.
        channels: how many have each number.
        least: height and width of the least of each; None where none is known.
        most: of the largest.
        turned: have an EXIF orientation.
        faults: how many have each.
    """

    count: int = 0
    formats: Counter[str] = dataclasses.field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = dataclasses.field(default_factory=Counter)
    channels: Counter[int] = dataclasses.field(default_factory=Counter)
    least: tuple[int, int] | None = None
    most: tuple[int, int] | None = None
    turned: int = 0
    faults: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, facts: ImageFacts) -> None:
        """Counts one in."""
        self.count += 1
        self.formats[facts.image_format] += 1
        self.turned += facts.orientation != 1
        if facts.fault:
            self.faults[facts.fault.partition(":")[0]] += 1
        if not facts.height:
            return
        self.channels[facts.channels] += 1
        size = (facts.height, facts.width)
        if size in self.sizes or len(self.sizes) < _MOST_SIZES:
            self.sizes[size] += 1
        (least_height, least_width), (height, width) = self.least or size, self.most or size
        self.least = min(least_height, size[0]), min(least_width, size[1])
        self.most = max(height, size[0]), max(width, size[1])

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {
            "count": self.count,
            "formats": dict(self.formats.most_common()),
            "channels": {str(number): count for number, count in sorted(self.channels.items())},
            "turned_by_exif": self.turned,
            "faults": dict(self.faults.most_common()),
        }
        if self.least is not None and self.most is not None:
            found["height"] = {"min": self.least[0], "max": self.most[0]}
            found["width"] = {"min": self.least[1], "max": self.most[1]}
        found["sizes"] = [
            {"height": height, "width": width, "count": count}
            for (height, width), count in self.sizes.most_common(20)
        ]
        return found
