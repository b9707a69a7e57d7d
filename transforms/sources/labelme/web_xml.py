"""The XML of LabelMe's web tool (http://labelme.csail.mit.edu): polygons, and masks in files."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, ImageRef
from recordmill.transforms.sources.annotated_tree import FileAnnotations, box_around
from recordmill.transforms.sources.small_files import parse_xml
from recordmill.transforms.sources.voc.xml import finite, text_of

_OCCLUDED = {"yes": 1, "no": 0}


@internal_errors("annotations")
def read_labelme_xml(data: bytes) -> FileAnnotations:
    """Reads an XML file; the mask of an object without polygon is the name of a file in Masks.

    Raises:
        BadInput: stage `annotations`; `not LabelMe XML`, or as `parse_xml`.
    """
    root = parse_xml(data)
    if root.tag != "annotation":
        raise _not_labelme(f"its root is <{root.tag}>, not <annotation>")
    texts = [text_of(root, path) for path in ("imagesize/nrows", "imagesize/ncols")]
    height, width = (int(text) if text.isdecimal() else 0 for text in texts)
    objects = (
        _object(element, f"object {number}")
        for number, element in enumerate(root.iterfind("object"), 1)
        if text_of(element, "deleted") != "1"
    )
    return FileAnnotations(
        text_of(root, "filename"),
        text_of(root, "folder"),
        (height, width) if height and width else None,
        tuple(objects),
    )


def _object(element: Element, where: str) -> AnnotatedObject:
    label = text_of(element, "name")
    if not label:
        raise _not_labelme(f"{where} has no name")
    occluded = _OCCLUDED.get(text_of(element, "occluded").lower())
    attributes = {} if occluded is None else {"occluded": occluded}
    if element.find("polygon") is not None:
        outline = tuple(_outline(element, where))
        if len(outline) < 6:
            raise _not_labelme(f"{where} has a polygon of less than three points")
        return AnnotatedObject(label, box_around((outline,)), (outline,), attributes=attributes)
    if (inner := element.find("segm/box")) is None:
        raise _not_labelme(f"{where} has no polygon, and no segm with a box")
    box = Box(*(_number(inner, name, where) for name in Box._fields))
    return AnnotatedObject(label, box, ImageRef(text_of(element, "segm/mask")), attributes=attributes)


def _outline(element: Element, where: str) -> Iterator[float]:
    for point in element.iterfind("polygon/pt"):
        yield _number(point, "x", where)
        yield _number(point, "y", where)


def _number(element: Element, path: str, where: str) -> float:
    text = text_of(element, path)
    if (value := finite(text)) is None:
        raise _not_labelme(f"{where}: {text!r} is not a number")
    return value


def _not_labelme(detail: str) -> BadInput:
    return BadInput("annotations", "not LabelMe XML", detail)
