"""Pictures of records: the image with its boxes, masks and keypoints drawn over it."""

from __future__ import annotations

import colorsys
import functools
import importlib.util
import os
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.picture import OpenedImage, to_eight_bits
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.render import render
from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.reading.stored_record import StoredImageBytes, StoredObject, StoredRecord
from recordmill.transforms.records import IGNORE, BadInput
from recordmill.transforms.sources.names import printable

Color = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Rectangle = tuple[int, int, int, int]
"""Left, top, right, bottom."""

INK, FAINT_INK = (34, 38, 43), (95, 103, 112)
PAPER, FAULT_PAPER = (255, 255, 255), (252, 232, 230)
_QUIET_PAPER = (246, 247, 249)

_TINT = 0.4  # share of its class's colour in a pixel of a mask
_DARK, _LIGHT = (0, 0, 0), (255, 255, 255)
_CHECKS = (255, 204)  # grey levels of the checkerboard that shows through transparent pixels
_CHECK_SIDE = 8
# Each colour is as far as possible, in CIELAB, from all colours before it. The index is the class id.
_COLORS: tuple[Color, ...] = (
    (105, 225, 255),
    (230, 60, 50),
    (20, 140, 255),
    (255, 190, 0),
    (0, 190, 120),
    (255, 0, 255),
    (0, 255, 0),
    (150, 45, 120),
    (105, 90, 45),
    (0, 60, 255),
    (30, 90, 120),
    (195, 240, 90),
    (255, 180, 135),
    (255, 135, 255),
    (255, 0, 135),
    (90, 135, 15),
    (255, 135, 165),
    (135, 30, 180),
    (0, 105, 75),
    (165, 90, 0),
    (150, 60, 60),
    (0, 180, 15),
    (75, 75, 150),
    (255, 120, 0),
)
_GOLDEN = 0.618033988749895
_BACKGROUNDS = frozenset(("background", "_background_", "__background__", "unlabeled", "void", "ignore"))
_MOST_FRAMES = 4
_FRAME_GAP = 2
# The font of matplotlib has Latin, Greek, Cyrillic, Arabic and more.
_FONT = os.path.join("mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
_LINE = "Ágjp|"  # as high and as deep as a line gets
_MOST_LETTERS = 1000


def color_of(label: int | str) -> Color:
    """The colour of a class, the same in every picture.

    Args:
        label: id of the class, or its name if it has no id.
    """
    number = label if isinstance(label, int) else zlib.crc32(label.encode("utf-8", "surrogateescape"))
    if 0 <= number < len(_COLORS):
        return _COLORS[number]
    # The golden angle keeps the hues of neighbouring ids far apart.
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, (0.85, 0.6)[number // 3 % 2], 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw(record: StoredRecord, side: int) -> Array:
    """A record as a picture; one that cannot be decoded becomes a picture of the reason.

    Args:
        record: as stored.
        side: pixels of the longest side; small images are enlarged by integer factors.

    Returns:
        uint8 (height, width, 3).
    """
    try:
        with internal_errors("decode"):
            return drawn(record, side)
    except BadInput as error:
        return fault_picture(error, side)
    except MemoryError:
        return fault_picture(BadInput("decode", "out of memory"), side)


def drawn(record: StoredRecord, side: int) -> Array:
    """As `draw`.

    Raises:
        BadInput: an image or mask of the record cannot be decoded.
    """
    if side < 1:
        raise ValueError(f"side is {side}; it must be at least 1")
    if record.frames:
        return _strip(record.frames, side)
    if record.image is None:
        return text_picture(_lines(record), side, _QUIET_PAPER)
    canvas = picture_of(record.image, side)
    if record.class_mask is not None:
        ids = _fitted(record.class_mask.ids(), canvas)
        rims = _rim(ids)
        if record.instance_mask is not None:
            rims |= _rim(_fitted(record.instance_mask.ids(), canvas))
        for one in shown_classes(np.unique(ids).tolist(), record):
            _tint(canvas, ids == one, color_of(one), rims)
    objects = sorted(record.objects, key=_extent, reverse=True)
    for thing in objects:
        if thing.mask is not None:
            covered = _fitted(thing.mask.ids(), canvas) != 0
            _tint(canvas, covered, color_of(thing.label), _rim(covered))
    if objects and record.size is not None:
        canvas = _with_objects(canvas, objects, record.size)
    return canvas


def picture_of(image: StoredImageBytes, side: int) -> Array:
    """An image as it is stored, not turned: in sRGB of 8 bits, its first frame, laid on a checkerboard.

    Args:
        image: encoded, or raw pixels.
        side: pixels of the longest side; small images are enlarged by integer factors.

    Returns:
        uint8 (height, width, 3), the caller's own.

    Raises:
        BadInput: it cannot be decoded.
    """
    policy = ImagePolicy(image_format="raw", max_side=side, color="rgb")
    pixels = to_eight_bits(render(_opened(image), 1, policy).picture.expanded())
    factor = max(1, side // max(pixels.shape[:2]))
    if factor > 1:
        pixels = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    return _on_checks(pixels) if pixels.shape[2] == 4 else np.array(pixels)


def _opened(image: StoredImageBytes) -> OpenedImage:
    """The image; if it is scaled down, it is decoded less accurately than an image to be stored."""
    opened = image.opened()
    if opened.decode_scaled is None:
        return opened
    return msgspec.structs.replace(
        opened, decode_scaled=functools.partial(opened.decode_scaled, is_draft=True)
    )


def _on_checks(pixels: Array) -> Array:
    height, width = pixels.shape[:2]
    rows, columns = np.arange(height) // _CHECK_SIDE, np.arange(width) // _CHECK_SIDE
    checks = np.array(_CHECKS, np.float32)[(rows[:, None] + columns) % 2][:, :, None]
    alpha = pixels[:, :, 3:] / np.float32(255)
    mixed: Array = np.rint(pixels[:, :, :3] * alpha + checks * (1 - alpha)).astype(np.uint8)
    return mixed


def _fitted(ids: Array, canvas: Array) -> Array:
    """A mask in the size of a picture: each pixel is the one nearest its centre."""
    rows, columns = (
        (2 * np.arange(to, dtype=np.int64) + 1) * of // (2 * to)
        for of, to in zip(ids.shape[:2], canvas.shape[:2], strict=True)
    )
    picked: Array = ids[rows[:, None], columns]
    return picked


def _tint(canvas: Array, covered: Array, color: Color, rims: Array) -> None:
    """Colours part of a picture in place; pixels of a rim get the full colour."""
    under = canvas[covered].astype(np.float32)
    canvas[covered] = np.rint(under * (1 - _TINT) + np.array(color, np.float32) * _TINT).astype(np.uint8)
    canvas[covered & rims] = color


def _rim(values: Array) -> Array:
    """The pixels with a neighbour, on any of four sides, of another value; the edge is no neighbour."""
    rim = np.zeros(values.shape, bool)
    down, across = values[1:] != values[:-1], values[:, 1:] != values[:, :-1]
    rim[1:] |= down
    rim[:-1] |= down
    rim[:, 1:] |= across
    rim[:, :-1] |= across
    return rim


def shown_classes(ids: Sequence[int], record: StoredRecord) -> list[int]:
    """The classes of a mask that are drawn: 0 only where it has a name that is not a background's."""
    background = record.names.get(0, "background").strip().lower() in _BACKGROUNDS
    return [one for one in ids if one != IGNORE and not (one == 0 and background)]


def _extent(one: StoredObject) -> float:
    return 0.0 if one.box is None else (one.box.xmax - one.box.xmin) * (one.box.ymax - one.box.ymin)


def _with_objects(canvas: Array, objects: Sequence[StoredObject], size: tuple[int, int]) -> Array:
    """The picture with boxes, keypoints and names; objects in front are last.

    Args:
        canvas: uint8 (height, width, 3).
        objects: the largest first.
        size: (height, width) that the objects are measured in.
    """
    image = Image.fromarray(canvas)
    pen = ImageDraw.Draw(image)
    height, width = canvas.shape[:2]
    across, down = width / size[1], height / size[0]
    boxes: list[tuple[StoredObject, Rectangle]] = []
    for one in objects:
        if one.box is not None:
            left, right = _covered(one.box.xmin * across, one.box.xmax * across, width)
            top, bottom = _covered(one.box.ymin * down, one.box.ymax * down, height)
            boxes.append((one, (left, top, right, bottom)))
    line = -(-max(height, width) // 120)
    for one, (left, top, right, bottom) in boxes:
        # A thin dark line within the coloured one: one of them is visible on any background.
        if min(right - left, bottom - top) > 8 * line:
            inner = (left + line, top + line, right - line, bottom - line)
            pen.rectangle(inner, outline=_DARK, width=max(1, line // 3))
        pen.rectangle((left, top, right, bottom), outline=color_of(one.label), width=line)
    radius = max(1, max(height, width) // 150)
    for one in objects:
        for x, y, seen in one.keypoints:
            if seen:
                column, row = x * width / size[1], y * height / size[0]
                spot = (column - radius, row - radius, column + radius, row + radius)
                pen.ellipse(spot, fill=color_of(one.label) if seen > 1 else None, outline=_DARK)
    _write_names(pen, boxes, height, width)
    return np.array(image)


def _covered(start: float, end: float, side: int) -> tuple[int, int]:
    """First and last pixel of an interval, within the picture."""
    first = min(max(round(start), 0), side - 1)
    return first, max(first, min(round(end), side) - 1)


def _write_names(pen: Any, boxes: Sequence[tuple[StoredObject, Rectangle]], height: int, width: int) -> None:
    """The names of objects, those of the largest first; a name without room is left out."""
    font = font_of(max(10, min(28, max(height, width) // 24)))
    taken: list[Rectangle] = []
    for one, (left, top, right, bottom) in boxes:
        name = shortened(drawable(one.name, f"#{one.label}"), font, max(width // 2, right - left))
        across, down = text_size(name, font)
        across, down = across + 4, down + 2
        for x, y in ((left, top - down), (left, top), (right - across, top), (left, bottom - down)):
            plate = (x, y, x + across, y + down)
            fits = x >= 0 and y >= 0 and plate[2] <= width and plate[3] <= height
            if fits and not any(_meet(plate, other) for other in taken):
                taken.append(plate)
                color = color_of(one.label)
                pen.rectangle((x, y, plate[2] - 1, plate[3] - 1), fill=color)
                luma = (299 * color[0] + 587 * color[1] + 114 * color[2]) / 1000
                write(pen, (x + 2, y + 1), name, font, _DARK if luma > 120 else _LIGHT)
                break


def _meet(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def fault_picture(error: BadInput, side: int) -> Array:
    """A picture that says why there is none."""
    detail = f"{error.reason}: {error.detail}" if error.detail else error.reason
    return text_picture(["cannot be shown", detail], side, FAULT_PAPER)


def text_picture(lines: Sequence[str], side: int, paper: Color = PAPER) -> Array:
    """Lines of text as a square picture; long lines are broken, and what has no room is left out."""
    image = Image.new("RGB", (side, side), paper)
    pen, font = ImageDraw.Draw(image), font_of(max(9, min(16, side // 14)))
    step, margin = text_size("", font)[1] + 3, max(1, side // 24)
    parts = [part for line in lines for part in broken(drawable(line, "?"), font, side - 2 * margin)]
    for number, line in enumerate(parts[: max(1, (side - 2 * margin) // step)]):
        write(pen, (margin, margin + number * step), line, font, INK)
    return np.array(image)


def _lines(record: StoredRecord) -> list[str]:
    """The captions and features of a record without an image."""
    lines = list(record.captions)
    for name, value in record.features.items():
        values = value if isinstance(value, tuple) else (value,)
        shown = " ".join(f"{len(one)} bytes" if isinstance(one, bytes) else str(one) for one in values[:20])
        lines.append(f"{name}: {shown}{' ...' if len(values) > 20 else ''}")
    return [line for line in lines if line] or ["no image"]


def _strip(frames: Sequence[StoredImageBytes], side: int) -> Array:
    """Some frames of a sequence from first to last, spread evenly, two a row."""
    count = min(len(frames), _MOST_FRAMES)
    if count == 1 or side < 2 * _FRAME_GAP:
        return picture_of(frames[0], side)
    picked = [frames[number * (len(frames) - 1) // (count - 1)] for number in range(count)]
    tiles = [picture_of(frame, (side - _FRAME_GAP) // 2) for frame in picked]
    height, width = (max(tile.shape[axis] for tile in tiles) for axis in (0, 1))
    rows = -(-count // 2)
    shape = (rows * (height + _FRAME_GAP) - _FRAME_GAP, 2 * width + _FRAME_GAP, 3)
    canvas = np.full(shape, PAPER, np.uint8)
    for number, tile in enumerate(tiles):
        top, left = number // 2 * (height + _FRAME_GAP), number % 2 * (width + _FRAME_GAP)
        canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return canvas


@functools.cache
def font_of(height: int) -> Font:
    """DejaVu Sans of that many pixels; Pillow's own font, of one size, without FreeType."""
    # found without importing it, which takes a second
    package = importlib.util.find_spec("matplotlib")
    folders = package.submodule_search_locations if package is not None else None
    try:
        return ImageFont.truetype(os.path.join((folders or ["."])[0], _FONT), height)
    except (ImportError, OSError):
        return ImageFont.load_default()


def text_size(text: str, font: Font) -> tuple[int, int]:
    """Width of a text, and height of a line, in pixels."""
    _, top, _, bottom = font.getbbox(_LINE)
    return int(np.ceil(font.getlength(text))), int(np.ceil(bottom - top))


def write(pen: Any, at: tuple[float, float], text: str, font: Font, color: Color) -> None:
    """Draws text whose line begins at a left upper corner."""
    pen.text((at[0], at[1] - font.getbbox(_LINE)[1]), text, font=font, fill=color)


@functools.lru_cache(maxsize=4096)
def _has_glyph(letter: str) -> bool:
    font = font_of(12)
    if not isinstance(font, ImageFont.FreeTypeFont):
        return letter.isascii()
    return letter == " " or bytes(font.getmask(letter)) != bytes(font.getmask("\uffff"))


def drawable(text: str, instead: str) -> str:
    """`text` in one line, or `instead` where the font has none of its letters; those it lacks become `?`."""
    start = printable(text[:_MOST_LETTERS])
    line = "".join(letter if letter.isprintable() else " " for letter in start).strip()
    drawn_as = "".join(letter if _has_glyph(letter) else "?" for letter in line)
    return drawn_as if any(letter != "?" for letter in drawn_as.replace(" ", "")) else instead


def shortened(text: str, font: Font, width: int, keep_end: bool = False) -> str:
    """As much of a text as fits in a width, `...` for its end or beginning; empty where nothing fits."""
    if font.getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = font.getlength(_cut(text, middle, keep_end)) <= width
        low, high = (middle, high) if fits else (low, middle - 1)
    return _cut(text, low, keep_end) if font.getlength(_cut(text, low, keep_end)) <= width else ""


def _cut(text: str, count: int, keep_end: bool) -> str:
    return "..." + text[len(text) - count :] if keep_end else text[:count] + "..."


def broken(text: str, font: Font, width: int) -> list[str]:
    """A line as lines of a width, broken between words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [shortened(line, font, width) for line in lines]
