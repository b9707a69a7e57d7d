"""Schema `imagenet`: the keys of the ImageNet records that TF-slim and the TPU models read."""

from __future__ import annotations

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_BOX = "image/object/bbox"


class Imagenet:
    """An image, its class and boxes; ids start at 1, and the synset is the label's name.

    image/class/text is the display name of the class, if the source has one. image/format is `JPEG` if
    the image is a JPEG, else its format. Pixels (formats `raw` and `tensor`) have image/dtype beside
    them.
    """

    name = "imagenet"
    first_id = 1

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """The boxes, if there are any; see `Schema.needs`."""
        return annotated & {"objects"}

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The features of one record; see `Schema.features`."""
        stored = s.stored_image(record, image, self.name)
        labels = settings.labels
        features = s.image_features(record, stored)
        features |= {
            "image/format": s.text("JPEG" if stored.image_format == "jpeg" else stored.image_format),
            "image/colorspace": s.text(stored.colorspace),
            "image/channels": s.int64(stored.channels),
            "image/class/label": s.label_ids(record, labels),
            "image/class/synset": s.label_texts(record, labels),
            "image/class/text": s.texts(labels.display_of(label) for label in record.annotations.labels),
            **s.box_features(_BOX, s.object_boxes(mapped.objects), stored),
            f"{_BOX}/label": Feature("int64_list", [labels.id_of(one.label) for one in mapped.objects]),
        }
        return features | s.further_features(record, stored, settings)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of a dataset; see `Schema.specs`."""
        shape = s.label_shape(summary)
        return {
            **s.image_specs(),
            "image/colorspace": s.FeatureSpec("string"),
            "image/channels": s.FeatureSpec("int64"),
            "image/class/label": s.FeatureSpec("int64", shape, role="label"),
            "image/class/synset": s.FeatureSpec("string", shape),
            "image/class/text": s.FeatureSpec("string", shape),
            **s.box_specs(_BOX),
            f"{_BOX}/label": s.FeatureSpec("int64", (None,)),
            **s.further_specs(summary),
        }


IMAGENET = Imagenet()
