"""The classes in masks: names of ids, and tables of colours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.class_tables import LABEL_MAP, UNLABELLED, Colors, color_of, read_names
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.sources.small_files import small_text
from recordmill.transforms.sources.tables.text_rows import read_cells
from recordmill.transforms.storage.files import is_file, open_file

if TYPE_CHECKING:
    from PIL.Image import Image

NAME_FILES = ("classes.txt", "class_names.txt", "names.txt", "labels.txt")
COLOR_FILES = ("label_colors.txt", "class_dict.csv", LABEL_MAP)
_ID_MODES = frozenset(("1", "L", "P", "I", "I;16"))
_MOST_CLASSES = 64  # of a mask; a grey photograph has more values

_T = TypeVar("_T")


class MaskClasses(NamedTuple):
    """The classes of a dataset of masks."""

    names: dict[int, str]  # by id; empty where no file names them
    colors: Colors = ()  # empty where masks have ids
    file: str = ""  # that describes them, if any


def mask_classes(root: str, leads_to: Callable[[str], str], masks: Sequence[str]) -> MaskClasses:
    """Reads the first of `NAME_FILES` and `COLOR_FILES` in a folder; masks in colours need one of the latter.

    Args:
        root: the folder.
        leads_to: as `Confinement.leads_to`.
        masks: paths of the first masks, which show whether all are in colours, ids, or black and white.

    Raises:
        ValueError: a file is damaged; or there is none and one is needed.
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
        raise ValueError(
            f"the masks are in colours, and no table in {root!r} says what these are; "
            f"it may be {', '.join(COLOR_FILES)}"
        )
    if in_colors:
        return MaskClasses(names, colors, file)
    if not _are_black_and_white(masks):
        return MaskClasses(names, (), file)
    # white would otherwise be the id 255, which trainers ignore
    names = names if len(names) == 2 else {0: "background", 1: "foreground"}
    return MaskClasses(names, ((0x000000, 0), (0xFFFFFF, 1)), file)


def _are_black_and_white(masks: Iterable[str]) -> bool:
    """Whether the values of masks, together, are 0 and 255 and no other."""
    seen: set[int] = set()
    for path in masks:
        counts = _look(path, lambda image: image.histogram() if image.mode == "L" else [])
        if counts == []:
            return False
        seen.update(value for value, count in enumerate(counts or ()) if count)
    return seen == {0, 255}


def is_mask_of(mask: str, image: str) -> bool:
    """Whether a file looks like the mask of an image: grey or palette, few values, and of equal size.

    The image must be in colour.
    """
    with contextlib.suppress(OSError):
        size = _look(mask, lambda it: it.mode in _ID_MODES and it.getcolors(_MOST_CLASSES) and it.size)
        return bool(size) and size == _look(image, lambda it: it.mode not in _ID_MODES and it.size)
    return False


def _look(path: str, see: Callable[[Image], _T]) -> _T | None:
    """What `see` finds in an image; None where it cannot be decoded, which reading its record reports."""
    from PIL import Image

    with open_file(path) as stream:
        try:
            with Image.open(stream) as image:
                return see(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None


def _color_table(name: str, path: str) -> tuple[dict[int, str], Colors]:
    """Names by id, in the order of the lines, and ids by colour; colours of one name have one id."""
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
    """The name and the colour in each line of a table."""
    is_csv = file.endswith(".csv")
    cells_of = _label_map_cells if file.endswith(LABEL_MAP) else _color_cells
    rows: Iterable[tuple[int, list[str] | BadInput]] = (
        read_cells(lines) if is_csv else enumerate(map(cells_of, lines), 1)
    )
    for number, cells in rows:
        if isinstance(cells, BadInput):
            raise ValueError(f"{file!r}, line {number} is not CSV: {cells.detail}")
        if not "".join(cells).strip() or cells[0].startswith("#"):
            continue
        if number == 1 and is_csv and not cells[-1].strip().isdecimal():
            continue  # the names of its columns
        name, color = cells[0].strip(), color_of(cells[1:4])
        if not name or color is None:
            raise ValueError(f"{file!r}, line {number} is not a name with three numbers from 0 to 255")
        yield name, color


def _label_map_cells(line: str) -> list[str]:
    """Of CVAT's and Datumaro's `name:r,g,b:parts:actions`."""
    name, _, rest = line.partition(":")
    return [name, *rest.partition(":")[0].split(",")] if line.strip() else []


def _color_cells(line: str) -> list[str]:
    """Of CamVid's `r g b name`."""
    cells = line.split(maxsplit=3)
    return [cells[3], *cells[:3]] if len(cells) == 4 else [line] if cells else []
