"""Schema `panoptic`: the class of each pixel, and the object it belongs to, as the Model Garden's keys."""

from __future__ import annotations

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_LAYERS = ("category", "instance")


class Panoptic:
    """An image, the class id of each pixel (255 for none) and the number of its object, as two PNGs.

    Pixels (formats `raw` and `tensor`) have image/channels and image/dtype beside them.
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
            features[f"image/panoptic/{layer}/encoded"] = s.encoded_mask(mapped, f"panoptic_{layer}_png")
            features[f"image/panoptic/{layer}/format"] = s.text("png")
        features.update(s.pixel_features(stored))
        features.update(s.quality_features(stored, "image/jpeg_quality"))
        if settings.columns:
            features.update(s.column_features(record, settings.columns))
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a whole dataset; see `Schema.specs`."""
        specs = s.image_specs()
        for layer in _LAYERS:
            specs[f"image/panoptic/{layer}/encoded"] = s.FeatureSpec("string", role="mask")
            specs[f"image/panoptic/{layer}/format"] = s.FeatureSpec("string")
        return {
            **specs,
            **s.pixel_specs(summary),
            **s.quality_specs(summary, "image/jpeg_quality"),
            **s.column_specs(summary.columns),
        }


PANOPTIC = Panoptic()
