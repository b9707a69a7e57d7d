"""Published datasets as tfds.builder_from_directory reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazy import tfds
from tests.readers.drawn import CLASSES, boxes_of, keys_of, pixels_of

FILE, IMAGE, LABEL, OBJECT = "image/filename", "image/encoded", "image/class/label", "image/object"


def read(path: Path, split: str, **options: Any) -> list[Any]:
    return list(tfds.as_numpy(tfds.builder_from_directory(path).as_dataset(split=split, **options)))


def keys(examples: list[Any]) -> list[str]:
    return [example[FILE].decode() for example in examples]


def test_every_image_with_its_label(classes: Path) -> None:
    names = tfds.builder_from_directory(classes).info.features[LABEL].names
    assert tuple(names) == CLASSES
    for split in ("train", "val"):
        examples = read(classes, split)
        assert {example[FILE].decode(): int(example[LABEL]) for example in examples} == keys_of(split)
        for example in examples:
            np.testing.assert_array_equal(example[IMAGE], pixels_of(example[FILE].decode()))


def test_supervised_pairs(classes: Path) -> None:
    pairs = {image.tobytes(): int(label) for image, label in read(classes, "train", as_supervised=True)}
    assert pairs == {pixels_of(key).tobytes(): label for key, label in keys_of("train").items()}


@pytest.mark.parametrize(
    "parts",
    [
        ("train[:50%]", "train[50%:]"),
        ("train[:5]", "train[5:11]", "train[11:]"),
        ("train[:10%]", "train[10%:]"),
    ],
)
def test_slices_are_parts_of_their_split(classes: Path, parts: tuple[str, ...]) -> None:
    found = [keys(read(classes, part)) for part in parts]
    assert all(found)
    assert [key for part in found for key in part] == keys(read(classes, "train"))
    info = tfds.builder_from_directory(classes).info
    assert [info.splits[part].num_examples for part in parts] == list(map(len, found))


def test_splits_joined_and_dealt_out(classes: Path) -> None:
    assert sorted(keys(read(classes, "train+val"))) == sorted([*keys_of("train"), *keys_of("val")])
    hosts = [
        keys(list(tfds.as_numpy(tfds.builder_from_directory(classes).as_dataset(split=part))))
        for part in tfds.even_splits("train", 3)
    ]
    assert [len(host) for host in hosts] == [6, 6, 6]
    assert sorted(sum(hosts, [])) == sorted(keys_of("train"))


def test_counts_are_known_and_match_what_is_read(classes: Path) -> None:
    builder = tfds.builder_from_directory(classes)
    for split, count in (("train", 18), ("val", 6), ("train[:50%]", 9)):
        dataset = builder.as_dataset(split=split)
        assert (int(dataset.cardinality()), len(list(dataset))) == (count, count)
    assert builder.info.splits["train"].filenames == sorted(path.name for path in classes.glob("train-*"))


def test_files_read_in_any_order_give_the_same_records(classes: Path) -> None:
    shuffled = read(classes, "train", shuffle_files=True, read_config=tfds.ReadConfig(shuffle_seed=1))
    assert sorted(keys(shuffled)) == sorted(keys_of("train"))


def test_stored_bytes_are_those_of_the_file(classes: Path) -> None:
    for example in read(classes, "val", decoders={IMAGE: tfds.decode.SkipDecoding()}):
        assert example[IMAGE] == (classes.parent / "in" / example[FILE].decode()).read_bytes()


def test_boxes(boxes: Path) -> None:
    features = tfds.builder_from_directory(boxes).info.features
    names = features[f"{OBJECT}/class/label"].feature.names
    assert names[1:] == ["car", "dog"]
    examples = {example[FILE].decode(): example for example in read(boxes, "train")}
    assert sorted(examples) == [f"images/{number}.png" for number in range(8)]
    for number in range(8):
        example, expected = examples[f"images/{number}.png"], boxes_of(number)
        sides = [example[f"{OBJECT}/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")]
        assert np.stack(sides, axis=1).tolist() == [list(box[1:]) for box in expected]
        assert example[f"{OBJECT}/class/label"].tolist() == [box[0] for box in expected]
        np.testing.assert_array_equal(example[IMAGE], pixels_of(f"{number}.png"))


def test_boxes_in_padded_batches(boxes: Path) -> None:
    dataset = tfds.builder_from_directory(boxes).as_dataset(split="train")
    batch = next(iter(tfds.as_numpy(dataset.padded_batch(8))))
    assert batch[f"{OBJECT}/class/label"].shape == (8, 3)
    for name, labels in zip(batch[FILE], batch[f"{OBJECT}/class/label"], strict=True):
        expected = [box[0] for box in boxes_of(int(Path(name.decode()).stem))]
        assert labels.tolist() == [*expected, *[0] * (3 - len(expected))]
