"""The classes of VOC, their colours in masks, and the files that tell those of other datasets.

`labelmap.txt` is CVAT's and Datumaro's (`name:r,g,b:parts:actions` a line), `class_names.txt` is that of
LabelMe's export.
"""

from __future__ import annotations

import dataclasses

from recordmill.transforms.records import IGNORE, ClassNames, JobError
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.storage.files import open_file

BACKGROUND = "background"
_NAMES = """
    aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person
    pottedplant sheep sofa train tvmonitor
"""
VOC_NAMES = tuple(_NAMES.split())
"""The 20 classes, whose ids begin with 1."""

Colors = tuple[tuple[int, int], ...]

_IGNORED = "__ignore__"
_PNG = b"\x89PNG\r\n\x1a\n"
_VOID = 0xE0E0C0  # what VOC paints the borders of objects with: 224, 224, 192
_LONGEST = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class VocClasses:
    """The classes of a tree.

    Attributes:
        names: by id.
        colors: of masks that are RGB: 0xRRGGBB and the id.
    """

    names: ClassNames
    colors: Colors


def voc_classes(has_masks: bool) -> VocClasses:
    """VOC's own."""
    names = dict(enumerate(VOC_NAMES, 1))
    if has_masks:
        names = {0: BACKGROUND, **names}
    return VocClasses(ClassNames(names, optional=True), voc_colors())


def voc_colors() -> Colors:
    """VOC's colours of the ids 0 to 255: an id's bits, by threes, are bits of red, green and blue."""
    return tuple((_voc_color(number), number) for number in range(255)) + ((_VOID, IGNORE),)


def _voc_color(number: int) -> int:
    color = 0
    for bit in range(8):
        for channel in range(3):
            color |= (number >> 3 * bit + channel & 1) << 8 * (2 - channel) + 7 - bit
    return color


def read_classes(path: str, key: str) -> VocClasses:
    """Reads a labelmap.txt, or a class_names.txt.

    Raises:
        JobError: it is not what it should be.
        OSError: it cannot be read.
    """
    with open_file(path) as stream:
        data = stream.read(_LONGEST + 1)
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise JobError(f"{key!r} is not UTF-8 at byte {error.start}") from error
    if len(data) > _LONGEST:
        raise JobError(f"{key!r} is too large for a list of classes")
    lines = [line for line in lines if line and not line.startswith("#")]
    is_map = key.rpartition("/")[2].lower() == "labelmap.txt"
    classes = _label_map(lines, key) if is_map else VocClasses(listed_names(lines), voc_colors())
    twice = len(set(classes.names.names.values())) < len(classes.names.names)
    if twice or not classes.names.names:
        raise JobError(f"{key!r} {'names a class twice' if twice else 'names no class'}")
    return classes


def listed_names(lines: list[str]) -> ClassNames:
    """Names a line, numbered as LabelMe's tools do.

    `__ignore__` comes first and is no class, `_background_` is 0; without them ids begin with 1.
    """
    names = [name for name in lines if name != _IGNORED]
    first = 0 if names and names[0] in ("_background_", BACKGROUND) else 1
    return ClassNames(dict(enumerate(names, first)))


def _label_map(lines: list[str], key: str) -> VocClasses:
    cells = [line.split(":") for line in lines]
    first = 0 if cells and cells[0][0].strip().lower() == BACKGROUND else 1
    names: dict[int, str] = {}
    colors: dict[int, int] = {}
    for number, (name, *rest) in enumerate(cells, first):
        names[number] = name.strip()
        color = _color(rest[0], key) if rest and rest[0].strip() else _voc_color(number)
        colors.setdefault(color, IGNORE if color == _VOID else number)
    colors.setdefault(0, 0)
    return VocClasses(ClassNames(names), tuple(colors.items()))


def _color(text: str, key: str) -> int:
    try:
        red, green, blue = (int(cell) for cell in text.split(","))
    except ValueError:
        red = green = blue = -1
    if not all(0 <= channel <= 255 for channel in (red, green, blue)):
        raise JobError(f"{key!r} has the colour {clipped(text)!r}; colours are r,g,b of 0 to 255 each")
    return red << 16 | green << 8 | blue


def is_rgb_png(path: str) -> bool:
    """Whether a PNG has colours, not ids. One that cannot be read has none: decoding tells.

    Raises:
        OSError: one that may pass, and has not.
    """
    with open_file(path) as stream:
        head = stream.read(33)
    return len(head) == 33 and head.startswith(_PNG) and head[25] in (2, 6)
