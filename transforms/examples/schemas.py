"""The schemas of one image, without objects or with their boxes alone; and that of features alone.

Source of the keys of `segmentation`: deeplab/datasets/{build_data,data_generator}.py of tensorflow/models.
"""

from __future__ import annotations

import dataclasses
import hashlib

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature
from recordmill.transforms.records import ImageRecord, Mapped, StoredImage

_BOX = "image/object/bbox"
_CLASS = "image/segmentation/class"
_INSTANCE = "image/segmentation/instance"
_PANOPTIC = "image/panoptic"
_LAYERS = ("category", "instance")
_SYNSET = ("image/class/label", "image/class/synset")
_PLAIN_LABEL = ("label", "label/text")


class Classification(s.ImageSchema):
    """`classification`: an image, its class and its hash, under the keys of TF-Slim and the Model Garden."""

    name = "classification"
    first_id = 0

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        features = s.label_features(record.annotations.labels, settings.labels)
        return {**features, "image/key/sha256": s.text(hashlib.sha256(image.data).hexdigest())}

    def own_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        return {**s.label_specs(summary), "image/key/sha256": s.FeatureSpec("string")}


class Imagenet(s.ImageSchema):
    """`imagenet`: the keys of the ImageNet records that TF-Slim and the TPU models read, with boxes.

    Ids start at 1, and the synset is the label's name. image/class/text is the display name of the class, if
    the source has one. image/format is `JPEG` if the image is a JPEG, else its format.
    """

    name = "imagenet"
    first_id = 1

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return annotated & {"objects"}

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        labels = settings.labels
        return {
            "image/format": s.text("JPEG" if image.image_format == "jpeg" else image.image_format),
            "image/colorspace": s.text(image.colorspace),
            "image/channels": s.int64(image.channels),
            **s.label_features(record.annotations.labels, labels, _SYNSET),
            "image/class/text": s.texts(labels.display_of(label) for label in record.annotations.labels),
            **s.box_features(_BOX, s.object_boxes(mapped.objects), image),
            f"{_BOX}/label": Feature("int64_list", [labels.id_of(one.label) for one in mapped.objects]),
        }

    def own_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        labels = s.label_specs(summary, _SYNSET)
        return {
            "image/colorspace": s.FeatureSpec("string"),
            "image/channels": s.FeatureSpec("int64"),
            **labels,
            "image/class/text": labels["image/class/synset"],
            **s.box_specs(_BOX),
            f"{_BOX}/label": s.FeatureSpec("int64", (None,)),
        }


@dataclasses.dataclass(frozen=True)
class Segmentation(s.ImageSchema):
    """`segmentation`: an image and the class of each of its pixels: a PNG of ids, 255 means ignore.

    If the input has masks of instances, their numbers are a second PNG, 0 for none.

    Attributes:
        first_id: 1 if the masks are drawn from objects, on a background of 0.
    """

    name = "segmentation"
    first_id: int = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return frozenset({"class_png", "instance_png"} if "instance" in annotated else {"class_png"})

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        features = {
            "image/channels": s.int64(image.channels),
            f"{_CLASS}/encoded": s.encoded_mask(mapped, "class_png"),
            f"{_CLASS}/format": s.text("png"),
        }
        if "instance" in settings.annotated:
            features[f"{_INSTANCE}/encoded"] = s.encoded_mask(mapped, "instance_png")
            features[f"{_INSTANCE}/format"] = s.text("png")
        return features

    def own_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = {
            "image/channels": s.FeatureSpec("int64"),
            f"{_CLASS}/encoded": s.FeatureSpec("string", role="mask", mask="class_png"),
            f"{_CLASS}/format": s.FeatureSpec("string"),
        }
        if "instance" in summary.annotated:
            specs[f"{_INSTANCE}/encoded"] = s.FeatureSpec("string", (None,), "mask", "instance_png")
            specs[f"{_INSTANCE}/format"] = s.FeatureSpec("string")
        return specs


class Panoptic(s.ImageSchema):
    """`panoptic`: an image, the class id of each pixel (255 for no segment) and the number of its object.

    Both are PNGs, under the keys of the TensorFlow Model Garden.
    """

    name = "panoptic"
    first_id = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return frozenset(f"panoptic_{layer}_png" for layer in _LAYERS)

    def own_features(
        self, record: ImageRecord, image: StoredImage, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        features = {}
        for layer in _LAYERS:
            features[f"{_PANOPTIC}/{layer}/encoded"] = s.encoded_mask(mapped, f"panoptic_{layer}_png")
            features[f"{_PANOPTIC}/{layer}/format"] = s.text("png")
        return features

    def own_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = {}
        for layer in _LAYERS:
            mask = f"panoptic_{layer}_png"
            specs[f"{_PANOPTIC}/{layer}/encoded"] = s.FeatureSpec("string", role="mask", mask=mask)
            specs[f"{_PANOPTIC}/{layer}/format"] = s.FeatureSpec("string")
        return specs


@dataclasses.dataclass(frozen=True)
class Plain(s.Schema):
    """`plain`: the keys of the classic TFRecord tutorials.

    With the image format `raw` image_raw is height x width x depth pixels, row by row; with any other
    it is the encoded image. mask_raw, if the input has masks, is height x width class ids, a byte each.

    Attributes:
        first_id: 1 if the masks are drawn from objects, on a background of 0.
    """

    name = "plain"
    first_id: int = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        return frozenset({"class_raw"}) if annotated & s.CLASS_MASKS else frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        stored = s.stored_image(record, image, self.name)
        features = {
            "image_raw": Feature("bytes_list", (stored.data,)),
            "height": s.int64(stored.height),
            "width": s.int64(stored.width),
            "depth": s.int64(stored.channels),
            "dtype": s.text(stored.dtype),
            "label": s.label_features(record.annotations.labels, settings.labels, _PLAIN_LABEL)["label"],
            **s.quality_features(stored, "jpeg_quality"),
            **s.column_features(record, settings.columns),
        }
        if settings.annotated & s.CLASS_MASKS:
            features["mask_raw"] = s.encoded_mask(mapped, "class_raw")
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = {
            "image_raw": s.FeatureSpec("string", role="image"),
            "height": s.FeatureSpec("int64"),
            "width": s.FeatureSpec("int64"),
            "depth": s.FeatureSpec("int64"),
            "dtype": s.FeatureSpec("string"),
            "label": s.label_specs(summary, _PLAIN_LABEL)["label"],
            **s.quality_specs(summary, "jpeg_quality"),
            **s.column_specs(summary.columns),
        }
        if summary.annotated & s.CLASS_MASKS:
            specs["mask_raw"] = s.FeatureSpec("string", role="mask")
        return specs


class FeaturesAlone(s.Schema):
    """The free features; label ids and names too, if the dataset has labels."""

    name = "features"
    first_id = 0

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        if image is not None:
            raise ValueError(f"record {record.key!r} has an image, which schema {self.name!r} would drop")
        features = s.column_features(record, settings.columns)
        labels = record.annotations.labels
        if settings.labels.labels or labels:
            features |= s.label_features(labels, settings.labels, _PLAIN_LABEL)
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = s.column_specs(summary.columns)
        has_labels = summary.label_counts[1] or summary.class_names is not None
        return specs | s.label_specs(summary, _PLAIN_LABEL) if has_labels else specs


CLASSIFICATION = Classification()
IMAGENET = Imagenet()
SEGMENTATION = Segmentation()
PANOPTIC = Panoptic()
PLAIN = Plain()
FEATURES_ALONE = FeaturesAlone()
