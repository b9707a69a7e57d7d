"""Reads rows of CSV and JSON Lines in linear time; an unclosed quote costs a bounded part of the file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.names import is_unicode
from recordmill.transforms.storage.files import open_file

Values = dict[str, Any]

UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks."""

MAX_LINE = 1 << 24
"""Characters of the longest line and the longest CSV cell."""

MAX_ROW = 1 << 20
"""Characters of the longest row of several lines: limits the text that an unclosed quote takes in."""

MAX_COLUMNS = 32_768
"""Columns that a header may have."""

_LONGEST_NAME = 1_000
_MAX_CELL = 1 << 25  # limit of `csv`: more than a line and such a row have together
_CLOSING = '"\n'  # ends a row that is in quotes
_MAX_DEPTH = 64  # of objects and lists in a row of JSON
_AS_SURROGATE = "recordmill.as_surrogate"
codecs.register_error(_AS_SURROGATE, lambda error: ("\udc80", getattr(error, "end", 0)))


class _HeldLines:
    """Lines for `csv`, which reads another line of the same row only while a quote is open."""

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
    """The line at which each row of a CSV text starts, and its cells or why it cannot be read.

    Blank lines are rows without cells. Lines include their line ends.
    """
    if csv.field_size_limit() < _MAX_CELL:
        csv.field_size_limit(_MAX_CELL)
    held = _HeldLines(lines)
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
    """Raises ValueError if a header has too many columns, or too long names."""
    if len(cells) > MAX_COLUMNS:
        raise ValueError(f"{name} has {len(cells):,} columns; at most {MAX_COLUMNS:,} are read")
    for number, cell in enumerate(cells, 1):
        if len(cell) > _LONGEST_NAME:
            raise ValueError(
                f"{name} has a name of {len(cell):,} characters for column {number}, {cell[:40]!r}…; "
                f"at most {_LONGEST_NAME:,} are read"
            )


class _CheckedLines:
    """The lines of an open file; `fault` is why lines cannot be used since it was last cleared."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault = ""

    def __iter__(self) -> Iterator[str]:
        readline = self._stream.readline
        encoding = "UTF-16" if self._stream.encoding == "utf-16" else "UTF-8"
        while line := readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                self.fault = "row too long"
                while (rest := readline(MAX_LINE)) and not rest.endswith(("\n", "\r")):
                    pass
                line = "\n"
            elif not is_unicode(line):
                self.fault = f"row is not {encoding}"
            elif "\0" in line:
                self.fault = "row has a NUL byte"
            yield line


@contextlib.contextmanager
def _open_lines(path: str) -> Iterator[_CheckedLines]:
    """Reads UTF-8, or UTF-16 with a BOM; undecodable bytes become lone surrogates."""
    file = open_file(path)
    is_utf16 = file.peek(2).startswith(UTF16)
    encoding, errors = ("utf-16", _AS_SURROGATE) if is_utf16 else ("utf-8-sig", "surrogateescape")
    with io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="") as stream:
        yield _CheckedLines(stream)


def read_rows(path: str, delimiter: str = ",") -> Iterator[tuple[int, list[str] | BadInput]]:
    """The rows of a CSV file without blank lines, as `read_cells`."""
    with _open_lines(path) as lines:
        for line, cells in read_cells(lines, delimiter):
            if lines.fault:
                yield line, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif cells:
                yield line, cells


def read_objects(path: str) -> Iterator[tuple[int, Values | BadInput]]:
    """The line of each object of JSON Lines, and the object or why it cannot be read."""
    with _open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if lines.fault:
                yield number, BadInput("manifest", lines.fault)
                lines.fault = ""
            elif not line.isspace():
                yield number, _parse(line)


def _parse(line: str) -> Values | BadInput:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadInput("manifest", "not JSON", str(error))
    if not isinstance(item, dict):
        return BadInput("manifest", "not a JSON object", f"it is a JSON {type(item).__name__}")
    if line.count("{") + line.count("[") > _MAX_DEPTH and _is_too_deep(item):
        return BadInput("manifest", "not JSON", f"nested more than {_MAX_DEPTH} deep")
    # JSON can escape half of a surrogate pair, which UTF-8 cannot encode
    if "\\u" in line and not is_unicode(json.dumps(item, ensure_ascii=False)):
        return BadInput("manifest", "row is not Unicode", "a \\u escape is half of a pair")
    return item


def _is_too_deep(item: Any) -> bool:
    level = [item]
    for _ in range(_MAX_DEPTH):
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
    return bool(level)
