"""A loop with TensorFlow in one process, as tutorials have it: tf.io, tf.train.Example, TFRecordWriter.

python -m benchmarks.peers.tensorflow_loop WORK INPUT OUTPUT
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.items import KEPT, QUALITY, Item, Row, list_items, read_rows, short_side

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

_SHARDS = 16


def _bytes(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _ints(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _floats(*values: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _serialized(feature: dict[str, tf.train.Feature]) -> bytes:
    record: bytes = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    return record


def stored(path: str, work: str) -> tuple[bytes, int, int]:
    """The bytes to store, and the height and width of the image, which TensorFlow knows by decoding it."""
    data = tf.io.read_file(path)
    image = tf.io.decode_image(data, channels=3, expand_animations=False)
    side = short_side(work)
    height, width = image.shape[:2]
    if side and min(height, width) > side:
        scale = side / min(height, width)
        size = [round(height * scale), round(width * scale)]
        image = tf.cast(tf.clip_by_value(tf.image.resize(image, size, antialias=True), 0, 255), tf.uint8)
    if work not in KEPT:
        data = tf.io.encode_jpeg(image, quality=QUALITY)
    encoded: bytes = data.numpy()
    return encoded, image.shape[0], image.shape[1]


def image_example(item: Item, work: str) -> bytes:
    """The Example of an image."""
    data, height, width = stored(item.path, work)
    image_format = b"png" if work in KEPT and item.path.endswith(".png") else b"jpeg"
    feature = {
        "image/encoded": _bytes(data),
        "image/format": _bytes(image_format),
        "image/height": _ints(height),
        "image/width": _ints(width),
        "image/filename": _bytes(item.key.encode()),
    }
    if item.boxes:
        for edge in ("xmin", "ymin", "xmax", "ymax"):
            feature[f"image/object/bbox/{edge}"] = _floats(*(getattr(box, edge) for box in item.boxes))
        feature["image/object/class/label"] = _ints(*(box.label for box in item.boxes))
        feature["image/object/class/text"] = _bytes(*(box.class_name.encode() for box in item.boxes))
    else:
        feature["image/class/label"] = _ints(item.label)
        feature["image/class/text"] = _bytes(item.class_name.encode())
    return _serialized(feature)


def row_example(row: Row) -> bytes:
    """The Example of a row."""
    feature = {
        "customer": _ints(row.customer),
        "score": _floats(row.score),
        "city": _bytes(row.city.encode()),
        "note": _bytes(row.note.encode()),
    }
    return _serialized(feature)


def main(work: str, source: str, output: str) -> None:
    """Converts an input."""
    Path(output).mkdir(parents=True)
    shards = [tf.io.TFRecordWriter(f"{output}/train-{number:05d}.tfrecord") for number in range(_SHARDS)]
    items: Iterable[Item | Row] = read_rows(Path(source)) if work == "rows" else list_items(Path(source))
    for number, item in enumerate(items):
        record = image_example(item, work) if isinstance(item, Item) else row_example(item)
        shards[number % _SHARDS].write(record)
    for shard in shards:
        shard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
