"""Reads small files of annotations ahead, and parses XML without entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.files import open_file
from recordmill.transforms.storage.reader import ImageReader, Loading, read_ahead

MAX_XML_BYTES = 16 << 20
_MAX_DEPTH = 100
_MAX_ELEMENTS = 500_000
_MAX_TEXT_BYTES = 1 << 22

_T = TypeVar("_T")


def parse_xml(data: bytes) -> Element:
    """The root of an XML file. Raises BadInput; a document type, and so an entity, is refused."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    if len(data) > MAX_XML_BYTES:
        raise BadInput("annotations", "XML too large", f"{len(data)} bytes; up to {MAX_XML_BYTES} are read")
    parser = DefusedXMLParser(target=_BoundedBuilder(), forbid_dtd=True)
    try:
        parser.feed(data)
        root = parser.close()
    except DefusedXmlException as error:
        raise BadInput("annotations", "XML with a document type", str(error)) from error
    except (ParseError, LookupError, ValueError) as error:  # not well-formed, or of an unknown encoding
        raise BadInput("annotations", "not XML", str(error)) from error
    if not isinstance(root, Element):
        raise BadInput("annotations", "not XML", "it has no element")
    return root


class _BoundedBuilder(TreeBuilder):
    """Builds a tree of limited depth and number of elements."""

    _depth = _elements = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._elements += 1
        if self._depth > _MAX_DEPTH:
            raise BadInput("annotations", "XML too large", f"elements in more than {_MAX_DEPTH} others")
        if self._elements > _MAX_ELEMENTS:
            raise BadInput("annotations", "XML too large", f"more than {_MAX_ELEMENTS} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def small_text(path: str, name: str) -> str:
    """The text of a small file, at a real path. Raises ValueError if it is too large, or not UTF-8."""
    with open_file(path) as stream:
        data = stream.read(_MAX_TEXT_BYTES + 1)
    if len(data) > _MAX_TEXT_BYTES:
        raise ValueError(f"{name!r} has more than {_MAX_TEXT_BYTES} bytes, too many to describe a dataset")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name!r} is not UTF-8 at byte {error.start}") from error


def read_files(
    items: Iterable[tuple[_T, TreeFile | None]], most: int = MAX_XML_BYTES
) -> Iterator[tuple[_T, bytes | BadInput]]:
    """Each item with the bytes of its file, or why they cannot be read; requests remote files ahead.

    An item without a file has no bytes. Raises OSError for a transient fault that has lasted.
    """
    reader = ImageReader()

    def begin(item: tuple[_T, TreeFile | None]) -> Loading:
        file = item[1]
        return None if file is None or file.size > most else reader.begin(file.ref)

    def size(item: tuple[_T, TreeFile | None]) -> int:
        file = item[1]
        return 1 if file is None else min(file.size, most) or 1

    for (item, file), loading in read_ahead(items, begin, size):
        data: bytes | BadInput = b""
        if file is not None and file.size > most:
            detail = f"{file.size} bytes; up to {most} are read"
            data = BadInput("annotations", "annotation file too large", detail)
        elif file is not None:
            try:
                data = reader.read(file.ref) if loading is None else loading.result()
            except BadInput as fault:
                data = BadInput("annotations", fault.reason, fault.detail)
        yield item, data
