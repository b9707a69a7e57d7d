"""Prints the findings of a verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.pages.text import counted, visible
from recordmill.transforms.reading.verify_report import Fault, Tally, tally_of

MOST_SHOWN = 20
"""Faults of a kind that are shown; the report has more."""

# The plural and the singular of everything that is checked.
_FIGURES = {
    "shards": "shard",
    "indexes": "index",
    "other files": "other file",
    "records": "record",
    "keys": "key",
    "images": "image",
    "masks": "mask",
    "compared": "compared",
}


def print_verified(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints what was checked, the faults, and what could not be checked."""
    console = console or plain_console()
    tally = tally_of(report)
    wraps = not console.is_terminal
    console.print(visible(report["path"]), style="bold", soft_wrap=wraps)
    console.print(_checked(tally), soft_wrap=wraps)
    for line in _compared(tally, report["likeness"]):
        console.print(visible(line), soft_wrap=wraps)
    for note in sorted(tally.notes):
        console.print(f"not checked: {visible(note)}", soft_wrap=wraps)
    console.print()
    if not tally.faults:
        console.print("nothing is wrong", style="bold green", soft_wrap=wraps)
        return
    total = tally.faults.total()
    console.print(counted(total, "fault"), style="bold red", soft_wrap=wraps)
    console.print(_kinds(tally))
    for kind, times in tally.faults.most_common():
        first = tally.first(kind, MOST_SHOWN)
        console.print(f"\n{kind}", style="bold", soft_wrap=wraps)
        for fault in first:
            console.print(f"  {_line(fault)}", soft_wrap=True)
        if times > len(first):
            console.print(f"  … and {times - len(first):,} more", soft_wrap=wraps)


def _checked(tally: Tally) -> str:
    """What was checked, in a line."""
    checked = tally.checked
    parts = [counted(checked[names], one, names) for names, one in _FIGURES.items() if checked[names]]
    return f"verified {', '.join(parts) or 'nothing'}; {decimal(checked['bytes'])} read"


def _compared(tally: Tally, likeness: Mapping[str, Any]) -> Iterator[str]:
    """How the images compare with their source."""
    ways = {"kept": "the same bytes", "lossless": "the same pixels", "lossy": "lossy"}
    parts = [f"{tally.checked[f'images {way}']:,} {text}" for way, text in ways.items()]
    if tally.checked["compared"]:
        yield f"against the source: {', '.join(part for part in parts if not part.startswith('0 '))}"
    for name, unit in (("ssim", ""), ("psnr", " dB")):
        if figures := likeness[name]:
            values = ", ".join(f"{percent} {value:g}{unit}" for percent, value in figures.items())
            yield f"{name.upper()} of {likeness['images']:,} lossy images: {values}"
    for worst in likeness["worst"]:
        psnr = "" if worst["psnr"] is None else f", PSNR {worst['psnr']:.1f} dB"
        position = f"{worst['file']}, record {worst['record']:,}"
        yield f"  SSIM {worst['ssim']:.4f}{psnr}: {worst['key']} ({position})"


def _kinds(tally: Tally) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True)
    table.add_column("what is wrong")
    table.add_column("times", justify="right")
    for kind, times in tally.faults.most_common():
        table.add_row(kind, f"{times:,}")
    return table


def _line(fault: Fault) -> str:
    position = fault.file
    if fault.record is not None:
        position += f", record {fault.record:,}"
    if fault.offset is not None:
        position += f" at byte {fault.offset:,}"
    if fault.key:
        position += f", {fault.key}"
    return visible(f"{position}: {fault.what}" if fault.what else position)
