"""The XML of LabelMe's web tool (http://labelme.csail.mit.edu): polygons, and masks in files beside."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import AnnotatedObject, BadInput, Box
from recordmill.transforms.sources.small_files import parse_xml
from recordmill.transforms.sources.voc.xml import box_around, text_of

_OCCLUDED = {"yes": 1, "no": 0}


@dataclasses.dataclass(frozen=True, slots=True)
class WebObject:
    """An object.

    Attributes:
        shape: with box, and with its outline where it has one.
        mask_file: name of the PNG of its mask; empty where it has none.
    """

    shape: AnnotatedObject
    mask_file: str


@dataclasses.dataclass(frozen=True, slots=True)
class WebAnnotation:
    """What an XML file says.

    Attributes:
        filename: of the image.
        folder: of the image, below Images.
        size: (height, width), or None where it is not told.
        objects: that are not deleted.
    """

    filename: str
    folder: str
    size: tuple[int, int] | None
    objects: tuple[WebObject, ...]


@internal_errors("annotations")
def read_labelme_xml(data: bytes) -> WebAnnotation:
    """Reads an XML file.

    Raises:
        BadInput: stage `annotations`; `not LabelMe XML`, and what is wrong; or that of `parse_xml`.
    """
    root = parse_xml(data)
    if root.tag != "annotation":
        raise _not_labelme(f"its root is <{root.tag}>, not <annotation>")
    size = [text_of(root, path) for path in ("imagesize/nrows", "imagesize/ncols")]
    counts = [int(text) if text.isdecimal() else 0 for text in size]
    return WebAnnotation(
        filename=text_of(root, "filename"),
        folder=text_of(root, "folder"),
        size=(counts[0], counts[1]) if all(counts) else None,
        objects=tuple(_objects(root)),
    )


def _objects(root: Element) -> Iterator[WebObject]:
    for number, element in enumerate(root.iterfind("object"), 1):
        if text_of(element, "deleted") == "1":
            continue
        label, where = text_of(element, "name"), f"object {number}"
        if not label:
            raise _not_labelme(f"{where} has no name")
        occluded = _OCCLUDED.get(text_of(element, "occluded").lower())
        attributes = {} if occluded is None else {"occluded": occluded}
        if element.find("polygon") is not None:
            outline = tuple(_outline(element, where))
            if len(outline) < 6:
                raise _not_labelme(f"{where} has a polygon of less than three points")
            box, mask = box_around((outline,)), (outline,)
            yield WebObject(AnnotatedObject(label, box, mask, attributes=attributes), "")
        elif (inner := element.find("segm/box")) is not None:
            box = Box(*(_number(text_of(inner, name), where) for name in Box._fields))
            mask_file = text_of(element, "segm/mask")
            yield WebObject(AnnotatedObject(label, box, attributes=attributes), mask_file)
        else:
            raise _not_labelme(f"{where} has no polygon, and no segm with a box")


def _outline(element: Element, where: str) -> Iterator[float]:
    for point in element.iterfind("polygon/pt"):
        yield _number(text_of(point, "x"), where)
        yield _number(text_of(point, "y"), where)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _not_labelme(f"{where}: {text!r} is not a number")
    return value


def _not_labelme(detail: str) -> BadInput:
    return BadInput("annotations", "not LabelMe XML", detail)
