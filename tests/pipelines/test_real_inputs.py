"""Conversions of real inputs, where RECORDMILL_CORPUS names a folder of them."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pipelines.conversion import by_key, convert, digests, examples, failures, manifest

CORPUS = os.environ.get("RECORDMILL_CORPUS")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(CORPUS is None, reason="RECORDMILL_CORPUS names no folder of real inputs"),
]


def corpus(name: str) -> Path:
    return Path(CORPUS or "") / name


def test_raccoon_is_kept_byte_for_byte(tmp_path: Path) -> None:
    source = corpus("raccoon/images")
    assert convert("--input", source, "--output", tmp_path / "out") == 0
    found = by_key(tmp_path / "out")
    assert set(found) == {path.name for path in source.iterdir()}
    for key, one in found.items():
        stored = (source / key).read_bytes()
        assert one["image/encoded"] == [stored]
        assert one["image/key/sha256"] == [hashlib.sha256(stored).hexdigest().encode()]


@pytest.mark.slow
def test_mnist_with_class_names(tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    output = tmp_path / "out"
    assert convert("--input", corpus("mnist"), "--output", output) == 0
    assert manifest(output)["counts"] == {"read": 10_000, "written": 10_000, "failed": 0, "skipped": 0}
    builder = tfds.builder_from_directory(output)
    assert builder.info.features["image/class/label"].names == [str(digit) for digit in range(10)]
    image, label = next(iter(builder.as_dataset(split="test", as_supervised=True)))
    assert image.shape == (28, 28, 1)
    import gzip

    pixels = np.frombuffer(
        gzip.decompress((corpus("mnist") / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16
    ).reshape(-1, 28, 28)
    labels = gzip.decompress((corpus("mnist") / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    for key, one in by_key(output).items():
        number = int(key[-5:])
        assert one["image/class/label"] == [labels[number]]
        np.testing.assert_array_equal(tf.io.decode_png(one["image/encoded"][0])[:, :, 0], pixels[number])


def test_cats_and_dogs(tmp_path: Path) -> None:
    output = tmp_path / "out"
    args = ("--input", corpus("cats_dogs"), "--label_pattern=(cat|dog)_")
    assert convert(*args, "--output", output) == 0
    assert {one["image/class/text"][0] for one in by_key(output).values()} == {b"cat", b"dog"}
    assert manifest(output)["bytes"]["encoded"] == 1_206_206
    # The classic tutorial's way, ten times as large.
    assert convert(*args, "--output", tmp_path / "raw", "--schema=plain", "--image_format=raw") == 0
    assert manifest(tmp_path / "raw")["bytes"]["encoded"] == 10_027_097
    sizes = {(one["height"][0], one["width"][0], one["depth"][0]) for one in examples(tmp_path / "raw")}
    images = [Image.open(path) for path in corpus("cats_dogs").iterdir()]
    assert sizes == {(image.height, image.width, len(image.getbands())) for image in images}


def test_exif_orientation(tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", corpus("exif_orientation"), "--output", output) == 0
    sizes = {key: (one["image/height"][0], one["image/width"][0]) for key, one in by_key(output).items()}
    assert len(sizes) == 18
    assert {size for key, size in sizes.items() if key.startswith("Portrait")} == {(1800, 1200)}
    assert {size for key, size in sizes.items() if key.startswith("Landscape")} == {(1200, 1800)}


def test_every_odd_input_is_in_the_dataset_or_in_failures(tmp_path: Path) -> None:
    import tensorflow as tf

    folder = tmp_path / "odd"
    for name in ("pngsuite", "odd_inputs"):
        shutil.copytree(corpus(name), folder / name)
    output = tmp_path / "out"
    assert convert("--input", folder, "--output", output, "--max_failure_ratio=1") == 0
    found = by_key(output)
    failed = {one["key"]: one for one in failures(output)}
    every = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found.keys() | failed.keys() == every
    assert not found.keys() & failed.keys()
    for one in found.values():
        pixels = tf.io.decode_image(one["image/encoded"][0], expand_animations=False)
        assert pixels.shape[:2] == (one["image/height"][0], one["image/width"][0])
    reasons = {key: one["reason"] for key, one in failed.items()}
    assert reasons["odd_inputs/truncated_jpeg.jpg"] == "truncated"
    assert reasons["odd_inputs/broken_data_stream.png"] == "corrupt"
    assert reasons["odd_inputs/monkey12.jpg"] == "not supported"
    assert reasons["odd_inputs/LICENSE.Pillow"] == "not an image by name"


@pytest.mark.slow
def test_one_worker_and_two(tmp_path: Path) -> None:
    made = []
    for workers in (1, 2):
        output = tmp_path / str(workers)
        args = ("--num_shards=3", "--direct_num_workers", workers)
        assert convert("--input", corpus("mnist"), "--output", output, *args) == 0
        made.append(digests(output))
    assert len(made[0]) == 6
    assert made[0] == made[1]
