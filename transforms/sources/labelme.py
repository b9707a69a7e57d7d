"""Source `labelme`: the JSON of LabelMe, with shapes, and the XML of the older web tool, with polygons.

https://github.com/wkentaro/labelme, http://labelme.csail.mit.edu
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

import msgspec

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
    Rle,
    Scalar,
)
from recordmill.transforms.sources.annotated_tree import (
    AnnotatedTree,
    FileAnnotations,
    box_around,
    check_has,
    parsed,
    split_folders,
    split_in,
)
from recordmill.transforms.sources.class_tables import UNLABELLED, same_classes
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    extension_of,
    folder_of,
    is_image_name,
    is_unicode,
    name_stem,
    normal_split,
    stem_of,
)
from recordmill.transforms.sources.pairs import ORPHAN
from recordmill.transforms.sources.small_files import parse_xml, read_files
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tables.values import number_in
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.voc.xml import RESERVED, text_of
from recordmill.transforms.storage.spool import Spool

if TYPE_CHECKING:
    from numpy.typing import NDArray

_not_labelme = functools.partial(BadInput, "annotations", "not LabelMe JSON")
_not_web_xml = functools.partial(BadInput, "annotations", "not LabelMe XML")
_unreadable = functools.partial(BadInput, "annotations", "mask not readable")

_CIRCLE_POINTS = 64
_OUTLINES = ("polygon", "rectangle", "circle", "oriented_rectangle")
_WITHOUT_AREA = ("point", "points", "line", "linestrip")
_OCCLUDED = {"yes": 1, "no": 0}  # of the web tool
_MASK_MODES = ("1", "L", "P")
_MOST_PIXELS = 100_000_000
_MAX_BYTES = 256 << 20  # of a file, including its image
_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp"}
_CLASS_FILES = ("labels.txt", "class_names.txt")
_ANNOTATIONS = "Annotations"


class LabelmeSource(Source):
    """Lists the images of a LabelMe tree."""

    name = "labelme"
    description = Description(
        reads="LabelMe's `.json`, with the image next to it or in it; the XML of the web tool in "
        "`Annotations/`, without deleted objects",
        label="`label` of each shape; the flags of an image that are set",
        split="the folders, if all of those with annotations are named like splits",
        key="path of the image below the input",
        example="photos/\n  1.jpg\n  1.json\n  2.jpg\n  2.json",
        annotations=("masks",),
    )
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        check_has(config, _is_annotation, ".json and no .xml in it")

    def splits(self, config: SourceConfig) -> Iterable[str]:
        return map(normal_split, _LabelmeTree(config).splits)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("detection",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        tree = _LabelmeTree(config)
        name = repr(dataclasses.replace(config, skip_dirs=()))  # other flags spool other images
        with Spool(scratch, name, tree.version()) as spool:
            yield from tree.items(spool)


class _LabelmeTree(AnnotatedTree):
    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._with_masks = "masks" in config.include_annotations
        self._annotations: list[TreeFile] = []
        self._masks: dict[str, TreeFile] = {}  # of the web tool
        self._used_masks: set[str] = set()
        self.walk(config)
        keys = [file.key for file in self._annotations]
        # folders of splits in the input, or in Annotations/
        self.splits = split_folders(keys, (key.rpartition(f"{_ANNOTATIONS}/")[2] for key in keys))

    def add(self, file: TreeFile) -> str | None:
        *folders, name = file.key.split("/")
        is_png = extension_of(name) == "png"
        if _is_annotation(name):
            self._annotations.append(file)
        elif name in _CLASS_FILES:
            self.class_files[file.key] = file
        elif is_png and "Scribbles" in folders:
            return "scribbles are not read"
        elif is_png and "Masks" in folders:
            self._masks[file.key] = file
        else:
            return super().add(file)
        return None

    def version(self) -> int:
        """A number that changes with the annotations, and with the names of the images."""
        digest = hashlib.sha256()
        annotations = ((file.key, file.size, file.version) for file in self._annotations)
        for one in itertools.chain(annotations, self.image_keys()):
            digest.update(repr(one).encode())
        return int.from_bytes(digest.digest()[:7], "big")

    def items(self, spool: Spool) -> Items:
        if (classes := same_classes([*self.class_files.values()])) is not None:
            yield ClassNames(classes.names)
        yield from self.unread
        for file, data in read_files(((file, file) for file in self._annotations), _MAX_BYTES):
            yield from self._file_items(file, data, spool)
        yield from self.unclaimed("image without annotations")
        reason = "mask of no object" if self._with_masks else "masks are not asked for"
        for key in sorted(self._masks.keys() - self._used_masks):
            yield Failure(key, "list", reason, skipped=True)

    def _file_items(self, file: TreeFile, data: bytes | BadInput, spool: Spool) -> Items:
        is_json = extension_of(file.key) == "json"
        read_json = functools.partial(read_labelme_json, with_masks=self._with_masks)
        try:
            found = parsed(file, data, read_json if is_json else read_labelme_xml)
        except BadInput as fault:
            above, below = _web_folders(file.key)
            folders = (folder_of(file.key), f"{above}Images/{below}")
            key = self.key_of_unread(file, folders, name_stem(file.key))
            yield self.selection.item(key, functools.partial(fault.failure, key))
            return
        try:
            item = self._item(file, found, is_json, spool)
        except BadInput as fault:
            yield fault.failure(fault.key or file.key)
            return
        yield item
        if isinstance(item, ImageRecord):
            for number, reason, detail in found.left:
                yield Failure(f"{file.key}:shape {number}", "annotations", reason, detail, skipped=True)

    def _item(
        self, file: TreeFile, found: FileAnnotations, is_json: bool, spool: Spool
    ) -> ImageRecord | Failure:
        above, below = _web_folders(file.key)
        folders = [folder_of(file.key)]
        if not is_json:
            folders = [f"{above}Images/{below}", f"{above}Images/{found.image_folder}", *folders]
        image = None
        try:
            image = self.find(found.filename, folders, name_stem(file.key))
        except BadInput:
            if found.image_data is None:
                raise
        objects = tuple(self._stored(one, f"{above}Masks/{below}") for one in found.objects)
        annotations = Annotations(found.labels, objects=objects, size=found.size, upright=is_json)
        split = split_in(file.key, self.splits)
        if image is not None:
            return self.record(image, file, split, annotations)
        data = decoded(found.image_data or "")
        extension = extension_of(found.filename.replace("\\", "/"))
        if not is_image_name(f"x.{extension}"):
            extension = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "png")
        key = f"{stem_of(file.key)}.{extension}"
        if not data:
            raise BadInput("annotations", ORPHAN, "its imageData is empty", key)
        return self.selection.item(
            key, lambda: ImageRecord(key, spool.add(data), split, annotations, file.key, len(data))
        )

    def _stored(self, one: AnnotatedObject, folder: str) -> AnnotatedObject:
        """The object with its mask if masks are included, or else with its box."""
        if not self._with_masks:
            return msgspec.structs.replace(one, mask=None)
        if not isinstance(one.mask, ImageRef):
            return msgspec.structs.replace(one, box=None)
        key = folder + one.mask.uri
        if key not in self._masks:
            raise BadInput("annotations", "mask not found", key)
        self._used_masks.add(key)
        return msgspec.structs.replace(one, mask=self._masks[key].ref)


def _is_annotation(key: str) -> bool:
    return extension_of(key) in ("json", "xml")


def _web_folders(key: str) -> tuple[str, str]:
    """For an XML file: the folder that contains Annotations/, and the file's folder below that."""
    above, found, below = f"/{folder_of(key)}".partition(f"/{_ANNOTATIONS}/")
    return (f"{above}/".lstrip("/"), below) if found else (folder_of(key), "")


@internal_errors("annotations")
def read_labelme_json(data: bytes, with_masks: bool) -> FileAnnotations:
    """Reads a JSON file; its objects have masks, or else boxes.

    Raises:
        BadInput: stage `annotations`, `not LabelMe JSON`.
    """
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _not_labelme(str(error)) from error
    shapes = found.get("shapes") if isinstance(found, dict) else None
    if not isinstance(shapes, list):
        raise _not_labelme("it has no list of shapes")
    height, width = found.get("imageHeight"), found.get("imageWidth")
    has_size = all(type(side) is int and 0 < side < 1 << 31 for side in (height, width))
    size = (height, width) if has_size else None
    groups: dict[object, list[AnnotatedObject]] = {}  # of one label and one group_id
    left = []
    for number, shape in enumerate(shapes):
        one = _shape(shape, f"shape {number}", size, with_masks)
        if isinstance(one, AnnotatedObject):
            group = shape.get("group_id")
            own = ("alone", number) if group is None else ("group", repr(group))
            groups.setdefault((own, one.label, isinstance(one.mask, tuple)), []).append(one)
        else:
            left.append((number, *one))
    flags = _mapping(found.get("flags"), "flags")
    image_data = found.get("imageData")
    return FileAnnotations(
        filename=_text(found.get("imagePath") or "", "imagePath"),
        size=size,
        objects=tuple(_joined(group, with_masks) for group in groups.values()),
        labels=tuple(_text(name, "a flag") for name, is_set in flags.items() if is_set is True),
        image_data=image_data if isinstance(image_data, str) and image_data else None,
        left=tuple(left),
    )


def decoded(text: str) -> bytes:
    """The bytes of a text in base64. Raises BadInput if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _not_labelme(f"what should be base64 is not: {error}") from error


def _shape(
    shape: Any, where: str, size: tuple[int, int] | None, with_masks: bool
) -> AnnotatedObject | tuple[str, str]:
    """The object of a shape, with its box and its outline or mask; or the reason and detail to skip it."""
    if not isinstance(shape, dict):
        raise _not_labelme(f"{where} is no object")
    label = _text(shape.get("label"), f"{where}: label").strip()
    if not label:
        raise _not_labelme(f"{where} has no label")
    kind = shape.get("shape_type") or "polygon"
    points = _points(shape.get("points"), where)
    if label == UNLABELLED:
        return "labelled __ignore__", f"a {kind}"
    needed = 3 if kind in ("polygon", "oriented_rectangle") else 2
    if kind in _WITHOUT_AREA or (kind in _OUTLINES and len(points) < needed):
        return "shape without an area", f"a {kind} of {len(points)} points, labelled {label!r}"
    attributes: dict[str, Scalar] = {
        name: int(is_set)
        for name, is_set in _mapping(shape.get("flags"), f"{where}: flags").items()
        if isinstance(is_set, bool) and name not in RESERVED and "/" not in name and is_unicode(name)
    }
    if kind == "mask" and len(points) >= 2:
        (x0, y0), (x1, y1) = points[:2]
        box = Box(min(x0, x1), min(y0, y1), max(x0, x1) + 1, max(y0, y1) + 1)
        text = _text(shape.get("mask") or "", f"{where}: mask")
        mask = _mask(decoded(text), box, size, where) if with_masks else None
        return AnnotatedObject(label, box, mask, attributes=attributes)
    if kind not in _OUTLINES:
        raise _not_labelme(f"{where} is a {kind!r}, which is not known")
    outline = _outline(kind, points)
    return AnnotatedObject(label, box_around((outline,)), (outline,), attributes=attributes)


def _outline(kind: str, points: list[tuple[float, float]]) -> tuple[float, ...]:
    if kind == "circle":
        (x, y), (other_x, other_y) = points[:2]
        radius = math.hypot(other_x - x, other_y - y)
        turns = [2 * math.pi * number / _CIRCLE_POINTS for number in range(_CIRCLE_POINTS)]
        points = [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns]
    outline = tuple(value for point in points for value in point)
    if kind == "rectangle":
        left, top, right, bottom = box_around((outline,))
        return (left, top, right, top, right, bottom, left, bottom)
    return outline


def _joined(group: Sequence[AnnotatedObject], with_masks: bool) -> AnnotatedObject:
    """One object from shapes that are all outlines, or all masks."""
    attributes = {name: value for one in reversed(group) for name, value in one.attributes.items()}
    if not with_masks:
        box = box_around(tuple(one.box for one in group if one.box is not None))
        return AnnotatedObject(group[0].label, box, attributes=attributes)
    masks = [one.mask for one in group if isinstance(one.mask, Rle)]
    outlines = tuple(outline for one in group if isinstance(one.mask, tuple) for outline in one.mask)
    return AnnotatedObject(group[0].label, mask=_union(masks) if masks else outlines, attributes=attributes)


def _points(points: Any, where: str) -> list[tuple[float, float]]:
    if not isinstance(points, list):
        raise _not_labelme(f"{where} has no points")
    for point in points:
        numbers = point if isinstance(point, list) else ()
        is_finite = all(type(one) in (int, float) and abs(one) < 1e15 for one in numbers)  # and not NaN
        if len(numbers) != 2 or not is_finite:
            raise _not_labelme(f"{where} has a point that is not two numbers")
    return [(float(x), float(y)) for x, y in points]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise _not_labelme(f"{where} is not a mapping of names")
    return value or {}


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise _not_labelme(f"{where} is not text")
    return value


def _mask(png: bytes, box: Box, size: tuple[int, int] | None, where: str) -> Rle:
    """The mask of an object: the pixels of a PNG that are not 0. The PNG covers the box."""
    import numpy as np
    from PIL import Image

    if size is None:
        raise _unreadable(f"{where}: the file has no imageHeight and imageWidth, which a mask needs")
    left, top, right, bottom = (round(value) for value in box)
    width, height = right - left, bottom - top
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            is_fit = image.size == (width, height) and image.mode in _MASK_MODES
            if not is_fit or width * height > _MOST_PIXELS:
                found = f"{image.size[0]}x{image.size[1]} {image.mode}"
                raise _unreadable(f"{where}: its PNG is {found}; its points mean {width}x{height} in grey")
            columns, rows = np.nonzero(np.asarray(image).T)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(f"{where}: {error}") from error
    columns, rows = columns.astype(np.int64) + left, rows.astype(np.int64) + top
    inside = (rows >= 0) & (rows < size[0]) & (columns >= 0) & (columns < size[1])
    return _rle(columns[inside] * size[0] + rows[inside], size)


def _union(masks: Sequence[Rle]) -> Rle:
    import numpy as np

    if len(masks) == 1:
        return masks[0]
    found = []
    for mask in masks:
        ends = np.cumsum(np.asarray(mask.counts, np.int64))
        found += [np.arange(ends[at - 1], ends[at]) for at in range(1, len(ends), 2)]
    positions = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
    return _rle(positions, (masks[0].height, masks[0].width))


def _rle(positions: NDArray[Any], size: tuple[int, int]) -> Rle:
    """The run lengths of a mask from the positions of its pixels, column by column, in order."""
    import numpy as np

    starts = positions[np.diff(positions, prepend=-2) > 1]
    ends = positions[np.diff(positions, append=1 << 62) > 1] + 1
    edges = np.stack((starts, ends), axis=1).reshape(-1)
    counts = np.diff(edges, prepend=0, append=size[0] * size[1])
    return Rle(*size, tuple(counts.tolist()))


@internal_errors("annotations")
def read_labelme_xml(data: bytes) -> FileAnnotations:
    """Reads an XML file; the mask of an object without a polygon is the name of a file in Masks/.

    Raises:
        BadInput: stage `annotations`; `not LabelMe XML`, or as `parse_xml`.
    """
    root = parse_xml(data)
    if root.tag != "annotation":
        raise _not_web_xml(f"its root is <{root.tag}>, not <annotation>")
    texts = [text_of(root, path) for path in ("imagesize/nrows", "imagesize/ncols")]
    height, width = (int(text) if text.isdecimal() else 0 for text in texts)
    objects = tuple(
        _web_object(element, f"object {number}")
        for number, element in enumerate(root.iterfind("object"), 1)
        if text_of(element, "deleted") != "1"
    )
    size = (height, width) if height and width else None
    return FileAnnotations(text_of(root, "filename"), text_of(root, "folder"), size, objects)


def _web_object(element: Element, where: str) -> AnnotatedObject:
    if not (label := text_of(element, "name")):
        raise _not_web_xml(f"{where} has no name")
    occluded = _OCCLUDED.get(text_of(element, "occluded").lower())
    attributes = {} if occluded is None else {"occluded": occluded}
    if element.find("polygon") is not None:
        points = element.iterfind("polygon/pt")
        outline = tuple(_web_number(point, axis, where) for point in points for axis in "xy")
        if len(outline) < 6:
            raise _not_web_xml(f"{where} has a polygon of less than three points")
        return AnnotatedObject(label, box_around((outline,)), (outline,), attributes=attributes)
    if (inner := element.find("segm/box")) is None:
        raise _not_web_xml(f"{where} has no polygon, and no segm with a box")
    box = Box(*(_web_number(inner, name, where) for name in Box._fields))
    return AnnotatedObject(label, box, ImageRef(text_of(element, "segm/mask")), attributes=attributes)


def _web_number(element: Element, path: str, where: str) -> float:
    text = text_of(element, path)
    if (value := number_in(text)) is None:
        raise _not_web_xml(f"{where}: {text!r} is not a number")
    return value
