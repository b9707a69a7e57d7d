"""Finds the columns of images, labels, splits and boxes by flags, usual names and the first rows."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Box
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import clipped, is_image_name, is_split_name
from recordmill.transforms.sources.tables.manifests import PEEKED, ImageFinder, Manifest, flag_of
from recordmill.transforms.sources.tables.values import (
    all_names,
    box_in,
    box_of,
    flat,
    is_empty,
    is_missing,
    listed,
    number_in,
    size_of,
)

IMAGE_COLUMNS = ("image", "image_path", "filename", "file_name", "path", "uri", "filepath")
LABEL_COLUMNS = ("label", "class", "category", "labels", "class_name")
SPLIT_COLUMNS = ("split", "subset", "set", "ml_use")
CORNER_COLUMNS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("bbox_xmin", "bbox_ymin", "bbox_xmax", "bbox_ymax"),
    ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"),
    ("x0", "y0", "x1", "y1"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
SIDE_COLUMNS = ("bbox_x", "bbox_y", "bbox_width", "bbox_height")
LIST_COLUMN = "bbox"  # a corner and the lengths of the sides in one list, as COCO's `bbox`
_HEIGHTS = ("height", "image_height", "img_height")
_WIDTHS = ("width", "image_width", "img_width")
_IMAGE_IDS = ("image_id", "imageid", "image_name", "img")  # may be file names or mere numbers
_ALWAYS_SPLITS = ("split", "ml_use")  # columns of the other names often have other values

VERTEX_IMAGE = "imageGcsUri"
VERTEX_BOXES = "boundingBoxAnnotations"

OBJECTS = "objects"
_CORNER_LISTS = ("boxes", "bboxes")

_TRIED = 1_000  # columns whose values are tried as paths of images
_CACHED = 1_000  # rows with different names


class Columns(msgspec.Struct, frozen=True):
    """The meaning of the columns of a manifest."""

    image: str | None = None  # None if rows are features alone
    labels: tuple[str, ...] = ()  # of the image
    split: str | None = None
    box: tuple[str, ...] = ()  # four, or one of lists of four; empty if no row is a box
    sides: bool = False  # boxes have width and height, not a second corner
    size: tuple[str, str] | None = None  # height and width of the image
    box_label: str | None = None
    relative: bool = False  # boxes in `box` are normalised to [0, 1]
    has_lists: bool = False  # rows have lists of boxes
    relative_lists: bool = False  # boxes in lists are normalised
    is_vertex: bool = False  # rows with an `imageGcsUri` are rows of Vertex AI's file

    @property
    def has_boxes(self) -> bool:
        """Whether the first rows have boxes."""
        return bool(self.box) or self.has_lists

    def describe(self) -> str:
        """The columns, for people."""
        if self.image == VERTEX_IMAGE:
            return f"Vertex AI's import file{' for object detection' if self.has_boxes else ''}"
        image = "features alone, no image" if self.image is None else f"images: {self.image}"
        label = self.box_label if self.box else ", ".join(self.labels)
        found = f"columns: {image}; labels: {label or 'none'}; splits: {self.split or 'none'}"
        if not self.box:
            return found
        unit = (
            "normalised to [0, 1]: no size is given, and no value is above 1" if self.relative else "pixels"
        )
        of_list = " of x, y, width, height" if len(self.box) == 1 else ""
        return f"{found}; each row is a box: {', '.join(self.box)}{of_list} ({unit})"

    def box_of(self, values: Sequence[object]) -> Box | None:
        """The box in the values of `box`; None if they are empty. Raises BadInput."""
        return box_of(values if len(values) > 1 else listed(values[0]), self.sides)


def usual_name(usual: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of the usual names that is there, as `names` spells it; case is ignored."""
    by_lower = _by_lower(names)
    return next((by_lower[name] for name in usual if name in by_lower), None)


def _by_lower(names: Iterable[str]) -> dict[str, str]:
    """Names by lower case; of names that differ only in case, the first."""
    return {name.lower(): name for name in reversed(list(names))}


def named_labels(config: SourceConfig, names: Iterable[str] = ()) -> tuple[str, ...]:
    """The columns that `--label_column` names: several, or one with commas in its name."""
    asked = config.label_column
    if asked is None:
        return ()
    return (asked,) if asked in names else tuple(part.strip() for part in asked.split(","))


def asked_name(asked: str | None, flag: str, names: Sequence[str], path: str) -> str | None:
    """The column that a flag names, as the table spells it. Raises ValueError if there is none."""
    if asked is None or asked in names:
        return asked
    found = usual_name((asked.lower(),), names)
    if found is None:
        raise ValueError(f"{flag} is {asked!r}; {path!r} has the columns {_shown(names)}")
    return found


def asked_labels(config: SourceConfig, names: Sequence[str], path: str) -> tuple[str, ...]:
    """The columns that `--label_column` names, as `asked_name`."""
    found = (asked_name(one, "--label_column", names, path) for one in named_labels(config, names))
    return tuple(filter(None, found))


def _shown(names: Sequence[str]) -> str:
    more = f", … ({len(names)})" if len(names) > 30 else ""
    return ", ".join(clipped(name, 100) for name in names[:30]) + more


def find_columns(
    names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig, manifest: Manifest
) -> Columns:
    """The columns of a CSV or JSON Lines file, by their names and the first rows.

    Without an image column, labels are read only from `label_column`.

    Raises:
        ValueError: a flag names a missing column, or rows seem to have images and no column is found.
    """
    image = asked_name(config.image_column, "--image_column", names, manifest.path)
    image = image or usual_name(IMAGE_COLUMNS, names)
    if image is None:
        _check_no_images(names, first, config, manifest)
    if config.label_column is not None:
        labels = asked_labels(config, names, manifest.path)
        if image in labels:
            raise ValueError(f"--label_column is {config.label_column!r}, the column of the image paths")
    elif image is None or config.label_pattern is not None:
        labels = ()
    else:
        usual = usual_name(LABEL_COLUMNS, [name for name in names if name != image])
        labels = () if usual is None else (usual,)
    others = [name for name in names if name != image and name not in labels]
    split = usual_name(split_columns(others, first), others)
    return with_box_columns(Columns(image, labels, split), names, first, config)


def split_columns(names: Iterable[str], first: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """The usual names of split columns: `split` and `ml_use`, and others if their values name splits."""
    found = set(_ALWAYS_SPLITS)
    for name in names:
        if name.lower() in SPLIT_COLUMNS:
            values = [text for row in first if (text := str(row.get(name, "")).strip())]
            if values and all(map(is_split_name, values)):
                found.add(name.lower())
    return tuple(usual for usual in SPLIT_COLUMNS if usual in found)


def _check_no_images(
    names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig, manifest: Manifest
) -> None:
    """Raises ValueError if rows seem to have images, although no column has a usual name for their paths."""
    unnamed = f"{flag_of(config)} is {manifest.path!r}, where no column is named like one of image paths"
    finder = ImageFinder(config, manifest)
    for name in names[:_TRIED]:  # values that name images, with or without their extension
        images = [str(value) for row in first if not is_missing(value := row.get(name))]
        if not images or len(images) != len(first):
            continue
        folder = finder.find_folder(images)
        if folder is not None or finder.finds(images):
            where = "" if folder is None else f" {flag_with('--image_root', folder)}"
            raise ValueError(
                f"{unnamed}, and the column {name!r} names images, such as {images[0][:100]!r}; "
                f"give {flag_with('--image_column', name)}{where}"
            )
    if config.annotations or config.image_roots:
        usual = ", ".join(IMAGE_COLUMNS)
        raise ValueError(f"{unnamed} ({usual}); name it with --image_column: {_shown(names)}")
    check_no_names(unnamed, {name: [row.get(name) for row in first] for name in names})


def check_no_names(where: str, columns: Mapping[str, Iterable[object]]) -> None:
    """Raises ValueError if most texts of a column are names of images."""
    for name, values in columns.items():
        texts = [text for value in values if isinstance(value, str) and (text := value.strip())]
        images = [text for text in texts if is_image_name(text)]
        if 2 * len(images) > len(texts):
            raise ValueError(
                f"{where}, and the column {name!r} has images by name, such as {images[0][:100]!r}; "
                f"give {flag_with('--image_column', name)}"
            )


def with_box_columns(
    columns: Columns, names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig
) -> Columns:
    """Adds the columns of boxes, if a row is a box.

    Raises:
        ValueError: --label_column names several columns, although a box has one label; or there are boxes,
            and the column of images may be one of image ids.
    """
    asked = columns.labels if config.label_column is not None else ()
    free = [name for name in names if name not in (columns.image, columns.split, *asked)]
    by_lower = _by_lower(free)
    usual = next((usual for usual in (*CORNER_COLUMNS, SIDE_COLUMNS) if by_lower.keys() >= set(usual)), ())
    box = tuple(by_lower[name] for name in usual) or _list_column(by_lower.get(LIST_COLUMN), first)
    if not box:
        return columns
    if columns.image is None:
        if (image := usual_name(_IMAGE_IDS, free)) is None:
            return columns
        raise ValueError(
            f"--image_column is not given, and boxes ({', '.join(box)}) need an image; "
            f"give {flag_with('--image_column', image)}, if it names the image's file"
        )
    if len(asked) > 1:
        raise ValueError(f"--label_column is {config.label_column!r}, and a row with a box has one label")
    height, width = usual_name(_HEIGHTS, free), usual_name(_WIDTHS, free)
    size = (height, width) if height is not None and width is not None else None
    label = asked[0] if asked else usual_name(LABEL_COLUMNS, free)
    columns = replace(columns, box=box, sides=usual not in CORNER_COLUMNS, size=size, box_label=label)
    relative = _are_shares(first, size, lambda row: [columns.box_of([row.get(name) for name in box])])
    return replace(columns, relative=relative)


def _are_shares(
    first: Iterable[Mapping[str, Any]],
    size: tuple[str, str] | None,
    boxes_of: Callable[[Mapping[str, Any]], Iterable[Box | None]],
) -> bool:
    """Whether boxes are normalised: no row has a size, and all numbers are in [0, 1], one in between."""
    numbers: list[float] = []
    for row in first:
        with contextlib.suppress(BadInput):
            if size is not None and size_of(*map(row.get, size)) is not None:
                return False
            numbers += itertools.chain.from_iterable(filter(None, boxes_of(row)))
    return all(0 <= number <= 1 for number in numbers) and any(0 < number < 1 for number in numbers)


def _list_column(name: str | None, first: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """The column of lists of four numbers, by its first value."""
    if name is None:
        return ()
    values = listed(next((row[name] for row in first if not is_empty(row.get(name))), None))
    return (name,) if len(values) == 4 and None not in map(number_in, values) else ()


def list_of_boxes(item: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """The name of the list of boxes in a row of JSON, and the boxes; None if it has none.

    Boxes in `objects` have width and height, as in metadata.jsonl of Hugging Face's image folders
    (https://huggingface.co/docs/datasets/image_dataset#object-detection); the others have two corners.
    """
    inner = item.get(OBJECTS)
    if isinstance(inner, dict) and isinstance(inner.get(LIST_COLUMN), list):
        return OBJECTS, inner[LIST_COLUMN]
    for name in _CORNER_LISTS:
        value = item.get(name)
        if not isinstance(value, list) or not all(isinstance(part, list) for part in value):
            continue
        if not value or any(len(part) == 4 for part in value):
            return name, value
    return None


def with_lists(columns: Columns, first: Sequence[Mapping[str, Any]]) -> Columns:
    """Adds whether JSON rows have lists of boxes, and whether these are normalised, by the first rows."""
    having = [row for row in first if list_of_boxes(row) is not None]
    if columns.image is None or not having:
        return replace(columns, has_lists=columns.is_vertex and any(VERTEX_BOXES in row for row in first))

    def boxes_of(row: Mapping[str, Any]) -> list[Box]:
        name, boxes = list_of_boxes(row) or ("", [])
        return [box_in(one, name == OBJECTS) for one in boxes]

    relative = _are_shares(having, ("height", "width"), boxes_of)
    return replace(columns, has_lists=True, relative_lists=relative)


class RowColumns:
    """Finds the columns of each JSON row, with the same precedence in all rows.

    If a row has two usual names of one meaning, the first is used and the other is a free feature in all
    rows: no name is the label of one row and a feature of another.
    """

    def __init__(self, columns: Columns, first: Sequence[Mapping[str, Any]], config: SourceConfig) -> None:
        self._columns = columns
        self._image = columns.image if config.image_column is not None else None
        self._labels = columns.labels if config.label_column is not None else ()
        self._asked = {name.lower() for name in (self._image, *self._labels) if name is not None}
        names = {name for row in first for name in row}
        splits = split_columns(names, [flat(row, strict=False) for row in first])
        has_label = columns.image is not None and not (config.label_pattern or config.label_column)
        self._usual = (
            (() if self._image else IMAGE_COLUMNS, "--image_column says which"),
            (LABEL_COLUMNS if has_label else (), "--label_column says which"),
            (splits, "rename one"),
        )
        self._taken: set[str] = set()  # names used in earlier rows, in lower case
        self._features: set[str] = set()  # usual names that are free features
        for row in map(self._free, first):
            for usual, _ in self._usual:
                self._features.update([one for one in usual if one in row][1:])
        self._cached_columns = functools.lru_cache(_CACHED)(self._columns_in)

    def __call__(self, item: Mapping[str, Any]) -> Columns:
        """The columns of one row. Raises BadInput if they contradict those of earlier rows."""
        found = self._cached_columns(tuple(item))
        if not self._asked:
            return found
        image = found.image if self._image is None else _as_written(item, self._image)
        labels = tuple(_as_written(item, name) for name in self._labels) or found.labels
        return replace(found, image=image, labels=labels)

    def _free(self, names: Iterable[str]) -> dict[str, str]:
        """Names by lower case, without those that flags name."""
        return _by_lower(name for name in names if name.lower() not in self._asked)

    def _columns_in(self, spelled: tuple[str, ...]) -> Columns:
        names = self._free(spelled)
        image = self._pick(names, 0)
        late = image or names.get(VERTEX_IMAGE.lower())
        if late is not None and self._columns.image is None:
            detail = f"{late!r}; the first {PEEKED} rows have none, so records are features alone; give "
            flag = flag_with("--image_column", late)
            raise BadInput("manifest", "image column comes late", detail + flag)
        label, split = self._pick(names, 1), self._pick(names, 2)
        return replace(self._columns, image=image, labels=() if label is None else (label,), split=split)

    def _pick(self, names: Mapping[str, str], meaning: int) -> str | None:
        usual, remedy = self._usual[meaning]
        found = [one for one in usual if one in names and one not in self._features]
        if self._taken.intersection(found[1:]):
            both = ", ".join(repr(names[one]) for one in found)
            raise BadInput("manifest", "two columns of one meaning", f"{both}; {remedy}")
        self._features.update(found[1:])
        self._taken.update(found[:1])
        return names[found[0]] if found else None


def _as_written(item: Mapping[str, Any], name: str) -> str:
    """A name that a flag gives, as a row spells it: in the same case, or else in another."""
    if name in item:
        return name
    names = all_names(item)
    return name if name in names else usual_name((name.lower(),), names) or name
