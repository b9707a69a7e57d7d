"""The figures of a sweep on the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.filesize import decimal

from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.pages.text import counted, rate_text
from recordmill.transforms.sweeping.results import COLUMNS, GROUPS, Column, Row, Sweep, remarks

_NONE = "-"
Line = Sequence[str]

# Shorter unit and text by title of the column, for a terminal without room for exact figures.
_SHORT: dict[str, tuple[str, Callable[[Row], str]]] = {
    "TFRecord": ("bytes", lambda row: _short_size(row.tfrecord_bytes)),
    "ratio": ("", lambda row: _NONE if row.ratio is None else f"{row.ratio:.3f}"),
    "an image": ("bytes", lambda row: _short_size(row.bytes_per_image)),
    "encode": ("img/s", lambda row: _short_rate(row.encode_rate)),
    "decode": ("img/s", lambda row: _short_rate(row.decode_rate)),
}
# Columns that a narrow terminal leaves out, in this order.
_DISPENSABLE = ("PSNR", "an image", "decode", "encode")


def print_table(sweep: Sweep, console: Console | None = None) -> None:
    """Prints one row a setting, and how to read it.

    A terminal without room for complete names shows a heading for each group and rounded figures. A narrower
    terminal shows fewer columns, and names the others. Other output has every column, and one line a row.
    """
    console = console or plain_console()
    piped = not console.is_terminal
    lines, left_out = _layout(sweep.rows, None if piped else console.width)
    images = counted(sweep.images, "image")
    console.print(f"{images} of {sweep.source_kind} {sweep.input}\n", style="bold", soft_wrap=piped)
    for number, line in enumerate(lines):
        console.print(line, style="bold" if number < 2 else None, soft_wrap=True)
    console.print()
    for reason, count in sorted(sweep.failures.items()):
        console.print(f"{count:,} not measured: {reason}", soft_wrap=piped)
    for refusal in _refusals(sweep.rows):
        console.print(refusal, soft_wrap=piped)
    if left_out:
        console.print(f"Not shown on this narrow terminal: {', '.join(left_out)}.")
    for remark in remarks(sweep):
        console.print(f"- {remark}", soft_wrap=piped)


def _layout(rows: Sequence[Row], room: int | None) -> tuple[list[str], list[str]]:
    """The lines of the table, header first, and the columns that do not fit."""
    lines, left_out = _aligned(_exact(rows, COLUMNS), 2), list[str]()
    if room is None or max(map(len, lines)) <= room:
        return lines, left_out
    for gap, count in ((2, 0), *((1, count) for count in range(len(_DISPENSABLE) + 1))):
        left_out = list(_DISPENSABLE[:count])
        columns = [column for column in COLUMNS if column.title not in left_out]
        lines = _aligned(_grouped(rows, columns), gap)
        if max(map(len, lines)) <= room:
            break
    return lines, left_out


def _aligned(lines: Sequence[Line], gap: int) -> list[str]:
    """Cells as text: the first to the left, the others to the right."""
    columns = range(len(lines[0]))
    widths = [max(len(line[column]) for line in lines if len(line) > 1) for column in columns]
    texts = []
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False)]
        texts.append((" " * gap).join(cells).rstrip())
    return texts


def _exact(rows: Sequence[Row], columns: Sequence[Column]) -> list[Line]:
    """Two lines of header, and a line for each row, with complete names and exact figures."""
    header: list[Line] = [
        ["", *(column.title for column in columns)],
        ["setting", *(column.unit for column in columns)],
    ]
    return header + [[row.setting.name, *(column.text(row) or _NONE for column in columns)] for row in rows]


def _grouped(rows: Sequence[Row], columns: Sequence[Column]) -> list[Line]:
    """The same with short names, and a heading for each group whose settings have a value."""
    lines: list[Line] = [
        ["", *(column.title for column in columns)],
        ["setting", *(_SHORT.get(column.title, (column.unit,))[0] for column in columns)],
    ]
    for group, members in itertools.groupby(rows, key=lambda row: row.setting.group):
        for number, row in enumerate(members):
            value = row.setting.value
            if number == 0 and value is not None:
                lines.append([GROUPS[group].label])
            name = row.setting.name if value is None else f"  {_value(value)}"
            lines.append([name, *(_short(row, column) for column in columns)])
    return lines


def _value(value: float) -> str:
    return f"SSIM {value}" if value <= 1 else f"q{value:g}"


def _refusals(rows: Sequence[Row]) -> list[str]:
    """The numbers of refused images, each with the settings that refused them."""
    found: dict[int, list[str]] = {}
    for row in rows:
        if row.failed:
            found.setdefault(row.failed, []).append(row.setting.name)
    return [f"{count:,} refused by {'; '.join(names)}" for count, names in found.items()]


def _short(row: Row, column: Column) -> str:
    if column.title in _SHORT:
        return _SHORT[column.title][1](row)
    return column.text(row) or _NONE


def _short_size(size: float | None) -> str:
    return _NONE if size is None else decimal(round(size)).replace(" bytes", " B")


def _short_rate(rate: float | None) -> str:
    if rate is None:
        return _NONE
    if rate < 10_000:
        return rate_text(rate)
    return f"{rate / 1e3:,.0f}k" if rate < 1e6 else f"{rate / 1e6:,.1f}M"
