"""The schema of sequences: exact keys and values, read back by TensorFlow."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from recordmill.transforms.examples.columns import Column
from recordmill.transforms.examples.features import build_sequence_example
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.schema import DatasetSummary, FeatureSettings, all_specs, check_names
from recordmill.transforms.examples.schemas import FEATURES_ALONE
from recordmill.transforms.examples.sequence import SEQUENCE
from recordmill.transforms.records import Annotations, ImageRecord, Mapped, Steps, StoredImage
from tests.lazy import tf

LABELS = LabelMap.build(["cat", "dog"], classes={1: "cat", 18: "dog"})
FRAMES = [
    StoredImage(b"one", "jpeg", 4, 5, 3, "uint8", "RGB", ()),
    StoredImage(b"two", "png", 6, 7, 3, "uint8", "RGB", ()),
]
STEPS = Steps(
    labels=(("dog",), ("cat", "dog")),
    lists={"image/timestamp": (0, 40000), "words": ("a", "b", "c"), "pairs": ((0.5, 1.5), ())},
)
LISTS = {
    "image/timestamp": Column("int64", (None,)),
    "pairs": Column("float32", (None,)),
    "words": Column("bytes", (None,)),
}
OF_STEPS = frozenset({"steps", "frames", "step_labels", "labels"})


def _sequence(frames: list[StoredImage], steps: Steps) -> tuple[bytes, DatasetSummary]:
    record = ImageRecord("clips/1", None, None, Annotations(("dog",), {"age": 5}, steps=steps))
    columns = {"age": Column("int64", ())}
    settings = FeatureSettings(LABELS, columns, steps=LISTS, annotated=OF_STEPS)
    context = SEQUENCE.features(record, None, Mapped(), settings)
    summary = DatasetSummary(
        False,
        (1, 1),
        columns,
        formats=frozenset(frame.image_format for frame in frames),
        steps=LISTS,
        annotated=OF_STEPS,
    )
    return build_sequence_example(context, SEQUENCE.feature_lists(record, frames, settings)), summary


def test_a_sequence() -> None:
    payload, summary = _sequence(FRAMES, STEPS)
    message = tf.train.SequenceExample.FromString(payload)
    context = {
        name: list(getattr(item, item.WhichOneof("kind")).value)
        for name, item in message.context.feature.items()
    }
    assert context == {
        "sequence/key": [b"clips/1"],
        "age": [5],
        "image/class/label": [18],
        "image/class/text": [b"dog"],
    }
    lists = {
        name: [list(getattr(step, step.WhichOneof("kind")).value) for step in item.feature]
        for name, item in message.feature_lists.feature_list.items()
    }
    assert lists == {
        "image/encoded": [[b"one"], [b"two"]],
        "image/format": [[b"jpeg"], [b"png"]],
        "image/height": [[4], [6]],
        "image/width": [[5], [7]],
        "image/class/label": [[18], [1, 18]],
        "image/class/text": [[b"dog"], [b"cat", b"dog"]],
        "image/timestamp": [[0], [40000]],
        "words": [[b"a"], [b"b"], [b"c"]],
        "pairs": [[0.5, 1.5], []],
    }
    assert SEQUENCE.specs(summary).keys() == context.keys()
    assert SEQUENCE.list_specs(summary).keys() == lists.keys()
    assert all_specs(SEQUENCE, summary).keys() == context.keys() | lists.keys()
    assert message.SerializeToString(deterministic=True) == payload
    assert hashlib.sha256(payload).hexdigest()[:16] == "1ec8c53569240c1d"


def test_the_specs_of_a_sequence_parse_it() -> None:
    payload, summary = _sequence(FRAMES, STEPS)
    lists = {
        name: tf.io.VarLenFeature(spec.dtype)
        if spec.shape == (None,)
        else tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype)
        for name, spec in SEQUENCE.list_specs(summary).items()
    }
    context, parsed = tf.io.parse_single_sequence_example(
        payload,
        {
            name: tf.io.FixedLenFeature(spec.shape, spec.dtype)
            for name, spec in SEQUENCE.specs(summary).items()
        },
        lists,
    )
    assert (context["sequence/key"], int(context["age"])) == (b"clips/1", 5)
    assert parsed["image/height"].numpy().tolist() == [4, 6]
    assert parsed["image/encoded"].numpy().tolist() == [b"one", b"two"]
    assert tf.sparse.to_dense(parsed["image/class/label"]).numpy().tolist() == [[18, 0], [1, 18]]


def test_an_empty_sequence_has_every_key() -> None:
    payload, summary = _sequence([], Steps())
    lists = tf.train.SequenceExample.FromString(payload).feature_lists.feature_list
    assert lists.keys() == SEQUENCE.list_specs(summary).keys()
    assert all(not item.feature for item in lists.values())


def test_frames_of_pixels_have_their_shape() -> None:
    frames = [msgspec.structs.replace(frame, image_format="raw") for frame in FRAMES]
    payload, summary = _sequence(frames, STEPS)
    lists = tf.train.SequenceExample.FromString(payload).feature_lists.feature_list
    assert lists.keys() == SEQUENCE.list_specs(summary).keys()
    assert [list(step.int64_list.value) for step in lists["image/channels"].feature] == [[3], [3]]


def test_lists_and_columns_under_names_of_the_schema_are_refused() -> None:
    number = Column("int64", ())
    summary = DatasetSummary(False, (0, 0), steps={"image/width": number}, annotated=OF_STEPS)
    with pytest.raises(ValueError, match="^lists 'image/width': the schema 'sequence' writes"):
        check_names(SEQUENCE, summary)
    with pytest.raises(ValueError, match="columns 'sequence/key': the schema 'sequence'"):
        check_names(SEQUENCE, DatasetSummary(False, (0, 0), {"sequence/key": number}))
    check_names(FEATURES_ALONE, DatasetSummary(False, (0, 0), {"sequence/key": number}))
