"""What the values and colours of masks stand for: files of names, and tables of colours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.sources.tables.csv_cells import read_cells
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, open_file

NAME_FILES = ("classes.txt", "class_names.txt", "names.txt", "labels.txt")
COLOR_FILES = ("label_colors.txt", "class_dict.csv", "labelmap.txt")
_UNLABELLED = "__ignore__"  # LabelMe's name of -1, which is 255 in an image
_LARGEST = 1 << 20
_BLACK_AND_WHITE = ((0x000000, 0), (0xFFFFFF, 1))
_ID_MODES = frozenset(("1", "L", "P", "I", "I;16"))


@dataclasses.dataclass(frozen=True, slots=True)
class MaskClasses:
    """The classes of a dataset of masks.

    Attributes:
        names: by id; empty where no file tells.
        colors: (0xRRGGBB, id); empty where no table tells.
        file: the name of the file they are from; empty where there is none.
    """

    names: dict[int, str] = dataclasses.field(default_factory=dict)
    colors: tuple[tuple[int, int], ...] = ()
    file: str = ""


def mask_classes(root: str, within: Confinement, in_colors: bool) -> MaskClasses:
    """Reads the first of the files that are known, in a folder.

    Args:
        root: the folder.
        within: where its files have to lie, links followed.
        in_colors: masks are in colours: a table is needed, and files of names alone are not.

    Raises:
        ValueError: a file is not what it should be; or there is none and one is needed.
    """
    for name in () if in_colors else NAME_FILES:
        if is_file(path := f"{root}/{name}"):
            return MaskClasses(_names(path, _text(within.leads_to(path))), (), name)
    for name in COLOR_FILES:
        if is_file(path := f"{root}/{name}"):
            names, colors = _color_table(path, _text(within.leads_to(path)))
            return MaskClasses(names, colors if in_colors else (), name)
    if in_colors:
        raise ValueError(
            f"the masks are in colours, and no table in {root!r} says what these are; "
            f"it may be {', '.join(COLOR_FILES)}"
        )
    return MaskClasses()


def binary(classes: MaskClasses) -> MaskClasses:
    """Classes of masks that are white where the object is: 255 would else be what no trainer looks at."""
    names = (
        classes.names if len(classes.names) == len(_BLACK_AND_WHITE) else {0: "background", 1: "foreground"}
    )
    return MaskClasses(names, _BLACK_AND_WHITE, classes.file)


def are_binary(refs: Iterable[ImageRef]) -> bool:
    """Whether the values of masks, together, are 0 and 255 and no other."""
    from PIL import Image

    seen: set[int] = set()
    for ref in refs:
        with open_file(ref.uri) as stream:
            try:
                with Image.open(stream) as image:
                    if image.mode != "L":
                        return False
                    seen.update(value for value, count in enumerate(image.histogram()) if count)
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
                continue  # its record will say so
    return seen == {0, 255}


def is_in_colors(ref: ImageRef) -> bool:
    """Whether an image has colours rather than grey or palette values, by its header."""
    from PIL import Image

    with open_file(ref.uri) as stream:
        try:
            with Image.open(stream) as image:
                return image.mode not in _ID_MODES
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return False  # no image: its record will say so


_MOST_CLASSES = 64  # of a mask; a grey photograph has more values


def is_mask_of(mask: str, image: str) -> bool:
    """Whether a file looks like the mask of an image: grey or palette, few values, and of equal size.

    The image must be in colour.
    """
    from PIL import Image

    found = []
    for path in (mask, image):
        try:
            with open_file(path) as stream, Image.open(stream) as opened:
                is_of_ids = opened.mode in _ID_MODES
                if path == mask and not (is_of_ids and opened.getcolors(_MOST_CLASSES)):
                    return False
                found.append((is_of_ids, opened.size))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return False
    (is_of_ids, size), (is_grey, image_size) = found
    return is_of_ids and not is_grey and size == image_size


def _text(path: str) -> str:
    with open_file(path) as stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"{path!r} has more than {_LARGEST} bytes, too many for names of classes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} is not UTF-8") from error


def _names(path: str, text: str) -> dict[int, str]:
    """One name a line, from 0."""
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if lines and lines[0] == _UNLABELLED:
        del lines[0]
    if "" in lines:
        raise ValueError(f"{path!r} has a blank line between names; each line names a class, from 0")
    return dict(enumerate(lines))


def _color_table(path: str, text: str) -> tuple[dict[int, str], tuple[tuple[int, int], ...]]:
    """Names by id, in the order of the lines, and ids by colour; colours of one name have one id."""
    rows = list(_rows(path, text))
    ids: dict[str, int] = {}
    named: dict[int, str] = {}
    for name, color in rows:
        ids.setdefault(name, len(ids))
        if named.setdefault(color, name) != name:
            raise ValueError(
                f"{path!r} has the colour {color >> 16} {color >> 8 & 255} {color & 255} twice, "
                f"for {clipped(named[color])!r} and {clipped(name)!r}; "
                "give each class a colour, or both one name"
            )
    if not rows:
        raise ValueError(f"{path!r} has no colours")
    return {number: name for name, number in ids.items()}, tuple((one, ids[named[one]]) for one in named)


def _rows(path: str, text: str) -> Iterable[tuple[str, int]]:
    if path.endswith(".csv"):
        lines: Iterable[tuple[int, list[str] | BadInput]] = read_cells(text.splitlines())
    elif path.endswith("labelmap.txt"):
        lines = enumerate(map(_label_map_cells, text.splitlines()), 1)
    else:
        lines = enumerate(map(_color_cells, text.splitlines()), 1)
    for number, cells in lines:
        if isinstance(cells, BadInput):
            raise ValueError(f"{path!r}, line {number} is not CSV: {cells.detail}")
        if not cells or not "".join(cells).strip() or cells[0].startswith("#"):
            continue
        if number == 1 and path.endswith(".csv") and not cells[-1].strip().isdecimal():
            continue  # the names of its columns
        yield _row(path, number, cells)


def _label_map_cells(line: str) -> list[str]:
    """Of CVAT's and Datumaro's `name:r,g,b:parts:actions`."""
    name, _, rest = line.partition(":")
    return [name, *rest.partition(":")[0].split(",")] if line.strip() else []


def _color_cells(line: str) -> list[str]:
    """Of CamVid's `r g b name`."""
    cells = line.split(maxsplit=3)
    return [cells[3], *cells[:3]] if len(cells) == 4 else [line] if cells else []


def _row(path: str, number: int, cells: list[str]) -> tuple[str, int]:
    name, values = cells[0].strip(), [cell.strip() for cell in cells[1:4]]
    if (
        not name
        or len(values) < 3
        or not all(len(one) < 4 and one.isdecimal() and int(one) < 256 for one in values)
    ):
        raise ValueError(f"{path!r}, line {number} is not a name with three numbers from 0 to 255")
    red, green, blue = map(int, values)
    return name, red << 16 | green << 8 | blue
