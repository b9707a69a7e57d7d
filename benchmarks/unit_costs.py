"""What the parts of a conversion cost, an image or a shard: what docs/scale.md reckons with.

python -m benchmarks.unit_costs
python -m benchmarks.unit_costs --images 200 --references 10000 --shards 800

Draws its images once, into --work. CPU is that of all processes of a job, start-up taken off. Requests are
counted by a server on loopback; it answers from memory, so that no time is told of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.inputs import TEN, draw_jpegs, draw_pngs, once, own_folder
from benchmarks.report import machine, markdown_table
from benchmarks.unit_costs_cost import Cost
from benchmarks.unit_costs_jobs import encoding_costs, request_costs, version_costs
from benchmarks.unit_costs_lists import list_costs, reference_costs
from benchmarks.unit_costs_shards import shard_costs
from benchmarks.unit_costs_shuffle import shuffle_costs

_LEAST = 200
_PNG_PART = 20
_REQUESTED = 800


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all of it, or some, and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.unit_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=int, default=10_000, help="JPEGs of about 70 KB (default: 10000)")
    parser.add_argument("--references", type=int, default=400_000, help="to images that are nowhere")
    parser.add_argument("--shards", type=int, default=8000, help="that are published nowhere (default: 8000)")
    parser.add_argument("--only", choices=GROUPS, action="append", help="a part of the table; repeatable")
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"), help="folder of the inputs")
    args = parser.parse_args(argv)
    if args.images < _LEAST or args.references < _LEAST or args.shards < 80:
        parser.error(f"--images and --references must be at least {_LEAST}, --shards at least 80")
    facts = machine()
    rows: list[tuple[str, ...]] = []
    for name in args.only or GROUPS:
        for cost in GROUPS[name](args):
            rows.append((cost.name, figure(cost.value), cost.unit, cost.each))
            print(" | ".join(rows[-1]), file=sys.stderr)
    print(f"{facts}.\n\n{markdown_table(('what', 'takes', 'of', 'each'), rows)}")


def figure(value: float) -> str:
    """Three digits that count, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _jpegs(args: argparse.Namespace, number: int) -> Path:
    return once(args.work.absolute() / f"jpeg-{number:08d}", draw_jpegs, number)


def _lists(args: argparse.Namespace) -> list[Cost]:
    return list_costs(_jpegs(args, args.images), args.references)


def _encodings(args: argparse.Namespace) -> list[Cost]:
    number = max(args.images // _PNG_PART, TEN)
    pngs = once(args.work.absolute() / f"png-{number:08d}", draw_pngs, number)
    with own_folder(args.work.absolute()) as folder:
        return encoding_costs(_jpegs(args, TEN), _jpegs(args, args.images), pngs, folder)


def _versions(args: argparse.Namespace) -> list[Cost]:
    with own_folder(args.work.absolute()) as folder:
        return version_costs(_jpegs(args, TEN), _jpegs(args, args.images), folder)


def _requests(args: argparse.Namespace) -> list[Cost]:
    with own_folder(args.work.absolute()) as folder:
        return request_costs(_jpegs(args, min(args.images, _REQUESTED)), folder)


GROUPS: dict[str, Callable[[argparse.Namespace], list[Cost]]] = {
    "lists": _lists,
    "references": lambda args: reference_costs(args.references),
    "shuffle": lambda args: shuffle_costs(args.references),
    "shards": lambda args: shard_costs(args.shards),
    "encodings": _encodings,
    "versions": _versions,
    "requests": _requests,
}


if __name__ == "__main__":
    main()
