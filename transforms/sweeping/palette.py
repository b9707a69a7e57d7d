"""How the groups of a sweep look, in the plot and on the page: told apart without colour too."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How one group is drawn.

    Attributes:
        label: of the group, as people read it.
        color: on white, `#rrggbb`; text in it can be read.
        dark: the same on a dark page.
        marker: of matplotlib.
        dashed: whether its line is.
    """

    label: str
    color: str
    dark: str
    marker: str
    dashed: bool = False


INK, DARK_INK = "#22262b", "#e4e7eb"
FAINT, DARK_FAINT = "#d5d9de", "#3a4149"
PAPER, DARK_PAPER = "#fffffe", "#15181c"

# Hues of Okabe and Ito, as dark as text wants them; markers and dashes say the same.
STYLES = {
    "pixels": Style("raw pixels", "#50565e", "#b9c0c8", "s"),
    "files": Style("files as they are", "#23272c", "#f2f4f6", "D"),
    "png to jpeg": Style("PNG to JPEG", "#0a5ca8", "#6db0f0", "o"),
    "re-encoded": Style("re-encoded", "#b34700", "#ff9c69", "^"),
    "png to jpeg, optimised": Style("PNG to JPEG, optimised", "#1c7fc4", "#a3d4fb", "o", dashed=True),
    "re-encoded, optimised": Style("re-encoded, optimised", "#a86a00", "#f5c35a", "^", dashed=True),
    "lossless": Style("lossless", "#5b4fae", "#b3a8fa", "P"),
    "webp": Style("WebP", "#00704f", "#4fcfa5", "v"),
    "target ssim": Style("target SSIM", "#a13a84", "#ec9ed6", "X"),
}
"""By group, in the order of the legend."""

DARK = {INK: DARK_INK, FAINT: DARK_FAINT, PAPER: DARK_PAPER} | {
    style.color: style.dark for style in STYLES.values()
}
"""What each colour of the plot is on a dark page."""
