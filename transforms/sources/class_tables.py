"""The classes of annotations and masks: from files of names, tables of colours, VOC, or the masks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from recordmill.transforms.records import IGNORE, BadInput, JobError
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.sources.small_files import small_text
from recordmill.transforms.sources.tables.text_rows import read_cells
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.files import is_file, open_file

if TYPE_CHECKING:
    from PIL.Image import Image

Colors = tuple[tuple[int, int], ...]
"""Pairs of a colour in masks, 0xRRGGBB, and its id."""

NAME_FILES = ("classes.txt", "class_names.txt", "names.txt", "labels.txt")
COLOR_FILES = ("label_colors.txt", "class_dict.csv", "labelmap.txt")
UNLABELLED = "__ignore__"
"""LabelMe's name of the id -1, which is 255 in an image."""

_VOC_NAMES = """
    background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person
    pottedplant sheep sofa train tvmonitor
"""
_LABEL_MAP = "labelmap.txt"  # CVAT's and Datumaro's table; its lines are `name:r,g,b:parts:actions`
_BACKGROUND = "background"
_VOID = 0xE0E0C0  # the colour of the borders of VOC's objects
_ID_MODES = frozenset(("1", "L", "P", "I", "I;16"))
_MOST_CLASSES = 64  # of a mask; a grey photograph has more values

_T = TypeVar("_T")


class ClassTable(NamedTuple):
    """Classes, and the file that defines them."""

    names: dict[int, str]  # by id; empty if no file names them
    colors: Colors = ()  # in masks; empty if masks have ids
    file: str = ""


def voc_classes(has_masks: bool) -> ClassTable:
    """VOC's classes, with the background if there are masks."""
    names = dict(enumerate(_VOC_NAMES.split()))
    if not has_masks:
        del names[0]
    return ClassTable(names, voc_colors())


def voc_colors() -> Colors:
    """VOC's colours of all ids: the bits of an id, in threes, are bits of red, green and blue."""
    return tuple((_voc_color(number), number) for number in range(255)) + ((_VOID, IGNORE),)


def _voc_color(number: int) -> int:
    color = 0
    for bit in range(8):
        for channel in range(3):
            color |= (number >> 3 * bit + channel & 1) << 8 * (2 - channel) + 7 - bit
    return color


def _color_of(cells: Sequence[str]) -> int | None:
    """The colour in three decimal numbers as 0xRRGGBB, or None if the cells are something else."""
    values = [cell.strip() for cell in cells]
    if len(values) != 3 or not all(len(one) < 4 and one.isdecimal() and int(one) < 256 for one in values):
        return None
    red, green, blue = map(int, values)
    return red << 16 | green << 8 | blue


def read_names(path: str, name: str) -> list[str]:
    """The names of classes in a file, one per line. Raises ValueError for a blank line between names."""
    lines = [line.strip() for line in small_text(path, name).rstrip().splitlines()]
    if "" in lines:
        at = lines.index("") + 1
        raise ValueError(f"{name!r} has a blank line between names, line {at}; each line names a class")
    return lines


def same_classes(files: Sequence[TreeFile]) -> ClassTable | None:
    """The classes in the files of several folders; None without a file. Raises JobError if they differ."""
    try:
        tables = [_read_class_table(file) for file in files]
    except ValueError as error:
        raise JobError(str(error)) from error
    for file, table in zip(files, tables, strict=True):
        if table != tables[0]:
            both = f"{files[0].key!r} and {file.key!r}"
            raise JobError(f"{both} have different classes; convert their folders separately")
    return tables[0] if tables else None


def _read_class_table(file: TreeFile) -> ClassTable:
    """Reads a labelmap.txt, or a file with one name per line."""
    lines = [line.strip() for line in small_text(file.path, file.key).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    is_map = file.key.rpartition("/")[2].lower() == _LABEL_MAP
    if is_map:
        table = _label_map(lines, file.key)
    else:  # with LabelMe's ids: `_background_` is 0; without it they begin with 1
        names = [name for name in lines if name != UNLABELLED]
        first = 0 if names[:1] in (["_background_"], [_BACKGROUND]) else 1
        table = ClassTable(dict(enumerate(names, first)), voc_colors())
    if not table.names or len(set(table.names.values())) < len(table.names):
        raise ValueError(f"{file.key!r} {'names a class twice' if table.names else 'names no class'}")
    return table


def _label_map(lines: list[str], file: str) -> ClassTable:
    rows = [line.split(":") for line in lines]
    first = 0 if rows and rows[0][0].strip().lower() == _BACKGROUND else 1
    colors: dict[int, int] = {}
    for number, (_, *rest) in enumerate(rows, first):
        color = _color_of(rest[0].split(",")) if rest and rest[0].strip() else _voc_color(number)
        if color is None:
            shown = clipped(rest[0])
            raise ValueError(f"{file!r} has the colour {shown!r}; colours are r,g,b of 0 to 255 each")
        colors.setdefault(color, IGNORE if color == _VOID else number)
    colors.setdefault(0, 0)
    return ClassTable({at: name.strip() for at, (name, *_) in enumerate(rows, first)}, tuple(colors.items()))


def mask_classes(root: str, leads_to: Callable[[str], str], masks: Sequence[str]) -> ClassTable:
    """Reads the first of `NAME_FILES` and `COLOR_FILES` in a folder; masks in colours need one of the latter.

    Args:
        root: the folder.
        leads_to: as `Confinement.leads_to`.
        masks: paths of some masks, which show whether all are in colours, ids, or black and white.

    Raises:
        ValueError: a file is damaged, or a table of colours is missing.
    """
    in_colors = _look(masks[0], lambda image: image.mode not in _ID_MODES)
    names: dict[int, str] = {}
    colors: Colors = ()
    files = COLOR_FILES if in_colors else (*NAME_FILES, *COLOR_FILES)
    file = next((name for name in files if is_file(f"{root}/{name}")), "")
    path = f"{root}/{file}"
    if file in COLOR_FILES:
        names, colors = _color_table(path, leads_to(path))
    elif file:
        found = read_names(leads_to(path), path)
        names = dict(enumerate(found[found[:1] == [UNLABELLED] :]))
    elif in_colors:
        tables = ", ".join(COLOR_FILES)
        raise ValueError(
            f"the masks are in colours, and no table in {root!r} defines them; it may be {tables}"
        )
    if not in_colors:
        colors = ()
        if _are_black_and_white(masks):  # white would otherwise be the id 255, which trainers ignore
            names = names if len(names) == 2 else {0: "background", 1: "foreground"}
            colors = ((0x000000, 0), (0xFFFFFF, 1))
    return ClassTable(names, colors, file)


def _are_black_and_white(masks: Iterable[str]) -> bool:
    """Whether the masks have the values 0 and 255 only, and both."""
    counts = [_look(path, lambda image: image.histogram() if image.mode == "L" else []) for path in masks]
    values = {value for one in counts for value, count in enumerate(one or ()) if count}
    return [] not in counts and values == {0, 255}


def is_mask_of(mask: str, image: str) -> bool:
    """Whether a file looks like the mask of an image in colour: grey or palette, few values, of its size."""
    with contextlib.suppress(OSError):
        size = _look(mask, lambda it: it.mode in _ID_MODES and it.getcolors(_MOST_CLASSES) and it.size)
        return bool(size) and size == _look(image, lambda it: it.mode not in _ID_MODES and it.size)
    return False


def _look(path: str, see: Callable[[Image], _T]) -> _T | None:
    """The result of `see` for an image; None if it cannot be decoded, which its record reports later."""
    from PIL import Image

    with open_file(path) as stream:
        try:
            with Image.open(stream) as image:
                return see(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None


def _color_table(name: str, path: str) -> tuple[dict[int, str], Colors]:
    """Names by id, in the order of the lines, and the colours; colours of one name have one id."""
    ids: dict[str, int] = {}
    named: dict[int, str] = {}
    for label, color in _rows(name, small_text(path, name).splitlines()):
        ids.setdefault(label, len(ids))
        if named.setdefault(color, label) != label:
            raise ValueError(
                f"{name!r} has the colour {color >> 16} {color >> 8 & 255} {color & 255} twice, "
                f"for {clipped(named[color])!r} and {clipped(label)!r}; "
                "give each class a colour, or both one name"
            )
    if not named:
        raise ValueError(f"{name!r} has no colours")
    return {number: label for label, number in ids.items()}, tuple((one, ids[named[one]]) for one in named)


def _rows(file: str, lines: list[str]) -> Iterator[tuple[str, int]]:
    is_csv = file.endswith(".csv")
    cells_of = _label_map_cells if file.endswith(_LABEL_MAP) else _color_cells
    rows: Iterable[tuple[int, list[str] | BadInput]]
    rows = read_cells(lines) if is_csv else enumerate(map(cells_of, lines), 1)
    for number, cells in rows:
        if isinstance(cells, BadInput):
            raise ValueError(f"{file!r}, line {number} is not CSV: {cells.detail}")
        if not "".join(cells).strip() or cells[0].startswith("#"):
            continue
        if number == 1 and is_csv and not cells[-1].strip().isdecimal():
            continue  # the header
        name, color = cells[0].strip(), _color_of(cells[1:4])
        if not name or color is None:
            raise ValueError(f"{file!r}, line {number} is not a name with three numbers from 0 to 255")
        yield name, color


def _label_map_cells(line: str) -> list[str]:
    name, _, rest = line.partition(":")
    return [name, *rest.partition(":")[0].split(",")] if line.strip() else []


def _color_cells(line: str) -> list[str]:
    """The cells of a line of CamVid: `r g b name`."""
    cells = line.split(maxsplit=3)
    return [cells[3], *cells[:3]] if len(cells) == 4 else [line] if cells else []
