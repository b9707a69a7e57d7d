"""Schema `classification`: the keys of TF-slim and the TensorFlow Model Garden."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from transforms.examples import schema as s
from transforms.examples.columns import Column
from transforms.examples.features import Feature, bytes_feature
from transforms.examples.labels import LabelMap
from transforms.records import ImageRecord, StoredImage


class Classification:
    """An image, its class ids and names, and what its bytes are.

    Pixels (formats `raw` and `tensor`) have image/channels and image/dtype beside them.
    """

    name = "classification"
    default_label_offset = 0

    def features(
        self, record: ImageRecord, image: StoredImage | None, labels: LabelMap, columns: Mapping[str, Column]
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = {
            "image/encoded": Feature("bytes_list", (stored.data,)),
            "image/format": s.text(stored.image_format),
            "image/height": s.int64(stored.height),
            "image/width": s.int64(stored.width),
            "image/class/label": s.label_ids(record, labels),
            "image/class/text": s.label_texts(record, labels),
            "image/filename": bytes_feature(record.key),
            "image/key/sha256": s.text(hashlib.sha256(stored.data).hexdigest()),
        }
        if stored.image_format in s.PIXEL_FORMATS:
            features["image/channels"] = s.int64(stored.channels)
            features["image/dtype"] = s.text(stored.dtype)
        features.update(s.quality_features(stored, "image/jpeg_quality"))
        if columns:
            features.update(s.column_features(record, columns))
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a whole dataset; see `Schema.specs`."""
        shape = s.label_shape(summary)
        specs = {
            "image/encoded": s.FeatureSpec("string", role="image"),
            "image/format": s.FeatureSpec("string"),
            "image/height": s.FeatureSpec("int64"),
            "image/width": s.FeatureSpec("int64"),
            "image/class/label": s.FeatureSpec("int64", shape, role="label"),
            "image/class/text": s.FeatureSpec("string", shape),
            "image/filename": s.FeatureSpec("string"),
            "image/key/sha256": s.FeatureSpec("string"),
        }
        if summary.formats & s.PIXEL_FORMATS:
            specs["image/channels"] = s.FeatureSpec("int64")
            specs["image/dtype"] = s.FeatureSpec("string")
        return specs | s.quality_specs(summary, "image/jpeg_quality") | s.column_specs(summary.columns)


CLASSIFICATION = Classification()
