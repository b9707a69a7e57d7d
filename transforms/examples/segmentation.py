"""Schemas of masks: `segmentation`, with the keys of DeepLab, and `panoptic`, with those of the Model Garden.

Source of the keys of DeepLab: deeplab/datasets/{build_data,data_generator}.py of tensorflow/models.
"""

from __future__ import annotations

import dataclasses

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_CLASS = "image/segmentation/class"
_INSTANCE = "image/segmentation/instance"
_PANOPTIC = "image/panoptic"
_LAYERS = ("category", "instance")


@dataclasses.dataclass(frozen=True, slots=True)
class Segmentation:
    """An image and the class of each of its pixels: a PNG of ids, 255 means ignore.

    If the input has masks of instances, their numbers are a second PNG, 0 for none. Pixels
    (formats `raw` and `tensor`) have image/dtype too.

    Attributes:
        first_id: 1 if the masks are drawn from objects, on a background of 0.
    """

    first_id: int = 0

    @property
    def name(self) -> str:
        """As in `--schema`."""
        return "segmentation"

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Masks as PNG; see `Schema.needs`."""
        return frozenset({"class_png", "instance_png"} if "instance" in annotated else {"class_png"})

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = s.image_features(record, stored)
        features["image/channels"] = s.int64(stored.channels)
        features[f"{_CLASS}/encoded"] = s.encoded_mask(mapped, "class_png")
        features[f"{_CLASS}/format"] = s.text("png")
        if "instance" in settings.annotated:
            features[f"{_INSTANCE}/encoded"] = s.encoded_mask(mapped, "instance_png")
            features[f"{_INSTANCE}/format"] = s.text("png")
        return features | s.further_features(record, stored, settings)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        specs = {
            **s.image_specs(),
            "image/channels": s.FeatureSpec("int64"),
            f"{_CLASS}/encoded": s.FeatureSpec("string", role="mask", mask="class_png"),
            f"{_CLASS}/format": s.FeatureSpec("string"),
        }
        if "instance" in summary.annotated:
            specs[f"{_INSTANCE}/encoded"] = s.FeatureSpec("string", (None,), "mask", "instance_png")
            specs[f"{_INSTANCE}/format"] = s.FeatureSpec("string")
        return specs | s.further_specs(summary)


class Panoptic:
    """An image, the class id of each pixel (255 for none) and the number of its object, as two PNGs.

    Pixels (formats `raw` and `tensor`) have image/channels and image/dtype too.
    """

    name = "panoptic"
    first_id = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Both layers as PNG; see `Schema.needs`."""
        return frozenset(f"panoptic_{layer}_png" for layer in _LAYERS)

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = s.image_features(record, stored)
        for layer in _LAYERS:
            features[f"{_PANOPTIC}/{layer}/encoded"] = s.encoded_mask(mapped, f"panoptic_{layer}_png")
            features[f"{_PANOPTIC}/{layer}/format"] = s.text("png")
        return features | s.further_features(record, stored, settings)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        specs = s.image_specs()
        for layer in _LAYERS:
            mask = f"panoptic_{layer}_png"
            specs[f"{_PANOPTIC}/{layer}/encoded"] = s.FeatureSpec("string", role="mask", mask=mask)
            specs[f"{_PANOPTIC}/{layer}/format"] = s.FeatureSpec("string")
        return specs | s.further_specs(summary)


SEGMENTATION = Segmentation()
PANOPTIC = Panoptic()
