"""Time, memory and work of a rerun, compared with a conversion from scratch.

python -m benchmarks.rerun
python -m benchmarks.rerun --images 500 --shards 8 --repeats 1

Draws its images once, into --work. Converts them with --dataset_version, changes some of them, and converts
them again: as the next version, which reuses unchanged records, and into another folder. Both take turns.
Each is a complete command, from the start of its process to its end. Times are medians. The shards of both
must be the same, byte for byte.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.inputs import TEN, benchmark_parser, draw_jpegs, once, own_folder, with_comment
from benchmarks.measure import megabytes, run_python
from benchmarks.report import machine, markdown_table
from benchmarks.works import convert
from recordmill.transforms.storage.file_system import file_system

FIRST, NEXT = "1.0.0", "1.0.1"
_LEAST_IMAGES = 200
NEW_CLASS = "arrow"
"""First in the order of names: the class ids of all records change."""
_PART = 100


class Change(NamedTuple):
    """A change; `apply` makes it in a folder of classes with JPEGs."""

    name: str
    apply: Callable[[Path], None]


def link_tree(source: Path, target: Path) -> None:
    """A copy of a folder made of hard links."""
    shutil.copytree(source, target, copy_function=os.link)


def change_hundredths(photos: Path) -> None:
    """1 % of the images changed, 1 % new, 1 % deleted; a tenth of the new ones are a new class."""
    files = sorted(photos.rglob("*.jpg"))
    some = max(len(files) // _PART, 1)
    step = len(files) // (2 * some)
    chosen = files[:: max(step, 1)][: 2 * some]
    for path in chosen[0::2]:
        replace(path, with_comment(path.read_bytes(), b"changed"))
    for path in chosen[1::2]:
        path.unlink()
    (photos / NEW_CLASS).mkdir()
    for number, path in enumerate(chosen[0::2]):
        folder = photos / NEW_CLASS if number % TEN == 0 else path.parent
        (folder / f"added-{path.name}").write_bytes(with_comment(path.read_bytes(), b"new"))


def add_new(photos: Path, number: int) -> None:
    """New images in existing classes."""
    for path in sorted(photos.rglob("*.jpg"))[:number]:
        (path.parent / f"new-{path.name}").write_bytes(with_comment(path.read_bytes(), b"new"))


def replace(path: Path, data: bytes) -> None:
    """Replaces a file; its hard links keep their contents."""
    path.unlink()
    path.write_bytes(data)


HUNDREDTHS = Change("1 % changed, 1 % new, 1 % deleted, one new class", change_hundredths)
TEN_NEW = Change("ten new", lambda photos: add_new(photos, TEN))
NOTHING = Change("nothing", lambda photos: None)


class Case(NamedTuple):
    """The flags of a conversion, and the change since the previous one."""

    name: str
    flags: tuple[str, ...]
    change: Change


CASES = (
    Case("kept", (), HUNDREDTHS),
    Case("to JPEG, quality 90", ("--image_format", "jpeg", "--jpeg_quality", "90"), HUNDREDTHS),
    Case("kept", (), TEN_NEW),
    Case("kept", (), NOTHING),
)


def _children_seconds() -> float:
    """CPU seconds of all descendants of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclasses.dataclass
class Runs:
    """Seconds of each round, CPU seconds of all processes, and their largest memory in bytes."""

    wall: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)
    rss: int = 0

    def time(self, arguments: Sequence[str]) -> None:
        before = _children_seconds()
        measured = run_python(arguments)
        self.wall.append(measured.seconds)
        self.rss = max(self.rss, measured.rss)
        self.cpu.append(_children_seconds() - before)


@dataclasses.dataclass
class Found:
    """The measurements of a case."""

    rerun: Runs  # of the next version
    scratch: Runs
    images: int  # after the change
    provenance: dict[str, Any] | None = None  # from the manifest of the next version


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all cases and prints the table."""
    parser = benchmark_parser("rerun", __doc__, images=20_000, repeats=3)
    parser.add_argument("--shards", type=int, default=64, help="of each dataset (default: 64)")
    args = parser.parse_args(argv)
    if args.images < _LEAST_IMAGES or min(args.shards, args.repeats) < 1:
        parser.error(f"--images must be at least {_LEAST_IMAGES}, --shards and --repeats at least 1")
    facts = machine()
    work = args.work.absolute()
    drawn = once(work / f"jpeg-{args.images:08d}", draw_jpegs, args.images)
    for path in drawn.rglob("*.jpg"):  # all of them are cached
        path.read_bytes()
    rows = []
    with own_folder(work) as folder:
        bench = Bench(folder / "rerun", drawn, args.shards)
        for case in CASES:
            found = bench.prepare(case)
            for _ in range(args.repeats):
                bench.time_round(case, found)
                times = f"{found.rerun.wall[-1]:.2f} s, {found.scratch.wall[-1]:.2f} s"
                print(f"{case.name}, {case.change.name}: {times}", file=sys.stderr)
            rows.append(table_row(case, found))
    inputs = f"{args.images:,} JPEGs of 480x360 in {args.shards} shards; rounds: {args.repeats}"
    print(f"{facts}. {inputs}.\n\n{markdown_table(HEADER, rows)}")


class Bench:
    """Converts a copy of the images in `drawn` before and after a change, with all files in `folder`."""

    def __init__(self, folder: Path, drawn: Path, shards: int) -> None:
        self._drawn = drawn
        self._photos = folder / "photos"
        self._first = folder / "first" / "dataset"
        self._home = folder / "home" / "dataset"  # of the same name, because the name is a setting
        self._scratch = folder / "scratch"
        self._shards = f"--num_shards={shards}"
        self._folder = folder

    def prepare(self, case: Case) -> Found:
        """Makes the first version, then the change."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        link_tree(self._drawn, self._photos)
        run_python(self._versioned(case, self._first))
        case.change.apply(self._photos)
        return Found(Runs(), Runs(), images=sum(1 for _ in self._photos.rglob("*.jpg")))

    def time_round(self, case: Case, found: Found) -> None:
        """Times both; raises RuntimeError if their shards differ."""
        self._renew()
        found.rerun.time(self._versioned(case, self._home))
        found.scratch.time(self._from_scratch(case))
        self._check(case, found)

    def _renew(self) -> None:
        """Restores the state before the second conversion."""
        shutil.rmtree(self._home.parent, ignore_errors=True)
        shutil.rmtree(self._scratch, ignore_errors=True)
        link_tree(self._first, self._home)

    def _versioned(self, case: Case, home: Path) -> list[str]:
        flags = ("--dataset_version=auto", self._shards, "--quiet", *case.flags)
        return convert(self._photos, home, *flags)

    def _from_scratch(self, case: Case) -> list[str]:
        flags = ("--writer=shards", self._shards, "--quiet", *case.flags)
        return convert(self._photos, self._scratch, *flags)

    def _check(self, case: Case, found: Found) -> None:
        """Compares the shards of both, and reads the provenance of the next version."""
        published = self._home / NEXT / "manifest.json"
        if case.change is NOTHING:
            if published.exists() or shard_digests(self._home / FIRST) != shard_digests(self._scratch):
                raise RuntimeError("nothing has changed, but there is another version")
            return
        if shard_digests(self._home / NEXT) != shard_digests(self._scratch):
            raise RuntimeError(f"{case.name}, {case.change.name}: the shards are not those from scratch")
        found.provenance = json.loads(published.read_text(encoding="utf-8"))["provenance"]


def shard_digests(dataset: Path) -> dict[str, str]:
    """sha256 of each shard, by name."""
    return {path.name: file_system("").sha256(str(path)) for path in sorted(dataset.glob("*.tfrecord"))}


HEADER = (
    *("images: change", "s, next version", "s, from scratch", "ratio"),
    *("CPU s", "CPU s, from scratch", "ratio", "peak RSS", "from scratch"),
    *("source reads", "images encoded or checked", "records reused", "shards reused"),
)


def table_row(case: Case, found: Found) -> tuple[str, ...]:
    rerun, scratch = found.rerun, found.scratch
    figures: list[str] = []
    for these, those, unit in ((rerun.wall, scratch.wall, ".2f"), (rerun.cpu, scratch.cpu, ".1f")):
        one, other = statistics.median(these), statistics.median(those)
        figures += [f"{one:{unit}}", f"{other:{unit}}", f"{one / other:.2f}"]
    return (
        f"{found.images:,} {case.name}: {case.change.name}",
        *figures,
        megabytes(rerun.rss),
        megabytes(scratch.rss),
        *_work_done(found.provenance),
    )


def _work_done(provenance: dict[str, Any] | None) -> tuple[str, ...]:
    if provenance is None:
        return ("0", "0", "nothing is published", "–")
    work, taken = provenance["work"], provenance["taken_over"] or {}
    counts = (work["source_reads"], work["images"], taken.get("records", 0), taken.get("shards", 0))
    return tuple(f"{count:,}" for count in counts)


if __name__ == "__main__":
    main()
