"""The schemas of `--schema`. A new one is a class, a line here, and its name in `__init__`."""

from __future__ import annotations

import dataclasses

from recordmill.transforms.examples import SCHEMA_NAMES
from recordmill.transforms.examples.detection import DETECTION
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.examples.schema import (
    CLASS_MASKS,
    DatasetSummary,
    FeatureSettings,
    FeatureSpec,
    Schema,
    SequenceSchema,
)
from recordmill.transforms.examples.schemas import (
    CLASSIFICATION,
    FEATURES_ALONE,
    IMAGENET,
    PANOPTIC,
    PLAIN,
    SEGMENTATION,
    Plain,
    Segmentation,
)
from recordmill.transforms.examples.sequence import SEQUENCE
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_SCHEMAS: tuple[Schema, ...] = (CLASSIFICATION, IMAGENET, DETECTION, SEGMENTATION, PANOPTIC, PLAIN, SEQUENCE)
SCHEMAS: dict[str, Schema] = dict(zip(SCHEMA_NAMES, _SCHEMAS, strict=True))

_COMBINABLE = (CLASSIFICATION, DETECTION, SEGMENTATION, PANOPTIC)
# The schemas that `auto` chooses for the annotations of records.
_ASKS_FOR: dict[str, Schema] = {
    "objects": DETECTION,
    "captions": DETECTION,
    "class": SEGMENTATION,
    "panoptic": PANOPTIC,
}


@dataclasses.dataclass(frozen=True)
class Combined(Schema):
    """The features of several schemas in one record; shared features are written once.

    A mask that a record lacks is an empty list: a record may have objects only, or masks only.

    Attributes:
        schemas: two or more, whose shared features are equal.
    """

    schemas: tuple[Schema, ...]

    @property
    def name(self) -> str:
        return ",".join(schema.name for schema in self.schemas)

    @property
    def first_id(self) -> int:
        return max(schema.first_id for schema in self.schemas)

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return frozenset().union(*(schema.needs(annotated) for schema in self.schemas))

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: FeatureSettings
    ) -> dict[str, Feature]:
        features: dict[str, Feature] = {}
        for schema in self.schemas:
            features |= schema.features(record, image, mapped, settings)
        return features

    def specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        specs: dict[str, FeatureSpec] = {}
        owners: dict[str, str] = {}
        for schema in self.schemas:
            for name, own in schema.specs(summary).items():
                spec = dataclasses.replace(own, shape=(None,)) if own.role == "mask" else own
                owner = owners.setdefault(name, schema.name)
                if specs.setdefault(name, spec) != spec:
                    raise ValueError(
                        f"the schemas {owner!r} and {schema.name!r} both write {name}, with different specs; "
                        "choose one of them as --schema"
                    )
        return specs


def choose_schema(name: str, has_images: bool, annotated: frozenset[str] = frozenset()) -> Schema:
    """The schema for `--schema`.

    Args:
        name: of one, or of several with commas between. `auto` depends on the annotations, and may choose
            several: sequence for steps, detection for objects and captions, segmentation and panoptic for
            masks; else classification, and without images the features alone.
        has_images: records have an image.
        annotated: kinds of annotations, as in `FeatureSettings`.

    Raises:
        ValueError: a name is unknown, schemas cannot be combined, or the records lack annotations.
    """
    chosen = _asked_for(annotated) if name == "auto" else named_schemas(name)
    if not chosen:
        return CLASSIFICATION if has_images else FEATURES_ALONE
    sequences = "steps" in annotated
    if sequences != any(isinstance(schema, SequenceSchema) for schema in chosen):
        has = "records are sequences, which only 'sequence' holds" if sequences else "there are no sequences"
        raise ValueError(f"--schema is {name!r}, but {has}; leave it at auto")
    if not sequences and not has_images:
        remedy = "what it annotates needs them" if name == "auto" else "leave it at auto"
        raise ValueError(f"--schema is {name!r}, which needs images, and the input has none; {remedy}")
    for schema in chosen:
        _check_masks(name, schema, annotated)
    fitted = tuple(_fitted(schema, annotated) for schema in chosen)
    return fitted[0] if len(fitted) == 1 else Combined(fitted)


def named_schemas(name: str) -> tuple[Schema, ...]:
    """The schemas that a value of `--schema` other than `auto` names, in the order of the registry.

    Raises:
        ValueError: a name is unknown or there twice, or they do not go together.
    """
    names = [one.strip() for one in name.split(",")]
    unknown = next((one for one in names if one not in SCHEMAS), None)
    if unknown is not None:
        *others, last = SCHEMAS
        among = f", with {unknown!r} in it" if len(names) > 1 else ""
        raise ValueError(f"--schema is {name!r}{among}; it may be auto, {', '.join(others)} or {last}")
    if len(set(names)) < len(names):
        raise ValueError(f"--schema is {name!r}, which names one schema twice")
    chosen = tuple(schema for schema in SCHEMAS.values() if schema.name in names)
    alone = next((schema for schema in chosen if schema not in _COMBINABLE), None)
    if alone is not None and len(chosen) > 1:
        *others, last = (schema.name for schema in _COMBINABLE)
        raise ValueError(
            f"--schema is {name!r}, but {alone.name!r} cannot be combined with others; "
            f"{', '.join(others)} and {last} can"
        )
    return chosen


def _asked_for(annotated: frozenset[str]) -> tuple[Schema, ...]:
    if "steps" in annotated:
        return (SEQUENCE,)
    asked = {schema.name for what, schema in _ASKS_FOR.items() if what in annotated}
    return tuple(schema for schema in _SCHEMAS if schema.name in asked)


def _check_masks(name: str, schema: Schema, annotated: frozenset[str]) -> None:
    """Refuses a schema of masks for records that have none."""
    if schema is SEGMENTATION and not annotated & CLASS_MASKS:
        missing = "masks of classes, panoptic masks or objects with masks"
    elif schema is PANOPTIC and "panoptic" not in annotated:
        missing = "panoptic masks"
    else:
        return
    drawn = schema is SEGMENTATION and "objects" in annotated
    remedy = "give --include_annotations=masks" if drawn else "choose another schema"
    raise ValueError(f"--schema is {name!r}: {schema.name!r} needs {missing}, the input has none; {remedy}")


def _fitted(schema: Schema, annotated: frozenset[str]) -> Schema:
    """The schema for these records: if masks are drawn from objects, 0 is the background."""
    if not annotated & {"class", "panoptic"}:
        if schema is SEGMENTATION:
            return Segmentation(first_id=1)
        if schema is PLAIN and "object_masks" in annotated:
            return Plain(first_id=1)
    return schema
