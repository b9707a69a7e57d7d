"""Schema `features`: records without an image, the free features alone."""

from __future__ import annotations

from collections.abc import Mapping

from transforms.examples import schema as s
from transforms.examples.columns import Column
from transforms.examples.features import Feature
from transforms.examples.labels import LabelMap
from transforms.records import ImageRecord, StoredImage


class FeaturesAlone:
    """The free features; label ids and names too, if the dataset has labels."""

    name = "features"
    default_label_offset = 0

    def features(
        self, record: ImageRecord, image: StoredImage | None, labels: LabelMap, columns: Mapping[str, Column]
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        if image is not None:
            raise ValueError(f"record {record.key!r} has an image, which schema {self.name!r} would drop")
        features = s.column_features(record, columns)
        if labels.labels or record.annotations.labels:
            features["label"] = s.label_ids(record, labels)
            features["label/text"] = s.label_texts(record, labels)
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a whole dataset; see `Schema.specs`."""
        specs = s.column_specs(summary.columns)
        if summary.label_counts[1] or summary.class_names is not None:
            shape = s.label_shape(summary)
            specs["label"] = s.FeatureSpec("int64", shape, role="label")
            specs["label/text"] = s.FeatureSpec("string", shape)
        return specs


FEATURES_ALONE = FeaturesAlone()
