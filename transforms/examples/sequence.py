"""Schema `sequence`: a SequenceExample of frames, labels and values a step, as MediaPipe lays them out."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature, bytes_feature
from recordmill.transforms.records import ImageRecord, Mapped, Steps, StoredImage

_FRAME = ("image/encoded", "image/format", "image/height", "image/width")


class Sequences:
    """The features of a sequence as context; frames, labels and values as lists, one feature for each step.

    Frames may differ in size and format: each step has its own. Pixels (formats `raw` and `tensor`) have
    image/channels and image/dtype too.
    """

    name = "sequence"
    first_id = 0

    def needs(self, annotated: frozenset[str]) -> frozenset[str]:
        """Nothing; see `Schema.needs`."""
        return frozenset()

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        """The context of one record; see `Schema.features`."""
        features = {"sequence/key": bytes_feature(record.key)}
        if "labels" in settings.annotated:
            features["image/class/label"] = s.label_ids(record, settings.labels)
            features["image/class/text"] = s.label_texts(record, settings.labels)
        return features | s.column_features(record, settings.columns)

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of the context of a dataset; see `Schema.specs`."""
        specs = {"sequence/key": s.FeatureSpec("string")}
        if "labels" in summary.annotated:
            shape = s.label_shape(summary)
            specs["image/class/label"] = s.FeatureSpec("int64", shape, role="label")
            specs["image/class/text"] = s.FeatureSpec("string", shape)
        return specs | s.column_specs(summary.columns)

    def feature_lists(
        self, record: ImageRecord, frames: Sequence[StoredImage], settings: s.FeatureSettings
    ) -> dict[str, list[Feature]]:
        """The feature lists of one record; see `SequenceSchema.feature_lists`."""
        steps = record.annotations.steps or Steps()
        labels = settings.labels
        lists: dict[str, list[Feature]] = {}
        if "frames" in settings.annotated:
            lists |= {name: [] for name in _FRAME}
            for frame in frames:
                for name, feature in _frame_features(frame).items():
                    lists.setdefault(name, []).append(feature)
        if "step_labels" in settings.annotated:
            lists["image/class/label"] = [
                Feature("int64_list", [labels.id_of(label) for label in step]) for step in steps.labels
            ]
            lists["image/class/text"] = [
                s.texts(labels.text_of(label) for label in step) for step in steps.labels
            ]
        for name, column in settings.steps.items():
            lists[name] = [s.column_feature(column, value) for value in steps.lists.get(name, ())]
        return lists

    def list_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        """The specs of one step of each list; see `SequenceSchema.list_specs`.

        Raises:
            ValueError: a list of the input has the name of one of the schema.
        """
        specs: dict[str, s.FeatureSpec] = {}
        if "frames" in summary.annotated:
            specs |= {name: spec for name, spec in s.image_specs().items() if name in _FRAME}
            specs |= s.pixel_specs(summary) | s.quality_specs(summary, "image/jpeg_quality")
        if "step_labels" in summary.annotated:
            specs["image/class/label"] = s.FeatureSpec("int64", (None,), role="label")
            specs["image/class/text"] = s.FeatureSpec("string", (None,))
        s.check_own(self, specs, {name: name for name in summary.steps})
        return specs | s.column_specs(summary.steps)


def _frame_features(frame: StoredImage) -> dict[str, Feature]:
    return {
        "image/encoded": Feature("bytes_list", (frame.data,)),
        "image/format": s.text(frame.image_format),
        "image/height": s.int64(frame.height),
        "image/width": s.int64(frame.width),
        **s.pixel_features(frame),
        **s.quality_features(frame, "image/jpeg_quality"),
    }


SEQUENCE = Sequences()
