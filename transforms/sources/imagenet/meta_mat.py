"""Reads meta.mat of ILSVRC's development kit: the id, synset and words of each class, a struct of MATLAB 5.

The format is https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf; it contains no code.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

_LONGEST = 32 << 20
_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _CHARACTERS = 2, 4  # classes of matrices
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le"}
_FIELDS = ("ILSVRC2012_ID", "WNID", "words")


class MatClass(NamedTuple):
    """A class: its id in ILSVRC, synset and words."""

    number: int
    synset: str
    words: str


def read_meta_mat(data: bytes) -> list[MatClass]:
    """The classes in a meta.mat. Raises ValueError if it cannot be read."""
    if len(data) < _HEADER or data[126:128] != b"IM":
        raise ValueError("it is not a little-endian MATLAB 5 file")
    try:
        for kind, element in _elements(data[_HEADER:]):
            if kind == _COMPRESSED:
                unpacker = zlib.decompressobj()
                unpacked = unpacker.decompress(element, _LONGEST)
                if unpacker.unconsumed_tail:
                    raise ValueError(f"it has more than {_LONGEST} bytes in one variable")
                kind, element = next(_elements(unpacked))
            if kind == _MATRIX and (found := _classes(element)):
                return found
    except (struct.error, zlib.error, LookupError, StopIteration, ArithmeticError, UnicodeError) as error:
        raise ValueError(f"it is damaged: {error}") from error
    raise ValueError(f"it has no struct with the fields {', '.join(_FIELDS)}")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and bytes of each data element; a short one has its bytes in the tag."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
        else:
            start, step = at + 8, 8 + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(data):
            raise struct.error("an element goes past the end")
        yield kind, data[start : start + size]
        at += step


def _classes(matrix: bytes) -> list[MatClass]:
    """The classes in a struct; none in another variable."""
    parts = (data for _, data in _elements(matrix))
    flags, dimensions, _ = next(parts), next(parts), next(parts)
    if flags[0] != _STRUCT:
        return []
    (width,), names = struct.unpack("<i", next(parts)), next(parts)
    if width < 1:
        raise ValueError("it is damaged: names of fields have no length")
    fields = [names[at : at + width].partition(b"\0")[0].decode() for at in range(0, len(names), width)]
    if not set(_FIELDS) <= set(fields):
        return []
    found = []
    for _ in range(math.prod(struct.unpack(f"<{len(dimensions) // 4}i", dimensions))):
        cells = {name: next(parts) for name in fields}
        number, synset, words = [_value(cells[name]) for name in _FIELDS]
        found.append(MatClass(int(number), str(synset), str(words)))
    return found


def _value(matrix: bytes) -> str | float:
    """A text, or a single number."""
    parts = _elements(matrix)
    (_, flags), _, _ = next(parts), next(parts), next(parts)
    kind, data = next(parts, (16, b""))
    if flags[0] == _CHARACTERS:
        return data.decode(_TEXTS[kind])
    return float(struct.unpack_from(f"<{_NUMBERS[kind]}", data)[0])
