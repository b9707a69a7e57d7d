"""CSV text as rows of cells, in linear time: an unclosed quote costs a bounded part of the file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from recordmill.transforms.records import BadInput

MAX_ROW = 1 << 20
"""Characters of the longest row of several lines: what an unclosed quote can swallow."""

MAX_COLUMNS = 32_768
"""Columns that a header may have."""

_LONGEST_NAME = 1_000
_MAX_CELL = 1 << 25  # more than a line and such a row have: `csv` compares each cell with it
_CLOSING = '"\n'  # ends a row that is in quotes


class _Lines:
    """Lines for `csv`, which asks for another one within a row only while a quote is open."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.held = 0
        self.fault = ""
        self.is_ended = False

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            if self.held and self.held + len(line) > MAX_ROW:
                self.fault = f"in quotes for more than {MAX_ROW} characters; a quote may be unclosed"
                line = _CLOSING
            self.held += len(line)
            yield line
        if self.held:
            self.fault, self.is_ended = "in quotes that are not closed", True
            yield _CLOSING


def read_cells(lines: Iterable[str], delimiter: str = ",") -> Iterator[tuple[int, list[str] | BadInput]]:
    """The rows of a CSV text: the line each starts at, and its cells or what is wrong with it.

    Blank lines are rows without cells. What follows a row that cannot be read is read.

    Args:
        lines: each with its line end, if any; what they raise ends the rows.
        delimiter: between cells.
    """
    if csv.field_size_limit() < _MAX_CELL:
        csv.field_size_limit(_MAX_CELL)
    held = _Lines(lines)
    reader = csv.reader(held, delimiter=delimiter, strict=True)
    while True:
        line, held.held = reader.line_num + 1, 0
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, BadInput("manifest", "not CSV", f"{error}, up to line {reader.line_num}")
            continue
        if held.fault:
            last = reader.line_num - held.is_ended
            detail = f"column {len(cells)} is {held.fault}, up to line {last}"
            held.fault = ""
            yield line, BadInput("manifest", "not CSV", detail)
        else:
            yield line, cells


def check_columns(name: str, cells: Sequence[str]) -> None:
    """Raises ValueError where a header has more columns than are read, or longer names."""
    if len(cells) > MAX_COLUMNS:
        raise ValueError(f"{name} has {len(cells):,} columns; at most {MAX_COLUMNS:,} are read")
    for number, cell in enumerate(cells, 1):
        if len(cell) > _LONGEST_NAME:
            raise ValueError(
                f"{name} has a name of {len(cell):,} characters for column {number}, {cell[:40]!r}…; "
                f"at most {_LONGEST_NAME:,} are read"
            )
