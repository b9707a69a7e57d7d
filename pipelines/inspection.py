"""Shows the content of any TFRecords: features, images, classes, the first records, damage.

recordmill inspect out/
recordmill inspect out/train-00000-of-00016.tfrecord --all
recordmill inspect 'gs://bucket/out/train-*' --images sheet.png
recordmill inspect out/ --record 1000
python -m recordmill.pipelines.inspection out/ --json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

if __package__ in (None, ""):
    # Run as a file: its own folder is first on the path, and holds no package.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from recordmill.pipelines.running import interruption

if __name__ == "__main__":
    interruption.install()  # what follows takes a while to import

from rich.console import Console

from recordmill.pipelines.inspection_json import as_json, file_name
from recordmill.pipelines.inspection_lines import record_lines, summary_lines
from recordmill.pipelines.options.inspect import INSPECT
from recordmill.pipelines.options.parser import Parser
from recordmill.pipelines.options.reading import check_output_file
from recordmill.pipelines.terminal import Line, plain_console
from recordmill.transforms.examples.framing import DamagedRecordError
from recordmill.transforms.flags import as_flags
from recordmill.transforms.pages.text import counted, visible
from recordmill.transforms.reading.dataset import Dataset, ShardEntry, class_names, find_dataset
from recordmill.transforms.reading.inspected import (
    Inspected,
    Limits,
    Taken,
    first_records,
    inspected,
    numbered_record,
    spread_records,
)
from recordmill.transforms.reading.survey_record import COMPLETE, shown_record
from recordmill.transforms.reading.survey_record import Limits as Shown
from recordmill.transforms.records import BadInput, JobError
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import replace_own
from recordmill.transforms.storage.paths import absolute
from recordmill.transforms.workers import own_process

_SIDE = 224
_MOST_BYTES = 256 << 20  # of records that are held at once


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.inspection") -> int:
    """Prints the content; returns the exit status: 1 if something is damaged."""
    with interruption.stopping_at_once():
        interruption.set_message("nothing is written\n")
        parser = INSPECT.parser(prog)
        args = parser.parse_args(sys.argv[1:] if argv is None else argv)
        _check(parser, args)
        own_process.set_up()
        # The reader may be gone; the terminal may lack some characters.
        with contextlib.suppress(AttributeError):
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            return _run(parser, args)
        except (JobError, DamagedRecordError) as error:
            message = as_flags(str(error))
        except OSError as error:
            message = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
        print(f"{prog}: {visible(message)}", file=sys.stderr)
        return 1


def _check(parser: Parser, args: argparse.Namespace) -> None:
    """Ends a call whose flags contradict each other."""
    if args.all and "sample" in args.given:
        parser.error(f"--sample is {args.sample}, and --all reads every record; leave one of them")
    for name in ("pictures", "columns"):
        if name in args.given and args.images is None:
            parser.error(f"--{name} is for the contact sheet; also give --images sheet.png")
    if args.record is not None:
        for name in ("sample", "records", "images", *(["all"] if args.all else [])):
            if name in args.given:
                parser.error(f"--record shows one record; remove --{name}")
        if not args.record.rpartition(":")[2].isdecimal():
            parser.error(f"--record is {args.record!r}; it may be a number from 0, or FILE:NUMBER")
    if args.images is not None:
        try:
            _check_sheet(args.images)
        except (ValueError, OSError) as error:
            parser.error(str(error))


def _run(parser: Parser, args: argparse.Namespace) -> int:
    try:
        file_system(args.path).check_path(args.path)
        dataset = find_dataset(args.path)
    except (ValueError, OSError) as error:
        text = str(getattr(error, "strerror", None) or error)
        is_named = isinstance(error, ValueError) and repr(args.path) in text
        parser.error(visible(text if is_named else f"PATH is {args.path!r}: {text}"))
    if args.record is not None:
        return _show_one(parser, args, dataset)
    limits = Limits(records=None if args.all else args.sample)
    with _progress(args, dataset) as progress:
        found = inspected(dataset, limits, progress)
    sheet = []
    if args.images is not None:
        count = write_sheet(args.images, found, args.pictures, args.columns)
        sheet = [Line(""), Line(f"{visible(args.images)} shows {counted(count, 'record')}")]
    records = []
    with contextlib.suppress(OSError):  # files that cannot be read were reported already
        for taken in first_records(dataset, args.records):
            records.append(_shown(taken, dataset, Shown()))
    if args.json:
        _print_json(as_json(found, records, args.images))
    else:
        console, room = _console()
        lines = summary_lines(found, room)
        for record in records:
            lines += [Line(""), *record_lines(record, found.names, dataset.renames, room)]
        _print(console, lines + sheet)
    return 0 if found.sound else 1


def _shown(taken: Taken, dataset: Dataset, limits: Shown) -> dict[str, Any]:
    file = file_name(dataset, taken.entry)
    return {"file": file, **shown_record(taken.record, dataset.renames, limits)}


def _show_one(parser: Parser, args: argparse.Namespace, dataset: Dataset) -> int:
    name, _, number = args.record.rpartition(":")
    entries = _entries(parser, dataset, name)
    try:
        taken = numbered_record(entries, int(number))
    except IndexError as error:
        count = error.args[0]
        may = f"it may be {f'{name}:' if name else ''}0 to {count - 1}" if count else "there are no records"
        parser.error(f"--record is {args.record!r}; {may}")
    except DamagedRecordError as error:
        raise JobError(f"--record is {args.record!r}: {error}") from error
    record = _shown(taken, dataset, COMPLETE)
    if args.json:
        _print_json(record)
    else:
        console, room = _console()
        _print(console, record_lines(record, class_names(dataset).shown, dataset.renames, room))
    return 0


def _entries(parser: Parser, dataset: Dataset, name: str) -> Sequence[ShardEntry]:
    """The file of that name; without a name, all."""
    if not name:
        return dataset.shards
    entries = [one for one in dataset.shards if name in (file_name(dataset, one), one.path)]
    if len(entries) != 1:
        files = ", ".join(file_name(dataset, one) for one in dataset.shards[:3])
        more = ", …" if len(dataset.shards) > 3 else ""
        parser.error(visible(f"--record names the file {name!r}; the files are {files}{more}"))
    return entries


@contextlib.contextmanager
def _progress(args: argparse.Namespace, dataset: Dataset) -> Iterator[Callable[[int], object] | None]:
    """Shows progress on stderr while all records are read, if it is a terminal."""
    console = Console(stderr=True)
    if not args.all or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        console.show_cursor()  # an interruption would leave it hidden
        task = bar.add_task("reading", total=sum(entry.size or 0 for entry in dataset.shards))
        yield lambda size: bar.advance(task, size)


def _print_json(content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, allow_nan=False)
    with contextlib.suppress(SystemExit):  # rich makes one of a broken pipe
        console, _ = _console()
        console.out(text, highlight=False)


def _console() -> tuple[Console, int | None]:
    """The console, and its columns; None if it is not a terminal."""
    console = plain_console()
    return console, console.width if console.is_terminal else None


def _print(console: Console, lines: Sequence[Line]) -> None:
    with contextlib.suppress(SystemExit):
        for line in lines:
            console.print(line.text, style="bold" if line.bold else None, soft_wrap=True)


def _check_sheet(path: str) -> None:
    if not path.lower().endswith(".png"):
        raise ValueError(f"--images is {path!r}; it is written as PNG; give a name such as sheet.png")
    from recordmill.transforms.reading.sheet import is_sheet

    check_output_file("--images", path, is_sheet)


def write_sheet(path: str, found: Inspected, pictures: int, columns: int) -> int:
    """Writes pictures of records, spread evenly, with labels, boxes and masks; returns their number.

    Raises:
        JobError: it cannot be written.
        OSError: the records cannot be read.
    """
    from recordmill.transforms.reading.sheet import contact_sheet, is_sheet
    from recordmill.transforms.reading.stored_record import StoredRecord, stored_record

    records: list[StoredRecord | BadInput] = []
    held = 0
    for taken in spread_records(found.files, pictures):
        if isinstance(taken, BadInput):
            records.append(taken)
            continue
        record = taken.record
        held += record.size
        if record.payload is None or held > _MOST_BYTES:
            records.append(BadInput("load", "too large for a sheet", f"{record.size:,} bytes"))
            continue
        key = f"{file_name(found.dataset, taken.entry)}:{record.number}"
        try:
            records.append(stored_record(record.payload, found.names, found.dataset.renames, key))
        except BadInput as error:
            records.append(error)
    replace_own(absolute(path), contact_sheet(records, columns, _SIDE), is_sheet)
    return len(records)


if __name__ == "__main__":
    sys.exit(main())
