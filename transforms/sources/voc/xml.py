"""The XML of PASCAL VOC, a file for each image.

The format is that of VOCdevkit (http://host.robots.ox.ac.uk/pascal/VOC/), with the attributes of CVAT and the
polygons of Roboflow. Coordinates are not changed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import AnnotatedObject, BadInput, Box, Part, Scalar
from recordmill.transforms.sources.annotated_tree import FileAnnotations
from recordmill.transforms.sources.small_files import parse_xml
from recordmill.transforms.sources.tables.values import number_in

_not_voc = functools.partial(BadInput, "annotations", "not VOC XML")

RESERVED = {"area", "bbox", "class", "depiction", "keypoint", "label", "mask", "text", "view", "weight"}
"""Names of features of schemas, which attributes of objects may not have."""

_FLAGS = ("difficult", "truncated", "occluded")
_TRUTH = {"1": 1, "true": 1, "yes": 1, "0": 0, "false": 0, "no": 0, "": None, "unspecified": None}
_ROOT = re.compile(rb"<([A-Za-z_][\w.-]*)[\s/>]")
_COORDINATE = re.compile(r"([xy])([1-9][0-9]{0,5})")


@internal_errors("annotations")
def read_voc_xml(data: bytes) -> FileAnnotations:
    """Reads an XML file; its objects have a box, polygons or both.

    Raises:
        BadInput: stage `annotations`; `not VOC XML`, or as `parse_xml`.
    """
    root = parse_xml(data)
    if root.tag != "annotation":
        other = what_else(data[:1024])
        remedy = f", which is {other}; export it as PASCAL VOC" if other else ""
        raise _not_voc(f"its root is <{root.tag}>, not <annotation>{remedy}")
    height, width, _ = (_count(root, f"size/{name}") for name in ("height", "width", "depth"))
    size = (height, width) if height and width else None
    objects = tuple(_object(one, f"object {number}") for number, one in enumerate(root.iterfind("object"), 1))
    return FileAnnotations(text_of(root, "filename"), text_of(root, "folder"), size, objects)


def is_voc_xml(head: bytes) -> bool:
    """Whether a file that begins so looks like VOC's XML, and not like LabelMe's or ImageNet's."""
    others = (b"<pt>", b"<imagesize>", b"<sourceAnnotation>", b"<database>ILSVRC")
    return _root_tag(head) == b"annotation" and not any(other in head for other in others)


def what_else(data: bytes) -> str | None:
    """The other kind of annotations in an XML file that begins so: `CVAT XML`, or None."""
    if _root_tag(data) == b"annotations" and re.search(rb"<(?:version|meta|image|track)[\s>]", data):
        return "CVAT XML"
    return None


def _root_tag(head: bytes) -> bytes:
    head = re.sub(rb"<!--.*?-->|<\?.*?\?>", b"", head, flags=re.DOTALL).lstrip(b"\xef\xbb\xbf \t\r\n")
    match = _ROOT.match(head)
    return match[1] if match else b""


def text_of(element: Element, path: str) -> str:
    """The text of the first element at `path`, stripped; empty if there is none."""
    return (element.findtext(path) or "").strip()


def _object(element: Element, where: str) -> AnnotatedObject:
    if not (label := text_of(element, "name")):
        raise _not_voc(f"{where} has no name")
    bndbox = element.find("bndbox")
    polygons = tuple(_polygon(one, where) for one in element.iterfind("polygon"))
    if bndbox is None and not polygons:
        rotated = "; rotated boxes are not read" if element.find("robndbox") is not None else ""
        raise _not_voc(f"{where} has no bndbox and no polygon{rotated}")
    return AnnotatedObject(
        label,
        box=None if bndbox is None else _box(bndbox, where),
        mask=polygons or None,
        parts=tuple(_parts(element, where)),
        attributes=_attributes(element, where),
    )


def _parts(element: Element, where: str) -> Iterator[Part]:
    for number, part in enumerate(element.iterfind("part"), 1):
        inner = f"{where}, part {number}"
        name, bndbox = text_of(part, "name"), part.find("bndbox")
        if not name or bndbox is None:
            raise _not_voc(f"{inner} has no {'bndbox' if name else 'name'}")
        yield Part(name, _box(bndbox, inner))


def _box(element: Element, where: str) -> Box:
    return Box(*(_number(text_of(element, name), f"{where}: {name}") for name in Box._fields))


def _polygon(element: Element, where: str) -> tuple[float, ...]:
    """The coordinates of Roboflow's x1, y1, x2, y2, …, in the order of the numbers."""
    points: dict[int, dict[str, float]] = {}
    for one in element:
        match = _COORDINATE.fullmatch(one.tag)
        if match is None:
            raise _not_voc(f"{where}: its polygon has <{one.tag}>, not x1, y1, x2, y2, …")
        value = _number((one.text or "").strip(), f"{where}: {one.tag}")
        points.setdefault(int(match[2]), {})[match[1]] = value
    if len(points) < 3 or any(len(point) != 2 for point in points.values()):
        raise _not_voc(f"{where}: its polygon has less than three points, or half of one")
    return tuple(points[number][axis] for number in sorted(points) for axis in "xy")


def _attributes(element: Element, where: str) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for name in _FLAGS:
        text = text_of(element, name).lower()
        if text not in _TRUTH:
            raise _not_voc(f"{where}: {name} is {text!r}; it may be 0 or 1")
        if (value := _TRUTH[text]) is not None:
            found[name] = value
    if view := text_of(element, "pose"):
        found["view"] = view
    for attribute in element.iterfind("attributes/attribute"):
        name = text_of(attribute, "name")
        if name and "/" not in name and name not in {*RESERVED, *_FLAGS, "group_of", "is_crowd"}:
            found[name] = text_of(attribute, "value")
    return found


def _count(element: Element, path: str) -> int | None:
    """A number of pixels or channels; None if it is missing or 0."""
    if not (text := text_of(element, path)):
        return None
    value = _number(text, path)
    if value < 0 or value != int(value):
        raise _not_voc(f"{path} is {text!r}, not a number of pixels")
    return int(value) or None


def _number(text: str, where: str) -> float:
    if (value := number_in(text)) is None:
        raise _not_voc(f"{where} is {text!r}, not a number")
    return value
