"""Labels that files tell: the ground truth of the flat validation set, Kaggle's solutions, lists."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, Failure
from recordmill.transforms.sources.imagenet.classes import ilsvrc_order, text_lines
from recordmill.transforms.sources.imagenet.layout import ILSVRC_NAME, SYNSET, Layout
from recordmill.transforms.sources.names import is_image_name, is_split_name, splits_in
from recordmill.transforms.sources.tables.csv_cells import read_cells

NO_IMAGE = "annotation without its image"
_TRUTH = re.compile(
    r"ilsvrc20[0-9]{2}_(?:clsloc_)?validation_ground_truth\.txt|imagenet_2012_validation_synset_labels\.txt"
)
_SOLUTION = re.compile(r"loc_(?:train|val)_solution\.csv")
_TINY = "val_annotations"
_NUMBER = re.compile(r"[0-9]{1,9}")


class Truth:
    """A label for each image of the flat validation set, by number.

    Args:
        layout: of the input.

    Raises:
        ValueError: the file cannot be used.
        OSError: it cannot be read.
    """

    def __init__(self, layout: Layout) -> None:
        name = next(filter(_TRUTH.fullmatch, sorted(layout.files)), None)
        self.key = "" if name is None else layout.files[name]
        lines = [line.strip() for line in text_lines(layout.file(self.key), self.key)] if self.key else []
        while lines and not lines[-1]:
            lines.pop()
        if all(map(SYNSET.fullmatch, lines)):
            self.synsets = lines
        else:
            order = ilsvrc_order(layout)
            self.synsets = [_synset(line, at, order, self.key) for at, line in enumerate(lines, 1)]
        self._used = bytearray(len(lines))

    def label(self, name: str) -> str | None:
        """The synset of an image, by its name; None where it is not of the validation set.

        Raises:
            BadInput: stage `annotations`, `no line in the ground truth`.
        """
        match = ILSVRC_NAME.match(name)
        if not self.key or match is None or match[1] != "val":
            return None
        number = int(match[2])
        if not 1 <= number <= len(self.synsets):
            raise BadInput(
                "annotations", "no line in the ground truth", f"{self.key} has {len(self.synsets)}"
            )
        self._used[number - 1] = 1
        return self.synsets[number - 1]

    def left(self) -> Iterator[Failure]:
        """Lines whose image is not there; one failure where none is, and the file is of another part."""
        if self.key and not any(self._used):
            yield Failure(self.key, "annotations", "ground truth without its images", skipped=True)
            return
        for number in (at for at, used in enumerate(self._used, 1) if not used):
            yield Failure(f"{self.key}:{number}", "annotations", NO_IMAGE)


def _synset(line: str, at: int, order: tuple[str, ...], key: str) -> str:
    if not _NUMBER.fullmatch(line) or not 1 <= int(line) <= len(order):
        raise ValueError(f"{key!r}, line {at} is {line[:50]!r}; it may be 1 to {len(order)}, or all synsets")
    return order[int(line) - 1]


class Solutions:
    """Kaggle's LOC_train_solution.csv and LOC_val_solution.csv: labels and boxes by the image's stem.

    Args:
        layout: of the input.

    Raises:
        ValueError: a file cannot be used.
        OSError: it cannot be read.
    """

    def __init__(self, layout: Layout) -> None:
        self.keys = [layout.files[name] for name in sorted(layout.files) if _SOLUTION.fullmatch(name)]
        self._texts: dict[str, str] = {}
        self._left: dict[str, set[str]] = {}
        self._rows: dict[str, int] = {}
        self._unread: list[Failure] = []
        for key in self.keys:
            rows = read_cells(text_lines(layout.file(key), key))
            if next(rows, (0, None))[1] != ["ImageId", "PredictionString"]:
                raise ValueError(f"{key!r}: its first line is not ImageId,PredictionString")
            found = {}
            for line, row in rows:
                if isinstance(row, BadInput):
                    raise ValueError(f"{key!r}, line {line}: {row.detail}")
                if len(row) == 2 and row[0] not in found:
                    found[row[0]] = row[1]
                elif row:
                    self._unread.append(_bad_row(key, line, row))
            self._texts.update(found)
            self._left[key] = set(found)
            self._rows[key] = len(found)

    def synsets(self) -> set[str]:
        """All labels there are."""
        return {text.partition(" ")[0] for text in self._texts.values()} - {""}

    def find(self, stem: str) -> tuple[AnnotatedObject, ...]:
        """The objects of an image; none where the files do not have it.

        Raises:
            BadInput: stage `annotations`, `not a prediction string`.
        """
        for left in self._left.values():
            left.discard(stem)
        cells = self._texts.get(stem, "").split()
        try:
            boxes = [Box(*map(float, cells[at + 1 : at + 5])) for at in range(0, len(cells), 5)]
        except (TypeError, ValueError) as error:
            detail = "it is a synset, xmin, ymin, xmax and ymax for each box"
            raise BadInput("annotations", "not a prediction string", detail) from error
        return tuple(map(AnnotatedObject, cells[::5], boxes))

    def left(self) -> Iterator[Failure]:
        """Rows whose image is not there; one failure where none of a file's is."""
        yield from self._unread
        for key, stems in self._left.items():
            if len(stems) == self._rows[key]:
                yield Failure(key, "annotations", "ground truth without its images", skipped=True)
                continue
            for stem in sorted(stems):
                yield Failure(f"{key}: {stem}", "annotations", NO_IMAGE)


def _bad_row(key: str, line: int, row: list[str]) -> Failure:
    reason = "image listed twice" if len(row) == 2 else "row has not two cells"
    return Failure(f"{key}:{line}", "annotations", reason, row[0])


class ListedRow(NamedTuple):
    """A row of a list: the image as it is called there, labels, the box of Tiny ImageNet, and the line."""

    path: str
    labels: tuple[str | int, ...]
    box: Box | None
    line: int


@dataclasses.dataclass(frozen=True, slots=True)
class ImageList:
    """A list of images and the numbers, or synsets, of their classes.

    Attributes:
        key: of the file.
        path: of the file, real.
        split: that its name tells.
    """

    key: str
    path: str
    split: str | None

    def rows(self) -> Iterator[ListedRow]:
        """The rows. Raises ValueError, OSError as `text_lines`."""
        for number, line in enumerate(text_lines(self.path, self.key), 1):
            if line.strip():
                yield ListedRow(*_row(line), number)


def find_lists(layout: Layout) -> list[ImageList]:
    """The lists of a tree, by their names and their first lines.

    Raises:
        OSError: one cannot be read.
    """
    found = []
    for name, key in sorted(layout.files.items()):
        stem = name.removesuffix(".txt")
        splits = splits_in(stem)
        if stem == name or not (is_split_name(stem) or stem.endswith("_map") or stem == _TINY):
            continue
        split = splits.pop() if len(splits) == 1 else None
        one = ImageList(key, layout.file(key), split)
        if _is_list(one):
            found.append(one)
    return found


def _is_list(one: ImageList) -> bool:
    """Whether the first rows have labels that are not a running number, as ILSVRC's ImageSets have."""
    try:
        rows = list(itertools.islice(one.rows(), 3))
    except ValueError:
        return False
    if not rows or not all(row.labels for row in rows):
        return False
    counts = all(row.labels == (row.line,) and not is_image_name(row.path) for row in rows)
    return not (counts and len(rows) > 1) and all(
        is_image_name(row.path) or ILSVRC_NAME.match(row.path) or SYNSET.match(row.path) for row in rows
    )


def _row(line: str) -> tuple[str, tuple[str | int, ...], Box | None]:
    """Path, labels and box of a row: the labels are the numbers or synsets at its end."""
    text = line.strip()
    labels: list[str | int] = []
    while match := re.fullmatch(r"(.*\S)(?:\s*,\s*|\s+)([0-9]{1,9}|n[0-9]{8})", text):
        text = match[1]
        labels.insert(0, int(match[2]) if _NUMBER.fullmatch(match[2]) else match[2])
    path = text.strip('"')
    synset, *numbers = labels or (0,)
    if isinstance(synset, str) and len(numbers) == 4:
        return path, (synset,), Box(*map(float, numbers))
    return path, tuple(labels), None
