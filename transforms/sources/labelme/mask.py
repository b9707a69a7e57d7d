"""Masks in LabelMe's JSON, PNGs of a part of the picture, as run lengths over all of it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.transforms.records import BadInput, Box, Rle

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODES = ("1", "L", "P")
_MOST_PIXELS = 100_000_000


def mask_of(png: bytes, box: Box, size: tuple[int, int] | None, where: str) -> Rle:
    """The mask that a PNG holds.

    Args:
        png: not 0 where the object is.
        box: where it lies, in whole pixels.
        size: (height, width) of the picture.
        where: of the shape, for messages.

    Raises:
        BadInput: stage `annotations`, `mask not readable`.
    """
    import numpy as np

    if size is None:
        raise _unreadable(f"{where}: the file has no imageHeight and imageWidth, which a mask needs")
    left, top, right, bottom = (round(value) for value in box)
    pixels = _pixels(png, (right - left, bottom - top), where)
    columns, rows = np.nonzero(pixels.T)
    columns, rows = columns.astype(np.int64) + left, rows.astype(np.int64) + top
    inside = (rows >= 0) & (rows < size[0]) & (columns >= 0) & (columns < size[1])
    positions = columns[inside] * size[0] + rows[inside]  # column by column
    return _rle(positions, size)


def union(masks: Sequence[Rle]) -> Rle:
    """All that is in one of the masks, which are of one picture and compressed."""
    import numpy as np

    if len(masks) == 1:
        return masks[0]
    positions = np.unique(np.concatenate([_positions(mask) for mask in masks]))
    return _rle(positions, (masks[0].height, masks[0].width))


def _pixels(png: bytes, size: tuple[int, int], where: str) -> NDArray[Any]:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            if image.size != size or image.mode not in _MODES or size[0] * size[1] > _MOST_PIXELS:
                told = f"{image.size[0]}x{image.size[1]} {image.mode}"
                raise _unreadable(f"{where}: its PNG is {told}; its points mean {size[0]}x{size[1]} in grey")
            return np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(f"{where}: {error}") from error


def _rle(positions: NDArray[Any], size: tuple[int, int]) -> Rle:
    """Run lengths of ascending positions."""
    import numpy as np

    total = size[0] * size[1]
    breaks = np.flatnonzero(np.diff(positions) > 1)
    starts = positions[np.concatenate(([0], breaks + 1))] if len(positions) else positions
    ends = positions[np.concatenate((breaks, [-1]))] + 1 if len(positions) else positions
    edges = np.stack((starts, ends), axis=1).reshape(-1)
    counts = np.diff(np.concatenate(([0], edges, [total])))
    return Rle(*size, _compressed(int(count) for count in counts))


def _compressed(counts: Iterable[int]) -> str:
    """COCO's text of run lengths: each less that of two before, in groups of five bits."""
    text: list[str] = []
    before: list[int] = []
    for number, count in enumerate(counts):
        value = count - before[number - 2] if number > 2 else count
        before.append(count)
        more = True
        while more:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            text.append(chr((bits | 0x20 if more else bits) + 48))
    return "".join(text)


def _positions(mask: Rle) -> NDArray[Any]:
    """The positions of a compressed mask, column by column."""
    import numpy as np

    counts: list[int] = []
    value, shift = 0, 0
    for bits in (ord(letter) - 48 for letter in str(mask.counts)):
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:
            if bits & 0x10:
                value -= 1 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
            value, shift = 0, 0
    ends = np.cumsum(counts)
    runs = [np.arange(ends[at - 1], ends[at]) for at in range(1, len(counts), 2)]
    return np.concatenate(runs) if runs else np.zeros(0, np.int64)


def _unreadable(detail: str) -> BadInput:
    return BadInput("annotations", "mask not readable", detail)
