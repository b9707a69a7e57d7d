"""Schema `sequence`: a SequenceExample of frames, labels and values a step, as MediaPipe lays them out."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.transforms.examples import schema as s
from recordmill.transforms.examples.features import Feature, bytes_feature
from recordmill.transforms.records import ImageRecord, Mapped, Steps, StoredImage

_FRAME = ("image/encoded", "image/format", "image/height", "image/width")
_LABEL = ("image/class/label", "image/class/text")


class Sequences(s.SequenceSchema):
    """The features of a sequence as context; frames, labels and values as lists, one feature for each step.

    Frames may differ in size and format: each step has its own.
    """

    name = "sequence"
    first_id = 0

    def features(
        self, record: ImageRecord, image: StoredImage | None, mapped: Mapped, settings: s.FeatureSettings
    ) -> dict[str, Feature]:
        features = {"sequence/key": bytes_feature(record.key), **s.column_features(record, settings.columns)}
        if "labels" in settings.annotated:
            features |= s.label_features(record.annotations.labels, settings.labels)
        return features

    def specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = {"sequence/key": s.FeatureSpec("string"), **s.column_specs(summary.columns)}
        return specs | s.label_specs(summary) if "labels" in summary.annotated else specs

    def feature_lists(
        self, record: ImageRecord, frames: Sequence[StoredImage], settings: s.FeatureSettings
    ) -> dict[str, list[Feature]]:
        steps = record.annotations.steps or Steps()
        lists: dict[str, list[Feature]] = {}
        if "frames" in settings.annotated:
            lists |= {name: [] for name in _FRAME}
            for frame in frames:
                for name, feature in s.image_features(frame).items():
                    lists.setdefault(name, []).append(feature)
        if "step_labels" in settings.annotated:
            lists |= {name: [] for name in _LABEL}
            for step in steps.labels:
                for name, feature in s.label_features(step, settings.labels).items():
                    lists[name].append(feature)
        for name, column in settings.steps.items():
            lists[name] = [column.feature(value) for value in steps.lists.get(name, ())]
        return lists

    def list_specs(self, summary: s.DatasetSummary) -> dict[str, s.FeatureSpec]:
        specs = s.image_specs(summary) if "frames" in summary.annotated else {}
        if "step_labels" in summary.annotated:
            specs["image/class/label"] = s.FeatureSpec("int64", (None,), role="label")
            specs["image/class/text"] = s.FeatureSpec("string", (None,))
        s.check_taken(self, "lists", specs, {name: name for name in summary.steps})
        return specs | s.column_specs(summary.steps)


SEQUENCE = Sequences()
