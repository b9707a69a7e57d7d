"""Compares recordmill with what users would run instead: `make benchmark`.

python -m benchmarks.compare
python -m benchmarks.compare --images 100 --small 2000 --rows 20000 --repeats 1
python -m benchmarks.compare --input photos/ --works kept,q90,side256

Every program does the same work on the same files. In each round each program converts ten items, which is
taken as its start-up, and then all; the programs take turns. Results are added to <--work>/results.json, and
those of all works found there are written into the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.inputs import TEN, once, own_folder
from benchmarks.measure import ROOT, run, run_python
from benchmarks.performance_page import update_page
from benchmarks.photographs import draw_photographs, draw_small
from benchmarks.report import machine
from benchmarks.works import PEERS, PROGRAMS, WORKS, Program, Work, convert, link_images

_PAGE = ROOT / "docs/performance.md"
_EPOCHS = 5


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and writes the page."""
    parser = _parser()
    args = parser.parse_args(argv)
    if min(args.images, args.small, args.rows) < 4 * TEN or args.repeats < 1:
        parser.error(f"--images, --small and --rows must be at least {4 * TEN}, --repeats at least 1")
    if args.input is not None and not args.input.is_dir():
        parser.error(f"--input {args.input}: not a folder")
    if not args.page.is_file():
        parser.error(f"--page {args.page}: no file; give a page like {_PAGE.relative_to(ROOT)}")
    works, programs = _chosen(args.works, WORKS, parser), _chosen(args.programs, PROGRAMS, parser)
    folder, results = args.work.absolute(), args.work.absolute() / "results.json"
    found = json.loads(results.read_text("utf-8")) if results.exists() else {"works": {}, "readers": {}}
    found["machine"] = machine()
    for work in works:
        make, number, name = _input(work, args)
        inputs = [
            once(folder / f"{name}-{count:08d}{'.csv' if work.name == 'rows' else ''}", make, count)
            for count in (TEN, number)
        ]
        found["works"].setdefault(work.name, {}).update(_measured(work, programs, inputs, args.repeats))
        _save(found, results, args.page)
    if args.readers:
        found["readers"] = _read(folder, args)
        _save(found, results, args.page)


def _save(found: dict[str, Any], results: Path, page: Path) -> None:
    """Writes what was measured so far, so that an interrupted benchmark loses little."""
    results.write_text(json.dumps(found, indent=1), encoding="utf-8")
    update_page(page, found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--images", type=int, default=1000, help="photographs (default: 1000); of PNGs a quarter")
    add("--small", type=int, default=50_000, help="PNGs of 32 x 32 (default: 50000)")
    add("--rows", type=int, default=1_000_000, help="rows (default: 1000000)")
    add("--repeats", type=int, default=3, help="rounds (default: 3)")
    add("--input", type=Path, help="a folder of JPEGs and PNGs of your own, instead of generated photographs")
    add("--works", default="", help=f"some of {','.join(work.name for work in WORKS)} (default: all)")
    add("--programs", default="", help=f"some of {','.join(one.name for one in PROGRAMS)} (default: all)")
    add("--readers", action="store_true", help="measure reading too")
    add("--page", type=Path, default=_PAGE, help="the page that is updated (default: docs/performance.md)")
    add("--work", type=Path, default=Path("build/benchmarks"), help="folder of the inputs and results")
    return parser


def _chosen(names: str, known: Sequence[Any], parser: argparse.ArgumentParser) -> list[Any]:
    wanted = names.split(",") if names else [one.name for one in known]
    if unknown := set(wanted) - {one.name for one in known}:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(one.name for one in known)}")
    return [one for one in known if one.name in wanted]


def _input(work: Work, args: argparse.Namespace) -> tuple[Callable[[Path, int], None], int, str]:
    """How the input of a work is made, of how many items, and the start of its name."""
    if args.input is not None and work.name in ("kept", "q90", "side256"):
        return link_images(args.input), args.images, f"own-{args.input.name}"
    number = {"small": args.small, "rows": args.rows}.get(work.name, int(args.images * work.share))
    return work.draw, max(number, TEN), work.draw.__name__.removeprefix("draw_")


def _measured(work: Work, programs: Sequence[Program], inputs: list[Path], repeats: int) -> dict[str, Any]:
    """Items, bytes of the input, and the runs of each program: with ten items, and with all."""
    few, everything = inputs
    files = [path for path in everything.rglob("*.*") if path.is_file()] or [everything]
    size = sum(len(path.read_bytes()) for path in files)  # now all are cached
    number = int(everything.stem.rpartition("-")[2])
    items = number if work.name == "rows" else min(number, len(files))
    doing = [one for one in programs if not one.works or work.name in one.works]
    found: dict[str, dict[str, Any]] = {one.name: {"few": [], "all": [], "bytes": 0} for one in doing}
    with own_folder(few.parent) as folder:
        for _ in range(repeats):
            for program in doing:
                runs = found[program.name]
                for part, source in (("few", few), ("all", everything)):
                    output = folder / "output"
                    measured = run(program.command(work, source, output))
                    runs[part].append(dataclasses.asdict(measured))
                    shards = [path for path in output.rglob("*") if "tfrecord" in path.name]
                    runs["bytes"] = sum(path.stat().st_size for path in shards)
                    shutil.rmtree(output, ignore_errors=True)
                print(f"{work.name}, {program.name}: {measured.seconds:.2f} s", file=sys.stderr, flush=True)
    return {"items": items, "size": size, "programs": found}


def _read(folder: Path, args: argparse.Namespace) -> Any:
    """Seconds of each reader's epochs, for photographs at a short side of 256 and for small PNGs."""
    made = []
    scaled = ("--image_format=jpeg", "--short_side=256", "--color=rgb")
    for name, draw, number, flags in (
        ("photographs", draw_photographs, args.images, scaled),
        ("small", draw_small, args.small, ("--color=rgb",)),
    ):
        output = folder / f"read-{name}-{number:08d}"
        if not output.exists():
            source = once(folder / f"{name}-{number:08d}", draw, number)
            run_python(convert(source, output, "--num_shards=8", "--quiet", *flags))
        made.append(str(output))
    found = _printed(sys.executable, "readers", *made, str(_EPOCHS))
    python = str(PEERS / "tensorflow" / "bin" / "python")
    for reading, dataset, side in zip(found.values(), made, ("224", "0"), strict=True):
        seconds = _printed(python, "peers.pytorch_reader", dataset, side, str(_EPOCHS))
        reading["readers"]["PyTorch's `tfrecord`, with Pillow, one process"] = seconds
    return found


def _printed(python: str, module: str, *arguments: str) -> Any:
    """What a module of the benchmarks prints, which is JSON."""
    command = [python, "-m", f"benchmarks.{module}", *arguments]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
