"""The figures of a sweep on the terminal."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.filesize import decimal

from recordmill.transforms.sweeping.groups import GROUPS
from recordmill.transforms.sweeping.results import Row, Sweep
from recordmill.transforms.sweeping.wording import rate_text, remarks, ssim_text

_NONE = "-"
Line = Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """A figure: its name, its unit, and how it is written; the short way where there is little room."""

    title: str
    unit: str
    full: Callable[[Row], str]
    short_unit: str
    short: Callable[[Row], str]


def _column(
    title: str,
    unit: str,
    full: Callable[[Row], str],
    short_unit: str | None = None,
    short: Callable[[Row], str] | None = None,
) -> _Column:
    return _Column(title, unit, full, unit if short_unit is None else short_unit, short or full)


_COLUMNS = (
    _column(
        "TFRecord",
        "bytes",
        lambda row: f"{row.tfrecord_bytes:,}",
        short=lambda row: _short_size(row.tfrecord_bytes),
    ),
    _column("ratio", "to files", lambda row: _number(row.ratio, "{:.3f}"), ""),
    _column(
        "an image",
        "bytes",
        lambda row: _number(row.bytes_per_image, "{:,.0f}"),
        short=lambda row: _short_size(row.bytes_per_image),
    ),
    _column(
        "encode",
        "images/s",
        lambda row: rate_text(row.encode_rate, _NONE),
        "img/s",
        lambda row: _short_rate(row.encode_rate),
    ),
    _column(
        "decode",
        "images/s",
        lambda row: rate_text(row.decode_rate, _NONE),
        "img/s",
        lambda row: _short_rate(row.decode_rate),
    ),
    _column("SSIM", "mean", lambda row: ssim_text(row.ssim_mean, _NONE)),
    _column("SSIM", "worst", lambda row: ssim_text(row.ssim_worst, _NONE)),
    _column("PSNR", "dB", lambda row: _number(row.psnr_mean, "{:.1f}")),
)
# What a terminal that is too narrow for all goes without, first the first.
_DISPENSABLE = ("PSNR", "an image", "decode", "encode")


def print_table(sweep: Sweep, console: Console | None = None) -> None:
    """Prints one row a setting, and what has to be known to read it.

    A terminal without room for whole names has them under a heading for each group, and rounded figures; a
    narrower one goes without some columns, and says so. What is not a terminal gets everything, a row a line.
    """
    # Names from the data are shown as they are, brackets and all.
    console = console or Console(markup=False, highlight=False, emoji=False)
    piped = not console.is_terminal
    lines, left_out = _layout(sweep.rows, None if piped else console.width)
    images = f"{sweep.images:,} image{'' if sweep.images == 1 else 's'}"
    console.print(f"{images} of {sweep.source_kind} {sweep.input}\n", style="bold", soft_wrap=piped)
    for place, line in enumerate(lines):
        console.print(line, style="bold" if place < 2 else None, soft_wrap=True)
    console.print()
    for reason, count in sorted(sweep.failures.items()):
        console.print(f"{count:,} not measured: {reason}", soft_wrap=piped)
    for refusal in _refusals(sweep.rows):
        console.print(refusal, soft_wrap=piped)
    if left_out:
        console.print(f"Not shown for want of room: {', '.join(left_out)}.")
    for remark in remarks(sweep):
        console.print(f"- {remark}", soft_wrap=piped)


def _layout(rows: Sequence[Row], room: int | None) -> tuple[list[str], list[str]]:
    """The lines of the table, header first, and the columns that had no room."""
    columns = list(_COLUMNS)
    lines = _aligned(_whole(rows, columns), 2)
    if _fits(lines, room):
        return lines, []
    lines = _aligned(_grouped(rows, columns), 2)
    if _fits(lines, room):
        return lines, []
    lines, left_out = _aligned(_grouped(rows, columns), 1), []
    for title in _DISPENSABLE:
        if _fits(lines, room):
            break
        columns = [column for column in columns if column.title != title]
        left_out.append(title)
        lines = _aligned(_grouped(rows, columns), 1)
    return lines, left_out


def _fits(lines: Sequence[str], room: int | None) -> bool:
    return room is None or max(map(len, lines)) <= room


def _aligned(lines: Sequence[Line], gap: int) -> list[str]:
    """Cells as text: the first to the left, the others to the right."""
    columns = range(len(lines[0]))
    widths = [max(len(line[place]) for line in lines if len(line) > 1) for place in columns]
    texts = []
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False)]
        texts.append((" " * gap).join(cells).rstrip())
    return texts


def _whole(rows: Sequence[Row], columns: Sequence[_Column]) -> list[Line]:
    """Two lines of header, and a line for each row, with whole names and exact figures."""
    header: list[Line] = [
        ["", *(column.title for column in columns)],
        ["setting", *(column.unit for column in columns)],
    ]
    return header + [[row.setting.name, *(column.full(row) for column in columns)] for row in rows]


def _grouped(rows: Sequence[Row], columns: Sequence[_Column]) -> list[Line]:
    """The same with short names, under a heading for each group whose settings have a value."""
    lines: list[Line] = [
        ["", *(column.title for column in columns)],
        ["setting", *(column.short_unit for column in columns)],
    ]
    for group, members in itertools.groupby(rows, key=lambda row: row.setting.group):
        for place, row in enumerate(members):
            value = row.setting.value
            if place == 0 and value is not None:
                lines.append([GROUPS[group].label])
            name = row.setting.name if value is None else f"  {_value(value)}"
            lines.append([name, *(column.short(row) for column in columns)])
    return lines


def _value(value: float) -> str:
    return f"SSIM {value}" if value <= 1 else f"q{value:g}"


def _refusals(rows: Sequence[Row]) -> list[str]:
    """How many images were refused, and by which settings."""
    found: dict[int, list[str]] = {}
    for row in rows:
        if row.failed:
            found.setdefault(row.failed, []).append(row.setting.name)
    return [f"{count:,} refused by {'; '.join(names)}" for count, names in found.items()]


def _short_size(size: float | None) -> str:
    return _NONE if size is None else decimal(round(size)).replace(" bytes", " B")


def _short_rate(rate: float | None) -> str:
    if rate is None or rate < 10_000:
        return rate_text(rate, _NONE)
    return f"{rate / 1e3:,.0f}k" if rate < 1e6 else f"{rate / 1e6:,.1f}M"


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else form.format(value)
