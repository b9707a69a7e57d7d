"""SequenceExamples of load_dataset: frames decoded, lists ragged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill import load_dataset
from tests.lazy import tf
from tests.pipelines.test_input_images import feature, file_of, pixels


def write(path: Path, *sequences: tuple[dict[str, Any], dict[str, list[Any]]]) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for context, lists in sequences:
            steps = {
                name: tf.train.FeatureList(feature=[feature(one) for one in values])
                for name, values in lists.items()
            }
            example = tf.train.SequenceExample(
                context=tf.train.Features(feature={name: feature(one) for name, one in context.items()}),
                feature_lists=tf.train.FeatureLists(feature_list=steps),
            )
            writer.write(example.SerializeToString())
    return str(path)


def clip(count: int, key: str, height: int = 6, width: int = 8) -> tuple[np.ndarray, Any]:
    """Frames, and the sequence of them: a PNG a step, a number, and as many words as steps before it."""
    frames = pixels(count, height, width, 3, seed=count)
    lists = {
        "image/encoded": [file_of(Image.fromarray(frame), "PNG") for frame in frames],
        "image/height": [height] * count,
        "image/width": [width] * count,
        "image/timestamp": [number / 2 for number in range(count)],
        "words": [["w"] * number if number else [] for number in range(count)],
        "image/class/label": [[number] for number in range(count)],
    }
    return frames, ({"sequence/key": key, "image/class/label": count}, lists)


def test_frames_and_lists(tmp_path: Path) -> None:
    frames, sequence = clip(4, "a")
    found = load_dataset(write(tmp_path / "a.tfrecord", sequence))
    assert found.element_spec["image/encoded"].shape.as_list() == [None, None, None, 3]
    assert isinstance(found.element_spec["words"], tf.RaggedTensorSpec)
    [element] = found
    assert np.array_equal(element["image/encoded"], frames)
    assert element["image/timestamp"].numpy().tolist() == [0, 0.5, 1, 1.5]
    assert element["words"].to_list() == [[b"w"] * number for number in range(4)]
    assert element["context/image/class/label"].numpy() == 4
    assert element["image/class/label"].numpy().tolist() == [0, 1, 2, 3]
    assert element["sequence/key"].numpy() == b"a"


@pytest.mark.slow
def test_sequences_in_batches(tmp_path: Path) -> None:
    clips = [clip(count, f"{count}") for count in (2, 3)]
    path = write(tmp_path / "a.tfrecord", *(sequence for _, sequence in clips))
    [batch] = load_dataset(path, batch_size=2, size=(6, 8))
    assert batch["image/encoded"].row_lengths().numpy().tolist() == [2, 3]
    for at, (frames, _) in enumerate(clips):
        assert np.array_equal(batch["image/encoded"][at], frames)
    assert batch["words"].to_list() == [[[], [b"w"]], [[], [b"w"], [b"w"] * 2]]
    [padded] = load_dataset(path, batch_size=2, size=(6, 8), lists="padded")
    assert padded["image/encoded"].shape == (2, 3, 6, 8, 3)
    assert padded["image/class/label"].numpy().tolist() == [[0, 1, -1], [0, 1, 2]]
    [(images, labels)] = load_dataset(path, batch_size=2, size=(6, 8), as_supervised=True)
    assert labels.numpy().tolist() == [2, 3] and images.shape.rank == 5


@pytest.mark.slow
def test_frames_of_several_sizes_need_one(tmp_path: Path) -> None:
    _, (context, lists) = clip(2, "a")
    _, (_, others) = clip(1, "b", 4, 4)
    joined = {name: [*lists[name], *others[name]] for name in lists}
    path = write(tmp_path / "a.tfrecord", (context, joined))
    [element] = load_dataset(path, size=(3, 5))
    assert element["image/encoded"].shape == (3, 3, 5, 3)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(load_dataset(path))


def test_a_frame_that_is_not_of_its_stored_shape(tmp_path: Path) -> None:
    _, (context, lists) = clip(2, "clip 7")
    path = write(tmp_path / "a.tfrecord", (context, {**lists, "image/height": [6, 7]}))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)clip 7.*\[6 8 3\].*\[7 8\]"):
        list(load_dataset(path))


def test_lists_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tfrecord", ({"name": "a"}, {"values": [1.5, 2.5]}), ({"name": "b"}, {"values": []})
    )
    found = load_dataset(path, features=["values"])
    assert [element["values"].numpy().tolist() for element in found] == [[1.5, 2.5], []]
