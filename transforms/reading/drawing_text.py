"""Text in pictures, in the font that matplotlib brings: it has Latin, Greek, Cyrillic, Arabic and more."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

import numpy as np
from PIL import ImageFont

from recordmill.transforms.sources.names import printable

Color = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_FONT = os.path.join("mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
_LINE = "Ágjp|"  # as high and as deep as a line gets
_MOST_LETTERS = 1000


@functools.cache
def font_of(height: int) -> Font:
    """DejaVu Sans in that many pixels; Pillow's own font in its one size where there is no FreeType."""
    # found without importing it, which takes a second
    package = importlib.util.find_spec("matplotlib")
    folders = package.submodule_search_locations if package is not None else None
    try:
        return ImageFont.truetype(os.path.join((folders or ["."])[0], _FONT), height)
    except (ImportError, OSError):
        return ImageFont.load_default()


def text_size(text: str, font: Font) -> tuple[int, int]:
    """Width of a text, and height of a line, in pixels."""
    _, top, _, bottom = font.getbbox(_LINE)
    return int(np.ceil(font.getlength(text))), int(np.ceil(bottom - top))


def write(pen: Any, at: tuple[float, float], text: str, font: Font, color: Color) -> None:
    """Draws text whose line begins at a left upper corner."""
    pen.text((at[0], at[1] - font.getbbox(_LINE)[1]), text, font=font, fill=color)


@functools.lru_cache(maxsize=4096)
def _has_glyph(letter: str) -> bool:
    font = font_of(12)
    if not isinstance(font, ImageFont.FreeTypeFont):
        return letter.isascii()
    return letter == " " or bytes(font.getmask(letter)) != bytes(font.getmask("\uffff"))


def drawable(text: str, instead: str) -> str:
    """`text` in one line, or `instead` where the font has none of its letters; those it lacks become `?`."""
    start = printable(text[:_MOST_LETTERS])
    line = "".join(letter if letter.isprintable() else " " for letter in start).strip()
    drawn_as = "".join(letter if _has_glyph(letter) else "?" for letter in line)
    return drawn_as if any(letter != "?" for letter in drawn_as.replace(" ", "")) else instead


def shortened(text: str, font: Font, width: int, keep_end: bool = False) -> str:
    """As much of a text as fits in a width, `...` for its end or beginning; empty where nothing fits."""
    if font.getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = font.getlength(_cut(text, middle, keep_end)) <= width
        low, high = (middle, high) if fits else (low, middle - 1)
    return _cut(text, low, keep_end) if font.getlength(_cut(text, low, keep_end)) <= width else ""


def _cut(text: str, count: int, keep_end: bool) -> str:
    return "..." + text[len(text) - count :] if keep_end else text[:count] + "..."


def broken(text: str, font: Font, width: int) -> list[str]:
    """A line as lines of a width, broken between words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [shortened(line, font, width) for line in lines]
