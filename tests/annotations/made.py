"""Images and ids for the tests of annotations."""

from __future__ import annotations

from collections.abc import Mapping

from recordmill.transforms.annotations.mapping import map_annotations
from recordmill.transforms.records import Annotations, BadInput, Geometry, ImageRef, Mapped, StoredImage


class Ids:
    """Ids of classes: an integer is its own, a name has that of the table; a mask's value is shifted."""

    def __init__(
        self, names: Mapping[str, int] | None = None, shift: int = 0, merged: Mapping[int, int] | None = None
    ) -> None:
        self.names = names or {}
        self.shift = shift
        self.merged = merged or {}

    def id_of(self, label: str | int) -> int:
        return label if isinstance(label, int) else self.names[label]

    def mask_id(self, value: int) -> int:
        assert value != 255
        if value == 99:
            raise BadInput("annotations", "mask value without a class", "99")
        return value + self.shift

    def in_masks(self, number: int) -> int:
        return self.merged.get(number, number)


def stored(height: int, width: int, geometry: Geometry | None = None) -> StoredImage:
    return StoredImage(b"", "png", height, width, 3, "uint8", "RGB", ("kept",), geometry)


def put(
    annotations: Annotations,
    image: StoredImage,
    *needs: str,
    boxes: str = "clip",
    files: Mapping[str, bytes] | None = None,
    ids: Ids | None = None,
) -> Mapped:
    """`place`, with the bytes of masks by their URI."""

    def read(ref: ImageRef) -> bytes:
        return (files or {})[ref.uri]

    return map_annotations(annotations, image, frozenset(needs or ("objects",)), boxes, read, ids or Ids())
