"""Schema `imagenet`: the keys of the ImageNet records that TF-slim and the TPU models read."""

from __future__ import annotations

from collections.abc import Mapping

from transforms.examples import schema as s
from transforms.examples.columns import Column
from transforms.examples.features import Feature, bytes_feature
from transforms.examples.labels import LabelMap
from transforms.records import ImageRecord, StoredImage

_BOX_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "xmax", "ymin", "ymax"))
_BOX_LABEL = "image/object/bbox/label"


class Imagenet:
    """An image and its class; ids start at 1, and the synset is the label's name.

    The lists of boxes are there and empty. image/format is `JPEG` where the bytes are a JPEG, else what
    they are. Pixels (formats `raw` and `tensor`) have image/dtype beside them.
    """

    name = "imagenet"
    default_label_offset = 1

    def features(
        self, record: ImageRecord, image: StoredImage | None, labels: LabelMap, columns: Mapping[str, Column]
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        names = s.label_texts(record, labels)
        features = {
            "image/encoded": Feature("bytes_list", (stored.data,)),
            "image/format": s.text("JPEG" if stored.image_format == "jpeg" else stored.image_format),
            "image/height": s.int64(stored.height),
            "image/width": s.int64(stored.width),
            "image/colorspace": s.text(stored.colorspace),
            "image/channels": s.int64(stored.channels),
            "image/filename": bytes_feature(record.key),
            "image/class/label": s.label_ids(record, labels),
            "image/class/synset": names,
            "image/class/text": names,
            _BOX_LABEL: Feature("int64_list", ()),
            **dict.fromkeys(_BOX_SIDES, Feature("float_list", ())),
        }
        if stored.image_format in s.PIXEL_FORMATS:
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
            "image/colorspace": s.FeatureSpec("string"),
            "image/channels": s.FeatureSpec("int64"),
            "image/filename": s.FeatureSpec("string"),
            "image/class/label": s.FeatureSpec("int64", shape, role="label"),
            "image/class/synset": s.FeatureSpec("string", shape),
            "image/class/text": s.FeatureSpec("string", shape),
            _BOX_LABEL: s.FeatureSpec("int64", (None,)),
            **dict.fromkeys(_BOX_SIDES, s.FeatureSpec("float32", (None,))),
        }
        if summary.formats & s.PIXEL_FORMATS:
            specs["image/dtype"] = s.FeatureSpec("string")
        return specs | s.quality_specs(summary, "image/jpeg_quality") | s.column_specs(summary.columns)


IMAGENET = Imagenet()
