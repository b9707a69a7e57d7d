"""Lines of text for a terminal of any width, of what nobody has checked."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

_GAP = 2
_LEAST_LAST = 28  # columns that the last cell must have beside the others
_INDENT = 4


class Line(NamedTuple):
    """A line.

    Attributes:
        text: that can be printed.
        bold: whether it stands out.
    """

    text: str
    bold: bool = False


def printed(text: str) -> str:
    r"""Text without what would act on a terminal: `\x1b` and its like are written out."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def named(key: str) -> str:
    """A key of a feature, which may have no letter."""
    return printed(key) or "''"


def quoted(text: str) -> str:
    """A value that is text."""
    return f"'{printed(text)}'"


def table(rows: Sequence[Sequence[str]], room: int | None, indent: int = 2) -> list[Line]:
    """Rows of cells side by side; the last cell goes on below itself where there is no room.

    Args:
        rows: of cells, as many each.
        room: columns of the terminal; None for any number. With little, each row is a heading, and what the
            other cells have below it.
        indent: columns before the first cell.
    """
    if not rows:
        return []
    *widths, last = (max(cell_len(row[place]) for row in rows) for place in range(len(rows[0])))
    before = indent + sum(width + _GAP for width in widths)
    if room is not None and before + last > room and room - before < _LEAST_LAST:
        return [line for row in rows for line in _stacked(row, room, indent)]
    lines = []
    for *cells, value in rows:
        padded = (
            cell + " " * (width - cell_len(cell) + _GAP) for cell, width in zip(cells, widths, strict=True)
        )
        start = " " * indent + "".join(padded)
        pieces = [value] if room is None else wrapped(value, room - before)
        lines.append(Line((start + pieces[0]).rstrip()))
        lines += [Line(" " * before + piece) for piece in pieces[1:]]
    return lines


def _stacked(row: Sequence[str], room: int, indent: int) -> list[Line]:
    first, *others = row
    lines = [Line(" " * indent + piece) for piece in wrapped(first, room - indent)]
    below = " " * (indent + _INDENT)
    value = ", ".join(cell for cell in others if cell)
    return lines + [Line(below + piece) for piece in wrapped(value, room - len(below)) if piece]


def wrapped(text: str, room: int) -> list[str]:
    """Text in pieces that fit; at least one."""
    if cell_len(text) <= room:
        return [text]
    return textwrap.wrap(text, max(room, 10), break_on_hyphens=False) or [""]


def paragraph(text: str, room: int | None, indent: int = 0) -> list[Line]:
    """A sentence."""
    pieces = [text] if room is None else wrapped(text, room - indent)
    return [Line(" " * indent + piece) for piece in pieces]


def counted(number: int, noun: str, exact: bool = True) -> str:
    """`1 record`, `2 records`, `about 1,000 records`."""
    return f"{'' if exact else 'about '}{number:,} {noun}{'' if number == 1 else 's'}"
