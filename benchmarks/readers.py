"""Speed of reading a dataset with `load_dataset`, TFDS and a hand-written pipeline.

python -m benchmarks.readers JPEGS SMALL EPOCHS

JPEGS and SMALL are datasets that recordmill wrote; prints seconds of each epoch as JSON. Readers decode every
image, in batches of 32, and scale JPEGs to 224x224. All must yield the same pixels and labels. They take
turns in one process, and the first epoch does not count.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import recordmill

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 32


@dataclasses.dataclass(frozen=True)
class Reading:
    """A dataset, and the height and width to which its images are scaled; None to leave them unchanged."""

    name: str
    folder: Path
    size: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class Reader:
    """One way to read: pixels and labels."""

    title: str
    dataset: Callable[[Reading], Any]


def _recordmill(reading: Reading) -> Any:
    return recordmill.load_dataset(
        str(reading.folder), "train", size=reading.size, batch_size=BATCH, as_supervised=True
    )


def _tfds(reading: Reading) -> Any:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(reading.folder))
    # TFDS would keep a dataset of less than 250 MB in memory after the first epoch
    config = tfds.ReadConfig(try_autocache=False)
    dataset = builder.as_dataset(split="train", as_supervised=True, read_config=config)
    if reading.size is not None:
        dataset = dataset.map(lambda image, label: (_scaled(image, reading), label), tf.data.AUTOTUNE)
    return dataset.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _by_hand(reading: Reading) -> Any:
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.io.parse_single_example(serialized, features)
        decode = tf.io.decode_jpeg if reading.size else tf.io.decode_png
        image = decode(found["image/encoded"], channels=3)
        return (image if reading.size is None else _scaled(image, reading)), found["image/class/label"]

    files = sorted(map(str, reading.folder.glob("train-*.tfrecord")))
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=16, block_length=16, num_parallel_calls=tf.data.AUTOTUNE
    )
    return records.map(parse, tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _scaled(image: tf.Tensor, reading: Reading) -> tf.Tensor:
    import tensorflow as tf

    return tf.saturate_cast(tf.round(tf.image.resize(image, reading.size)), tf.uint8)


READERS = (
    Reader("`load_dataset`", _recordmill),
    Reader("TFDS, `builder_from_directory`", _tfds),
    Reader("tf.data, written by hand", _by_hand),
)


def digest(dataset: Any) -> tuple[int, int, int]:
    """Number of images, sum of all pixels, and sum of the labels weighted by the pixels of their images."""
    images = pixels = labelled = 0
    for batch, labels in dataset:
        sums = np.asarray(batch, np.int64).sum((1, 2, 3))
        images += len(batch)
        pixels += int(sums.sum())
        labelled += int((sums * np.asarray(labels)).sum())
    return images, pixels, labelled


def check_same(reading: Reading) -> int:
    """The number of images; raises RuntimeError unless all readers yield the same."""
    found = {reader.title: digest(reader.dataset(reading)) for reader in READERS}
    if len(set(found.values())) > 1:
        raise RuntimeError(f"{reading.name}: the readers yield different images or labels: {found}")
    return next(iter(found.values()))[0]


def time_epochs(reading: Reading, epochs: int) -> dict[str, list[float]]:
    """Seconds of each epoch by the title of the reader; the readers take turns."""
    seconds: dict[str, list[float]] = {reader.title: [] for reader in READERS}
    datasets = {reader.title: reader.dataset(reading) for reader in READERS}
    for number in range(epochs + 1):
        for title, dataset in datasets.items():
            start = time.perf_counter()
            for _ in dataset:
                pass
            if number:
                seconds[title].append(time.perf_counter() - start)
    return seconds


def main(jpegs: str, small: str, epochs: str) -> None:
    """Measures both datasets."""
    readings = (
        Reading("photographs, short side 256, to 224 × 224", Path(jpegs), (224, 224)),
        Reading("PNGs of 32 × 32", Path(small), None),
    )
    found = {
        reading.name: {"items": check_same(reading), "readers": time_epochs(reading, int(epochs))}
        for reading in readings
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
