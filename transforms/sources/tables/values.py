"""Reads values of rows, text or JSON's types, as labels, splits, boxes, sizes and free features."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import BadInput, Box, FeatureValue, Scalar
from recordmill.transforms.sources.names import normal_split

Labels = tuple[str | int, ...]

_ML_USES = {"train": "train", "training": "train", "validation": "validation", "test": "test"}
VERTEX_SPLITS = {**_ML_USES, "unassigned": None, "": None}
"""The split of each value of Vertex AI's ml_use, in lower case."""

_ATTRIBUTES = {"iscrowd": "is_crowd", "pose": "view"}
_SCALARS = {str, int, float, bool, bytes}
_FAR_OFF = 2.0  # above it, coordinates are not normalised


def as_integer(value: Any) -> Any:
    """An integral float as an integer; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_missing(value: object) -> bool:
    """Whether a typed value is absent: null, NaN or an empty text."""
    return value is None or value == "" or value != value


def is_empty(value: object) -> bool:
    """Whether a value is null or blank."""
    return value is None or (isinstance(value, str) and not value.strip())


def is_label(value: object) -> bool:
    """Whether a value is text or an integer."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def number_in(value: object) -> float | None:
    """A finite number, or the one that a text spells; else None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and "_" in value:  # a thousands separator for Python
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def shown(value: object) -> str:
    """The start of a value's JSON text, for messages."""
    return json.dumps(value, ensure_ascii=False, default=str)[:100]


def labels_in(value: object, column: str = "") -> Labels:
    """The labels in a typed value, of which a list has several. Raises BadInput: not text or an integer."""
    if is_missing(value):
        return ()
    labels = tuple(map(as_integer, value if isinstance(value, list) else [value]))
    if not all(map(is_label, labels)):
        detail = f"{column} is {shown(value)}" if column else shown(value)
        raise BadInput("manifest", "label is not text or an integer", detail)
    return labels


def labels_of_text(cell: str) -> Labels:
    """The labels in a text, of which a JSON list has several. Raises BadInput as `labels_in`."""
    cell = cell.strip()
    if cell.startswith("[") and cell.endswith("]"):
        try:
            labels = json.loads(cell)
        except (ValueError, RecursionError):
            return (cell,)
        return labels_in(labels)
    return (cell,) if cell else ()


def split_in(value: object, column: str) -> str | None:
    """The normalised split that a value names; a name need not be valid, as `--splits` may replace it."""
    text = "" if value is None else str(value).strip()
    if column.lower() == "ml_use" and text.lower() in VERTEX_SPLITS:
        return VERTEX_SPLITS[text.lower()]
    return normal_split(text) or None


def box_of(values: Sequence[object], sides: bool) -> Box | None:
    """The box in four values, or None if all are empty. Raises BadInput if they are not numbers."""
    if all(map(is_empty, values)):
        return None
    numbers = [number for value in values if (number := number_in(value)) is not None]
    if len(values) != 4 or len(numbers) != 4:
        detail = ", ".join("" if is_empty(value) else str(value)[:40] for value in values[:8])
        raise BadInput("annotations", "box is not four numbers", detail)
    x, y, right, bottom = numbers
    return Box(x, y, x + right, y + bottom) if sides else Box(x, y, right, bottom)


def box_in(values: object, sides: bool) -> Box:
    """The box in a list of four numbers. Raises BadInput as `box_of`, also if it is empty."""
    box = box_of(values, sides) if isinstance(values, list) else None
    if box is None:
        raise BadInput("annotations", "box is not four numbers", shown(values))
    return box


def listed(value: object) -> Sequence[object]:
    """The values of a list, or of its JSON text; any other value as the only one."""
    if is_empty(value):
        return ()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return (value,)
    return value if isinstance(value, list | tuple) else (value,)


def check_unit(box: Box, relative: bool) -> None:
    """Raises BadInput if a box lies so far outside the image that it cannot be normalised."""
    if relative and any(abs(value) > _FAR_OFF for value in box):
        others = "other boxes of the manifest are shares of the image, from 0 to 1"
        raise BadInput("annotations", "box is not relative", f"{', '.join(map(str, box))}; {others}")


def size_of(height: object, width: object) -> tuple[int, int] | None:
    """Height and width of an image; None if one is empty or 0. Raises BadInput: not integers."""
    if is_empty(height) or is_empty(width):
        return None
    numbers = [number for value in (height, width) if (number := number_in(value)) is not None]
    if len(numbers) != 2 or any(number < 0 or not number.is_integer() for number in numbers):
        raise BadInput("annotations", "size is not two whole numbers", f"height {height}, width {width}")
    return (int(numbers[0]), int(numbers[1])) if all(numbers) else None


def box_label(value: object, column: str | None) -> str | int:
    """The label of a box; `object` without a column. Raises BadInput: empty, or not text or an integer."""
    if column is None:
        return "object"
    value = as_integer(value)
    if isinstance(value, str) and (text := value.strip()):
        return text
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if is_missing(value) or is_empty(value):
        raise BadInput("annotations", "box without a label", f"{column} is empty")
    raise BadInput("annotations", "label is not text or an integer", f"{column} is {str(value)[:100]}")


def renamed(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Attributes of an object under their usual names; of two with one name, the first gets it."""
    attributes: dict[str, Scalar] = {}
    for column, value in values.items():
        name = column if column in attributes else _ATTRIBUTES.get(column.lower(), column)
        attributes[column if name in attributes else name] = value
    return attributes


def all_names(item: Mapping[str, Any]) -> list[str]:
    """The names in a JSON object, and the names in inner objects as `outer/inner`."""
    return list(dict.fromkeys((*item, *flat(item, strict=False))))


def take(item: dict[str, Any], name: str) -> Any:
    """Removes and returns a value of a JSON object by its name, or by `outer/inner`; None if missing."""
    if name in item or "/" not in name:
        return item.pop(name, None)
    for at in range(len(name)):
        inner = item.get(name[:at]) if name[at] == "/" else None
        if isinstance(inner, dict) and (value := take(inner, name[at + 1 :])) is not None:
            return value
    return None


def feature_value(value: Any, mixed: bool = False) -> FeatureValue:
    """A value that is not null as a free feature: a scalar, a list of scalars as a tuple, or JSON text.

    The scalars of a list may differ in type only if `mixed`, apart from integers among floats.
    """
    if isinstance(value, (str, int, float, bytes)):
        return value
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds <= {int, float} or (kinds <= _SCALARS and (mixed or len(kinds) == 1)):
            return tuple(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def flat(item: Mapping[str, Any], strict: bool = True, mixed: bool = True) -> dict[str, FeatureValue]:
    """The features in a JSON object, of inner objects as `outer/inner`; null is left out.

    Raises BadInput if `strict` and two features have the same name, or one has none.
    """
    features: dict[str, FeatureValue] = {}
    _gather(features, "", item, strict, mixed)
    return features


def _gather(
    features: dict[str, FeatureValue], prefix: str, item: Mapping[str, Any], strict: bool, mixed: bool
) -> None:
    for inner, value in item.items():
        name = f"{prefix}{inner}" if prefix else inner
        if isinstance(value, dict):
            _gather(features, f"{name}/", value, strict, mixed)
            continue
        if strict and (name in features or not name.strip("/")):
            reason = "two values have the same name" if name else "a value has no name"
            raise BadInput("manifest", reason, name)
        if value is not None:
            features[name] = feature_value(value, mixed)


@internal_errors("annotations")
def flattened(text: str) -> tuple[Labels, dict[str, FeatureValue]]:
    """The labels (`label`, or else `class`) and free features of a sample's JSON object. Raises BadInput."""
    try:
        item = json.loads(text)
        if not isinstance(item, dict):
            raise BadInput("annotations", "not a JSON object", f"it is {text[:40]!r}")
        for key in ("label", "class"):
            value = item.get(key)
            labels = value if isinstance(value, list) else [value]
            if labels and all(map(is_label, labels)) and "" not in labels:
                del item[key]
                return tuple(labels), flat(item, strict=False, mixed=False)
        return (), flat(item, strict=False, mixed=False)
    except (ValueError, RecursionError) as error:
        raise BadInput("annotations", "not JSON", str(error)) from error


def scalars(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """The attributes of an object, from typed values; lists become JSON text."""
    texts = {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, tuple) else value
        for name, value in flat(values).items()
    }
    return renamed(texts)
