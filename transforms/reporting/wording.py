"""How names, numbers and bins read on the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from recordmill.transforms.sources.names import printable
from recordmill.transforms.sweeping.markup import escaped

Rows = list[tuple[str, int]]
"""Title, as HTML, and figure of each bar."""

_LONGEST_NAME = 120
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_BOX_COUNTS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 100))
_NARROWEST, _WIDEST, _SMALLEST, _LARGEST = -12, 12, -16, 0

ACTIONS = {
    "kept": "stored as they are, byte for byte",
    "reencoded": "encoded anew, in the format they had",
    "transcoded": "encoded in another format",
    "decoded": "stored as pixels",
    "optimized": "packed tighter, their pixels the same",
    "resized": "of another size",
    "rotated": "turned as their EXIF orientation says",
    "flattened": "their alpha laid on the background",
    "recolored": "of other colour channels",
    "srgb": "converted to sRGB",
    "first_frame": "animated: the first frame is stored",
    "coarse_enough": "saved at the quality asked for, or below",
    "not_smaller": "encoded anew they would be no smaller",
    "alpha_kept": "transparent, which the format asked for cannot be",
    "ssim_missed": "no quality is similar enough",
    "stripped": "their metadata left out",
    "optimize_differed": "not packed tighter, which would have changed pixels",
}
"""What was done to images, by the name that the manifest counts it under."""


def shown(name: object, longest: int = _LONGEST_NAME) -> str:
    """A name from the data as HTML: with a direction of its own, in visible characters, not too long."""
    text = str(name)
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-(longest // 2) :]}"
    text = printable(text)
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    # parts of a path stay in their order, whatever they are written in; a line may end between them
    start = '<bdi dir="ltr">' if "/" in text else "<bdi>"
    return f"{start}{escaped(text).replace('/', '/<wbr>')}</bdi>"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things; `plural` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size_text(size: float) -> str:
    """Bytes as people read them."""
    if size < 1000:
        return f"{size:,.0f} bytes"
    for unit in _UNITS:
        size /= 1000
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:,.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"


def share_text(share: float) -> str:
    """A share as per cent: never 0 or 100 unless it is that."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return (
        f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %" if percent < 99.5 else f"{percent:.3g} %"
    )


def size_rows(bins: Mapping[int, int]) -> Rows:
    """Images by the length of a side: `Statistics.widths` or `heights`."""
    rows = []
    for place, count in _whole(bins):
        least, most = math.ceil(2 ** ((place - 0.5) / 2)), math.ceil(2 ** ((place + 0.5) / 2)) - 1
        if least <= most:
            rows.append((f"{least:,}–{most:,}" if least < most else f"{least:,}", count))
    return rows


def aspect_rows(bins: Mapping[int, int]) -> Rows:
    """Images or boxes by width over height: `Statistics.aspects` or `box_aspects`."""
    rows = []
    for place, count in _whole(bins):
        least, most = (2 ** ((place + half) / 4) for half in (-0.5, 0.5))
        title = f"{least:.2f}–{most:.2f}"
        if place in (_NARROWEST, _WIDEST):
            title = f"under {most:.2f}" if place == _NARROWEST else f"over {least:.2f}"
        rows.append((title, count))
    return rows


def side_rows(bins: Mapping[int, int]) -> Rows:
    """Boxes by the square root of their share of the image: `Statistics.box_sides`."""
    rows = []
    for place, count in _whole(bins):
        least, most = (100 * 2 ** ((place + half) / 2) for half in (-0.5, 0.5))
        title = f"{_percent(least)}–{_percent(min(most, 100))} %"
        rows.append((f"under {_percent(most)} %" if place == _SMALLEST else title, count))
    return rows


def box_count_rows(counts: Mapping[int, int]) -> Rows:
    """Images by how many boxes they have: `Statistics.boxes_per_image`."""
    rows: Rows = []
    for least, most in _BOX_COUNTS:
        title = "100 and more" if least == 100 else f"{least}–{most}" if least < most else f"{least}"
        rows.append((title, sum(count for number, count in counts.items() if least <= number <= most)))
    while rows and not rows[-1][1]:
        rows.pop()
    return rows


def quality_rows(qualities: Mapping[str, int]) -> Rows:
    """Images by the JPEG quality that was chosen, by fives, those whose source was kept first."""
    chosen = {int(quality): count for quality, count in qualities.items()}
    kept = chosen.pop(0, 0)
    rows: Rows = [("source kept", kept)] if kept else []
    bins: dict[int, int] = {}
    for quality, count in chosen.items():
        bins[(quality - 1) // 5] = bins.get((quality - 1) // 5, 0) + count
    return rows + [(f"{5 * place + 1}–{5 * place + 5}", count) for place, count in _whole(bins)]


def _whole(bins: Mapping[int, int]) -> list[tuple[int, int]]:
    """The bins from the first to the last, those between them that are empty too."""
    if not bins:
        return []
    return [(place, bins.get(place, 0)) for place in range(min(bins), max(bins) + 1)]


def _percent(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
