"""Schema `segmentation`: the keys of DeepLab.

Source of the keys: deeplab/datasets/{build_data,data_generator}.py of tensorflow/models.
"""

from __future__ import annotations

import dataclasses

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_CLASS = "image/segmentation/class"
_INSTANCE = "image/segmentation/instance"


@dataclasses.dataclass(frozen=True, slots=True)
class Segmentation:
    """An image and the class of each of its pixels: a PNG of ids, 255 where a trainer shall not look.

    Where the input has masks of instances, their numbers are a second PNG, 0 where there is none. Pixels
    (formats `raw` and `tensor`) have image/dtype beside them.

    Attributes:
        first_id: 1 where the masks are painted from objects, on a background of 0.
    """

    first_id: int = 0

    @property
    def name(self) -> str:
        """What people type for it."""
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
        features.update(s.pixel_features(stored))
        features.update(s.quality_features(stored, "image/jpeg_quality"))
        if settings.columns:
            features.update(s.column_features(record, settings.columns))
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a whole dataset; see `Schema.specs`."""
        specs = {
            **s.image_specs(),
            "image/channels": s.FeatureSpec("int64"),
            f"{_CLASS}/encoded": s.FeatureSpec("string", role="mask"),
            f"{_CLASS}/format": s.FeatureSpec("string"),
        }
        if "instance" in summary.annotated:
            specs[f"{_INSTANCE}/encoded"] = s.FeatureSpec("string", (None,), role="mask")
            specs[f"{_INSTANCE}/format"] = s.FeatureSpec("string")
        return {
            **specs,
            **s.pixel_specs(summary),
            **s.quality_specs(summary, "image/jpeg_quality"),
            **s.column_specs(summary.columns),
        }


SEGMENTATION = Segmentation()
