"""Which schema is taken for what records have, and which go together."""

import dataclasses
import pickle
from typing import Any

import pytest

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.registry import SCHEMAS, Combined, choose_schema, named_schemas
from recordmill.transforms.examples.schema import (
    DatasetSummary,
    FeatureSettings,
    FeatureSpec,
    Schema,
    SequenceSchema,
)
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

EVERYTHING = frozenset(
    {"objects", "object_masks", "keypoints", "parts", "captions", "labels", "class", "instance", "panoptic"}
)


@pytest.mark.parametrize(
    ("annotated", "has_images", "name", "first_id"),
    [
        ((), True, "classification", 0),
        ((), False, "features", 0),
        (("labels",), True, "classification", 0),
        (("objects",), True, "detection", 1),
        (("objects", "object_masks", "keypoints"), True, "detection", 1),
        (("captions",), True, "detection", 1),
        (("class", "instance"), True, "segmentation", 0),
        (("panoptic",), True, "panoptic", 0),
        (("class", "objects"), True, "detection,segmentation", 1),
        (("panoptic", "objects"), True, "detection,panoptic", 1),
        (("class", "panoptic"), True, "segmentation,panoptic", 0),
        (("steps", "frames", "labels"), False, "sequence", 0),
    ],
)
def test_auto(annotated: tuple[str, ...], has_images: bool, name: str, first_id: int) -> None:
    schema = choose_schema("auto", has_images, frozenset(annotated))
    assert (schema.name, schema.first_id) == (name, first_id)
    assert isinstance(schema, SequenceSchema) == (name == "sequence")
    assert pickle.loads(pickle.dumps(schema)).name == name


def test_names_may_come_in_any_order() -> None:
    schema = choose_schema("panoptic, detection", True, EVERYTHING)
    assert schema.name == "detection,panoptic"
    assert schema == choose_schema("detection,panoptic", True, EVERYTHING)
    assert [one.name for one in named_schemas("segmentation,classification")] == [
        "classification",
        "segmentation",
    ]


def test_masks_painted_from_objects_have_ids_from_1() -> None:
    painted = choose_schema("segmentation", True, frozenset({"objects", "object_masks"}))
    assert painted.first_id == 1
    assert LabelMap.build([], classes={0: "a", 1: "b"}, first_id=painted.first_id).ids["a"] == 1
    assert choose_schema("segmentation", True, frozenset({"class", "object_masks"})).first_id == 0


@pytest.mark.parametrize(
    ("name", "annotated", "message"),
    [
        ("segmentation", (), "'segmentation' needs masks of classes, .* none; choose another schema"),
        ("segmentation", ("objects",), "the input has none; give --include_annotations=masks"),
        ("panoptic", ("class",), "'panoptic' needs panoptic masks, the input has none"),
        ("detection,panoptic", ("objects",), "'panoptic' needs panoptic masks"),
        ("sequence", ("objects",), "^--schema is 'sequence', but there are no sequences; leave it at auto$"),
        ("detection", ("steps",), "but records are sequences, which only 'sequence' holds; leave it at auto"),
        (
            "detection,plain",
            ("objects",),
            "'plain' cannot be combined with others; classification, detection",
        ),
        ("sequence,detection", ("steps",), "'sequence' cannot be combined"),
        ("imagenet,detection", ("objects",), "'imagenet' cannot be combined"),
        (
            "detection,detection",
            ("objects",),
            "^--schema is 'detection,detection', which names one schema tw",
        ),
        ("detection,x", ("objects",), "^--schema is 'detection,x', with 'x' in it; it may be auto, classif"),
        ("features", (), "^--schema is 'features'; it may be auto, classification, "),
        ("detection,", ("objects",), "with '' in it"),
    ],
)
def test_what_cannot_be_chosen(name: str, annotated: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_schema(name, True, frozenset(annotated))


def test_objects_need_images() -> None:
    with pytest.raises(ValueError, match="needs images, and the input has none; leave it at auto"):
        choose_schema("detection", False, frozenset({"objects"}))
    with pytest.raises(
        ValueError, match="needs images, and the input has none; what it annotates needs them"
    ):
        choose_schema("auto", False, frozenset({"objects"}))


@dataclasses.dataclass(frozen=True)
class _Odd:
    """A schema that shares a key with the others and means something else by it."""

    name: str = "odd"
    first_id: int = 3

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return annotated

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: FeatureSettings
    ) -> dict[str, Any]:
        return {}

    def specs(self, summary: DatasetSummary) -> dict[str, FeatureSpec]:
        return {"image/height": FeatureSpec("float32")}


def test_schemas_that_do_not_agree_are_both_named() -> None:
    odd: Schema = _Odd()
    combined = Combined((SCHEMAS["detection"], odd))
    assert combined.first_id == 3
    with pytest.raises(ValueError, match="schemas 'detection' and 'odd' both write image/height"):
        combined.specs(DatasetSummary(True, (0, 0)))
