"""The private messages against TensorFlow's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import protos
from tests.lazy import tf


def _theirs() -> tf.train.SequenceExample:
    feature = tf.train.Feature
    features = tf.train.Features(
        feature={
            "image/encoded": feature(bytes_list=tf.train.BytesList(value=[b"\x00\xff", b""])),
            "floats": feature(float_list=tf.train.FloatList(value=[1.5, float("inf"), -0.0])),
            "ids": feature(int64_list=tf.train.Int64List(value=[-1, 0, 2**63 - 1, -(2**63)])),
            "empty": feature(int64_list=tf.train.Int64List()),
            "é": feature(float_list=tf.train.FloatList()),
        }
    )
    steps = tf.train.FeatureList(feature=list(features.feature.values()))
    lists = tf.train.FeatureLists(feature_list={"steps": steps, "none": tf.train.FeatureList()})
    return tf.train.SequenceExample(context=features, feature_lists=lists)


def test_bytes_are_those_of_tensorflow() -> None:
    theirs = _theirs()
    data = theirs.SerializeToString(deterministic=True)
    ours = protos.SequenceExample.FromString(data)
    assert ours.SerializeToString(deterministic=True) == data
    assert ours.context.feature["ids"].int64_list.value == [-1, 0, 2**63 - 1, -(2**63)]
    example = tf.train.Example(features=theirs.context)
    data = example.SerializeToString(deterministic=True)
    assert protos.Example.FromString(data).SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("name", ["Example", "SequenceExample"])
def test_fields_are_those_of_tensorflow(name: str) -> None:
    def fields(descriptor: object, seen: dict[str, object]) -> dict[str, object]:
        if descriptor.name not in seen:  # type: ignore[attr-defined]
            seen[descriptor.name] = [  # type: ignore[attr-defined]
                (
                    f.name,
                    f.number,
                    f.type,
                    f.is_repeated,
                    f.is_packed,
                    f.containing_oneof and f.containing_oneof.name,
                )
                for f in descriptor.fields  # type: ignore[attr-defined]
            ]
            for field in descriptor.fields:  # type: ignore[attr-defined]
                if field.message_type:
                    fields(field.message_type, seen)
        return seen

    ours = fields(getattr(protos, name).DESCRIPTOR, {})
    assert ours == fields(getattr(tf.train, name).DESCRIPTOR, {})


def test_importing_the_folder_imports_neither_tensorflow_nor_beam() -> None:
    code = (
        "import sys; from recordmill.transforms.examples import registry, tfds, tfrecord; "
        "print([m for m in ('tensorflow', 'apache_beam', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
