"""Published datasets as tfds.builder_from_directory reads them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.lazy import tfds
from tests.pipelines.conversion import convert
from tests.readers.drawn import (
    CLASSES,
    boxes_of,
    draw_boxes,
    draw_masks,
    keys_of,
    mask_of,
    object_masks_of,
    painted,
    pixels_of,
)

CLASS, INSTANCE = "image/segmentation/class/encoded", "image/segmentation/instance/encoded"
PANOPTIC = "image/panoptic/{}/encoded"
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


def converted(folder: Path, *flags: str) -> Path:
    """The dataset made of `folder / "in"`."""
    call = ("--input", folder / "in", "--output", folder / "out", "--num_shards=2")
    assert convert(*call, "--include_annotations=masks", *flags) == 0
    return folder / "out"


def by_number(path: Path) -> list[dict[str, Any]]:
    """Each example, in the order of the images' numbers."""
    return sorted(read(path, "train"), key=lambda example: int(Path(example[FILE].decode()).stem))


def check_pairs(path: Path, masks: list[Any]) -> None:
    """`as_supervised` yields each image with its mask."""
    expected = {pixels_of(f"{number}.png").tobytes(): mask for number, mask in enumerate(masks)}
    pairs = read(path, "train", as_supervised=True)
    assert len(pairs) == len(expected)
    for image, mask in pairs:
        np.testing.assert_array_equal(mask, expected[image.tobytes()])


def check_object_masks(example: dict[str, Any], number: int) -> None:
    """The masks of objects, of which none has no size."""
    found, expected = example[f"{OBJECT}/mask"], object_masks_of(number)
    assert (len(found), found.dtype, found.shape[3]) == (len(expected), np.uint8, 1)
    if len(expected):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("values", [256, pytest.param(400, marks=pytest.mark.slow)])
def test_masks_of_classes(tmp_path: Path, values: int) -> None:
    masks = [mask_of(number, values) for number in range(4)]
    draw_masks(tmp_path / "in", {"SegmentationClass": masks})
    out = converted(tmp_path, "--source=masks", "--schema=segmentation")
    feature = tfds.builder_from_directory(out).info.features[CLASS]
    assert (feature.shape, feature.dtype) == ((None, None, 1), masks[0].dtype)
    for number, example in enumerate(by_number(out)):
        assert example[CLASS].dtype == masks[0].dtype
        np.testing.assert_array_equal(example[CLASS], masks[number])
        np.testing.assert_array_equal(example[IMAGE], pixels_of(f"{number}.png"))
    check_pairs(out, masks)


@pytest.mark.slow
def test_masks_of_both_types_are_read_as_their_bytes(tmp_path: Path) -> None:
    masks = [mask_of(0, 256), mask_of(1, 400)]
    draw_masks(tmp_path / "in", {"SegmentationClass": masks})
    out = converted(tmp_path, "--source=masks", "--schema=segmentation")
    for example, mask in zip(by_number(out), masks, strict=True):
        with Image.open(io.BytesIO(example[CLASS])) as image:
            np.testing.assert_array_equal(np.asarray(image), mask[:, :, 0])


@pytest.mark.parametrize("missing", [pytest.param((), marks=pytest.mark.slow), (1,)])
def test_masks_of_instances(tmp_path: Path, missing: tuple[int, ...]) -> None:
    classes = [mask_of(number, 21) for number in range(3)]
    instances = [None if number in missing else mask_of(100 + number, 256) for number in range(3)]
    draw_masks(tmp_path / "in", {"SegmentationClass": classes, "SegmentationObject": instances})
    out = converted(tmp_path, "--source=voc", "--schema=segmentation")
    for number, example in enumerate(by_number(out)):
        instance = instances[number]
        found = list(example[INSTANCE]) if missing else [example[INSTANCE]]
        assert len(found) == (instance is not None)
        np.testing.assert_array_equal(found, [] if instance is None else [instance])
        np.testing.assert_array_equal(example[CLASS], classes[number])
    check_pairs(out, classes)


@pytest.mark.slow
def test_panoptic_masks(tmp_path: Path) -> None:
    draw_boxes(tmp_path / "in", panoptic=True)
    out = converted(tmp_path, "--source=coco", "--schema=panoptic")
    categories = [painted(number, [label for label, *_ in boxes_of(number)], 255) for number in range(8)]
    for number, example in enumerate(by_number(out)):
        things = painted(number, range(1, 1 + number % 4), 0)
        np.testing.assert_array_equal(example[PANOPTIC.format("category")], categories[number])
        np.testing.assert_array_equal(example[PANOPTIC.format("instance")], things)
    check_pairs(out, categories)


@pytest.mark.slow
def test_masks_of_objects(tmp_path: Path) -> None:
    draw_boxes(tmp_path / "in", outlined=range(8))
    out = converted(tmp_path, "--source=coco", "--schema=detection,segmentation")
    classes = [painted(number, [label for label, *_ in boxes_of(number)], 0) for number in range(8)]
    for number, example in enumerate(by_number(out)):
        check_object_masks(example, number)
        np.testing.assert_array_equal(example[CLASS], classes[number])
    check_pairs(out, classes)


@pytest.mark.slow
def test_objects_of_which_some_have_no_mask(tmp_path: Path) -> None:
    outlined = (0, 1, 2, 3, 4)
    draw_boxes(tmp_path / "in", outlined)
    out = converted(tmp_path, "--source=coco", "--schema=detection,segmentation")
    for number, example in enumerate(by_number(out)):
        check_object_masks(example, number)
        labels = [label for label, *_ in boxes_of(number)]
        has_mask = number in outlined or not labels
        assert len(example[CLASS]) == has_mask
        for mask in example[CLASS]:
            np.testing.assert_array_equal(mask, painted(number, labels, 0))


@pytest.mark.slow
def test_raw_masks_are_read_as_their_bytes(tmp_path: Path) -> None:
    masks = [mask_of(number, 256) for number in range(3)]
    draw_masks(tmp_path / "in", {"SegmentationClass": masks})
    out = converted(tmp_path, "--source=masks", "--schema=plain", "--image_format=keep")
    found = {example["image_raw"].tobytes(): example["mask_raw"] for example in read(out, "train")}
    expected = {pixels_of(f"{number}.png").tobytes(): mask.tobytes() for number, mask in enumerate(masks)}
    assert found == expected
