"""Schema `classification`: the keys of TF-slim and the TensorFlow Model Garden."""

from __future__ import annotations

import hashlib

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage


class Classification:
    """An image, its class ids and names, and the format and hash of its bytes.

    Pixels (formats `raw` and `tensor`) have image/channels and image/dtype too.
    """

    name = "classification"
    first_id = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Nothing; see `Schema.needs`."""
        return frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        features = s.image_features(record, stored)
        features["image/class/label"] = s.label_ids(record, settings.labels)
        features["image/class/text"] = s.label_texts(record, settings.labels)
        features["image/key/sha256"] = s.text(hashlib.sha256(stored.data).hexdigest())
        return features | s.further_features(record, stored, settings)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        shape = s.label_shape(summary)
        return {
            **s.image_specs(),
            "image/class/label": s.FeatureSpec("int64", shape, role="label"),
            "image/class/text": s.FeatureSpec("string", shape),
            "image/key/sha256": s.FeatureSpec("string"),
            **s.further_specs(summary),
        }


CLASSIFICATION = Classification()
