"""The classes of annotations and masks: files of names, tables of colours, and VOC's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recordmill.transforms.records import IGNORE, ClassNames, JobError
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.sources.small_files import small_text
from recordmill.transforms.sources.tree import TreeFile

_NAMES = """
    aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person
    pottedplant sheep sofa train tvmonitor
"""
VOC_NAMES = tuple(_NAMES.split())
"""The 20 classes of VOC, whose ids begin with 1."""

Colors = tuple[tuple[int, int], ...]
"""The ids of the colours in masks: (0xRRGGBB, id)."""

LABEL_MAP = "labelmap.txt"
"""CVAT's and Datumaro's table: `name:r,g,b:parts:actions` a line."""

BACKGROUND = "background"
UNLABELLED = "__ignore__"
"""LabelMe's name of -1, which is 255 in an image."""

_VOID = 0xE0E0C0  # the colour of the borders of VOC's objects


class ClassTable(NamedTuple):
    """The names of classes, and the colours that RGB masks have for them."""

    names: ClassNames
    colors: Colors


def voc_classes(has_masks: bool) -> ClassTable:
    """VOC's own classes; with the background where there are masks."""
    names = dict(enumerate([BACKGROUND, *VOC_NAMES] if has_masks else VOC_NAMES, 0 if has_masks else 1))
    return ClassTable(ClassNames(names, optional=True), voc_colors())


def voc_colors() -> Colors:
    """VOC's colours of all ids: an id's bits, by threes, are bits of red, green and blue."""
    return tuple((_voc_color(number), number) for number in range(255)) + ((_VOID, IGNORE),)


def _voc_color(number: int) -> int:
    color = 0
    for bit in range(8):
        for channel in range(3):
            color |= (number >> 3 * bit + channel & 1) << 8 * (2 - channel) + 7 - bit
    return color


def color_of(cells: Sequence[str]) -> int | None:
    """0xRRGGBB of three decimal numbers, or None where the cells are something else."""
    values = [cell.strip() for cell in cells]
    if len(values) != 3 or not all(len(one) < 4 and one.isdecimal() and int(one) < 256 for one in values):
        return None
    red, green, blue = map(int, values)
    return red << 16 | green << 8 | blue


def read_names(path: str, name: str) -> list[str]:
    """The names of classes in a file, one a line.

    Raises:
        ValueError: as `small_text`; or a line between others is blank, so that the next ids are in doubt.
    """
    lines = [line.strip() for line in small_text(path, name).rstrip().splitlines()]
    if "" in lines:
        at = lines.index("") + 1
        raise ValueError(f"{name!r} has a blank line between names, line {at}; each line names a class")
    return lines


def read_class_table(path: str, name: str) -> ClassTable:
    """Reads a labelmap.txt, or a file of one name a line.

    Raises:
        ValueError: it is not what it should be.
        OSError: it cannot be read.
    """
    lines = [line.strip() for line in small_text(path, name).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    is_map = name.rpartition("/")[2].lower() == LABEL_MAP
    table = _label_map(lines, name) if is_map else ClassTable(_listed_names(lines), voc_colors())
    names = table.names.names
    if not names or len(set(names.values())) < len(names):
        raise ValueError(f"{name!r} {'names a class twice' if names else 'names no class'}")
    return table


def same_classes(files: Sequence[TreeFile]) -> ClassTable | None:
    """The classes in files of several folders, which have to be the same; None without a file.

    Raises:
        JobError: they differ, or a file is not what it should be.
        OSError: one cannot be read.
    """
    try:
        tables = [read_class_table(file.path, file.key) for file in files]
    except ValueError as error:
        raise JobError(str(error)) from error
    for file, table in zip(files, tables, strict=True):
        if table != tables[0]:
            raise JobError(
                f"{files[0].key!r} and {file.key!r} have different classes; convert their folders separately"
            )
    return tables[0] if tables else None


def _listed_names(lines: list[str]) -> ClassNames:
    """LabelMe's numbers: `_background_` is 0; without it ids begin with 1."""
    names = [name for name in lines if name != UNLABELLED]
    return ClassNames(dict(enumerate(names, 0 if names and names[0] in ("_background_", BACKGROUND) else 1)))


def _label_map(lines: list[str], file: str) -> ClassTable:
    rows = [line.split(":") for line in lines]
    first = 0 if rows and rows[0][0].strip().lower() == BACKGROUND else 1
    colors: dict[int, int] = {}
    for number, (_, *rest) in enumerate(rows, first):
        color = color_of(rest[0].split(",")) if rest and rest[0].strip() else _voc_color(number)
        if color is None:
            shown = clipped(rest[0])
            raise ValueError(f"{file!r} has the colour {shown!r}; colours are r,g,b of 0 to 255 each")
        colors.setdefault(color, IGNORE if color == _VOID else number)
    colors.setdefault(0, 0)
    names = {number: name.strip() for number, (name, *_) in enumerate(rows, first)}
    return ClassTable(ClassNames(names), tuple(colors.items()))
