"""One record of several schemas at once: what it has no mask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import AnnotatedObject, Annotations, Box, ImageRecord, ImageRef, MaskImage
from recordmill.transforms.shards.dataset_plan import record_settings
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.totals import total
from tests.images.drawn import tensorflow_pixels
from tests.protos import Example

BOX = Box(1.0, 1.0, 3.0, 3.0)
SQUARE = ((1.0, 1.0, 3.0, 1.0, 3.0, 3.0, 1.0, 3.0),)
MASK = "image/segmentation/class/encoded"


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        # Painted from objects: what was looked at and holds none is background; what was not, is unknown.
        (Annotations(objects=(AnnotatedObject("cat", BOX, SQUARE),)), Annotations(size=(4, 6)), [0]),
        (Annotations(objects=(AnnotatedObject("cat", BOX, SQUARE),)), Annotations(), None),
        # Masks of classes: where one is missing nothing is known.
        (
            Annotations(
                objects=(AnnotatedObject("cat", BOX),), masks={"class": MaskImage(ImageRef("m.png"))}
            ),
            Annotations(size=(4, 6)),
            None,
        ),
    ],
)
def test_an_image_without_a_mask_among_others(
    tmp_path: Path, first: Annotations, second: Annotations, values: list[int] | None
) -> None:
    path = tmp_path / "b.png"
    Image.new("RGB", (6, 4)).save(path)
    record = ImageRecord("b.png", ImageRef(str(path)), "train", second)
    totals = total([ImageRecord("a.png", ImageRef("a.png"), "train", first), record])
    settings = record_settings(totals, DatasetConfig(schema="detection,segmentation"))
    feature = Example.FromString(RecordEncoder(settings).encode(record).payload).features.feature
    masks = list(feature[MASK].bytes_list.value)
    assert [np.unique(tensorflow_pixels(mask, "uint8")).tolist() for mask in masks] == (
        [] if values is None else [values]
    )
