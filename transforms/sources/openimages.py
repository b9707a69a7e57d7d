"""Source `openimages`: the CSV files of Open Images next to the images that were downloaded.

https://storage.googleapis.com/openimages/web/download_v7.html

Existing images are listed first. The rows of the CSV files may be millions in any order; a file on disk holds
them until the record of their image is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

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
from recordmill.transforms.sources.entries_by_image import EntriesByImage
from recordmill.transforms.sources.look import Look, joined
from recordmill.transforms.sources.names import (
    NOT_AN_IMAGE,
    is_image_name,
    is_split_name,
    name_stem,
    normal_split,
    skipped,
    split_named,
)
from recordmill.transforms.sources.selection import EXCLUDED, Selection
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tables.manifests import Manifest
from recordmill.transforms.sources.tables.text_rows import read_rows
from recordmill.transforms.sources.tables.values import box_of, check_unit, is_empty, number_in
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.paths import real_path

_Kind = Literal["boxes", "labels", "machine", "masks", "images", "classes"]

_NAMES: dict[_Kind, str] = {
    "boxes": "annotations-bbox",
    "labels": "annotations-human-imagelabels",
    "machine": "annotations-machine-imagelabels",
    "masks": "annotations-object-segmentation",
    "classes": "class-descriptions",
    "images": "image_ids_and_rotation|images(-.+)?-with-rotation|images-boxable",
}
_REQUIRED: dict[_Kind, tuple[str, ...]] = {
    "boxes": ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"),
    "labels": ("ImageID", "LabelName", "Confidence"),
    "masks": ("MaskPath", "ImageID", "LabelName", "BoxXMin", "BoxXMax", "BoxYMin", "BoxYMax"),
    "images": ("ImageID",),
}
_IMAGES, _MASKS = "images", "masks"
_FLAGS = ("occluded", "truncated", "group_of", "depiction", "inside")
_FLAG_COLUMNS = tuple(f"Is{name.title().replace('_', '')}" for name in _FLAGS)
_LISTED, _ANNOTATED = 1, 2
_MISSING = "where only a part of the images is meant to be there, raise --max_failure_ratio"
_NO_MASKS = "masks are not taken"
_SAME = 1e-5  # the difference between coordinates of one box in two files
_CELL = 4 * _SAME  # the difference between the sums of their coordinates


@dataclasses.dataclass(frozen=True, slots=True)
class CsvFile:
    """One of the CSV files; `split` is the part of its name that names one."""

    manifest: Manifest
    kind: _Kind
    split: str | None

    def header(self) -> tuple[str, ...]:
        """The names of its columns. Raises ValueError if a required one is missing."""
        first = next(read_rows(self.manifest.file), None)
        header = () if first is None or isinstance(first[1], BadInput) else tuple(map(str.strip, first[1]))
        missing = [name for name in _REQUIRED.get(self.kind, ()) if name not in header]
        if missing:
            raise ValueError(f"{self.manifest.name} has no column {missing[0]}, which Open Images has")
        return header

    def classes(self) -> Iterator[tuple[str, str]]:
        """The id and the name of each class, of a file with a header or without."""
        for _, cells in read_rows(self.manifest.file):
            if not isinstance(cells, BadInput) and len(cells) > 1 and cells[0].strip() != "LabelName":
                yield cells[0].strip(), cells[1].strip()


def csv_files(look: Look) -> list[CsvFile]:
    """The CSV files in the input and `annotations`, by path; those of boxable classes come first.

    Raises OSError if one is a link that leads outside the input, or to nothing.
    """
    found = []
    for key in _keys("annotations", look):
        name, path = key.rpartition("/")[2], look.path(key)
        kind = next((kind for kind, pattern in _NAMES.items() if re.search(pattern, name)), None)
        if kind is not None and name.endswith(".csv"):
            split = next(filter(None, map(split_named, re.split(r"[-_.]", name))), None)
            found.append(CsvFile(Manifest(path, key, look.confinement.leads_to(path)), kind, split))
    return sorted(found, key=lambda file: ("boxable" not in file.manifest.name, file.manifest.name))


def _folders_named(wanted: str, look: Look) -> list[str]:
    """The folders in an input with this name, in any case."""
    return [name[:-1] for name in look.names() if name.lower() == f"{wanted}/"]


def _keys(wanted: str, look: Look) -> list[str]:
    """Keys of the files and folders in an input and in its folders of this name; folders end in `/`."""
    folders = ("", *_folders_named(wanted, look))
    return [joined(folder, name) for folder in folders for name in look.names(folder)]


class OpenImagesSource(Source):
    """Lists the existing images of Open Images, with their boxes, labels and masks."""

    name = "openimages"
    description = Description(
        reads="`…-annotations-bbox.csv`, `…-human-imagelabels.csv`, `…-object-segmentation.csv`, "
        "`…class-descriptions….csv` and the lists of images of Open Images V4 to V7",
        label="the name of the class, or its id if two classes have the same name; labels of "
        "the image by people",
        split="the folder of the image; otherwise `Subset` of the list, or the name of the CSV file",
        key="path below the input",
        example="open_images/\n  annotations/\n    class-descriptions-boxable.csv\n"
        "    validation-annotations-bbox.csv\n  images/\n    validation/\n      0001eeaf4aed83f9.jpg\n"
        "  masks/\n    validation/\n      0001eeaf4aed83f9_m0cmf2_ea5e2f5e.png",
        annotations=(_MASKS,),
    )
    flags = ("label_pattern",)
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        files = csv_files(Look(config))
        if all(file.kind in ("classes", "machine") for file in files):
            raise ValueError(
                f"--input is {config.input!r}, where neither it nor annotations/ has a CSV file of Open "
                "Images, such as validation-annotations-bbox.csv"
            )
        for file in files:
            try:
                if file.kind == "classes":
                    next(file.classes(), None)  # raises if it cannot be read
                elif file.kind != "machine":
                    file.header()
            except ValueError as error:
                raise ValueError(f"--input is {config.input!r}: {error}") from error

    def splits(self, config: SourceConfig) -> set[str | None] | None:
        folders = (key[:-1] for key in _keys(_IMAGES, Look(config)) if key.endswith("/"))
        return {split_named(folder.rpartition("/")[2]) for folder in folders} - {None} or None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        kinds = {file.kind for file in csv_files(Look(config))}
        has_boxes = "boxes" in kinds or ("masks" in kinds and _MASKS in config.include_annotations)
        return ("detection",) if has_boxes else ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        with contextlib.closing(EntriesByImage()) as entries:
            yield from _Reading(config, entries).items()


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is stored on disk."""

    kind: str  # boxes, masks; present or absent: a label that the image has or does not have
    label: str
    box: Box = Box(0, 0, 0, 0)  # normalised to [0, 1]
    flags: tuple[int | None, ...] = ()  # in the order of _FLAGS
    mask: str = ""  # path of its image


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Row).decode


class _Classes:
    """Labels of classes: names, or ids if two classes share a name."""

    def __init__(self, files: Sequence[CsvFile]) -> None:
        self._names: dict[str, str] = {}
        for file in files:
            for mid, name in file.classes() if file.kind == "classes" else ():
                self._names.setdefault(mid, name or mid)
        names = set(self._names.values())
        self._by_name = len(names) == len(self._names) and names.isdisjoint(self._names)
        self._undescribed: set[str] = set()

    def label(self, mid: str) -> str:
        """The label of a class of a row."""
        if mid not in self._names:
            self._undescribed.add(mid)
            return mid
        return self._names[mid] if self._by_name else mid

    def class_names(self) -> ClassNames | None:
        """Ids count from 1 in the order of the descriptions; other classes of rows follow."""
        if not self._names:
            return None
        labels = (*map(self.label, self._names), *sorted(self._undescribed))
        return ClassNames(dict(enumerate(labels, 1)), {} if self._by_name else self._names)


class _Reading:
    """Reads the input once. Image ids are numbered; existing images come first."""

    def __init__(self, config: SourceConfig, entries: EntriesByImage) -> None:
        self._config = config
        self._entries = entries
        self._selection = Selection(config)
        self._root = real_path(config.input)
        self._confinement = Confinement((self._root, *config.image_roots))
        look = Look(config)
        self._mask_folders = _folders_named(_MASKS, look)
        self._files = csv_files(look)
        self._classes = _Classes(self._files)
        self._takes_masks = _MASKS in config.include_annotations
        self._images: list[TreeFile] = []
        self._split_folders: dict[str, dict[str, None]] = {}  # names of folders, by split
        self._numbers: dict[str, int] = {}
        self._splits: list[str | None] = []  # by number
        self._states = bytearray()  # by number: _LISTED, _ANNOTATED
        self._rotations: dict[int, int] = {}
        self._faults: dict[int, BadInput] = {}

    def items(self) -> Iterator[Item]:
        yield from self._list_images()
        for file in self._files:
            if file.kind != "classes" and not self._unread(file):
                yield from self._read(file)
        if (names := self._classes.class_names()) is not None:
            yield names
        for number, image in enumerate(self._images):
            yield self._selection.item(image.key, functools.partial(self._record, number))
        yield from self._missing()

    def _unread(self, file: CsvFile) -> str:
        """Why a file is not read; empty if it is."""
        if file.kind == "machine":
            return "labels by machine are not taken"
        return _NO_MASKS if file.kind == "masks" and not self._takes_masks else ""

    def _list_images(self) -> Iterator[Failure]:
        """Numbers the images that exist; yields the other files."""
        for folder in self._mask_folders if not self._takes_masks else ():
            yield skipped(f"{folder}/", _NO_MASKS)
        masks = [real_path(f"{self._root}/{folder}") for folder in self._mask_folders]
        csv_by_key = {file.manifest.name: file for file in self._files}
        for item in Tree(self._root, self._config.image_roots, (*self._config.skip_dirs, *masks)).files():
            if isinstance(item, Failure):
                yield item
            elif item.key in csv_by_key:
                if reason := self._unread(csv_by_key[item.key]):
                    yield skipped(item.key, reason)
            elif not is_image_name(item.key):
                yield skipped(item.key, NOT_AN_IMAGE)
            elif (image := name_stem(item.key)) in self._numbers:
                detail = f"the other is {self._images[self._numbers[image]].key}"
                yield Failure(item.key, "annotations", "two images have one id", detail)
            else:
                number = self._number(image)
                self._images.append(item)
                if folder := next(filter(is_split_name, reversed(item.key.split("/")[:-1])), ""):
                    self._split_folders.setdefault(normal_split(folder), {})[folder] = None
                    self._set_split(number, normal_split(folder))

    def _number(self, image: str) -> int:
        number = self._numbers.setdefault(image, len(self._numbers))
        if number == len(self._states):
            self._states.append(0)
            self._splits.append(None)
        return number

    def _set_split(self, number: int, split: str | None) -> None:
        """Sets the split of an image, unless it has one."""
        if split and self._splits[number] is None:
            self._splits[number] = sys.intern(split)

    def _read(self, file: CsvFile) -> Iterator[Failure]:
        """Stores the rows of a file; yields failures for rows without an image and labels not verified."""
        header = file.header()
        fractions = 0
        for line, cells in itertools.islice(read_rows(file.manifest.file), 1, None):
            if isinstance(cells, BadInput):
                yield cells.failure(file.manifest.row_key(line))
                continue
            row: dict[str, str] = dict(zip(header, cells, strict=False))
            image = row.get("ImageID", "").strip()
            if not image:
                yield Failure(file.manifest.row_key(line), "annotations", "row without an image")
                continue
            number = self._number(image)
            if file.kind == "images":
                self._states[number] |= _LISTED
                self._set_split(number, normal_split(row.get("Subset", "").strip()))
                rotation = row.get("Rotation", "").strip()
                if number < len(self._images) and re.fullmatch(r"-?\d{1,3}(\.0*)?", rotation):
                    self._rotations[number] = int(float(rotation))
                continue
            self._states[number] |= _ANNOTATED
            self._set_split(number, file.split)
            if number >= len(self._images):
                continue
            try:
                if len(cells) != len(header):
                    detail = f"{len(cells)}, the header has {len(header)}"
                    raise BadInput("annotations", "wrong number of cells", detail)
                found = self._row(file, row)
            except BadInput as fault:
                detail = f"{file.manifest.origin(line)}: {fault.detail}"
                self._faults.setdefault(number, BadInput(fault.stage, fault.reason, detail))
                continue
            fractions += found is None
            if found is not None:
                self._entries.add(number, _encode(found))
        if fractions:
            reason = "labels that nobody has verified are not taken"
            yield Failure(file.manifest.name, "annotations", reason, f"{fractions} rows", skipped=True)

    def _row(self, file: CsvFile, row: Mapping[str, str]) -> _Row | None:
        """A row to store; None for a label that nobody has verified."""
        if is_empty(row["LabelName"]):
            raise BadInput("annotations", "row without a label", "LabelName is empty")
        confidence = _confidence(row["Confidence"]) if file.kind == "labels" else 1
        if 0 < confidence < 1:
            return None
        label = self._classes.label(row["LabelName"].strip())
        if file.kind == "labels":
            return _Row("present" if confidence else "absent", label)
        if file.kind == "masks":
            return _Row(file.kind, label, _box(row, "Box"), mask=row["MaskPath"].strip())
        flags = tuple(_flag(cell) if (cell := row.get(name)) else None for name in _FLAG_COLUMNS)
        return _Row(file.kind, label, _box(row, ""), flags)

    def _record(self, number: int) -> ImageRecord | Failure:
        file, split = self._images[number], self._splits[number]
        if not self._states[number]:
            return Failure(file.key, "annotations", "image without annotations", skipped=True)
        if number in self._faults:
            raise self._faults[number]
        rows = [_decode(data) for data in self._entries.of(number)]
        absent, rotation = _labels(rows, "absent"), self._rotations.get(number)
        found = {"labels_absent": absent, "rotation": rotation}
        features: dict[str, FeatureValue] = {name: value for name, value in found.items() if value}
        labels = self._selection.labels(file.key, _labels(rows, "present"))
        objects = []
        for row, mask in _with_masks(rows):
            given = zip(_FLAGS, row.flags, strict=False)
            attributes = {name: flag for name, flag in given if flag is not None}
            ref = None if mask is None else self._mask(mask.mask, split)
            objects.append(AnnotatedObject(row.label, row.box, ref, attributes=attributes))
        annotations = Annotations(
            labels, features, tuple(objects), relative=bool(objects), source_id=name_stem(file.key)
        )
        return ImageRecord(file.key, file.ref, split, annotations, size=file.size)

    def _mask(self, path: str, split: str | None) -> ImageRef:
        names = {**self._split_folders.get(split, {}), split: None} if split else {}
        masks = [f"{self._root}/{folder}" for folder in self._mask_folders or (_MASKS,)]
        found = self._confinement.find(path, [*(f"{one}/{name}" for one in masks for name in names), *masks])
        return ImageRef(found.path, version=found.version)

    def _missing(self) -> Iterator[Failure]:
        """Failures for images that have rows but do not exist."""
        for image in sorted(self._numbers):
            number = self._numbers[image]
            if number < len(self._images):
                continue
            # its path in the complete dataset, for --include and --exclude
            key = "/".join(filter(None, (_IMAGES, self._splits[number], f"{image}.jpg")))
            if self._states[number] & _ANNOTATED:
                missing = Failure(key, "annotations", "not found", _MISSING)
            else:
                reason = "listed image that is not there and has no annotation"
                missing = Failure(key, "annotations", reason, skipped=True)
            yield missing if self._selection.takes(key) else skipped(key, EXCLUDED)


def _labels(rows: Sequence[_Row], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.label for row in rows if row.kind == kind))


def _confidence(cell: str) -> float:
    value = number_in(cell)
    if value is None or not 0 <= value <= 1:
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


def _with_masks(rows: Sequence[_Row]) -> Iterator[tuple[_Row, _Row | None]]:
    """Each box with the first mask that has its label and coordinates; then the masks without such a box.

    Masks are found by the sum of their coordinates: an image may have any number of both.
    """
    cells: dict[tuple[str, int], dict[int, _Row]] = {}
    for number, row in enumerate(rows):
        if row.kind == "masks":
            cells.setdefault((row.label, _cell(row.box)), {})[number] = row
    for row in rows:
        if row.kind == "boxes":
            found: list[tuple[int, dict[int, _Row]]] = []
            for step in (-1, 0, 1):
                cell = cells.get((row.label, _cell(row.box) + step), {})
                same = (number for number, mask in cell.items() if _is_same(mask.box, row.box))
                found += [(number, cell) for number in itertools.islice(same, 1)]
            number, cell = min(found, key=operator.itemgetter(0), default=(-1, {}))
            yield row, cell.pop(number, None)
    left = {number: mask for cell in cells.values() for number, mask in cell.items()}
    yield from ((left[number], left[number]) for number in sorted(left))


def _cell(box: Box) -> int:
    return math.floor(sum(box) / _CELL)


def _is_same(one: Box, other: Box) -> bool:
    return all(abs(first - second) < _SAME for first, second in zip(one, other, strict=True))
