"""Schema `features`: records of free features, without an image."""

from __future__ import annotations

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage


class FeaturesAlone:
    """The free features; label ids and names too, if the dataset has labels."""

    name = "features"
    first_id = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Nothing; see `Schema.needs`."""
        return frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        if image is not None:
            raise ValueError(f"record {record.key!r} has an image, which schema {self.name!r} would drop")
        features = s.column_features(record, settings.columns)
        if settings.labels.labels or record.annotations.labels:
            features["label"] = s.label_ids(record, settings.labels)
            features["label/text"] = s.label_texts(record, settings.labels)
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        specs = s.column_specs(summary.columns)
        if summary.label_counts[1] or summary.class_names is not None:
            shape = s.label_shape(summary)
            specs["label"] = s.FeatureSpec("int64", shape, role="label")
            specs["label/text"] = s.FeatureSpec("string", shape)
        return specs


FEATURES_ALONE = FeaturesAlone()
