"""Schema `plain`: the keys of the classic TFRecord tutorials."""

from __future__ import annotations

import dataclasses

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """The stored bytes as image_raw, the shape and dtype of their pixels, the label's id and the mask.

    With the image format `raw` image_raw is height x width x depth pixels, row by row; with any other
    it is the encoded image. mask_raw, if the input has masks, is height x width class ids, a byte each.

    Attributes:
        first_id: 1 if the masks are drawn from objects, on a background of 0.
    """

    first_id: int = 0

    @property
    def name(self) -> str:
        """As in `--schema`."""
        return "plain"

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """The mask of classes, if there are any; see `Schema.needs`."""
        return frozenset({"class_raw"}) if annotated & s.CLASS_MASKS else frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = {
            "image_raw": Feature("bytes_list", (stored.data,)),
            "height": s.int64(stored.height),
            "width": s.int64(stored.width),
            "depth": s.int64(stored.channels),
            "dtype": s.text(stored.dtype),
            "label": s.label_ids(record, settings.labels),
        }
        if settings.annotated & s.CLASS_MASKS:
            features["mask_raw"] = s.encoded_mask(mapped, "class_raw")
        features.update(s.quality_features(stored, "jpeg_quality"))
        if settings.columns:
            features.update(s.column_features(record, settings.columns))
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        specs = {
            "image_raw": s.FeatureSpec("string", role="image"),
            "height": s.FeatureSpec("int64"),
            "width": s.FeatureSpec("int64"),
            "depth": s.FeatureSpec("int64"),
            "dtype": s.FeatureSpec("string"),
            "label": s.FeatureSpec("int64", s.label_shape(summary), role="label"),
        }
        if summary.annotated & s.CLASS_MASKS:
            specs["mask_raw"] = s.FeatureSpec("string", role="mask")
        return specs | s.quality_specs(summary, "jpeg_quality") | s.column_specs(summary.columns)


PLAIN = Plain()
