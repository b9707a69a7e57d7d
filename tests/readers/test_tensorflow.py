"""Published shards read by TensorFlow alone, with specs that people write by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazy import tf
from tests.readers.drawn import SENTENCES, SIZE, boxes_of, keys_of, pixels_of


def parsed(serialized: Any) -> Any:
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(serialized, spec)
    image = tf.io.decode_image(example["image/encoded"], channels=3, expand_animations=False)
    image = tf.ensure_shape(image, (*SIZE, 3))
    shape = tf.stack([example["image/height"], example["image/width"]])
    return example["image/filename"], image, example["image/class/label"], shape


def checked(dataset: Any, split: str) -> None:
    """Every image of a split once, with its pixels, its label and its size."""
    found = {}
    for keys, images, labels, shapes in dataset.as_numpy_iterator():
        for key, image, label in zip(keys, images, labels, strict=True):
            np.testing.assert_array_equal(image, pixels_of(key.decode()))
            assert key not in found
            found[key] = label
        assert (shapes == SIZE).all()
    assert {key.decode(): label for key, label in found.items()} == keys_of(split)


@pytest.mark.parametrize("split", ["train", "val"])
def test_shards_interleaved_shuffled_and_batched(classes: Path, split: str) -> None:
    files = tf.data.Dataset.list_files(str(classes / f"{split}-*.tfrecord"), seed=0)
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=3, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    dataset = records.shuffle(30, seed=0).map(parsed, num_parallel_calls=tf.data.AUTOTUNE).batch(4)
    checked(dataset.prefetch(1), split)


def test_workers_take_shards(classes: Path) -> None:
    paths = sorted(str(path) for path in classes.glob("train-*.tfrecord"))
    parts = [list(tf.data.Dataset.from_tensor_slices(paths).shard(3, at)) for at in range(3)]
    found = [list(tf.data.TFRecordDataset(part).as_numpy_iterator()) for part in parts]
    assert all(found) and sum(map(len, found)) == 18
    assert len({record for part in found for record in part}) == 18


def test_boxes_as_ragged_rows(boxes: Path) -> None:
    sides = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]
    spec = {side: tf.io.RaggedFeature(tf.float32) for side in sides}
    spec["image/object/class/label"] = tf.io.RaggedFeature(tf.int64)
    spec["image/filename"] = tf.io.FixedLenFeature([], tf.string)
    paths = sorted(str(path) for path in boxes.glob("train-*.tfrecord"))
    batch = next(iter(tf.data.TFRecordDataset(paths).batch(8)))
    found = tf.io.parse_example(batch, spec)
    rows = tf.stack([found[side] for side in sides], axis=-1).to_list()
    labels = found["image/object/class/label"].to_list()
    for key, boxes_found, label in zip(found["image/filename"].numpy(), rows, labels, strict=True):
        expected = boxes_of(int(Path(key.decode()).stem))
        assert boxes_found == [list(box[1:]) for box in expected]
        assert label == [box[0] for box in expected]


def test_sequences(words: Path) -> None:
    (path,) = map(str, words.glob("train-*.tfrecord"))
    found = {}
    for serialized in tf.data.TFRecordDataset(path):
        context, steps = tf.io.parse_single_sequence_example(
            serialized,
            {"number": tf.io.FixedLenFeature([], tf.int64)},
            {
                "word": tf.io.FixedLenSequenceFeature([], tf.string),
                "letters": tf.io.FixedLenSequenceFeature([], tf.int64),
            },
        )
        told = tuple(word.decode() for word in steps["word"].numpy())
        assert steps["letters"].numpy().tolist() == list(map(len, told))
        found[int(context["number"])] = told
    assert found == dict(enumerate(SENTENCES))
