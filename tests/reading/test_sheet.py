"""Contact sheets, read by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.reading.drawing import FAULT_PAPER, PAPER, color_of, draw
from recordmill.transforms.reading.sheet import caption, contact_sheet
from recordmill.transforms.reading.stored_record import StoredImageBytes, StoredObject, StoredRecord
from recordmill.transforms.records import BadInput, Box


def encoded(pixels: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(out, "PNG")
    return out.getvalue()


def record(level: int, key: str = "a.png", size: tuple[int, int] = (60, 60), **others: Any) -> StoredRecord:
    image = StoredImageBytes(encoded(np.full((*size, 3), level)))
    return StoredRecord(key, image=image, size=size, **others)


def sheet(records: list[StoredRecord | BadInput], columns: int, side: int) -> np.ndarray[Any, Any]:
    image = Image.open(io.BytesIO(contact_sheet(records, columns, side)))
    assert image.format == "PNG"
    return np.asarray(image)


def test_pictures_in_rows() -> None:
    pixels = sheet([record(level) for level in (10, 90, 170)], 2, 60)
    # gaps of 10 around cells of 60, below which are two lines of text
    assert pixels.shape[1] == 2 * 60 + 3 * 10
    down = (pixels.shape[0] - 10) // 2
    for number, level in enumerate((10, 90, 170)):
        top, left = 10 + number // 2 * down, 10 + number % 2 * 70
        assert (pixels[top : top + 60, left : left + 60] == level).all()
    assert (pixels[10 + down :, 80:] == PAPER).all()
    assert (pixels[70:down, 10:70] != PAPER).any()  # the caption


def test_no_more_columns_than_records() -> None:
    assert sheet([record(1)], 8, 60).shape[1] == 80


def test_a_picture_lies_in_the_middle_of_its_cell() -> None:
    pixels = sheet([record(40, size=(20, 60))], 1, 60)
    assert (pixels[30:50, 10:70] == 40).all()
    assert (pixels[10:30, 10:70] > 200).all() and (pixels[50:70, 10:70] > 200).all()


def test_boxes_are_drawn_and_told_below() -> None:
    dog, cat = StoredObject("dog", 2, Box(10, 20, 50, 50)), StoredObject("cat", 1, Box(0, 0, 9, 9))
    shown = record(200, objects=(cat, dog, dog))
    pixels = sheet([shown], 1, 120)
    np.testing.assert_array_equal(pixels[10:130, 10:130], draw(shown, 120))
    assert caption(shown) == ([(color_of(2), "dog (2)"), (color_of(1), "cat")], "a.png")
    below = pixels[130:]
    for label in (1, 2):
        assert (below == color_of(label)).all(axis=2).sum() > 20


def test_captions() -> None:
    ids = np.array([[0, 3], [3, 255]])
    mask = StoredImageBytes(encoded(ids))
    assert caption(record(1, labels=("cat", "dog"))) == ([(None, "cat, dog")], "a.png")
    assert caption(record(1, captions=("A cat.", "No."))) == ([(None, "A cat.")], "a.png")
    assert caption(record(1, class_mask=mask, names={3: "sky"})) == ([(color_of(3), "sky")], "a.png")
    assert caption(record(1, class_mask=mask)) == ([(color_of(3), "#3")], "a.png")
    assert caption(record(1, labels=("猫", "dog"), label_ids=(4, 5))) == ([(None, "#4, dog")], "a.png")
    assert caption(record(1, class_mask=StoredImageBytes(b"?"))) == ([], "a.png")
    assert caption(StoredRecord("clip", frames=(StoredImageBytes(b""),) * 3)) == ([], "3 frames: clip")
    assert caption(BadInput("decode", "corrupt", key="b.png")) == ([], "b.png")


def test_records_that_cannot_be_shown_have_a_cell() -> None:
    unread = BadInput("manifest", "not a tf.train.Example", key="record 1")
    pixels = sheet([unread, StoredRecord("k", (), StoredImageBytes(b"no image")), record(7)], 3, 60)
    for left in (10, 80):
        assert (pixels[10:70, left : left + 60] == FAULT_PAPER).all(axis=2).mean() > 0.5
    assert (pixels[10:70, 150:210] == 7).all()


@pytest.mark.parametrize("side", [1, 7, 60])
def test_names_as_long_and_odd_as_they_may_be(side: int) -> None:
    names = ["x" * 5000, "猫" * 40, "\udcff\0\n", "", "a/" * 900]
    labels = tuple(StoredObject(name, number, Box(0, 0, 60, 60)) for number, name in enumerate(names))
    records: list[StoredRecord | BadInput] = [record(9, name, labels=(name,)) for name in names]
    pixels = sheet([*records, record(9, objects=labels)], 3, side)
    assert pixels.shape[1] == 3 * side + 40
    assert (pixels[:, -10:] == PAPER).all()  # nothing is written past its cell


def test_no_records() -> None:
    assert sheet([], 4, 100).shape == (100, 100, 3)


@pytest.mark.parametrize(("columns", "side"), [(0, 10), (1, 0)])
def test_a_wrong_call(columns: int, side: int) -> None:
    with pytest.raises(ValueError, match=f"columns is {columns} and side {side}"):
        contact_sheet([record(1)], columns, side)
