"""The groups of a sweep's settings: what each does, and how it looks in the plot and on the page."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Settings that differ in one value.

    Attributes:
        label: as people read it.
        meaning: what the settings do; one or two sentences.
        color: on white, `#rrggbb`, dark enough for text.
        dark: the colour on a dark page.
        marker: matplotlib's name of the marker.
        offset: points from a marker to its label, right and up.
        dashed: whether the line is dashed.
    """

    label: str
    meaning: str
    color: str
    dark: str
    marker: str
    offset: tuple[int, int] = (0, 0)
    dashed: bool = False


INK, DARK_INK = "#22262b", "#e4e7eb"
FAINT, DARK_FAINT = "#d5d9de", "#3a4149"
PAPER, DARK_PAPER = "#fffffe", "#15181c"

# Hues of Okabe and Ito, darkened for text. Markers and dashes tell the groups apart without colour.
GROUPS = {
    "pixels": Group(
        "raw pixels",
        "Every image is decoded, and its pixels are stored one after the other, uncompressed.",
        *("#50565e", "#b9c0c8", "s"),
        offset=(0, 8),
    ),
    "files": Group(
        "files as they are",
        "The bytes of each file are stored unchanged if TensorFlow can decode them.",
        *("#23272c", "#f2f4f6", "D"),
        offset=(6, -6),
    ),
    "png to jpeg": Group(
        "PNG to JPEG",
        "Every image that is not a JPEG becomes one, at quality q; JPEGs keep their bytes.",
        *("#0a5ca8", "#6db0f0", "o"),
        offset=(-10, 5),
    ),
    "re-encoded": Group(
        "re-encoded",
        "Every image is encoded as a JPEG of quality q; JPEGs are encoded again.",
        *("#b34700", "#ff9c69", "^"),
        offset=(6, -5),
    ),
    "png to jpeg, optimised": Group(
        "PNG to JPEG, optimised",
        "As PNG to JPEG; then every JPEG is made smaller without changing a pixel.",
        *("#1c7fc4", "#a3d4fb", "o"),
        dashed=True,
    ),
    "re-encoded, optimised": Group(
        "re-encoded, optimised",
        "As re-encoded; then every JPEG is made smaller without changing a pixel.",
        *("#a86a00", "#f5c35a", "^"),
        dashed=True,
    ),
    "lossless": Group(
        "lossless",
        "Files as they are, but PNGs are made smaller without changing a pixel. With `progressive`, so are "
        "JPEGs, which then take longer to decode.",
        *("#5b4fae", "#b3a8fa", "P"),
        offset=(-6, 6),
    ),
    "webp": Group(
        "WebP",
        "Every image is encoded as a lossy WebP of quality q.",
        *("#00704f", "#4fcfa5", "v"),
        offset=(0, 7),
    ),
    "target ssim": Group(
        "target SSIM",
        "Each image becomes a JPEG of the lowest quality whose SSIM to the source reaches the target; "
        "images that get no smaller, or that no quality brings to the target, are kept.",
        *("#a13a84", "#ec9ed6", "X"),
        offset=(0, -7),
    ),
}
"""By name, in the order of the legend."""

DARK = {INK: DARK_INK, FAINT: DARK_FAINT, PAPER: DARK_PAPER} | {
    group.color: group.dark for group in GROUPS.values()
}
"""By each colour of the plot, the colour that replaces it on a dark page."""
