"""Objects of load_dataset: boxes, key points, parts and masks move with their image, and are batched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill import load_dataset
from tests.lazy import tf
from tests.pipelines.test_input_images import file_of, record, write

HEIGHT, WIDTH = 40, 80
# pixels: xmin, ymin, xmax, ymax
BOXES = ((2, 4, 22, 34), (30, 10, 50, 30), (70, 0, 80, 8))
SIDES = ("xmin", "ymin", "xmax", "ymax")


def painted(boxes: Any = BOXES) -> dict[str, Any]:
    """A record whose boxes are filled, each with a colour of its own, with masks of the same places."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    masks = []
    for number, (xmin, ymin, xmax, ymax) in enumerate(boxes):
        image[ymin:ymax, xmin:xmax] = (number + 1) * 80
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        mask[ymin:ymax, xmin:xmax] = 255
        masks.append(file_of(Image.fromarray(mask), "PNG"))
    scales = (WIDTH, HEIGHT, WIDTH, HEIGHT)
    sides = {
        f"image/object/bbox/{side}": [box[at] / scales[at] for box in boxes] for at, side in enumerate(SIDES)
    }
    return record(
        file_of(Image.fromarray(image), "PNG"),
        (HEIGHT, WIDTH),
        **sides,
        **{"image/object/class/label": list(range(1, len(boxes) + 1)), "image/object/mask": masks},
        **{"image/object/keypoint/x": [(box[0] + 1) / WIDTH for box in boxes]},
        **{"image/object/keypoint/y": [(box[1] + 1) / HEIGHT for box in boxes]},
        **{"image/object/keypoint/visibility": [2] * len(boxes)},
        **{"image/object/part/object": [len(boxes) - 1], "image/object/part/text": ["corner"]},
        **{f"image/object/part/bbox/{side}": [BOXES[2][at] / scales[at]] for at, side in enumerate(SIDES)},
    )


def boxes_of(element: dict[str, Any], height: int, width: int) -> np.ndarray:
    """n x (xmin, ymin, xmax, ymax) in pixels."""
    boxes: np.ndarray = element["image/object/bbox"].numpy()
    return boxes[:, [1, 0, 3, 2]] * (width, height, width, height)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(20, 40), (80, 80), (30, 160)])
@pytest.mark.parametrize("resize", ["stretch", "pad"])
def test_boxes_and_masks_lie_where_pixels_do(tmp_path: Path, resize: Any, size: tuple[int, int]) -> None:
    path = write(tmp_path / "a.tfrecord", *(painted((box,)) for box in BOXES))
    for element in load_dataset(path, size=size, resize=resize):
        [box] = boxes_of(element, *size)
        [mask] = element["image/object/mask"].numpy()
        for shown in (element["image/encoded"].numpy()[..., 0] >= 40, mask):
            rows, columns = np.nonzero(shown)
            found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert np.abs(np.array(found) - box).max() <= 1.01
        corner = element["image/object/keypoint/x"].numpy()[0] * size[1]
        assert box[0] < corner < box[0] + 4


@pytest.mark.slow
def test_what_a_crop_leaves(tmp_path: Path) -> None:
    """Columns 20 to 60 and rows 10 to 30 are left; the third object is outside."""
    path = write(tmp_path / "a.tfrecord", painted())
    found = load_dataset(path, size=(20, 40), resize="crop_or_pad")
    [element] = found
    assert boxes_of(element, 20, 40) == pytest.approx(np.array([(0, 0, 2, 20), (10, 0, 30, 20)]), abs=1e-4)
    image, masks = element["image/encoded"].numpy()[..., 0], element["image/object/mask"].numpy()
    assert np.array_equal(masks, [image == 80, image == 160])
    assert element["image/object/class/label"].numpy().tolist() == [1, 2]
    assert element["image/object/keypoint/visibility"].numpy().tolist() == [0, 2]
    assert element["image/object/keypoint/x"].numpy() == pytest.approx([0, 11 / 40])
    assert element["image/object/keypoint/y"].numpy() == pytest.approx([0, 1 / 20])
    assert element["image/object/part/object"].shape == element["image/object/part/text"].shape == (0,)
    [alone] = load_dataset(path, size=(20, 40), resize="crop_or_pad", features=["image/object/class/label"])
    assert {name: value.numpy().tolist() for name, value in alone.items()} == {
        "image/object/class/label": [1, 2]
    }


@pytest.mark.slow
def test_parts_keep_their_object(tmp_path: Path) -> None:
    """The first object is cropped away, and the part's object is the second of those left."""
    stored = painted(((0, 0, 4, 4), *BOXES[1:]))
    [element] = load_dataset(write(tmp_path / "a.tfrecord", stored), size=(40, 68), resize="crop_or_pad")
    assert element["image/object/class/label"].numpy().tolist() == [2, 3]
    assert element["image/object/part/object"].numpy().tolist() == [1]
    assert element["image/object/part/bbox"].numpy() == pytest.approx(np.array([[0, 64 / 68, 8 / 40, 1]]))


@pytest.mark.slow
def test_padding_moves_boxes(tmp_path: Path) -> None:
    [element] = load_dataset(write(tmp_path / "a.tfrecord", painted()), size=(60, 100), resize="crop_or_pad")
    assert boxes_of(element, 60, 100) == pytest.approx(np.array(BOXES) + 10, abs=1e-4)


def test_batches_are_ragged_or_padded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", painted(), painted(BOXES[:1]))
    ragged = load_dataset(path, batch_size=2, size=32)
    assert isinstance(ragged.element_spec["image/object/mask"], tf.RaggedTensorSpec)
    assert ragged.element_spec["image/encoded"] == tf.TensorSpec([None, 32, 32, 3], tf.uint8)
    [batch] = ragged
    assert batch["image/object/class/label"].to_list() == [[1, 2, 3], [1]]
    assert batch["image/object/mask"].row_lengths().numpy().tolist() == [3, 1]
    [padded] = load_dataset(path, batch_size=2, size=32, lists="padded")
    assert padded["image/object/class/label"].numpy().tolist() == [[1, 2, 3], [1, -1, -1]]
    assert batch["image/object/bbox"].row_lengths().numpy().tolist() == [3, 1]
    assert batch["image/object/bbox"].shape.as_list() == [2, None, 4]
    boxes = [[4 / 40, 2 / 80, 34 / 40, 22 / 80], [0] * 4, [0] * 4]
    assert padded["image/object/bbox"].numpy()[1] == pytest.approx(np.array(boxes))
    assert padded["image/object/mask"].shape == (2, 3, 32, 32)
    assert not padded["image/object/mask"].numpy()[1, 1:].any()


def test_objects_are_the_target_where_there_is_no_label(tmp_path: Path) -> None:
    [(image, target)] = load_dataset(write(tmp_path / "a.tfrecord", painted()), as_supervised=True)
    assert image.shape == (HEIGHT, WIDTH, 3)
    assert target["image/object/class/label"].numpy().tolist() == [1, 2, 3]
    assert target["image/object/bbox"].shape == (3, 4)
    assert all(name.startswith("image/object/") for name in target)


@pytest.mark.parametrize("size", [None, 24])
def test_an_image_without_objects(tmp_path: Path, size: int | None) -> None:
    empty = painted() | {"image/object/mask": []}
    features = ["image/encoded", "image/object/mask"]
    path = write(tmp_path / "a.tfrecord", painted(), empty)
    shapes = [one["image/object/mask"].shape for one in load_dataset(path, size=size, features=features)]
    sides = (size, size) if size else (HEIGHT, WIDTH)
    assert shapes == [(3, *sides), (0, *sides)]


def test_several_labels_are_one_vector(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", {"label": [1, 3]}, {"label": [2]})
    found = load_dataset(path, one_hot=4, batch_size=2)
    assert found.element_spec["label"].shape.as_list() == [None, 4]
    [batch] = found
    assert batch["label"].numpy().tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]
