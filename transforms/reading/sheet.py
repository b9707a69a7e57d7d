"""Contact sheet: pictures of records side by side, each with its labels or key below."""

from __future__ import annotations

import collections
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from recordmill.transforms.reading.drawing import (
    FAINT_INK,
    INK,
    PAPER,
    Color,
    Font,
    color_of,
    draw,
    drawable,
    fault_picture,
    font_of,
    shortened,
    shown_classes,
    text_picture,
    text_size,
    write,
)
from recordmill.transforms.reading.stored_record import StoredRecord
from recordmill.transforms.records import BadInput

_GAP = 10
_BEHIND = (236, 238, 241)
_SOFTWARE = "recordmill inspect"
_START = 1 << 10  # bytes at the start of a PNG that hold its Software text

Part = tuple[Color | None, str]
"""A colour that stands before a text, or none, and the text."""


def contact_sheet(records: Sequence[StoredRecord | BadInput], columns: int, side: int) -> bytes:
    """Pictures of records in rows, with captions.

    Args:
        records: in their order; a BadInput is one that could not be read, and gets a cell that says so.
        columns: cells per row; fewer if there are fewer records.
        side: pixels of the longest side of a picture.

    Returns:
        A PNG.
    """
    if columns < 1 or side < 1:
        raise ValueError(f"columns is {columns} and side {side}; each must be at least 1")
    if not records:
        return _signed_png(Image.fromarray(text_picture(["no records"], max(side, 80))))
    font = font_of(max(10, min(16, side // 13)))
    line = text_size("", font)[1] + 3
    columns = min(columns, len(records))
    rows = -(-len(records) // columns)
    across, down = side + _GAP, side + 2 * line + _GAP
    sheet = Image.new("RGB", (columns * across + _GAP, rows * down + _GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, record in enumerate(records):
        left, top = _GAP + number % columns * across, _GAP + number // columns * down
        picture = fault_picture(record, side) if isinstance(record, BadInput) else draw(record, side)
        pen.rectangle((left, top, left + side - 1, top + side - 1), fill=_BEHIND)
        height, width = picture.shape[:2]
        sheet.paste(Image.fromarray(picture), (left + (side - width) // 2, top + (side - height) // 2))
        parts, key = caption(record)
        below = top + side + 3
        if parts:
            _write_parts(pen, (left, below), parts, font, side)
            below += line
        # the end of a key distinguishes it best
        key = shortened(drawable(key, "?"), font, side, keep_end=True)
        write(pen, (left, below), key, font, FAINT_INK if parts else INK)
    return _signed_png(sheet)


def is_sheet(data: bytes) -> bool:
    """Whether a PNG is a contact sheet."""
    return data.startswith(b"\x89PNG") and b"Software\0" + _SOFTWARE.encode() in data[:_START]


def _signed_png(image: Image.Image) -> bytes:
    """A PNG whose metadata names this program."""
    info = PngInfo()
    info.add_text("Software", _SOFTWARE)
    out = io.BytesIO()
    image.save(out, "PNG", pnginfo=info)
    return out.getvalue()


def caption(record: StoredRecord | BadInput) -> tuple[list[Part], str]:
    """The caption of a picture: its labels, classes or text, if it has any; and the key."""
    if isinstance(record, BadInput):
        return [], record.key
    parts = _classes(record)
    if record.labels:
        ids = record.label_ids or record.labels
        names = (drawable(name, f"#{one}") for name, one in zip(record.labels, ids, strict=True))
        parts = [(None, ", ".join(names))]
    elif not parts and record.captions:
        parts = [(None, drawable(record.captions[0], "?"))]
    frames = f"{len(record.frames)} frames: " if record.frames else ""
    return parts, f"{frames}{record.key}"


def _classes(record: StoredRecord) -> list[Part]:
    """The classes that are drawn, each with its colour: of the objects, with their number, or of the mask."""
    if record.objects:
        counts = collections.Counter((one.label, one.name) for one in record.objects)
        found: list[Part] = []
        for (label, name), count in counts.most_common():
            shown = drawable(name, f"#{label}")
            found.append((color_of(label), f"{shown} ({count})" if count > 1 else shown))
        return found
    if record.class_mask is None:
        return []
    try:
        ids = np.unique(record.class_mask.ids()).tolist()
    except BadInput:
        return []  # the picture shows the reason
    return [
        (color_of(one), drawable(record.names.get(one, ""), f"#{one}")) for one in shown_classes(ids, record)
    ]


def _write_parts(pen: Any, at: tuple[int, int], parts: Sequence[Part], font: Font, width: int) -> None:
    """Texts in one line, each behind its colour; `...` if there is no room for more."""
    x, y = at
    end, size, more = x + width, text_size("", font)[1], text_size("...", font)[0]
    for number, (color, text) in enumerate(parts):
        room = end - x - (0 if color is None else size + 2)
        rest = 0 if number == len(parts) - 1 else size // 2 + more
        if (number and text_size(text, font)[0] > room - rest) or room <= 0:
            write(pen, (x, y), shortened("...", font, end - x), font, INK)
            return
        if color is not None:
            pen.rectangle((x, y + 2, x + size - 4, y + size - 2), fill=color)
            x += size + 2
        line = shortened(text, font, max(room - rest, 0))
        write(pen, (x, y), line, font, INK)
        x += text_size(line, font)[0] + size // 2
