"""Records as people see them: images, names, boxes in pixels, masks, sequences."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.examples.features import build_example, build_sequence_example
from recordmill.transforms.images.tensor import tensor_bytes
from recordmill.transforms.reading.stored_record import StoredImageBytes, StoredObject, stored_record
from recordmill.transforms.records import BadInput, Box

NAMES = {0: "cat", 1: "dog", 7: "owl"}


def encoded(pixels: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(out, kind)
    return out.getvalue()


PICTURE = encoded(np.full((40, 60, 3), 200))
MASK = encoded(np.eye(40, 60))
CLASSES = np.arange(2400).reshape(40, 60) % 3


def boxes(*sides: tuple[float, float, float, float], **others: Any) -> dict[str, Any]:
    """Features of objects: xmin, ymin, xmax, ymax of each."""
    names = ("xmin", "ymin", "xmax", "ymax")
    found = {f"image/object/bbox/{name}": [box[at] for box in sides] for at, name in enumerate(names)}
    return {"image/encoded": PICTURE, **found, **others}


def test_an_image_with_its_labels() -> None:
    payload = build_example(
        {"image/encoded": PICTURE, "image/class/label": [1, 7, 9], "image/filename": "a/1.png"}
    )
    record = stored_record(payload, NAMES, {})
    assert (record.key, record.labels) == ("a/1.png", ("dog", "owl", "9"))
    assert record.label_ids == (1, 7, 9)
    assert record.image == StoredImageBytes(PICTURE) and record.image.size() == (40, 60)
    assert (record.objects, record.frames, record.captions, record.class_mask) == ((), (), (), None)


def test_a_record_without_a_key_of_its_own() -> None:
    assert stored_record(build_example({"image": PICTURE}), {}, {}, key="record 5").key == "record 5"


def test_names_that_the_record_tells_itself() -> None:
    features = {"image/class/label": 1, "image/class/synset": "n02", "image/class/text": "great white shark"}
    payload = build_example({"image/encoded": PICTURE, **features})
    assert stored_record(payload, {}, {}).labels == ("great white shark",)
    assert stored_record(payload, {1: "dog"}, {}).labels == ("dog",)


def test_features_under_other_names() -> None:
    payload = build_example({"pic": PICTURE, "y": 1, "h": 40})
    renames = {"pic": "image/encoded", "y": "image/class/label", "h": "image/height"}
    record = stored_record(payload, NAMES, renames)
    assert (record.image, record.labels) == (StoredImageBytes(PICTURE), ("dog",))


@pytest.mark.parametrize("declared", [{}, {"image/height": 40, "image/width": 60}])
def test_objects(declared: dict[str, int]) -> None:
    features = boxes((0.1, 0.25, 0.5, 0.75), (0, 0, 1, 1), **declared)
    features |= {"image/object/class/label": [7, 3], "image/object/mask": [MASK, b""]}
    record = stored_record(build_example(features), NAMES, {})
    assert record.size == (40, 60)
    owl, three = record.objects
    assert owl.box == pytest.approx(Box(6, 10, 30, 30), abs=1e-4)
    assert (owl.name, owl.label, three) == ("owl", 7, StoredObject("3", 3, Box(0, 0, 60, 40)))
    assert owl.mask is not None
    np.testing.assert_array_equal(owl.mask.ids(), np.eye(40, 60))


def test_keypoints_and_classes_by_text() -> None:
    features = boxes((0, 0, 1, 1), **{"image/object/class/text": "hand"})
    features |= {"image/object/keypoint/x": [0.5, 0.25], "image/object/keypoint/y": [0.5, 0.5]}
    features |= {"image/object/keypoint/visibility": [2, 1]}
    (hand,) = stored_record(build_example(features), {}, {}).objects
    assert (hand.name, hand.label, hand.keypoints) == ("hand", "hand", ((30.0, 20.0, 2), (15.0, 20.0, 1)))


def test_a_box_that_is_nowhere() -> None:
    features = boxes((float("nan"), 0.0, 1.0, 1.0), **{"image/object/class/label": 1})
    assert stored_record(build_example(features), NAMES, {}).objects == (StoredObject("dog", 1),)


def test_boxes_on_an_image_that_is_damaged() -> None:
    features = boxes((0, 0, 1, 1), **{"image/object/class/label": 1, "image/encoded": PICTURE[:30]})
    record = stored_record(build_example(features), NAMES, {})
    assert (record.size, record.objects) == (None, (StoredObject("dog", 1),))


@pytest.mark.parametrize(
    "stored",
    [
        {"image/encoded": PICTURE, "image/segmentation/class/encoded": encoded(CLASSES)},
        {
            "image/encoded": PICTURE,
            "image/panoptic/category/encoded": encoded(CLASSES),
            "image/panoptic/instance/encoded": MASK,
        },
        {
            "image_raw": np.zeros((40, 60, 3), np.uint8).tobytes(),
            "mask_raw": CLASSES.astype(np.uint8).tobytes(),
            "height": 40,
            "width": 60,
        },
    ],
)
def test_masks_of_whole_images(stored: dict[str, Any]) -> None:
    record = stored_record(build_example(stored), NAMES, {})
    assert record.class_mask is not None and record.size == (40, 60)
    np.testing.assert_array_equal(record.class_mask.ids(), CLASSES)
    assert (record.instance_mask is None) == ("image/panoptic/instance/encoded" not in stored)


@pytest.mark.parametrize("kind", ["raw", "tensor"])
def test_pixels(kind: str) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    data = pixels.tobytes() if kind == "raw" else tensor_bytes(pixels)
    shape = {"image/height": 2, "image/width": 4, "image/channels": 3, "image/format": kind}
    image = stored_record(build_example({"image/encoded": data, **shape}), {}, {}).image
    assert image == StoredImageBytes(pixels.tobytes(), (2, 4, 3)) and image.size() == (2, 4)


def test_captions_and_free_features() -> None:
    features = {
        "image/encoded": PICTURE,
        "image/caption": ["a cat", "on a mat"],
        "age": 3,
        "tags": ["x", "y"],
    }
    record = stored_record(build_example(features), {}, {})
    assert (record.captions, record.features) == (("a cat", "on a mat"), {"age": 3, "tags": ("x", "y")})


def test_a_sequence() -> None:
    frames = [encoded(np.full((4, 4), level)) for level in (0, 90, 180)]
    payload = build_sequence_example(
        {"sequence/key": "clips/1", "image/class/label": 1},
        {"image/encoded": frames, "image/class/label": [0, 0, 7], "speed": [0.5, 1.0, 1.5]},
    )
    record = stored_record(payload, NAMES, {})
    assert (record.key, record.labels, record.image) == ("clips/1", ("dog",), None)
    assert [frame.data for frame in record.frames] == frames
    assert record.step_labels == (("cat",), ("cat",), ("owl",))
    assert record.features["speed"] == (0.5, 1.0, 1.5)


@pytest.mark.parametrize("payload", [b"", b"no protobuf", build_example(boxes((0, 0, 200, 80)))])
def test_what_is_no_record_of_an_image(payload: bytes) -> None:
    with pytest.raises(BadInput):
        stored_record(payload, {}, {})
