"""Names and numbers as text for people."""

from __future__ import annotations

import math

from recordmill.transforms.sources.names import printable

LONGEST_NAME = 120
_UNITS = ("kB", "MB", "GB", "TB", "PB")


def visible(name: str, longest: int | None = None) -> str:
    """A name in visible characters; beyond `longest` characters its middle is left out."""
    if longest is not None and len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-(longest // 2) :]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in printable(name))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun; `plural` unless it is the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size_text(size: float) -> str:
    """A number of bytes, in three digits and a decimal unit."""
    if size < 1000:
        return f"{size:,.0f} bytes"
    for unit in _UNITS:
        size /= 1000
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:,.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"


def share_text(share: float) -> str:
    """A share in per cent: 0 or 100 only if it is exactly that."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1 %"
    digits = ".1f" if percent < 9.95 else ".0f" if percent < 99.5 else ".3g"
    return f"{percent:{digits}} %"


def ssim_text(ssim: float) -> str:
    """An SSIM to four digits, never rounded up: `1` is the source itself."""
    return "1" if ssim == 1 else f"{math.floor(ssim * 10_000) / 10_000:.4f}"


def rate_text(rate: float) -> str:
    """Images a second, to two digits at least."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
