"""What a verification found, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from recordmill.transforms.reading.verify_tally import Fault, Tally, tally_of
from recordmill.transforms.sources.names import printable

MOST_SHOWN = 20
"""Faults of a kind that are shown; the report has more."""

# What was looked at, and what one of it is called.
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
    """Prints what was looked at, what is wrong with it, and what could not be looked at."""
    # Names from the data are shown as they are, brackets and all.
    console = console or Console(markup=False, highlight=False, emoji=False)
    tally = tally_of(report)
    wraps = not console.is_terminal
    console.print(_safe(report["path"]), style="bold", soft_wrap=wraps)
    console.print(_checked(tally), soft_wrap=wraps)
    for line in _compared(tally, report["likeness"]):
        console.print(_safe(line), soft_wrap=wraps)
    for note in sorted(tally.notes):
        console.print(f"not checked: {_safe(note)}", soft_wrap=wraps)
    console.print()
    if not tally.faults:
        console.print("nothing is wrong", style="bold green", soft_wrap=wraps)
        return
    total = tally.faults.total()
    console.print(f"{total:,} {'fault' if total == 1 else 'faults'}", style="bold red", soft_wrap=wraps)
    console.print(_kinds(tally))
    for kind, times in tally.faults.most_common():
        first = tally.first(kind, MOST_SHOWN)
        console.print(f"\n{kind}", style="bold", soft_wrap=wraps)
        for fault in first:
            console.print(f"  {_line(fault)}", soft_wrap=True)
        if times > len(first):
            console.print(f"  … and {times - len(first):,} more", soft_wrap=wraps)


def _safe(text: str) -> str:
    """Text of the data without what a terminal would heed."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in printable(text))


def _checked(tally: Tally) -> str:
    """What was looked at, in a line."""
    checked = tally.checked
    parts = [
        f"{checked[names]:,} {one if checked[names] == 1 else names}"
        for names, one in _FIGURES.items()
        if checked[names]
    ]
    return f"verified {', '.join(parts) or 'nothing'}; {decimal(checked['bytes'])} read"


def _compared(tally: Tally, likeness: Mapping[str, Any]) -> Iterator[str]:
    """How the images are to their source."""
    ways = {"kept": "the same bytes", "lossless": "the same pixels", "lossy": "lossy"}
    parts = [f"{tally.checked[f'images {way}']:,} {told}" for way, told in ways.items()]
    if tally.checked["compared"]:
        yield f"against the source: {', '.join(part for part in parts if not part.startswith('0 '))}"
    for name, unit in (("ssim", ""), ("psnr", " dB")):
        if figures := likeness[name]:
            told = ", ".join(f"{percent} {value:g}{unit}" for percent, value in figures.items())
            yield f"{name.upper()} of {likeness['images']:,} lossy images: {told}"
    for worst in likeness["worst"]:
        psnr = "" if worst["psnr"] is None else f", PSNR {worst['psnr']:.1f} dB"
        place = f"{worst['file']}, record {worst['record']:,}"
        yield f"  SSIM {worst['ssim']:.4f}{psnr}: {worst['key']} ({place})"


def _kinds(tally: Tally) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True)
    table.add_column("what is wrong")
    table.add_column("times", justify="right")
    for kind, times in tally.faults.most_common():
        table.add_row(kind, f"{times:,}")
    return table


def _line(fault: Fault) -> str:
    place = fault.file
    if fault.record is not None:
        place += f", record {fault.record:,}"
    if fault.offset is not None:
        place += f" at byte {fault.offset:,}"
    if fault.key:
        place += f", {fault.key}"
    return _safe(f"{place}: {fault.what}" if fault.what else place)
