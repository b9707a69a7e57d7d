"""Readers of a dataset: `load_dataset`, TFDS and a hand-written tf.data pipeline, which yield the same."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recordmill

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 32


@dataclasses.dataclass(frozen=True)
class Work:
    """A dataset, and the size to which its images are scaled.

    Attributes:
        name: in the table.
        folder: of the dataset.
        channels: of its images.
        size: height and width after scaling; None to leave them unchanged.
    """

    name: str
    folder: Path
    channels: int
    size: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class Reader:
    """One way to read: batches of pixels and labels."""

    name: str
    dataset: Callable[[Work], Any]


def _recordmill(work: Work) -> Any:
    return recordmill.load_dataset(
        str(work.folder), "train", size=work.size, batch_size=BATCH, as_supervised=True
    )


def _tfds(work: Work) -> Any:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(work.folder))
    # TFDS would keep a dataset of less than 250 MB in memory after the first epoch
    config = tfds.ReadConfig(try_autocache=False)
    dataset = builder.as_dataset(split="train", as_supervised=True, read_config=config)
    if work.size is not None:
        dataset = dataset.map(lambda image, label: (_scaled(image, work), label), tf.data.AUTOTUNE)
    return dataset.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _by_hand(work: Work) -> Any:
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.io.parse_single_example(serialized, features)
        decode = tf.io.decode_jpeg if work.size else tf.io.decode_png
        image = decode(found["image/encoded"], channels=work.channels)
        return (image if work.size is None else _scaled(image, work)), found["image/class/label"]

    files = sorted(map(str, work.folder.glob("train-*.tfrecord")))
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=16, block_length=16, num_parallel_calls=tf.data.AUTOTUNE
    )
    return records.map(parse, tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _scaled(image: tf.Tensor, work: Work) -> tf.Tensor:
    import tensorflow as tf

    return tf.saturate_cast(tf.round(tf.image.resize(image, work.size)), tf.uint8)


RECORDMILL = Reader("recordmill, `load_dataset`", _recordmill)
TFDS = Reader("TFDS, `builder_from_directory`", _tfds)
BY_HAND = Reader("tf.data, written by hand", _by_hand)
READERS = (RECORDMILL, TFDS, BY_HAND)


def digest(dataset: Any) -> tuple[int, int, int]:
    """Number of images, sum of all pixels, and sum of the labels, each times its image's pixels."""
    import tensorflow as tf

    images = pixels = labelled = 0
    for batch, labels in dataset:
        sums = tf.reduce_sum(tf.cast(batch, tf.int64), [1, 2, 3])
        images += int(batch.shape[0])
        pixels += int(tf.reduce_sum(sums))
        labelled += int(tf.reduce_sum(sums * labels))
    return images, pixels, labelled


def epoch_seconds(dataset: Any) -> float:
    """Seconds for one pass over a dataset."""
    start = time.perf_counter()
    for _ in dataset:
        pass
    return time.perf_counter() - start
