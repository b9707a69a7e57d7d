"""One reading of an Open Images folder: its images, then the rows of its CSV files, then records."""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_image_name, is_split_name, normal_split
from recordmill.transforms.sources.openimages.files import CsvFile, csv_files, folders_called
from recordmill.transforms.sources.openimages.rows import (
    ABSENT,
    BOX,
    FLAGS,
    LONGEST_PATH,
    MASK,
    PRESENT,
    RowsByImage,
    StoredRow,
)
from recordmill.transforms.sources.selection import EXCLUDED, Selection, label_pattern
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.tables.values import box_of, check_unit, is_empty
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import names_in
from recordmill.transforms.storage.paths import real_path

MASKS = "masks"
_FLAG_COLUMNS = tuple(f"Is{name.title().replace('_', '')}" for name in FLAGS)
_LISTED, _ANNOTATED = 1, 2
_MISSING = "where only a part of the images is meant to be there, raise --max_failure_ratio"
_NO_MASKS = "masks are not taken"
_SAME = 1e-5  # of a box in two files
_CELL = 4 * _SAME  # the sums of two such boxes differ by no more


class _Classes:
    """Numbers and names of classes, by their ids."""

    def __init__(self, files: Sequence[CsvFile]) -> None:
        self._names: dict[str, str] = {}
        for file in files:
            for mid, name in file.classes() if file.kind == "classes" else ():
                self._names.setdefault(mid, name or mid)
        self._described = len(self._names)
        self._numbers = {mid: number for number, mid in enumerate(self._names)}
        names = set(self._names.values())
        self._by_name = len(names) == len(self._names) and names.isdisjoint(self._names)

    def number(self, mid: str) -> int:
        return self._numbers.setdefault(mid, len(self._numbers))

    def labels(self) -> list[str]:
        """The label of each number: the class's name where no two share one, else its id."""
        return [self._names.get(mid, mid) if self._by_name else mid for mid in self._numbers]

    def class_names(self) -> ClassNames | None:
        """Ids count from 1 in the order of the descriptions; classes that those lack follow."""
        if not self._described:
            return None
        labels = self.labels()
        names = dict(enumerate([*labels[: self._described], *sorted(labels[self._described :])], 1))
        return ClassNames(names, {} if self._by_name else self._names)


class _Images(NamedTuple):
    """What is known of the images, by number: those that are there first, in the order of their keys."""

    ids: dict[str, int]
    files: list[TreeFile]
    splits: array[int]
    states: bytearray
    rotations: array[int]
    faults: dict[int, BadInput]

    def number(self, image: str) -> int:
        number = self.ids.setdefault(image, len(self.ids))
        if number == len(self.states):
            self.states.append(0)
            self.splits.append(-1)
            self.rotations.append(0)
        return number


class _Masks:
    """The masks of an image, found by label and box: an image may have any number of both."""

    def __init__(self, rows: Iterable[StoredRow]) -> None:
        self._rows = dict(enumerate(rows))
        self._by_place: dict[tuple[int, int], list[int]] = {}
        for number, row in reversed(self._rows.items()):  # the first is the last of its list
            self._by_place.setdefault((row.label, self._cell(row.box)), []).append(number)

    @staticmethod
    def _cell(box: Box) -> int:
        return math.floor(sum(box) / _CELL)

    def take(self, box: StoredRow) -> StoredRow | None:
        """Takes the first mask that belongs to a box; None where there is none."""
        cell = self._cell(box.box)
        found: list[tuple[int, list[int], int]] = []
        for at in (cell - 1, cell, cell + 1):
            numbers = self._by_place.get((box.label, at), [])
            for place in range(len(numbers) - 1, -1, -1):
                if _alike(self._rows[numbers[place]].box, box.box):
                    found.append((numbers[place], numbers, place))
                    break
        if not found:
            return None
        first, numbers, place = min(found, key=lambda one: one[0])
        del numbers[place]
        return self._rows.pop(first)

    def left(self) -> Iterator[StoredRow]:
        """The masks that were not taken, in order."""
        return iter(self._rows.values())


class Reading:
    """Reads the input once."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._root = real_path(config.input)
        names = names_in(self._root)
        self._files = csv_files(config, names)
        self._mask_folders = folders_called(MASKS, self._root, names)
        self._takes_masks = MASKS in config.include_annotations
        self._classes = _Classes(self._files)
        self._images = _Images({}, [], array("i"), bytearray(), array("h"), {})
        self._splits: list[str] = []
        self._folders: dict[str, dict[str, None]] = {}  # names of folders, by split
        self._rows = RowsByImage()
        self._confinement = Confinement((self._root, *config.image_roots))
        self._selection = Selection(config)
        self._pattern = label_pattern(config)

    def items(self) -> Iterator[Item]:
        """All that the input lists."""
        try:
            yield from self._list()
            for file in self._files:
                yield from self._read(file)
            names = self._classes.class_names()
            if names is not None:
                yield names
            yield from self._records()
            yield from self._missing()
        finally:
            self._rows.close()

    def _list(self) -> Iterator[Failure]:
        """Numbers the images that are there; yields the other files."""
        known = {file.manifest.name: file.kind for file in self._files}
        masks = [real_path(f"{self._root}/{folder}") for folder in self._mask_folders]
        for folder in self._mask_folders if not self._takes_masks else ():
            yield Failure(f"{folder}/", "list", _NO_MASKS, skipped=True)
        for item in Tree(self._root, self._config.image_roots, (*self._config.skip_dirs, *masks)).files():
            if isinstance(item, Failure):
                yield item
            elif item.key in known:
                if reason := self._unread(known[item.key]):
                    yield Failure(item.key, "list", reason, skipped=True)
            elif not is_image_name(item.key):
                yield Failure(item.key, "list", "not an image by name", skipped=True)
            else:
                fault = self._add(item)
                if fault is not None:
                    yield fault

    def _unread(self, kind: str) -> str:
        """Why the files of a kind are not read; empty for those that are."""
        if kind == "machine":
            return "labels by machine are not taken"
        return _NO_MASKS if kind == "masks" and not self._takes_masks else ""

    def _add(self, file: TreeFile) -> Failure | None:
        folders, _, name = file.key.rpartition("/")
        image = name.rpartition(".")[0]
        if image in self._images.ids:
            other = self._images.files[self._images.ids[image]].key
            return Failure(file.key, "annotations", "two images have one id", f"the other is {other}")
        number = self._images.number(image)
        self._images.files.append(file)
        folder = next(filter(is_split_name, reversed(folders.split("/"))), None)
        if folder is not None:
            self._folders.setdefault(normal_split(folder), {})[folder] = None
            self._tell_split(number, normal_split(folder))
        if not self._selection.takes(file.key):
            self._images.faults[number] = BadInput("list", EXCLUDED)
        return None

    def _tell_split(self, number: int, split: str | None) -> None:
        """Notes the split of an image, unless something before told it."""
        if split is None or self._images.splits[number] >= 0:
            return
        if split not in self._splits:
            self._splits.append(split)
        self._images.splits[number] = self._splits.index(split)

    def _read(self, file: CsvFile) -> Iterator[Failure]:
        """Takes the rows of a file; yields those of no image, and what is not taken."""
        if file.kind == "classes" or self._unread(file.kind):
            return
        header = file.header()
        at = {name: number for number, name in enumerate(header)}
        fractions = 0
        for line, cells in file.rows():
            if isinstance(cells, BadInput):
                yield cells.failure(file.manifest.row_key(line))
                continue
            image = cells[at["ImageID"]].strip() if at["ImageID"] < len(cells) else ""
            if not image:
                yield Failure(file.manifest.row_key(line), "annotations", "row without an image")
                continue
            number = self._images.number(image)
            if file.kind == "images":
                self._take_image(number, {name: cells[k] for name, k in at.items() if k < len(cells)})
                continue
            self._images.states[number] |= _ANNOTATED
            self._tell_split(number, file.split)
            if number >= len(self._images.files):
                continue
            try:
                row = self._row(file, header, cells)
            except BadInput as fault:
                detail = f"{file.manifest.origin(line)}: {fault.detail}"
                self._images.faults.setdefault(number, BadInput(fault.stage, fault.reason, detail))
                continue
            fractions += row is None
            if row is not None:
                self._rows.add(number, row)
        if fractions:
            reason = "labels that nobody has verified are not taken"
            yield Failure(file.manifest.name, "annotations", reason, f"{fractions} rows", skipped=True)

    def _take_image(self, number: int, row: Mapping[str, str]) -> None:
        self._images.states[number] |= _LISTED
        subset = row.get("Subset", "").strip()
        self._tell_split(number, normal_split(subset) or None)
        rotation = row.get("Rotation", "").strip()
        if re.fullmatch(r"-?\d{1,3}(\.0*)?", rotation):
            self._images.rotations[number] = int(float(rotation))

    def _row(self, file: CsvFile, header: Sequence[str], cells: list[str]) -> StoredRow | None:
        """What a row tells; None where it is a label that is neither there nor not there."""
        if len(cells) != len(header):
            raise BadInput(
                "annotations", "wrong number of cells", f"{len(cells)}, the header has {len(header)}"
            )
        row = dict(zip(header, cells, strict=True))
        if is_empty(row["LabelName"]):
            raise BadInput("annotations", "row without a label", "LabelName is empty")
        confidence = _confidence(row["Confidence"]) if file.kind == "labels" else 1
        if 0 < confidence < 1:
            return None
        label = self._classes.number(row["LabelName"].strip())
        if file.kind == "labels":
            return StoredRow(PRESENT if confidence >= 1 else ABSENT, label)
        if file.kind == "boxes":
            given = ((number, row[name]) for number, name in enumerate(_FLAG_COLUMNS) if row.get(name))
            flags = tuple((number, _flag(value)) for number, value in given)
            return StoredRow(BOX, label, _box(row, ""), flags)
        path = row["MaskPath"].strip()
        if len(path.encode()) > LONGEST_PATH:
            raise BadInput("annotations", "name too long", f"MaskPath has {len(path)} characters")
        return StoredRow(MASK, label, _box(row, "Box"), (), path)

    def _records(self) -> Iterator[ImageRecord | Failure]:
        labels = self._classes.labels()
        images = self._images
        for number, rows in enumerate(self._rows.by_image(len(images.files))):
            file, fault = images.files[number], images.faults.get(number)
            if fault is not None:
                failure = fault.failure(file.key)
                yield Failure(*_parts(failure), skipped=fault.reason == EXCLUDED)
            elif not images.states[number]:
                yield Failure(file.key, "annotations", "image without annotations", skipped=True)
            else:
                try:
                    yield self._record(number, file, rows, labels)
                except BadInput as known:
                    yield known.failure(file.key)

    def _record(
        self, number: int, file: TreeFile, rows: Sequence[StoredRow], labels: Sequence[str]
    ) -> ImageRecord:
        split = self._split(number)
        features: dict[str, FeatureValue] = {}
        if absent := tuple(dict.fromkeys(labels[row.label] for row in rows if row.kind == ABSENT)):
            features["labels_absent"] = absent
        if rotation := self._images.rotations[number]:
            features["rotation"] = rotation
        present = tuple(dict.fromkeys(labels[row.label] for row in rows if row.kind == PRESENT))
        if self._pattern is not None:
            present = (self._pattern.label(file.key),)
        objects = self._objects(rows, labels, split)
        image_id = os.path.splitext(os.path.basename(file.key))[0]
        annotations = Annotations(present, features, objects, relative=bool(objects), source_id=image_id)
        return ImageRecord(file.key, file.ref, split, annotations, size=file.size)

    def _split(self, number: int) -> str | None:
        at = self._images.splits[number]
        return None if at < 0 else self._splits[at]

    def _objects(
        self, rows: Sequence[StoredRow], labels: Sequence[str], split: str | None
    ) -> tuple[AnnotatedObject, ...]:
        """The boxes, each with its mask, and then the masks that have none of them."""
        masks = _Masks(row for row in rows if row.kind == MASK)
        objects = []
        for row in (row for row in rows if row.kind == BOX):
            mask = masks.take(row)
            attributes = {FLAGS[at]: value for at, value in row.flags}
            ref = None if mask is None else self._mask(mask.mask, split)
            objects.append(AnnotatedObject(labels[row.label], row.box, ref, attributes=attributes))
        rest = (
            AnnotatedObject(labels[row.label], row.box, self._mask(row.mask, split)) for row in masks.left()
        )
        return (*objects, *rest)

    def _mask(self, path: str, split: str | None) -> ImageRef:
        names = {**self._folders.get(split, {}), split: None} if split else {}
        masks = [f"{self._root}/{folder}" for folder in self._mask_folders or (MASKS,)]
        found = self._confinement.find(path, [*(f"{one}/{name}" for one in masks for name in names), *masks])
        return ImageRef(found.path, version=found.version)

    def _missing(self) -> Iterator[Failure]:
        """The images that rows are about and that are not there."""
        for image in sorted(self._images.ids):
            number = self._images.ids[image]
            if number < len(self._images.files):
                continue
            # its name where all of the dataset is downloaded: what --include and --exclude are about
            key = "/".join(filter(None, ("images", self._split(number), f"{image}.jpg")))
            if not self._selection.takes(key):
                yield Failure(key, "list", EXCLUDED, skipped=True)
            elif self._images.states[number] & _ANNOTATED:
                yield Failure(key, "annotations", "not found", _MISSING)
            else:
                reason = "listed image that is not there and has no annotation"
                yield Failure(key, "annotations", reason, skipped=True)


def _parts(failure: Failure) -> tuple[str, str, str, str]:
    return failure.key, failure.stage, failure.reason, failure.detail


def _confidence(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise BadInput("annotations", "confidence is not a number from 0 to 1", cell[:40])
    return value


def _flag(cell: str) -> int:
    if cell.strip() not in ("-1", "0", "1"):
        raise BadInput("annotations", "attribute of a box is not -1, 0 or 1", cell[:40])
    return int(cell)


def _box(row: Mapping[str, str], prefix: str) -> Box:
    box = box_of([row[f"{prefix}{name}"] for name in ("XMin", "YMin", "XMax", "YMax")], sides=False)
    if box is None:
        raise BadInput("annotations", "box is not four numbers", "all are empty")
    check_unit(box, relative=True)
    return box


def _alike(one: Box, other: Box) -> bool:
    return all(abs(first - second) < _SAME for first, second in zip(one, other, strict=True))
