"""What lies beside the frames of a clip: times and labels, a frame each."""

from __future__ import annotations

import decimal
import io
import re
from collections.abc import Iterator, Sequence

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.tables.csv_cells import read_cells
from recordmill.transforms.sources.tree import TreeFile

TIME_FILES = ("timestamps.txt", "timestamps.csv")
LABEL_FILES = ("labels.txt", "labels.csv")

_DIGITS = re.compile(r"(\d+)")
_MICROSECONDS = 10**6
_INT64 = 2**63
_LONGEST = 64 << 20


def natural_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sorts names by the numbers in them: `frame_9` before `frame_10`."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), name


def numbers_of(names: Sequence[str]) -> list[int]:
    """The number of each frame: the last in its name where those are distinct, else its place from 0."""
    found = [_DIGITS.findall(_stem(name)) for name in names]
    numbers = [int(digits[-1]) for digits in found if digits]
    if len(set(numbers)) == len(names) and all(number < _INT64 for number in numbers):
        return numbers
    return list(range(len(names)))


def read_times(file: TreeFile, names: Sequence[str]) -> tuple[int, ...]:
    """The times of frames, in microseconds.

    Args:
        file: `timestamps.txt` or `timestamps.csv`.
        names: of the frames, in order.

    Raises:
        BadInput: stage `annotations`; the file is not what it should be.
    """
    if file.key.endswith(".txt"):
        texts = [line.strip() for line in _lines(file)]
        _check_count("timestamps do not match the frames", file, "timestamps", len(texts), len(names))
        return _microseconds(file, texts)
    given: dict[int, str] = {}
    for at, text in _cells(file, names, "timestamp"):
        if at in given:
            raise _not_of_frames(file, f"{names[at]} is there twice")
        given[at] = text
    _check_count("timestamps do not match the frames", file, "timestamps", len(given), len(names))
    return _microseconds(file, [given[at] for at in range(len(names))])


def read_labels(file: TreeFile, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The labels of each frame: one or none; of `labels.csv` several, a row each.

    Args:
        file: `labels.txt` or `labels.csv`.
        names: of the frames, in order.

    Raises:
        BadInput: stage `annotations`; the file is not what it should be.
    """
    if file.key.endswith(".txt"):
        lines = [line.strip() for line in _lines(file)]
        _check_count("labels do not match the frames", file, "labels", len(lines), len(names))
        return tuple((line,) if line else () for line in lines)
    labels: list[list[str]] = [[] for _ in names]
    for at, text in _cells(file, names, "label"):
        labels[at] += [text] if text else []
    return tuple(map(tuple, labels))


def _text(file: TreeFile) -> str:
    _, data = next(read_files([(file, file)], _LONGEST))
    if isinstance(data, BadInput):
        raise BadInput("annotations", data.reason, f"{file.key}: {data.detail}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("annotations", "annotation file is not UTF-8", f"{file.key}: {error}") from error


def _lines(file: TreeFile) -> list[str]:
    """The lines of a file; the end of the last one is no line of its own."""
    text = _text(file).replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n") if text else []


def _cells(file: TreeFile, names: Sequence[str], column: str) -> Iterator[tuple[int, str]]:
    """The rows of a CSV with the columns `frame` and `column`: the frame's place, and the other cell."""
    rows = read_cells(io.StringIO(_text(file), newline=""))
    places = _places(names)
    _, header = next(rows, (1, []))
    header = [] if isinstance(header, BadInput) else [cell.strip().lower() for cell in header]
    if header.count("frame") != 1 or header.count(column) != 1:
        raise _not_of_frames(file, f"its first line is not frame,{column}")
    frame_at, value_at = header.index("frame"), header.index(column)
    for line, row in rows:
        if isinstance(row, BadInput):
            raise _not_of_frames(file, f"line {line}: {row.detail}")
        if not row:
            continue
        if len(row) != len(header):
            raise _not_of_frames(file, f"line {line} has {len(row)} cells of {len(header)}")
        frame = row[frame_at].strip()
        if (at := places.get(frame)) is None:
            raise _not_of_frames(file, f"line {line} is of {frame!r}, which is no frame here")
        yield at, row[value_at].strip()


def _places(names: Sequence[str]) -> dict[str, int]:
    """Places of frames by number, stem and name; of what means several, the name counts most."""
    places: dict[str, int] = {str(number): at for at, number in enumerate(numbers_of(names))}
    stems = [_stem(name) for name in names]
    if len(set(stems)) == len(stems):
        places.update((stem, at) for at, stem in enumerate(stems))
    places.update((name, at) for at, name in enumerate(names))
    return places


def _microseconds(file: TreeFile, texts: Sequence[str]) -> tuple[int, ...]:
    try:
        values = [decimal.Decimal(text) for text in texts]
    except decimal.InvalidOperation as error:
        bad = next(text for text in texts if not _is_number(text))
        raise _not_of_frames(file, f"{bad[:100]!r} is not a number") from error
    in_seconds = any(not text.lstrip("+-").isdigit() for text in texts)
    factor = _MICROSECONDS if in_seconds else 1
    if any(not one.is_finite() or one.adjusted() > 18 or abs(one) * factor >= _INT64 for one in values):
        raise _not_of_frames(file, "a time is not finite, or too large")
    return tuple(int((value * factor).to_integral_value(decimal.ROUND_HALF_EVEN)) for value in values)


def _is_number(text: str) -> bool:
    try:
        decimal.Decimal(text)
    except decimal.InvalidOperation:
        return False
    return True


def _check_count(reason: str, file: TreeFile, what: str, count: int, frames: int) -> None:
    if count != frames:
        raise BadInput("annotations", reason, f"{file.key} has {count} {what}, the clip {frames} frames")


def _not_of_frames(file: TreeFile, detail: str) -> BadInput:
    return BadInput("annotations", "file does not fit the frames", f"{file.key}: {detail}")


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name
