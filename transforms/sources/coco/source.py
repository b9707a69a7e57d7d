"""Source `coco`: the annotation files of COCO, and of all who write its format.

Instances, stuff, person key points, captions, panoptic (https://cocodataset.org/#format-data), and labels of
whole images as CVAT and Datumaro write them. Files of one split are put together image by image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Failure,
    ImageRecord,
    ImageRef,
    MaskImage,
)
from recordmill.transforms.sources.coco.categories import CocoClasses
from recordmill.transforms.sources.coco.files import CocoFile, find_files
from recordmill.transforms.sources.coco.images import CocoPlaces
from recordmill.transforms.sources.coco.index import CocoImage, CocoIndex
from recordmill.transforms.sources.coco.objects import caption_of, merged, object_of, segments_of
from recordmill.transforms.sources.coco.spool import Spooled, annotation_spool
from recordmill.transforms.sources.config import (
    ANNOTATIONS,
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import printable, split_of_folders
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.sources.tables.manifests import check_manifests
from recordmill.transforms.storage.files import is_folder

_UNUSED = ("image_column", "label_column", "label_pattern", "input_features", "mask_pattern")


class CocoSource(Source):
    """Lists the images of COCO annotation files."""

    name = "coco"
    description = Description(
        reads="COCO's JSON: instances, stuff, key points, captions, panoptic, labels of images; also as "
        "Roboflow, CVAT and LVIS write it",
        label="the category",
        split="the file's name, without a year; `train/_annotations.coco.json`: its folder; else a folder of "
        "the image",
        key="path of the image below the input",
        example="coco/\n  annotations/\n    instances_train2017.json\n    captions_train2017.json\n"
        "    panoptic_train2017.json\n    panoptic_train2017/\n      000000000009.png\n"
        "  train2017/\n    000000000009.jpg",
        annotations=ANNOTATIONS,
    )

    def check(self, config: SourceConfig) -> None:
        if config.annotations or not is_folder(config.input):
            check_manifests(config, self.name, takes_utf16=False)
        check_input_exists(config)
        check_unused(config, self.name, *_UNUSED)
        check_selection(config)
        with readable("--input", config.input):
            files, _ = find_files(config)
        if not files:
            raise ValueError(
                f"--input is {config.input!r}, where no COCO annotation file is found "
                f"up to two folders down{left_out(config) or '; name them with --annotations'}"
            )
        if all(file.kind == "captions" for file in files) and "captions" not in config.include_annotations:
            raise ValueError(
                f"--input is {config.input!r}, which has captions alone; give --include_annotations=captions"
            )

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            files, _ = find_files(config)
        return tuple(sorted({file.split for file in files if file.split is not None}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            files, _ = find_files(config)
        kinds = {file.kind for file in files} - {"images"}
        if kinds == {"labels"}:
            return ("classification",)
        found = ("detection",) if kinds & {"objects", "captions"} else ()
        return (*found, "panoptic") if "panoptic" in kinds else found

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)


def _items(config: SourceConfig) -> Iterator[Item]:
    files, others = find_files(config)
    yield from others
    files.sort(key=lambda file: file.split or "")  # of one split in the order found
    places, classes, selection = CocoPlaces(config, files), CocoClasses(), Selection(config)
    with annotation_spool() as spool:
        splits: list[tuple[str | None, CocoIndex]] = []
        for split, of_split in itertools.groupby(files, key=lambda file: file.split):
            index = CocoIndex(spool, places, classes, config.include_annotations)
            splits.append((split, index))
            for file in of_split:
                yield from index.read(file)
        if (names := classes.names()) is not None:
            yield names
        for split, index in splits:
            maker = _Maker(index, places, classes, config.include_annotations)
            for row, image in enumerate(index.images):
                yield maker.item(row, image, split, selection)
    yield from places.unlisted([index.rows for _, index in splits], selection)


class _Maker:
    """Makes the images of an index into records."""

    def __init__(
        self, index: CocoIndex, places: CocoPlaces, classes: CocoClasses, include: tuple[str, ...]
    ) -> None:
        self._index = index
        self._places = places
        self._classes = classes
        self._include = include

    def item(
        self, row: int, image: CocoImage, split: str | None, selection: Selection
    ) -> ImageRecord | Failure:
        """The record of an image, or why there is none."""
        if not selection.takes(image.key):
            return Failure(image.key, "list", EXCLUDED, skipped=True)
        place = image.place
        try:
            if isinstance(place, BadInput):
                raise place
            if image.fault is not None:
                raise image.fault
            annotations = self._annotations(row, image)
        except BadInput as fault:
            return Failure(image.key, fault.stage, fault.reason, printable(fault.detail))
        origin = f"{self._index.files[image.file].name}, image {image.source_id}"
        ref = ImageRef(place.path, version=place.version)
        split = split_of_folders(place.key) if split is None else split
        return ImageRecord(place.key, ref, split, annotations, origin, place.size)

    def _annotations(self, row: int, image: CocoImage) -> Annotations:
        parts = _Parts()
        for spooled in self._index.annotations(row):
            try:
                self._add(spooled, parts)
            except BadInput as fault:
                name = self._index.files[spooled.file].name
                detail = f"annotation {spooled.value.get('id')!r} of {name}: {fault.detail}"
                raise BadInput(fault.stage, fault.reason, detail) from fault
        return Annotations(
            labels=tuple(parts.labels),
            features=image.features,
            objects=tuple(parts.objects),
            captions=tuple(parts.captions),
            masks=parts.masks,
            size=image.size,
            source_id=str(image.source_id),
        )

    def _add(self, spooled: Spooled, parts: _Parts) -> None:
        value, file = spooled.value, self._index.files[spooled.file]
        if "segments_info" in value:
            if "panoptic" in parts.masks:
                raise BadInput("annotations", "two panoptic masks", f"of {value.get('file_name')!r}")
            parts.masks["panoptic"] = self._panoptic(value, file)
        elif "caption" in value:
            if "captions" in self._include:
                parts.captions.append(caption_of(value))
        elif any(value.get(key) is not None for key in ("bbox", "segmentation", "keypoints")):
            parts.add_object(spooled, object_of(value, self._classes, self._include))
        else:
            parts.labels[self._classes.label(value.get("category_id"))] = None

    def _panoptic(self, value: dict[str, Any], file: CocoFile) -> MaskImage:
        name = value.get("file_name")
        if not isinstance(name, str) or not name:
            raise BadInput("annotations", "panoptic mask without a file name", f"file_name is {name!r}")
        try:
            found = self._places.mask(file, name)
        except BadInput as fault:
            reason = "panoptic mask not found" if fault.reason == "not found" else fault.reason
            raise BadInput("annotations", reason, fault.detail) from fault
        segments = segments_of(value, self._classes)
        return MaskImage(ImageRef(found.path, version=found.version), segments=segments)


class _Parts:
    """What the annotations of one image add up to; labels are the keys of their dict."""

    def __init__(self) -> None:
        self.labels: dict[str | int, None] = {}
        self.objects: list[AnnotatedObject] = []
        self.captions: list[str] = []
        self.masks: dict[str, MaskImage] = {}
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}  # (file, place in objects)

    def add_object(self, spooled: Spooled, found: AnnotatedObject) -> None:
        """Takes an object, or what it adds to one that another file has: key points tell instances again."""
        number = spooled.value.get("id")
        same = (number, found.label, found.box) if isinstance(number, int | str) else None
        known = self._known.get(same) if same is not None else None
        if known is not None and known[0] != spooled.file:
            self.objects[known[1]] = merged(self.objects[known[1]], found)
            return
        if same is not None and known is None:
            self._known[same] = spooled.file, len(self.objects)
        self.objects.append(found)
