"""Speed of reading a dataset with `load_dataset`, TFDS and a hand-written pipeline.

python -m benchmarks.read
python -m benchmarks.read --images 400 --digits 2000 --repeats 3

Draws its inputs once, into --work, and converts them. Every reader decodes every image in batches of 32, and
scales JPEGs to 224x224. All readers must yield the same pixels and labels. They alternate in one process.
Times are medians of epochs, without the first.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recordmill
from benchmarks.contenders import convert
from benchmarks.inputs import benchmark_parser, draw_digits, draw_jpegs, once
from benchmarks.measure import wall_seconds
from benchmarks.report import Goal, goals_table, machine, markdown_table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if TYPE_CHECKING:
    import tensorflow as tf

Epochs = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of each epoch, by the names of the work and of the reader."""

BATCH = 32


@dataclasses.dataclass(frozen=True)
class Work:
    """A dataset, and the size to which its images are scaled."""

    name: str
    folder: Path
    channels: int
    size: tuple[int, int] | None  # height and width after scaling; None to leave them unchanged


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
    """Number of images, sum of all pixels, and sum of the labels weighted by the pixels of their images."""
    import tensorflow as tf

    images = pixels = labelled = 0
    for batch, labels in dataset:
        sums = tf.reduce_sum(tf.cast(batch, tf.int64), [1, 2, 3])
        images += int(batch.shape[0])
        pixels += int(tf.reduce_sum(sums))
        labelled += int(tf.reduce_sum(sums * labels))
    return images, pixels, labelled


_LEAST = {TFDS.name: 1.0, BY_HAND.name: 0.9}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs all epochs and prints the tables."""
    parser = benchmark_parser("read", __doc__, images=3000, repeats=5)
    parser.add_argument("--digits", type=int, default=10_000, help="PNGs of 28x28 (default: 10000)")
    args = parser.parse_args(argv)
    if min(args.images, args.digits, args.repeats) < 1:
        parser.error("--images, --digits and --repeats must be at least 1")
    facts = machine()
    works = make_works(args.work.absolute(), args.images, args.digits)
    for work in works:
        check_same(work)
    epochs = time_epochs(works, args.repeats)
    images = {works[0].name: args.images, works[1].name: args.digits}
    command = (
        f"`python -m benchmarks.read --images {args.images} --digits {args.digits} --repeats {args.repeats}`"
    )
    tables = (speed_table(images, epochs), goals_table(read_goals(epochs)))
    print("\n\n".join((command, f"{facts}.", *tables)))


def make_works(work: Path, images: int, digits: int) -> list[Work]:
    """Draws and converts the inputs that `work` lacks."""
    jpegs = once(work / f"jpeg-{images:08d}", draw_jpegs, images)
    numbers = once(work / f"digits-{digits:08d}", draw_digits, digits)
    return [
        Work("JPEGs to 224x224", _converted(jpegs), 3, (224, 224)),
        Work("digits", _converted(numbers, "--splits", "train=1"), 1, None),
    ]


def _converted(source: Path, *flags: str) -> Path:
    output = source.with_name(f"records-{source.name}")
    if not (output / "manifest.json").exists():
        wall_seconds(convert("--num_shards", "8", "--quiet", *flags)(source, output))
    return output


def check_same(work: Work) -> None:
    """Raises RuntimeError unless all readers yield the same images with the same labels."""
    found = {reader.name: digest(reader.dataset(work)) for reader in READERS}
    if len(set(found.values())) > 1:
        raise RuntimeError(f"{work.name}: the readers yield different images or labels: {found}")


def time_epochs(works: Sequence[Work], repeats: int) -> dict[tuple[str, str], list[float]]:
    """Times each reader `repeats` times, alternately."""
    epochs: dict[tuple[str, str], list[float]] = {}
    for work in works:
        datasets = {reader.name: reader.dataset(work) for reader in READERS}
        for number in range(repeats + 1):
            for name, dataset in datasets.items():
                start = time.perf_counter()
                for _ in dataset:
                    pass
                seconds = time.perf_counter() - start
                print(f"{work.name}, epoch {number}, {name}: {seconds:.2f} s", file=sys.stderr)
                if number:
                    epochs.setdefault((work.name, name), []).append(seconds)
    return epochs


def speed_table(images: Mapping[str, int], epochs: Epochs) -> str:
    """A row for each reader and input, with its speed relative to TFDS and to the hand-written pipeline."""
    rows = []
    for (work, name), seconds in epochs.items():
        median = statistics.median(seconds)
        rows.append(
            (
                f"{work}: {name}",
                f"{images[work] / median:,.0f}",
                *(f"{_ratio(epochs, work, name, other.name):.2f}" for other in (TFDS, BY_HAND)),
                ", ".join(f"{one:.2f}" for one in seconds),
            )
        )
    return markdown_table(("reader", "images/s", "of TFDS", "of by hand", "s, each epoch"), rows)


def read_goals(epochs: Epochs) -> list[Goal]:
    """`load_dataset` is as fast as TFDS, and 0.9 times as fast as the hand-written pipeline."""
    goals = []
    for work in dict.fromkeys(work for work, _ in epochs):
        for other, least in _LEAST.items():
            ratio = _ratio(epochs, work, RECORDMILL.name, other)
            name = f"{work}: speed of {RECORDMILL.name}, over {other}"
            goals.append(Goal(name, f"≥ {least:g}", f"{ratio:.2f}", ratio >= least))
    return goals


def _ratio(epochs: Epochs, work: str, ours: str, other: str) -> float:
    return statistics.median(epochs[work, other]) / statistics.median(epochs[work, ours])


if __name__ == "__main__":
    main()
