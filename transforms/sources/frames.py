"""Source `frames`: each folder is a clip of images, with files of times and labels."""

from __future__ import annotations

import dataclasses
import decimal
import io
import os
import re
from collections.abc import Iterator, Sequence

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, Steps
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.folder import first_level_splits
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import folder_of, is_image_name, skipped, split_named, stem_of
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tables.text_rows import read_cells
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.paths import real_path

TIME_FILES = ("timestamps.txt", "timestamps.csv")
LABEL_FILES = ("labels.txt", "labels.csv")
_NO_FRAME = "neither a frame nor times or labels by name"
_TIME = "image/timestamp"
_DIGITS = re.compile(r"(\d+)")
_MICROSECONDS = 10**6
_INT64 = 2**63
_LONGEST = 64 << 20


class FramesSource(Source):
    """Lists the clips below a folder."""

    name = "frames"
    description = Description(
        reads="folders of images: each folder is a clip, with its frames in the order of the numbers in "
        "their names. Times come from `timestamps.txt` (one line for each frame) or `timestamps.csv` "
        "(`frame,timestamp`), in seconds if any has a decimal point, otherwise in microseconds; without "
        "these files, they are the numbers of the frames",
        label="of the clip: the folder above its folder; of the frames: `labels.txt` (one line for each "
        "frame) or `labels.csv` (`frame,label`)",
        split="the first-level folders, if all of those with images are named like splits",
        key="path of the clip's folder below the input",
        example="clips/\n  train/\n    running/\n      clip7/\n        frame_0001.jpg\n"
        "        frame_0002.jpg\n        labels.txt\n        timestamps.txt",
    )
    flags = ("label_pattern",)
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        files = Tree.of(config).files()
        if not any(isinstance(file, TreeFile) and is_image_name(file.key) for file in files):
            raise ValueError(f"--input is {config.input!r}: there is no image in it{left_out(config)}")

    def splits(self, config: SourceConfig) -> set[str]:
        return first_level_splits(config)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("sequence",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        # Holds the files of one folder per level; a folder comes after its subfolders.
        selection, has_splits = Selection(config), bool(first_level_splits(config))
        open_folders: list[_Folder] = []

        def close() -> Iterator[ImageRecord | Failure]:
            folder = open_folders.pop()
            if folder.frames:
                key = folder.key.rstrip("/") or os.path.basename(real_path(config.input)) or "clip"
                yield selection.item(key, lambda: folder.clip(key, selection, has_splits))
            else:
                yield from (skipped(file.key, _NO_FRAME) for file in folder.others.values())

        for file in Tree.of(config).files():
            if isinstance(file, Failure):
                yield file
                continue
            key = folder_of(file.key)
            while open_folders and not key.startswith(open_folders[-1].key):
                yield from close()
            if not open_folders or open_folders[-1].key != key:
                open_folders.append(_Folder(key))
            name = file.key[len(key) :]
            if is_image_name(name):
                open_folders[-1].frames.append(file)
            elif name in TIME_FILES or name in LABEL_FILES:
                open_folders[-1].others[name] = file
            else:
                yield skipped(file.key, _NO_FRAME)
        while open_folders:
            yield from close()


@dataclasses.dataclass(slots=True)
class _Folder:
    """A folder that the walk has entered, with its files so far."""

    key: str  # empty or ending in `/`
    frames: list[TreeFile] = dataclasses.field(default_factory=list)
    others: dict[str, TreeFile] = dataclasses.field(default_factory=dict)

    def clip(self, key: str, selection: Selection, has_splits: bool) -> ImageRecord:
        """Its frames in order, with their times and labels. Raises BadInput."""
        folders = self.key.split("/")[:-1]
        split = split_named(folders[0]) if has_splits and folders else None
        labels = selection.labels(key, tuple(folders[split is not None :][-2:-1]))
        frames = sorted(self.frames, key=lambda file: _natural_order(file.key))
        names = [file.key[len(self.key) :] for file in frames]
        times, frame_labels = self._one_of(TIME_FILES), self._one_of(LABEL_FILES)
        steps = Steps(
            tuple(file.ref for file in frames),
            () if frame_labels is None else _read_labels(frame_labels, names),
            {_TIME: tuple(_numbers(names)) if times is None else _read_times(times, names)},
        )
        size = sum(file.size for file in frames)
        return ImageRecord(key, None, split, Annotations(labels, steps=steps), size=size)

    def _one_of(self, names: tuple[str, ...]) -> TreeFile | None:
        found = [self.others[name] for name in names if name in self.others]
        if len(found) > 1:
            raise BadInput("annotations", "two files of one meaning", f"{' and '.join(names)}; delete one")
        return found[0] if found else None


def _natural_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sorts `frame_9` before `frame_10`."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), name


def _numbers(names: Sequence[str]) -> list[int]:
    """The number of each frame: the last number in its name if all are distinct, else its index."""
    found = [_DIGITS.findall(stem_of(name)) for name in names]
    numbers = [int(digits[-1]) for digits in found if digits]
    if len(set(numbers)) == len(names) and all(number < _INT64 for number in numbers):
        return numbers
    return list(range(len(names)))


def _read_times(file: TreeFile, names: Sequence[str]) -> tuple[int, ...]:
    """The times of frames, in microseconds."""
    cells = _cells_of_frames(file, names, "timestamp")
    for name, found in zip(names, cells, strict=True):
        if len(found) > 1:
            raise _misfit(file, f"{name} is there twice")
    texts = [text for found in cells for text in found]
    _check_count(file, "timestamp", len(texts), names)
    values = []
    for text in texts:
        try:
            values.append(decimal.Decimal(text))
        except decimal.InvalidOperation as error:
            raise _misfit(file, f"{text[:100]!r} is not a number") from error
    in_seconds = any(not text.lstrip("+-").isdigit() for text in texts)
    factor = _MICROSECONDS if in_seconds else 1
    if any(not one.is_finite() or one.adjusted() > 18 or abs(one) * factor >= _INT64 for one in values):
        raise _misfit(file, "a time is not finite, or too large")
    return tuple(int((value * factor).to_integral_value(decimal.ROUND_HALF_EVEN)) for value in values)


def _read_labels(file: TreeFile, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(filter(None, found)) for found in _cells_of_frames(file, names, "label"))


def _cells_of_frames(file: TreeFile, names: Sequence[str], column: str) -> list[list[str]]:
    """For each frame, its line of a .txt file, or its cells in a .csv with the columns `frame` and `column`.

    A CSV identifies frames by name, stem or number, in this order of precedence.
    """
    _, data = next(read_files([(file, file)], _LONGEST))
    if isinstance(data, BadInput):
        raise BadInput("annotations", data.reason, f"{file.key}: {data.detail}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("annotations", "annotation file is not UTF-8", f"{file.key}: {error}") from error
    if file.key.endswith(".txt"):
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
        _check_count(file, column, len(lines), names)
        return [[line.strip()] for line in lines]
    frames = {str(number): at for at, number in enumerate(_numbers(names))}
    stems = {stem_of(name): at for at, name in enumerate(names)}
    frames.update(stems if len(stems) == len(names) else {})
    frames.update((name, at) for at, name in enumerate(names))
    rows = read_cells(io.StringIO(text, newline=""))
    _, first = next(rows, (1, []))
    header = [] if isinstance(first, BadInput) else [cell.strip().lower() for cell in first]
    if header.count("frame") != 1 or header.count(column) != 1:
        raise _misfit(file, f"its first line is not frame,{column}")
    found: list[list[str]] = [[] for _ in names]
    for line, row in rows:
        if isinstance(row, BadInput):
            raise _misfit(file, f"line {line}: {row.detail}")
        if not row:
            continue
        if len(row) != len(header):
            raise _misfit(file, f"line {line} has {len(row)} cells of {len(header)}")
        frame = row[header.index("frame")].strip()
        if frame not in frames:
            raise _misfit(file, f"line {line} is of {frame!r}, which is no frame here")
        found[frames[frame]].append(row[header.index(column)].strip())
    return found


def _check_count(file: TreeFile, column: str, count: int, names: Sequence[str]) -> None:
    if count != len(names):
        detail = f"{file.key} has {count} {column}s, the clip {len(names)} frames"
        raise BadInput("annotations", f"{column}s do not match the frames", detail)


def _misfit(file: TreeFile, detail: str) -> BadInput:
    return BadInput("annotations", "file does not fit the frames", f"{file.key}: {detail}")
