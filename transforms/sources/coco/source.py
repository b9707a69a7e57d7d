"""Source `coco`: annotation files in the format of COCO, from any tool.

Instances, stuff, person key points, captions, panoptic (https://cocodataset.org/#format-data), and labels of
images as CVAT and Datumaro write them. The files of one split are combined image by image: their annotations
go to a file on disk first, and a record reads those of its image.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import json
import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    MaskImage,
)
from recordmill.transforms.sources.coco.annotations import (
    CocoClasses,
    caption_of,
    merged,
    object_of,
    segments_of,
)
from recordmill.transforms.sources.coco.files import CocoFile, Element, JsonSections, find_files
from recordmill.transforms.sources.coco.images import CocoImages
from recordmill.transforms.sources.config import ANNOTATIONS, SourceConfig, readable
from recordmill.transforms.sources.entries_by_image import EntriesByImage
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import failed, is_unicode, printable, split_of_folders
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tables.manifests import check_manifests
from recordmill.transforms.storage.confinement import LocatedFile
from recordmill.transforms.storage.files import is_folder, open_file

_NO_FEATURES: Mapping[str, FeatureValue] = {}
_NOT_FEATURES = frozenset(
    ("id", "file_name", "width", "height", "license", "coco_url", "flickr_url", "date_captured", "url")
)


class CocoSource(Source):
    """Lists the images of COCO annotation files."""

    name = "coco"
    description = Description(
        reads="COCO's JSON: instances, stuff, key points, captions, panoptic, labels of images; also the "
        "files of Roboflow, CVAT and LVIS",
        label="the category",
        split="the name of the file, without a year; otherwise its folder (`train/_annotations.coco.json`), "
        "or a folder in the path of the image",
        key="path of the image below the input",
        example="coco/\n  annotations/\n    instances_train2017.json\n    captions_train2017.json\n"
        "    panoptic_train2017.json\n    panoptic_train2017/\n      000000000009.png\n"
        "  train2017/\n    000000000009.jpg",
        annotations=ANNOTATIONS,
    )
    flags = ("annotations",)
    searches_roots = True

    def check_input(self, config: SourceConfig) -> None:
        if config.annotations or not is_folder(config.input):
            check_manifests(config, self.name, takes_utf16=False)
        files, _ = find_files(config)
        if not files:
            raise ValueError(
                f"--input is {config.input!r}, where no COCO annotation file is found "
                f"up to two folders down{left_out(config) or '; name them with --annotations'}"
            )
        if all(file.kind == "captions" for file in files) and "captions" not in config.include_annotations:
            raise ValueError(
                f"--input is {config.input!r}, which has only captions; give --include_annotations=captions"
            )

    def splits(self, config: SourceConfig) -> set[str | None]:
        return {file.split for file in find_files(config)[0]}

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            kinds = {file.kind for file in find_files(config)[0]} - {"images"}
        if kinds == {"labels"}:
            return ("classification",)
        found = ("detection",) if kinds & {"objects", "captions"} else ()
        return (*found, "panoptic") if "panoptic" in kinds else found

    def items(self, config: SourceConfig, scratch: str) -> Items:
        files, others = find_files(config)
        yield from others
        with contextlib.closing(EntriesByImage()) as entries:
            yield from _Reading(config, files, entries).items()


@dataclasses.dataclass(slots=True)
class _Image:
    """An image in the files of one split; name, id and file come from the first file that lists it."""

    name: str
    key: str
    source_id: int | str
    file: CocoFile
    found: LocatedFile | BadInput
    size: tuple[int, int] | None  # (height, width)
    features: Mapping[str, FeatureValue]
    numbers: tuple[int, ...] = ()  # in the entries, one for each file with annotations of it


class _Reading:
    """Reads annotation files once: images into memory, annotations to disk."""

    def __init__(self, config: SourceConfig, files: list[CocoFile], entries: EntriesByImage) -> None:
        self._files = sorted(files, key=lambda file: file.split or "")  # of one split in the order found
        self._include = config.include_annotations
        self._selection = Selection(config)
        self._finder = CocoImages(config, files)
        self._classes = CocoClasses()
        self._entries = entries
        self._images: list[_Image] = []
        self._rows: dict[str, int] = {}  # of the images of a split, by key
        # Each file's image ids are numbered in the order of their first use, in images or annotations:
        self._starts: list[int] = []  # the first number of each file
        self._row_of = array("i")  # by number; -1 if the image is not listed yet
        self._numbers: dict[int | str, int] = {}  # of the ids in the current file
        self._listed: dict[int, int | str] = {}  # the image ids in the current file, by row

    def items(self) -> Iterator[Item]:
        keys = []
        for at, file in enumerate(self._files):
            if not at or file.split != self._files[at - 1].split:
                self._rows = {}
                keys.append(self._rows)
            yield from self._read(file)
        if (names := self._classes.names()) is not None:
            yield names
        for image in self._images:
            yield self._selection.item(image.key, functools.partial(self._record, image))
        yield from self._finder.unlisted(keys, self._selection)

    def _read(self, file: CocoFile) -> Iterator[Failure]:
        """Reads a file, whose sections may be in any order; yields faulty entries."""
        start = len(self._row_of)
        self._starts.append(start)
        self._numbers, self._listed = {}, {}
        counts: collections.Counter[str] = collections.Counter()
        with open_file(file.path) as stream:
            for element in JsonSections(stream, file.path).elements():
                counts[element.section] += 1
                try:
                    if element.section == "images":
                        self._add_image(file, element.value)
                    elif element.section == "annotations":
                        number = self._number(_id_in(element.value, "annotation", "image_id"))
                        self._entries.add(number, _kept(element, self._include))
                    elif element.section == "categories":
                        self._classes.add(element.value, file.name)
                except BadInput as fault:
                    name = _named(element.section, element.value, f"number {counts[element.section]}")
                    yield failed(f"{file.name}:{name}", fault)
        for number in range(start, len(self._row_of)):
            row = self._row_of[number]
            if row >= 0:
                self._images[row].numbers += (number,) if self._entries.has(number) else ()
                continue
            for value in map(json.loads, self._entries.of(number)):
                name = _named("annotations", value, f"of image {value['image_id']}")
                detail = f"the file lists no image with the id {value['image_id']!r}"
                missing = BadInput("annotations", "annotation without its image", detail)
                yield failed(f"{file.name}:{name}", missing)

    def _number(self, image: int | str) -> int:
        number = self._numbers.setdefault(image, len(self._row_of))
        if number == len(self._row_of):
            self._row_of.append(-1)
        return number

    def _add_image(self, file: CocoFile, value: Any) -> None:
        """Adds an entry of `images`. Raises BadInput if it is invalid, or repeats another one."""
        image_id = _id_in(value, "image", "id")
        name, url = value.get("file_name"), value.get("coco_url")
        if name is None and isinstance(url, str):
            name = "/".join(url.split("/")[-2:])  # LVIS has only URLs: .../train2017/1.jpg
        if not isinstance(name, str) or not name.strip():
            detail = f"file_name is {value.get('file_name')!r}"
            raise BadInput("annotations", "image without a file name", detail)
        number = self._number(image_id)
        if (row := self._row_of[number]) >= 0:
            detail = f"{self._images[row].name!r} and {name!r} have the id {image_id!r}"
            raise BadInput("annotations", "image id twice", detail)
        found: LocatedFile | BadInput
        try:
            found = self._finder.image(file, name)
            key = unique = found.key
        except BadInput as fault:
            found, key, unique = fault, printable(name), f"\0{name}"
        row = self._rows.setdefault(unique, len(self._images))
        if row in self._listed:
            detail = f"{name!r} has the ids {self._listed[row]!r} and {image_id!r}"
            raise BadInput("annotations", "image twice", detail)
        self._row_of[number], self._listed[row] = row, image_id
        height, width = value.get("height"), value.get("width")
        size = (int(height), int(width)) if _is_length(height) and _is_length(width) else None
        features = {
            key: item
            for key, item in value.items()
            if key not in _NOT_FEATURES and isinstance(item, str | int | float) and is_unicode(f"{key}{item}")
        }
        if row == len(self._images):
            self._images.append(_Image(name, key, image_id, file, found, size, features or _NO_FEATURES))
            return
        image = self._images[row]
        if image.size and size and image.size != size and not isinstance(image.found, BadInput):
            sizes = " and ".join(f"{width} x {height}" for height, width in (image.size, size))
            image.found = BadInput("annotations", "annotation files disagree on the size", sizes)
        image.size = image.size or size
        if features:
            image.features = {**features, **image.features}

    def _record(self, image: _Image) -> ImageRecord:
        found = image.found
        if isinstance(found, BadInput):
            raise found
        file = image.file
        ref = ImageRef(found.path, version=found.version)
        split = split_of_folders(found.key) if file.split is None else file.split
        origin = f"{file.name}, image {image.source_id}"
        return ImageRecord(found.key, ref, split, self._annotations(image), origin, found.size)

    def _annotations(self, image: _Image) -> Annotations:
        labels: dict[str | int, None] = {}
        objects: list[AnnotatedObject] = []
        captions: list[str] = []
        masks: dict[str, MaskImage] = {}
        positions: dict[tuple[object, ...], tuple[CocoFile, int]] = {}  # in objects
        entries = ((number, data) for number in image.numbers for data in self._entries.of(number))
        for number, data in entries:
            file = self._files[bisect.bisect_right(self._starts, number) - 1]
            value = json.loads(data)
            try:
                with internal_errors("annotations"):
                    if "segments_info" in value:
                        if masks:
                            detail = f"of {value.get('file_name')!r}"
                            raise BadInput("annotations", "two panoptic masks", detail)
                        masks["panoptic"] = self._panoptic(value, file)
                    elif "caption" in value:
                        captions += [caption_of(value)] if "captions" in self._include else []
                    elif all(value.get(key) is None for key in ("bbox", "segmentation", "keypoints")):
                        labels[self._classes.label(value.get("category_id"))] = None
                    else:
                        found = object_of(value, self._classes, self._include)
                        position = file, len(objects)
                        if isinstance(object_id := value.get("id"), int | str):
                            position = positions.setdefault((object_id, found.label, found.box), position)
                        if position[0] is file:
                            objects.append(found)
                        else:  # files of key points repeat the instances
                            objects[position[1]] = merged(objects[position[1]], found)
            except BadInput as fault:
                fault.detail = f"annotation {value.get('id')!r} of {file.name}: {fault.detail}"
                raise
        return Annotations(
            labels=tuple(labels),
            features=image.features,
            objects=tuple(objects),
            captions=tuple(captions),
            masks=masks,
            size=image.size,
            source_id=str(image.source_id),
        )

    def _panoptic(self, value: dict[str, Any], file: CocoFile) -> MaskImage:
        name = value.get("file_name")
        if not isinstance(name, str) or not name:
            raise BadInput("annotations", "panoptic mask without a file name", f"file_name is {name!r}")
        try:
            found = self._finder.mask(file, name)
        except BadInput as fault:
            if fault.reason == "not found":
                fault.reason = "panoptic mask not found"
            raise
        segments = segments_of(value, self._classes)
        return MaskImage(ImageRef(found.path, version=found.version), segments=segments)


def _is_length(side: object) -> TypeGuard[int | float]:
    return isinstance(side, int | float) and 0 < side < math.inf and side == int(side)


def _id_in(value: Any, kind: str, key: str) -> int | str:
    """The id of an image in an entry. Raises BadInput if it has none."""
    if not isinstance(value, dict):
        raise BadInput("annotations", f"{kind} is not an object", str(value)[:100])
    if (found := _id(value, key)) is None:
        reason = f"{kind} without an {key.replace('_', ' ')}"
        raise BadInput("annotations", reason, f"{key} is {value.get(key)!r}")
    return found


def _id(value: Any, key: str = "id") -> int | str | None:
    found = value.get(key) if isinstance(value, dict) else None
    if isinstance(found, str):
        return found if is_unicode(found) else None
    return found if type(found) is int else None


def _named(section: str, value: Any, otherwise: str) -> str:
    number = _id(value)
    return f"{section.removesuffix('s')} {otherwise if number is None else number}"


def _kept(element: Element, include: tuple[str, ...]) -> bytes:
    """The JSON of an annotation, without its segmentation unless that is wanted, or there is no box."""
    value = element.value
    if "segmentation" not in value or "masks" in include or not value.get("bbox"):
        return element.text.encode()
    return json.dumps({key: item for key, item in value.items() if key != "segmentation"}).encode()
