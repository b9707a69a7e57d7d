"""What a schema is, and what all schemas share. Each schema has a file of its own; `registry` lists them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, Protocol, TypeVar

from transforms.examples.columns import Column, ColumnKind
from transforms.examples.features import Feature, Kind, bytes_feature
from transforms.examples.labels import LabelMap
from transforms.records import ImageRecord, StoredImage

Dtype = Literal["int64", "float32", "string"]
Shape = tuple[int | None, ...]
PIXEL_FORMATS = frozenset({"raw", "tensor"})
"""Stored formats that are pixels, not an encoded image: they need their shape beside them."""

_KIND: dict[ColumnKind, Kind] = {"int64": "int64_list", "float32": "float_list", "bytes": "bytes_list"}
_DTYPE: dict[ColumnKind, Dtype] = {"int64": "int64", "float32": "float32", "bytes": "string"}
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureSpec:
    """What a reader must know of one feature.

    Attributes:
        dtype: as tf.io.parse_single_example names it.
        shape: () for one value, (n,) for n, (None,) for any number.
        role: `image` for the stored image, `label` for the class id; else `value`.
    """

    dtype: Dtype
    shape: Shape = ()
    role: Literal["value", "image", "label"] = "value"


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetSummary:
    """What the specs of a whole dataset depend on.

    Attributes:
        has_images: records have an image.
        label_counts: fewest and most labels on a record.
        columns: the free features.
        channels: of the stored images.
        dtypes: of the decoded pixels.
        formats: of the stored images.
        class_names: `LabelMap.class_names()`.
        chose_qualities: each image's JPEG quality was chosen for it.
    """

    has_images: bool
    label_counts: tuple[int, int]
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    channels: frozenset[int] = frozenset()
    dtypes: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    class_names: tuple[str, ...] | None = None
    chose_qualities: bool = False


class Schema(Protocol):
    """Turns records into features under a set of names that some trainer reads.

    A schema writes the same keys for every record of a dataset: an empty list where there is nothing.
    """

    @property
    def name(self) -> str:
        """What people type for it."""

    @property
    def default_label_offset(self) -> int:
        """Added to label ids unless the user says otherwise."""

    def features(
        self, record: ImageRecord, image: StoredImage | None, labels: LabelMap, columns: Mapping[str, Column]
    ) -> dict[str, Feature]:
        """The features of one record.

        Raises:
            BadInput: a label or a free feature does not fit.
        """

    def specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        """The specs of the features of a whole dataset, under the same keys."""


def int64(value: int) -> Feature:
    """One integer that is known to fit."""
    return Feature("int64_list", (value,))


def text(value: str) -> Feature:
    """One text that is known to be ASCII."""
    return Feature("bytes_list", (value.encode("ascii"),))


def label_ids(record: ImageRecord, labels: LabelMap) -> Feature:
    """The ids of a record's labels."""
    return Feature("int64_list", [labels.id_of(label) for label in record.annotations.labels])


def label_texts(record: ImageRecord, labels: LabelMap) -> Feature:
    """The names of a record's labels."""
    if len(record.annotations.labels) == 1:
        return bytes_feature(labels.text_of(record.annotations.labels[0]))
    return bytes_feature([labels.text_of(label) for label in record.annotations.labels])


def label_shape(summary: DatasetSummary) -> Shape:
    """One label where every record has one, else a list."""
    return () if summary.label_counts == (1, 1) else (None,)


def column_features(record: ImageRecord, columns: Mapping[str, Column]) -> dict[str, Feature]:
    """A record's free features: every column of the dataset, whether the record has it or not."""
    values = record.annotations.features
    return {
        name: Feature(_KIND[column.kind], column.cast(values.get(name))) for name, column in columns.items()
    }


def column_specs(columns: Mapping[str, Column]) -> dict[str, FeatureSpec]:
    """The specs of the free features."""
    return {name: FeatureSpec(_DTYPE[column.kind], column.shape) for name, column in columns.items()}


def quality_features(image: StoredImage, name: str) -> dict[str, Feature]:
    """The JPEG quality that was chosen for an image, 0 where its source was kept; nothing where none was."""
    return {} if image.jpeg_quality is None else {name: int64(image.jpeg_quality)}


def quality_specs(summary: DatasetSummary, name: str) -> dict[str, FeatureSpec]:
    """The spec of the same."""
    return {name: FeatureSpec("int64")} if summary.chose_qualities else {}


def stored_image(record: ImageRecord, image: StoredImage | None, schema: str) -> StoredImage:
    """The image, in a schema that must have one."""
    if image is None:
        raise ValueError(f"record {record.key!r} has no image, which schema {schema!r} needs")
    return image


def check_names(schema: Schema, summary: DatasetSummary) -> None:
    """Refuses free features whose names the schema uses itself for this dataset, or that are no names.

    Raises:
        ValueError: naming them.
    """
    columns = summary.columns
    own = schema.specs(dataclasses.replace(summary, columns={}))
    clashes = sorted(own.keys() & columns.keys())
    if clashes:
        raise ValueError(
            f"columns {', '.join(map(repr, clashes))}: the schema {schema.name!r} writes these itself; "
            "rename the columns in the input, or choose another --schema"
        )
    if not all(name.strip() for name in columns):
        raise ValueError("a column has a blank name; each needs a name, which its feature will have")


def apply_rename(items: Mapping[str, _T], renames: Mapping[str, str]) -> dict[str, _T]:
    """Features or specs under the names that the user wants; all renames happen at once.

    Raises:
        ValueError: an old name that is not there, a new one that is blank or taken.
    """
    if not renames:
        return dict(items)
    unknown = sorted(set(renames).difference(items))
    if unknown:
        old = unknown[0]
        raise ValueError(
            f"--rename {old}={renames[old]}: there is no feature {old!r}; they are {', '.join(sorted(items))}"
        )
    renamed: dict[str, _T] = {}
    for name, item in items.items():
        new = renames.get(name, name)
        if not new.strip():
            raise ValueError(f"--rename {name}={new}: the new name is blank")
        if new in renamed or (new != name and new in items and new not in renames):
            raise ValueError(f"--rename {name}={new}: another feature has that name")
        renamed[new] = item
    return renamed
