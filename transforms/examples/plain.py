"""Schema `plain`: the keys of the classic TFRecord tutorials."""

from __future__ import annotations

from collections.abc import Mapping

from transforms.examples import schema as s
from transforms.examples.columns import Column
from transforms.examples.features import Feature
from transforms.examples.labels import LabelMap
from transforms.records import ImageRecord, StoredImage


class Plain:
    """The stored bytes as image_raw, the shape and dtype of their pixels, and the label's id.

    With the image format `raw` image_raw is height x width x depth pixels, row by row; with any other
    it is the encoded image.
    """

    name = "plain"
    default_label_offset = 0

    def features(
        self, record: ImageRecord, image: StoredImage | None, labels: LabelMap, columns: Mapping[str, Column]
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = {
            "image_raw": Feature("bytes_list", (stored.data,)),
            "height": s.int64(stored.height),
            "width": s.int64(stored.width),
            "depth": s.int64(stored.channels),
            "dtype": s.text(stored.dtype),
            "label": s.label_ids(record, labels),
        }
        features.update(s.quality_features(stored, "jpeg_quality"))
        if columns:
            features.update(s.column_features(record, columns))
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a whole dataset; see `Schema.specs`."""
        specs = {
            "image_raw": s.FeatureSpec("string", role="image"),
            "height": s.FeatureSpec("int64"),
            "width": s.FeatureSpec("int64"),
            "depth": s.FeatureSpec("int64"),
            "dtype": s.FeatureSpec("string"),
            "label": s.FeatureSpec("int64", s.label_shape(summary), role="label"),
        }
        return specs | s.quality_specs(summary, "jpeg_quality") | s.column_specs(summary.columns)


PLAIN = Plain()
