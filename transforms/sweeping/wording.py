"""What the figures of a sweep mean, in sentences for the people who read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recordmill.transforms.sweeping.results import Row, Sweep

MEANINGS = {
    "pixels": "Every image is decoded, and its pixels are stored one after the other, uncompressed.",
    "files": "The bytes of each file, as they are, wherever TensorFlow can decode them.",
    "png to jpeg": "What is not a JPEG becomes one, at the quality q; JPEGs keep their bytes.",
    "re-encoded": "Every image is encoded as a JPEG of the quality q, JPEGs once more.",
    "png to jpeg, optimised": "As PNG to JPEG; then every JPEG is made smaller, and no pixel changes.",
    "re-encoded, optimised": "As re-encoded; then every JPEG is made smaller, and no pixel changes.",
    "lossless": "Files as they are, but PNGs are made smaller, and no pixel changes; "
    "progressive JPEGs are the smallest, and take longer to decode.",
    "webp": "Every image is encoded as a lossy WebP of the quality q.",
    "target ssim": "Each image becomes a JPEG of the least quality whose SSIM to its source is that given; "
    "those that get no smaller, or do not reach it, are kept.",
}
"""What each group of settings does."""


def remarks(sweep: Sweep) -> list[str]:
    """What has to be known to read the figures, and the notes of the sweep."""
    found = [
        "TFRecord bytes are those of whole records: the stored image, its features and the frame. "
        "The ratio is of them to the files that went in.",
        "Images a second are those of one process while others ran; they depend on the machine.",
        "SSIM is of luma, PSNR of all channels and the mean over the images that differ from their source. "
        "An SSIM of 1 is the source itself.",
    ]
    if any(_flattens(row) for row in sweep.rows):
        colors = sorted({row.setting.policy.background for row in sweep.rows if _flattens(row)})
        shown = ", ".join(f"#{bytes(color).hex()}" for color in colors)
        found.append(
            f"Transparency is laid on the background ({shown}) where an image is encoded anew, and for "
            "every comparison. Settings that keep the files keep their transparency."
        )
    if any(row.failed for row in sweep.rows):
        found.append("Images that a setting refused are not in its figures.")
    return [*found, *sweep.notes]


def ssim_text(ssim: float | None, none: str) -> str:
    """An SSIM to four places, never rounded up: `1` is the source itself."""
    if ssim is None or ssim == 1:
        return none if ssim is None else "1"
    return f"{math.floor(ssim * 10_000) / 10_000:.4f}"


def rate_text(rate: float | None, none: str) -> str:
    """Images a second, to two digits at least."""
    if rate is None:
        return none
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def quality_bins(row: Row) -> list[tuple[str, int]]:
    """How many images got which quality: bins of five, from the lowest that is used to the highest.

    Returns:
        The name of each bin, and its count; first `kept` for images whose source was kept.
    """
    counts: dict[int, int] = {}
    for quality, count in row.qualities.items():
        place = (quality - 1) // 5 if quality else -1
        counts[place] = counts.get(place, 0) + count
    kept = counts.pop(-1, 0)
    bins = [("kept", kept)] if kept else []
    if counts:
        places = range(min(counts), max(counts) + 1)
        bins += [(f"q{5 * place + 1}–{5 * place + 5}", counts.get(place, 0)) for place in places]
    return bins


def groups(rows: Sequence[Row]) -> list[str]:
    """The groups of the rows, in their order."""
    return list(dict.fromkeys(row.setting.group for row in rows))


def _flattens(row: Row) -> bool:
    return row.setting.policy.alpha == "flatten"
