"""Text on a terminal of any width; text from the data cannot control the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console

from recordmill.transforms.pages.text import visible

_GAP = 2
_LEAST_LAST = 28  # least width of the last cell next to the others
_INDENT = 4


class Line(NamedTuple):
    """A line of printable text."""

    text: str
    bold: bool = False


def plain_console(soft_wrap: bool = False) -> Console:
    """A console that prints names from the data unchanged, brackets and all."""
    return Console(soft_wrap=soft_wrap, markup=False, highlight=False, emoji=False)


def named(key: str) -> str:
    """The name of a feature, which may be empty."""
    return visible(key) or "''"


def quoted(text: str) -> str:
    """A text value in quotes."""
    return f"'{visible(text)}'"


def table(rows: Sequence[Sequence[str]], room: int | None, indent: int = 2) -> list[Line]:
    """Rows in aligned columns; the last cell is wrapped if it does not fit.

    Args:
        rows: equally many cells each.
        room: columns of the terminal; None for unlimited. On a narrow terminal the first cell of a row is a
            heading, and the other cells are below it.
        indent: columns before the first cell.
    """
    if not rows:
        return []
    *widths, last = (max(cell_len(row[column]) for row in rows) for column in range(len(rows[0])))
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
    """The text in lines that fit; at least one."""
    if cell_len(text) <= room:
        return [text]
    return textwrap.wrap(text, max(room, 10), break_on_hyphens=False) or [""]


def paragraph(text: str, room: int | None, indent: int = 0) -> list[Line]:
    """A sentence in indented lines."""
    pieces = [text] if room is None else wrapped(text, room - indent)
    return [Line(" " * indent + piece) for piece in pieces]
