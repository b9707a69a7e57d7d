"""What the columns of a Parquet table are: images, labels, objects, features.

The conventions are those of Hugging Face datasets: an image is a struct of `bytes` and `path`, and the
metadata of the schema names the classes of a ClassLabel.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.transforms.sources.tables.rows import LABEL_COLUMNS, usual_name

if TYPE_CHECKING:
    import pyarrow

_LABELS = ("label", "labels", "class", "fine_label", "coarse_label", *LABEL_COLUMNS)
_MASKS = frozenset(("mask", "annotation", "segmentation_mask", "semantic_mask", "seg", "label"))
_CATEGORIES = ("category", "categories", "label", "labels", "category_id", "class")
_BOXES = ("bbox", "bboxes", "boxes")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")


@dataclasses.dataclass(frozen=True, slots=True)
class TableColumns:
    """Which column is what.

    Attributes:
        image: of images, or None where rows are features alone.
        labels: of labels of the whole image.
        mask: of images whose pixels are classes.
        objects: of objects with boxes.
        box: name of the boxes in `objects`.
        category: name of the classes in `objects`.
        features: the others that are read.
        unread: further columns of images, and those of lists of images.
        names: of the classes, by column.
    """

    image: str | None
    labels: tuple[str, ...]
    mask: str | None
    objects: str | None
    box: str
    category: str | None
    features: tuple[str, ...]
    unread: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]


def looks_like_image(data: bytes | None) -> bool:
    """Whether bytes begin like an encoded image."""
    return data is not None and (
        data.startswith(_MAGIC) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or data[4:8] == b"ftyp"
    )


def pick(
    schema: pyarrow.Schema,
    binary_images: Sequence[str],
    image_column: str | None,
    label_column: str | None,
    whole_floats: Sequence[str],
) -> TableColumns:
    """Finds the columns by the flags, or else by type and name.

    Args:
        schema: of the table.
        binary_images: columns of plain bytes that are images.
        image_column: `--image_column`.
        label_column: `--label_column`.
        whole_floats: columns of floats that may be labels.

    Raises:
        ValueError: a flag names a column that is not there, or no one of images.
    """
    columns = list(schema.names)
    found = [name for name in columns if is_image_struct(schema.field(name).type) or name in binary_images]
    image = image_column or next(iter(found), None)
    if image is not None and image not in columns:
        raise ValueError(f"--image_column is {image!r}; the columns are {', '.join(columns)}")
    told = hugging_face_features(schema)
    names = {name: known for name in columns if (known := class_names(told.get(name)))}
    objects, box, category = _objects(schema, image)
    if objects is not None and category is not None:
        names[objects] = _inner_names(told.get(objects), category)
    others = [name for name in columns if name not in (image, objects)]
    images = [name for name in found if name != image]
    lists = [name for name in others if _is_image_list(schema.field(name).type)]
    rest = [name for name in others if name not in images and name not in lists]
    fitting = [name for name in rest if name in whole_floats or _is_label(schema.field(name).type)]
    usual = fitting if image is not None and objects is None else None
    labels = _labels(rest, names, label_column, usual)
    mask = next((name for name in images if name.lower() in _MASKS), None)
    unread = (*(name for name in images if name != mask), *lists)
    features = tuple(name for name in rest if name not in labels)
    return TableColumns(image, labels, mask, objects, box, category, features, unread, names)


def is_image_struct(kind: pyarrow.DataType) -> bool:
    """Whether a column has images as Hugging Face stores them."""
    import pyarrow

    if not pyarrow.types.is_struct(kind):
        return False
    fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    return fields.keys() <= {"bytes", "path"} and is_binary(fields.get("bytes"))


def _is_image_list(kind: pyarrow.DataType) -> bool:
    import pyarrow

    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    return is_list and is_image_struct(kind.value_type)


def is_binary(kind: pyarrow.DataType | None) -> bool:
    """Whether a column has plain bytes."""
    import pyarrow

    return kind is not None and (pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))


def hugging_face_features(schema: pyarrow.Schema) -> dict[str, Any]:
    """The features that the metadata describes, by column; none where there is none of that kind."""
    try:
        told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = told["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names(feature: Any) -> tuple[str, ...]:
    """The names of a ClassLabel, or of a list of them."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if not isinstance(feature, dict):
        return ()
    if feature.get("_type") == "ClassLabel" and isinstance(names := feature.get("names"), list):
        return tuple(map(str, names))
    return class_names(feature["feature"]) if "feature" in feature else ()


def _inner_names(feature: Any, inner: str) -> tuple[str, ...]:
    """The names of a ClassLabel in a struct, or in a list of structs."""
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if not isinstance(feature, dict):
        return ()
    if inner in feature:
        return class_names(feature[inner])
    return _inner_names(feature["feature"], inner) if "feature" in feature else ()


def _objects(schema: pyarrow.Schema, image: str | None) -> tuple[str | None, str, str | None]:
    """The column of objects, and the names of boxes and classes in it."""
    import pyarrow

    for name in schema.names if image is not None else ():
        kind = schema.field(name).type
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            kind = kind.value_type
        if pyarrow.types.is_struct(kind):
            inner = [kind.field(at).name for at in range(kind.num_fields)]
            if (box := usual_name(_BOXES, inner)) is not None:
                return name, box, usual_name(_CATEGORIES, inner)
    return None, "", None


def _labels(
    columns: list[str], names: Mapping[str, tuple[str, ...]], asked: str | None, fitting: list[str] | None
) -> tuple[str, ...]:
    if asked is not None:
        found = (asked,) if asked in columns else tuple(part.strip() for part in asked.split(","))
        if missing := [name for name in found if name not in columns]:
            raise ValueError(f"--label_column is {asked!r}; {missing[0]!r} is none of {', '.join(columns)}")
        return found
    if fitting is None:
        return ()
    classes = [name for name in columns if name in names]
    name = usual_name(_LABELS, classes) or next(iter(classes), None) or usual_name(_LABELS, fitting)
    return () if name is None else (name,)


def is_float_label(field: pyarrow.Field) -> bool:
    """Whether a column has floats and a usual name of labels."""
    import pyarrow

    return field.name.lower() in _LABELS and bool(pyarrow.types.is_floating(field.type))


def _is_label(kind: pyarrow.DataType) -> bool:
    import pyarrow

    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        kind = kind.value_type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        (pyarrow.types.is_integer(kind), pyarrow.types.is_string(kind), pyarrow.types.is_large_string(kind))
    )
