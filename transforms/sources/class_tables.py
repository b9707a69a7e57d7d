"""The classes of annotations and masks: from files of names, tables of colours, VOC, or the masks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from recordmill.transforms.records import IGNORE, BadInput, JobError
from recordmill.transforms.sources.names import clipped, extension_of, one_line
from recordmill.transforms.sources.small_files import small_text
from recordmill.transforms.sources.tables.text_rows import read_cells
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, open_file

if TYPE_CHECKING:
    from PIL.Image import Image

Colors = tuple[tuple[int, int], ...]
"""Pairs of a colour in masks, 0xRRGGBB, and its id."""

NAME_FILES = ("classes.txt", "class_names.txt", "names.txt", "labels.txt")
COLOR_FILES = (
    "label_colors.txt",
    "class_dict.csv",
    "labelmap.txt",
    "label_colors.csv",
    "colors.csv",
    "classes.csv",
)
YAML_FILES = ("data.yaml", "data.yml", "dataset.yaml")
"""YAML files that describe a dataset."""
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
_MOST_YAML = 200_000  # events: scalars, starts and ends of lists and mappings
_DEEPEST_YAML = 100
_LARGEST_VALUE = 65_535  # of a pixel
_LARGEST_ID = (1 << 31) - 2  # still an int32 in schemas whose ids begin with 1
_MOST_CLASSES = 64  # of a mask; a grey photograph has more values

_COLUMN_NAMES = {
    "name": "name class label class_name category",
    "r": "r red",
    "g": "g green",
    "b": "b blue",
    "color": "color colour rgb hex",
    "id": "id index class_id label_id value",
}
_COLUMNS = {name: column for column, names in _COLUMN_NAMES.items() for name in names.split()}

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


def read_yaml(path: str) -> dict[str, Any]:
    """A mapping in YAML whose scalars are all text: a class `no` stays `no`. Raises ValueError."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # creates only text, lists and mappings
    text = small_text(path, path)
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=loader)):  # `load` recurses in C
            kind = type(event).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            if depth > _DEEPEST_YAML or number > _MOST_YAML:
                most = f"nested more than {_DEEPEST_YAML} deep, or has more than {_MOST_YAML} values"
                raise ValueError(f"{path!r} is {most}")
        found = yaml.load(text, Loader=loader)  # the base loader runs no code  # nosec B506
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path!r} is not YAML: {one_line(error)}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{path!r} is not YAML of a mapping")
    return found


def yaml_names(value: object, path: str) -> dict[int, str]:
    """The classes in `names` of a YAML file, a list or a mapping, by id. Raises ValueError."""
    if value is None or value == "":
        return {}
    if not isinstance(value, (dict, list)):
        raise ValueError(f"{path!r}: names is neither a list nor a mapping of ids to names")
    found = {}
    for number, name in value.items() if isinstance(value, dict) else enumerate(value):
        if not re.fullmatch(r"\d{1,20}", str(number)) or int(number) > _LARGEST_ID:
            shown = str(number)[:40]
            raise ValueError(f"{path!r}: names has the id {shown!r}, not a number from 0 to {_LARGEST_ID}")
        if not isinstance(name, str) or not name:
            raise ValueError(f"{path!r}: the name of class {number} is not text")
        found[int(number)] = name
    return found


def yaml_files(root: str, names: Sequence[str], confinement: Confinement) -> list[str]:
    """The YAML files of a folder that name classes: the first of `YAML_FILES`, else any."""
    yamls = [name for name in names if extension_of(name) in ("yaml", "yml") and not name.startswith(".")]
    if usual := next((name for name in YAML_FILES if name in yamls), None):
        return [usual]
    found = []
    for name in yamls:
        with contextlib.suppress(ValueError):
            path = f"{root}/{name}"
            if confinement.holds(path) and "names" in read_yaml(confinement.leads_to(path)):
                found.append(name)
    return found


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


def mask_classes(
    root: str, names_in_root: Sequence[str], confinement: Confinement, masks: Sequence[str]
) -> ClassTable:
    """Reads the first of `NAME_FILES` and `COLOR_FILES` in a folder, else a YAML file with names.

    Masks in colours need one of `COLOR_FILES`.

    Args:
        root: the folder.
        names_in_root: of its files.
        confinement: to the roots of the input.
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
        names, colors = _color_table(path, confinement.leads_to(path))
        if in_colors and not colors:
            raise ValueError(f"{path!r} has no colours, and the masks are in colours")
    elif file:
        found = read_names(confinement.leads_to(path), path)
        names = dict(enumerate(found[found[:1] == [UNLABELLED] :]))
    elif not in_colors:
        file, names = _named_in_yaml(root, names_in_root, confinement)
    else:
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


def _named_in_yaml(
    root: str, names_in_root: Sequence[str], confinement: Confinement
) -> tuple[str, dict[int, str]]:
    """The YAML file that names classes, and the names; empty if there is none."""
    found = yaml_files(root, names_in_root, confinement)
    if len(found) > 1:
        raise ValueError(f"{found[0]!r} and {found[1]!r} both name classes; remove one of them")
    if not found:
        return "", {}
    path = f"{root}/{found[0]}"
    return found[0], yaml_names(read_yaml(confinement.leads_to(path)).get("names"), path)


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


class _Row(NamedTuple):
    """A row of a table of colours; `number` is the id that it gives to the class, if any."""

    name: str
    color: int | None
    number: int | None = None


def _color_table(name: str, path: str) -> tuple[dict[int, str], Colors]:
    """Names by id, and the colours; colours of one name have one id.

    The ids are in the table, or count the names in the order of the lines.
    """
    ids: dict[str, int] = {}
    named: dict[int, str] = {}
    for row in _rows(name, small_text(path, name).splitlines()):
        number = ids.setdefault(row.name, len(ids) if row.number is None else row.number)
        if row.number not in (None, number):
            raise ValueError(f"{name!r} has two ids of {clipped(row.name)!r}: {number} and {row.number}")
        if row.color is not None and named.setdefault(row.color, row.name) != row.name:
            raise ValueError(
                f"{name!r} has the colour {row.color >> 16} {row.color >> 8 & 255} {row.color & 255} twice, "
                f"for {clipped(named[row.color])!r} and {clipped(row.name)!r}; "
                "give each class a colour, or both one name"
            )
    names = {number: label for label, number in ids.items() if number != IGNORE}
    if twice := next((one for one in ids if names.get(ids[one], one) != one), None):
        raise ValueError(f"{name!r} has the id {ids[twice]} twice, for {twice!r} and {names[ids[twice]]!r}")
    if not names:
        raise ValueError(f"{name!r} has no colours" if not ids else f"{name!r} names no class but {IGNORE}")
    return names, tuple((one, ids[label]) for one, label in named.items())


def _rows(file: str, lines: list[str]) -> Iterator[_Row]:
    if file.endswith(".csv"):
        yield from _csv_rows(file, lines)
        return
    cells_of = _label_map_cells if file.endswith(_LABEL_MAP) else _color_cells
    for number, cells in enumerate(map(cells_of, lines), 1):
        if "".join(cells).strip() and not cells[0].startswith("#"):
            yield _checked(file, number, _Row(cells[0].strip(), _color_of(cells[1:4])))


def _checked(file: str, line: int, row: _Row, has_colors: bool = True) -> _Row:
    if not row.name or (row.color is None and has_colors):
        raise ValueError(
            f"{file!r}, line {line} is not a name with three numbers from 0 to 255, or one like #804000"
        )
    return row


def _csv_rows(file: str, lines: list[str]) -> Iterator[_Row]:
    """Rows of name, r, g, b or of name, colour; a header may name the columns, also one of ids."""
    columns: dict[str, int] | None = None
    for number, cells in read_cells(lines):
        if isinstance(cells, BadInput):
            raise ValueError(f"{file!r}, line {number} is not CSV: {cells.detail}")
        texts = [cell.strip() for cell in cells]
        if not "".join(texts) or texts[0].startswith("#"):
            continue
        if columns is None:
            found = {_COLUMNS[text.lower()]: at for at, text in enumerate(texts) if text.lower() in _COLUMNS}
            columns = found if "name" in found else {"name": 0}
            if _color_after(texts, 0) is None and (found or not texts[-1].isdecimal()):
                continue
            columns = {"name": 0}
        yield _csv_row(file, number, texts, columns)


def _csv_row(file: str, line: int, cells: Sequence[str], columns: Mapping[str, int]) -> _Row:
    def cell(column: str) -> str:
        at = columns.get(column, len(cells))
        return cells[at] if at < len(cells) else ""

    if columns.keys() == {"name"}:  # no header, or colours in columns with other names
        return _checked(file, line, _Row(cell("name"), _color_after(cells, columns["name"])))
    number = cell("id")
    if "id" in columns and not (number.isdecimal() and len(number) < 6 and int(number) <= _LARGEST_VALUE):
        allowed = f"a number of 0 to {_LARGEST_VALUE}"
        raise ValueError(f"{file!r}, line {line} has the id {clipped(number)!r}, not {allowed}")
    color = _text_color([cell(one) for one in "rgb"] if "r" in columns else [cell("color")])
    row = _Row(cell("name"), color, int(number) if number else None)
    return _checked(file, line, row, has_colors="r" in columns or "color" in columns)


def _color_after(cells: Sequence[str], at: int) -> int | None:
    """The colour in the three cells after one, or in the next."""
    found = _text_color(cells[at + 1 : at + 4])
    return _text_color(cells[at + 1 : at + 2]) if found is None else found


def _text_color(cells: Sequence[str]) -> int | None:
    """The colour in three cells, or in one: `#804000`, or `128 64 0`."""
    if len(cells) == 1:
        if match := re.fullmatch(r"#?([0-9a-fA-F]{6})", cells[0]):
            return int(match[1], 16)
        cells = re.findall(r"[^\s,;()\[\]]+", cells[0])
    return _color_of(cells)


def _label_map_cells(line: str) -> list[str]:
    name, _, rest = line.partition(":")
    return [name, *rest.partition(":")[0].split(",")] if line.strip() else []


def _color_cells(line: str) -> list[str]:
    """The cells of a line of CamVid: `r g b name`."""
    cells = line.split(maxsplit=3)
    return [cells[3], *cells[:3]] if len(cells) == 4 else [line] if cells else []
