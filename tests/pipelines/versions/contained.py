"""Inputs whose images are inside other files, and such as have none: a file is changed, another is not."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import google_crc32c
import numpy as np
import pyarrow
import pyarrow.parquet

from tests.pipelines.versions.edits import Edit, picture, pictures
from tests.pipelines.versions.photos import ENCODING, SHARDS
from tests.sources.test_archives import packed

FLAGS = (*ENCODING, *SHARDS)


def archives(ending: str) -> Edit:
    """Two archives of photos, one of which gets another photo, of a class that sorts first."""
    same = pictures((f"cat/{number}.jpg" for number in range(8)), 10)
    photos = pictures(f"dog/{number}.jpg" for number in range(6))
    one = {f"one.{ending}": packed(f".{ending}", same)}
    before = {**one, f"two.{ending}": packed(f".{ending}", photos)}
    more = {**photos, "ant/0.jpg": picture(100, ".jpg")}
    after = {**one, f"two.{ending}": packed(f".{ending}", more)}
    # What had to be unpacked is known by its bytes, else by its archive's time.
    images = 1 if ending == "tar.gz" else 7
    return Edit(before, after, records=15, images=images, flags=FLAGS)


def webdataset(ending: str) -> Edit:
    """Two shards of samples, one changed."""
    before = {f"train-000000.{ending}": _samples(0, ending), f"train-000001.{ending}": _samples(50, ending)}
    after = {**before, f"train-000001.{ending}": _samples(51, ending)}
    return Edit(before, after, records=12, images=6, flags=FLAGS)


def _samples(seed: int, ending: str) -> bytes:
    files = {}
    for number in range(6):
        files[f"{number:04d}.jpg"] = picture(seed + number, ".jpg")
        files[f"{number:04d}.cls"] = str((seed + number) % 3).encode()
        files[f"{number:04d}.json"] = json.dumps({"weight": number / 2}).encode()
    return packed(f".{ending}", files)


def parquet() -> Edit:
    """Two tables of images, one changed."""
    before = {"data/train-00000-of-00002.parquet": _table(0), "data/train-00001-of-00002.parquet": _table(50)}
    after = {**before, "data/train-00001-of-00002.parquet": _table(51)}
    return Edit(before, after, records=12, images=6, flags=FLAGS)


def _table(seed: int) -> bytes:
    images = [{"bytes": picture(seed + number, ".jpg"), "path": None} for number in range(6)]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {"image": pyarrow.array(images, kind), "label": [(seed + number) % 3 for number in range(6)]}
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def records(is_packed: bool) -> Edit:
    """Two files of somebody's Examples, one changed; plain, or gzipped."""
    ending = ".gz" if is_packed else ""
    one, two = (f"{name}.tfrecord{ending}" for name in ("one", "two"))
    before = {one: _examples(0, is_packed), two: _examples(50, is_packed)}
    after = {**before, two: _examples(51, is_packed)}
    return Edit(before, after, records=12, images=6, flags=FLAGS)


def _examples(seed: int, is_packed: bool) -> bytes:
    import tensorflow as tf

    payloads = []
    for number in range(6):
        example = tf.train.Example()
        features = example.features.feature
        features["image/encoded"].bytes_list.value.append(picture(seed + number, ".jpg"))
        features["label"].int64_list.value.append((seed + number) % 3)
        payloads.append(example.SerializeToString(deterministic=True))
    framed = b"".join(map(_framed, payloads))
    return gzip.compress(framed, mtime=0) if is_packed else framed


def _framed(payload: bytes) -> bytes:
    def masked(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def idx() -> Edit:
    """MNIST's files: those of training changed, those of the test not."""
    test = {"t10k-images-idx3-ubyte": _idx(_digits(8, 1)), "t10k-labels-idx1-ubyte": _idx(_labels(8))}
    before = {"train-images-idx3-ubyte": _idx(_digits(12, 2)), "train-labels-idx1-ubyte": _idx(_labels(12))}
    after = {"train-images-idx3-ubyte": _idx(_digits(13, 3)), "train-labels-idx1-ubyte": _idx(_labels(13))}
    flags = ("--image_format=png", *SHARDS)
    return Edit({**test, **before}, {**test, **after}, records=21, images=13, flags=flags)


def _digits(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 9, 7), np.uint8)


def _labels(count: int) -> np.ndarray[Any, Any]:
    return (np.arange(count) % 10).astype(np.uint8)


def _idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def arrays() -> Edit:
    """Arrays of images: those of training changed, those of the test not; the labels of the test are."""
    random = np.random.default_rng(0)
    test, train = (random.integers(0, 255, (count, 9, 7, 3), np.uint8) for count in (8, 12))
    before = {"x_train": train, "y_train": _labels(12), "x_test": test, "y_test": _labels(8)}
    after = {**before, "x_train": train[::-1].copy(), "y_test": _labels(9)[1:]}
    flags = ("--image_format=png", *SHARDS)
    return Edit(_npy(before), _npy(after), records=20, images=12, flags=flags)


def _npy(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, bytes]:
    files = {}
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array)
        files[f"{name}.npy"] = stream.getvalue()
    return files


def features() -> Edit:
    """Rows without images: one changed, one new, one gone, and a label that sorts first."""
    rows = [f"{number},{number / 8},{'yes' if number % 3 else 'no'}" for number in range(30)]
    header = "number,weight,label"
    edited = [*rows[:4], "4,99.5,maybe", *rows[6:], "30,1.5,yes"]
    before, after = ({"rows.csv": "\n".join((header, *told)).encode()} for told in (rows, edited))
    flags = ("--label_column=label", *SHARDS)
    return Edit(before, after, records=30, images=0, made=30, input="rows.csv", flags=flags)


def frames() -> Edit:
    """Clips: a frame changed in one, the labels of one, one new of a class that sorts first, one gone."""
    before: dict[str, bytes] = {}
    for number in range(12):
        clip = f"{'run' if number % 2 else 'walk'}/clip{number:02d}"
        before |= pictures((f"{clip}/f_{frame}.jpg" for frame in range(3)), 10 * number)
        before[f"{clip}/labels.txt"] = b"up\ndown\nup\n"
    after = {path: data for path, data in before.items() if "/clip05/" not in path}
    after["walk/clip04/f_1.jpg"] = picture(1000, ".jpg")
    after["walk/clip06/labels.txt"] = b"aside\ndown\nup\n"
    after |= pictures((f"crawl/clip20/f_{frame}.jpg" for frame in range(2)), 2000)
    after["crawl/clip20/labels.txt"] = b"up\nup\n"
    flags = ("--source=frames", *FLAGS)
    # A clip is read as a whole.
    return Edit(before, after, 12, 5, made=2, flags=flags, is_sealed=lambda path: "clip04" in path)


def sequences() -> Edit:
    """Sequences of a manifest, with frames and without."""
    photos = pictures(f"photos/{number}.jpg" for number in range(12))
    lines = []
    for number in range(12):
        lists = {"frames": [f"photos/{number}.jpg"] * 2, "t": [number, 1]}
        lines.append({"context": {"id": number}, "feature_lists": lists})
    edited = [*lines[:6], {**lines[6], "context": {"id": 99}}, *lines[7:]]
    after = {**photos, "photos/3.jpg": picture(100, ".jpg"), "lines.jsonl": _lines(edited)}
    before = {**photos, "lines.jsonl": _lines(lines)}
    return Edit(before, after, records=12, images=2, made=1, input="lines.jsonl", flags=FLAGS)


def _lines(lines: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()
