"""What a schema is, and the features that schemas share. `registry` lists the schemas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar, runtime_checkable

from recordmill.transforms.examples.columns import Column, ColumnKind
from recordmill.transforms.examples.features import Feature, bytes_feature, utf8
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import (
    AnnotatedObject,
    BadInput,
    Box,
    ImageRecord,
    Mapped,
    StoredImage,
)

Dtype = Literal["int64", "float32", "string"]
Shape = tuple[int | None, ...]
_SIDES = ("xmin", "xmax", "ymin", "ymax")
CLASS_MASKS = frozenset({"class", "panoptic", "object_masks"})
"""The annotations from which a mask of classes is made; one is enough."""
PIXEL_FORMATS = frozenset({"raw", "tensor"})
"""Stored formats that are pixels, not an encoded image; their shape is stored too."""

_DTYPE: dict[ColumnKind, Dtype] = {"int64": "int64", "float32": "float32", "bytes": "string"}
_LABEL = ("image/class/label", "image/class/text")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureSpec:
    """The type and shape of one feature.

    Attributes:
        dtype: as in tf.io.parse_single_example.
        shape: () for one value, (n,) for n, (None,) for any number.
        role: `image` for the stored image, `label` for its class id, `object_label` for the class ids of
            its objects, `mask` for a mask of the image, `object_mask` for those of its objects; else `value`.
        mask: the name in `Mapped.masks` of a mask that is stored as a PNG.
    """

    dtype: Dtype
    shape: Shape = ()
    role: Literal["value", "image", "label", "object_label", "mask", "object_mask"] = "value"
    mask: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetSummary:
    """The properties of a dataset that determine its specs.

    Attributes:
        label_counts: fewest and most labels on a record.
        columns: the free features.
        channels: of the stored images.
        dtypes: of the decoded pixels.
        formats: of the stored images.
        class_names: `LabelMap.class_names()`.
        chose_qualities: whether a JPEG quality was chosen for each image.
        attributes: of objects.
        steps: the lists of sequences.
        annotated: kinds of annotations, as in `FeatureSettings`.
        mask_dtypes: of the pixels of the PNG masks, by name in `Mapped.masks`.
        complete_masks: names of the PNG masks that every record has.
    """

    has_images: bool
    label_counts: tuple[int, int]
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    channels: frozenset[int] = frozenset()
    dtypes: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    class_names: tuple[str, ...] | None = None
    chose_qualities: bool = False
    attributes: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    steps: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    annotated: frozenset[str] = frozenset()
    mask_dtypes: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    complete_masks: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The properties of a dataset that determine the features of each record.

    Attributes:
        labels: ids of the classes.
        columns: the free features.
        attributes: of objects, by name: values are stored as lists, one for each object.
        steps: the lists of sequences, by name.
        annotated: kinds of annotations in the dataset: `labels` (of images or sequences),
            `objects`, `object_masks`, `keypoints`, `parts`, `captions`, `source_id`, `class`, `instance`,
            `panoptic` (images of masks), `steps`, `frames`, `step_labels`.
    """

    labels: LabelMap
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    steps: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    annotated: frozenset[str] = frozenset()


class Schema(Protocol):
    """Turns records into features with the names that some trainer reads.

    A schema writes the same keys for every record of a dataset: an empty list if there is no value.
    """

    @property
    def name(self) -> str:
        """As in `--schema`."""

    @property
    def first_id(self) -> int:
        """The smallest id of a class, unless the user chooses it."""

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """The fields of `Mapped` that it stores, if records have the annotations `annotated`.

        Any of `objects`, `object_masks` and the names of `Mapped.masks`. No other fields are made.
        """
        return frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; of a sequence, its context.

        Args:
            record: with its labels and free features.
            image: as it is stored; None if the record has none.
            mapped: its annotations in the stored image.
            settings: of the dataset.

        Raises:
            BadInput: a label or a free feature does not fit.
        """

    def specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        """The specs of the features of a dataset, under the same keys.

        Raises:
            ValueError: the input has a name that the schema uses itself.
        """


class ImageSchema(Schema, Protocol):
    """A schema of Examples with an image under the keys that most trainers read.

    Pixels (formats `raw` and `tensor`) have image/channels and image/dtype too.
    """

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: FeatureSettings
    ) -> dict[str, Feature]:
        """The features that this schema adds; as `features`."""

    def own_specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        """The specs of `own_features`."""

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: FeatureSettings
    ) -> dict[str, Feature]:
        stored = stored_image(record, image, self.name)
        return {
            **image_features(stored),
            "image/filename": bytes_feature(record.key),
            **self.own_features(record, stored, mapped, settings),
            **column_features(record, settings.columns),
        }

    def specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        return {
            **image_specs(summary),
            "image/filename": FeatureSpec("string"),
            **self.own_specs(summary),
            **column_specs(summary.columns),
        }


@runtime_checkable
class SequenceSchema(Schema, Protocol):
    """A schema whose records are SequenceExamples."""

    def feature_lists(
        self, record: ImageRecord, frames: Sequence[StoredImage], settings: FeatureSettings
    ) -> dict[str, list[Feature]]:
        """The feature lists of one record, each a feature a step.

        Raises:
            BadInput: a label or a value does not fit.
        """

    def list_specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        """The specs of one step of each list, under the same keys.

        Raises:
            ValueError: a list of the input has the name of one of the schema.
        """


def all_specs(schema: Schema, summary: DatasetSummary) -> dict[str, FeatureSpec]:
    """The specs of all features, those of a sequence's lists among them."""
    specs = schema.specs(summary)
    return specs | schema.list_specs(summary) if isinstance(schema, SequenceSchema) else specs


def int64(value: int) -> Feature:
    """One integer, which must fit."""
    return Feature("int64_list", (value,))


def text(value: str) -> Feature:
    """One text, which must be ASCII."""
    return Feature("bytes_list", (value.encode("ascii"),))


def texts(values: Iterable[str]) -> Feature:
    """A list of texts."""
    return Feature("bytes_list", list(map(utf8, values)))


def label_features(
    labels: Iterable[str | int], ids: LabelMap, names: tuple[str, str] = _LABEL
) -> dict[str, Feature]:
    """The ids and the names of the labels of a record, or of a step, under two names of features."""
    numbers = [ids.id_of(label) for label in labels]
    return {
        names[0]: Feature("int64_list", numbers),
        names[1]: texts(ids.labels[number] for number in numbers),
    }


def label_specs(summary: DatasetSummary, names: tuple[str, str] = _LABEL) -> dict[str, FeatureSpec]:
    """The specs of `label_features`: one label if every record has one, else a list."""
    shape: Shape = () if summary.label_counts == (1, 1) else (None,)
    return {names[0]: FeatureSpec("int64", shape, role="label"), names[1]: FeatureSpec("string", shape)}


def column_features(record: ImageRecord, columns: Mapping[str, Column]) -> dict[str, Feature]:
    """A record's free features: every column of the dataset, whether the record has it or not.

    Raises:
        BadInput: a value does not fit its column.
    """
    values = record.annotations.features
    return {name: column.feature(values.get(name)) for name, column in columns.items()}


def column_specs(columns: Mapping[str, Column]) -> dict[str, FeatureSpec]:
    """The specs of the free features."""
    return {name: FeatureSpec(_DTYPE[column.kind], column.shape) for name, column in columns.items()}


def image_features(image: StoredImage) -> dict[str, Feature]:
    """An image, its format and size; the shape and type of pixels; the quality that was chosen for a JPEG."""
    features = {
        "image/encoded": Feature("bytes_list", (image.data,)),
        "image/format": text(image.image_format),
        "image/height": int64(image.height),
        "image/width": int64(image.width),
    }
    if image.image_format in PIXEL_FORMATS:
        features |= {"image/channels": int64(image.channels), "image/dtype": text(image.dtype)}
    return features | quality_features(image, "image/jpeg_quality")


def image_specs(summary: DatasetSummary) -> dict[str, FeatureSpec]:
    """The specs of `image_features`."""
    specs = {
        "image/encoded": FeatureSpec("string", role="image"),
        "image/format": FeatureSpec("string"),
        "image/height": FeatureSpec("int64"),
        "image/width": FeatureSpec("int64"),
    }
    if summary.formats & PIXEL_FORMATS:
        specs |= {"image/channels": FeatureSpec("int64"), "image/dtype": FeatureSpec("string")}
    return specs | quality_specs(summary, "image/jpeg_quality")


def quality_features(image: StoredImage, name: str) -> dict[str, Feature]:
    """The JPEG quality that was chosen for an image, 0 if its source was kept; nothing if none was chosen."""
    return {} if image.jpeg_quality is None else {name: int64(image.jpeg_quality)}


def quality_specs(summary: DatasetSummary, name: str) -> dict[str, FeatureSpec]:
    """The spec of `quality_features`."""
    return {name: FeatureSpec("int64")} if summary.chose_qualities else {}


def encoded_mask(mapped: Mapped, name: str) -> Feature:
    """A mask of `Mapped.masks`; empty if the record has no such mask."""
    return Feature("bytes_list", (mapped.masks[name],) if name in mapped.masks else ())


def object_boxes(objects: Iterable[AnnotatedObject]) -> list[Box]:
    """The box of each object that was mapped."""
    boxes = []
    for one in objects:
        if one.box is None:
            raise ValueError(f"an object of class {one.label!r} has no box; objects are mapped with theirs")
        boxes.append(one.box)
    return boxes


def box_features(prefix: str, boxes: Sequence[Box], image: StoredImage) -> dict[str, Feature]:
    """The sides of boxes in pixels of the stored image, a list each, normalised to [0, 1]."""
    lengths = {"x": image.width, "y": image.height}
    return {
        f"{prefix}/{side}": Feature("float_list", [getattr(box, side) / lengths[side[0]] for box in boxes])
        for side in _SIDES
    }


def box_specs(prefix: str) -> dict[str, FeatureSpec]:
    """The specs of `box_features`."""
    return {f"{prefix}/{side}": FeatureSpec("float32", (None,)) for side in _SIDES}


def stored_image(record: ImageRecord, image: StoredImage | None, schema: str) -> StoredImage:
    """The image, in a schema that must have one. Raises BadInput if there is none."""
    if image is None:
        raise BadInput("build", "no image", f"schema {schema!r} needs an image in each record", record.key)
    return image


def check_taken(schema: Schema, what: str, own: Iterable[str], added: Mapping[str, str]) -> None:
    """Refuses features of the input whose names the schema uses itself.

    Args:
        schema: named in the message.
        what: the kind of features, such as `columns`.
        own: names of the schema's features.
        added: the name of each in the input, by the name of its feature.
    """
    if clashes := sorted(added[name] for name in added.keys() & set(own)):
        raise ValueError(
            f"{what} {', '.join(map(repr, clashes))}: the schema {schema.name!r} writes these itself; "
            f"rename the {what} in the input, or choose another --schema"
        )


def check_names(schema: Schema, summary: DatasetSummary) -> None:
    """Refuses free features whose names the schema uses itself for this dataset, or that are blank.

    Raises:
        ValueError: naming them.
    """
    columns = summary.columns
    if isinstance(schema, SequenceSchema):
        schema.list_specs(summary)
    own = schema.specs(dataclasses.replace(summary, columns={}))
    check_taken(schema, "columns", own, dict(zip(columns, columns, strict=True)))
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
