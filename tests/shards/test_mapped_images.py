"""Records of a function of `map_image`: what it returns, and what becomes of the image."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms import internal_errors
from recordmill.transforms.annotations.sample import Sample
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.mask import decode_mask, encode_mask
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    Failure,
    ImageRecord,
    ImageRef,
    JobError,
    MaskImage,
    Segment,
    Steps,
)
from recordmill.transforms.shards import mapped_images
from recordmill.transforms.shards.dataset_plan import measure, record_settings
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.shards.tasks import EncodeTask, encoder_pool
from recordmill.transforms.shards.totals import total
from recordmill.transforms.workers.task import no_progress
from tests.images.drawn import Array, encoded, gradient, tensorflow_pixels
from tests.protos import Example

pytestmark = pytest.mark.slow
PIXELS = gradient(20, 30)


def record_of(folder: Path, data: bytes, name: str = "a.png", **annotations: Any) -> ImageRecord:
    path = folder / name
    path.write_bytes(data)
    return ImageRecord(name, ImageRef(str(path)), "train", Annotations(**annotations), size=len(data))


class Ran:
    """The records, counts and failures of encoding some records with a function."""

    def __init__(self, records: list[ImageRecord], function: Any, **config: Any) -> None:
        mapped = function if function is None else MapImage.of(function, version="1")
        config.setdefault("schema", "classification")
        self.settings = record_settings(total(records), DatasetConfig(map_image=mapped, **config))
        self.stats, self.failures = WriteStats(), list[Failure]()
        self.found: dict[str, Any] = {}
        references = [pack_reference(record, 0) for record in records]
        for _, one, made in RecordEncoder(self.settings).encode_all(references, self.stats, self.failures):
            self.found[one.key] = Example.FromString(made.payload).features.feature
        assert self.stats.written == len(self.found)
        counts = (
            self.stats.written - self.stats.added + self.stats.failed.total() + self.stats.skipped.total()
        )
        assert counts == len(records)

    def image(self, key: str) -> bytes:
        data: bytes = self.found[key]["image/encoded"].bytes_list.value[0]
        return data

    def pixels(self, key: str, dtype: str = "uint8") -> Array:
        return tensorflow_pixels(self.image(key), dtype)


def same(sample: Sample) -> Sample:
    return sample


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_unchanged_sample_is_stored_as_without_a_function(tmp_path: Path, kind: str) -> None:
    record = record_of(tmp_path, encoded(PIXELS, kind), labels=("cat",))
    for policy in (ImagePolicy(), ImagePolicy("jpeg", max_side=16), ImagePolicy("raw")):
        plain, mapped = (Ran([record], function, policy=policy) for function in (None, same))
        assert plain.found == mapped.found
        copied = Ran([record], lambda sample: dataclasses.replace(sample, annotations=sample.annotations))
        assert copied.image("a.png") == Ran([record], None).image("a.png")


def test_new_annotations_alone_keep_the_file(tmp_path: Path) -> None:
    data = encoded(PIXELS, "JPEG")
    record = record_of(tmp_path, data, labels=("cat",))
    other = record_of(tmp_path, data, "b.png", labels=("dog",))
    ran = Ran([record, other], lambda sample: sample.with_annotations(labels=("dog",)))
    assert ran.image("a.png") == data
    assert ran.found["a.png"]["image/class/text"].bytes_list.value[:] == [b"dog"]
    # A tile that is the complete image, and a copy.
    assert Ran([record], lambda sample: [sample.crop(0, 0, 99, 99)]).image("a.png#0") == data
    assert Ran([record], lambda sample: sample.with_pixels(sample.pixels.copy())).image("a.png") == data


@pytest.mark.parametrize(
    ("kind", "image_format"), [("JPEG", b"jpeg"), ("PNG", b"png"), ("TIFF", b"png"), ("WEBP", b"png")]
)
def test_changed_pixels_stay_in_the_family_of_the_source(
    tmp_path: Path, kind: str, image_format: bytes
) -> None:
    record = record_of(tmp_path, encoded(PIXELS, kind, **({"lossless": True} if kind == "WEBP" else {})))
    ran = Ran([record], lambda sample: sample.with_pixels(255 - sample.pixels), policy=ImagePolicy())
    assert ran.found["a.png"]["image/format"].bytes_list.value[:] == [image_format]
    if kind == "JPEG":
        expected = io.BytesIO()
        source = np.asarray(Image.open(io.BytesIO(encoded(PIXELS, kind))))
        Image.fromarray(255 - source).save(expected, "JPEG", quality=90)
        again = np.asarray(Image.open(expected))
        assert np.abs(ran.pixels("a.png").astype(int) - again).mean() < 1
        tables = [Image.open(io.BytesIO(data)) for data in (expected.getvalue(), ran.image("a.png"))]
        assert tables[0].quantization == tables[1].quantization  # type: ignore[attr-defined]
        assert ran.stats.actions == {"reencoded": 1}
    else:
        np.testing.assert_array_equal(ran.pixels("a.png"), 255 - PIXELS)


def test_the_policy_applies_after_the_function(tmp_path: Path) -> None:
    record = record_of(tmp_path, encoded(PIXELS, "PNG"))
    ran = Ran(
        [record],
        lambda sample: sample.crop(0, 0, 10, 20),
        policy=ImagePolicy("png", size=(10, 10), color="gray"),
    )
    assert ran.pixels("a.png").shape == (10, 10, 1)
    deep = (np.arange(600).reshape(20, 30, 1) * 100).astype(np.uint16)
    record = record_of(tmp_path, encode_mask(deep))
    ran = Ran([record], lambda sample: sample.with_pixels(sample.pixels + np.uint16(1)))
    np.testing.assert_array_equal(ran.pixels("a.png", "uint16"), deep + 1)


def halves(sample: Sample) -> Iterator[Sample]:
    height, width = sample.pixels.shape[:2]
    yield sample.crop(0, 0, width // 2, height, "left")
    yield sample.crop(width // 2, 0, width, height)


def test_several_records_of_an_image(tmp_path: Path) -> None:
    data = encoded(PIXELS, "PNG")
    ran = Ran([record_of(tmp_path, data), record_of(tmp_path, data, "b.png")], halves)
    assert list(ran.found) == ["a.png#left", "a.png#1", "b.png#left", "b.png#1"]
    np.testing.assert_array_equal(ran.pixels("a.png#left"), PIXELS[:, :15])
    np.testing.assert_array_equal(ran.pixels("a.png#1"), PIXELS[:, 15:])
    assert (ran.stats.added, ran.stats.source_bytes) == (2, 2 * len(data))
    assert ran.stats.label_counts == {0: 4}


@pytest.mark.parametrize(
    ("result", "detail"),
    [(None, ""), ("too dark", ": too dark"), ([], ": no Sample"), ("", ""), ("\udcff", ": \\udcff")],
)
def test_an_image_is_left_out(tmp_path: Path, result: object, detail: str) -> None:
    ran = Ran([record_of(tmp_path, encoded(PIXELS, "PNG"))], lambda sample: result)
    (failure,) = ran.failures
    assert failure == Failure(
        "a.png", "map", "left out by map_image", f"{__name__}:{NAMES['left out']}{detail}", skipped=True
    )
    assert not ran.stats.failed


NAMES = {
    "left out": "test_an_image_is_left_out.<locals>.<lambda>",
    "wrong": "test_wrong_results.<locals>.<lambda>",
}


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (lambda s: 5, "a result of type int; it may be a Sample, several, None or a text"),
        (lambda s: s.pixels, "result 0 is of type ndarray; it may be a Sample"),
        (lambda s: [s, None], "result 1 is of type NoneType; it may be a Sample"),
        (lambda s: [s, dataclasses.replace(s, suffix="0")], "results 1 and another have the suffix '0'"),
        (lambda s: s.with_pixels(s.pixels / 255), "pixels of float64; they may be an array of uint8 or"),
        (lambda s: s.with_pixels(s.pixels[:, :, 0]), "pixels of shape (20, 30); it may be (height, width"),
        (lambda s: s.with_pixels(s.pixels[:0]), "pixels of shape (0, 30, 3)"),
        (lambda s: s.with_pixels([[1]]), "pixels of type list; they may be an array of uint8 or uint16"),
        (lambda s: s.with_pixels(s.pixels.astype(">u2")), "pixels of >u2; they may be an array of uint8 or"),
        (lambda s: dataclasses.replace(s, masks=None), "'NoneType' object has no attribute 'items'"),
        (lambda s: s.with_annotations(objects=({},)), "an object of type dict; it may be an AnnotatedObject"),
        (lambda s: s.annotations.features.update(blur=1) or s, "feature 'blur', which no record of the"),
        (lambda s: s.with_pixels(s.pixels[:9]), "annotations of size (20, 30) for pixels of size (9, 30)"),
        (lambda s: dataclasses.replace(s, suffix=1), "a suffix of type int; it may be a text"),
        (lambda s: dataclasses.replace(s, key="b"), "another key or split; set its suffix"),
        (lambda s: dataclasses.replace(s, masks={"class": s.pixels}), "a mask 'class' that is uint8 (20, 30"),
        (
            lambda s: dataclasses.replace(s, masks={"depth": s.pixels}),
            "a mask 'depth'; it may be class, inst",
        ),
        (
            lambda s: dataclasses.replace(s, masks={"class": np.full((20, 30), -1)}),
            "a mask 'class' with values -1 to -1; it may have 0 to 65535",
        ),
        (lambda s: s.with_annotations(features={"blur": 1}), "feature 'blur', which no record of the source"),
        (lambda s: s.with_annotations(labels=(1.5,)), "wrong type"),
        (lambda s: s.with_annotations(relative=True), "annotations that are relative"),
    ],
)
def test_wrong_results(tmp_path: Path, make: Callable[[Any], object], detail: str) -> None:
    box = AnnotatedObject("cat", Box(0, 0, 5, 5))
    record = record_of(tmp_path, encoded(PIXELS, "PNG"), labels=("cat",), objects=(box,))
    ran = Ran([record], lambda sample: make(sample))
    (failure,) = ran.failures
    assert (failure.stage, failure.reason) == ("map", "wrong result of map_image")
    assert failure.detail.startswith(f"{__name__}:{NAMES['wrong']}: ") and detail in failure.detail
    assert ran.stats.failed == {("map", "wrong result of map_image"): 1}


def test_a_generator_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_images, "_MOST_RESULTS", 3)
    for more, failed in ((0, 0), (1, 1)):
        results = 3 + 20 * 30 // 64 + more
        ran = Ran([record_of(tmp_path, encoded(PIXELS, "PNG"))], lambda sample, most=results: [sample] * most)
        assert ran.stats.failed.total() == failed
    assert ran.failures[0].detail.endswith("more than 12 results of one image; a generator must end")


def test_an_exception_costs_its_image(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_errors, "_logged", set())

    def raising(sample: Sample) -> Iterator[Sample]:
        yield sample.crop(0, 0, 5, 5)
        if sample.key != "c.png":
            raise FileNotFoundError(2, "No such file", "model.bin")

    records = [record_of(tmp_path, encoded(PIXELS, "PNG"), f"{name}.png") for name in "abc"]
    with caplog.at_level(logging.ERROR):
        ran = Ran(records, raising)
    assert list(ran.found) == ["c.png#0"]
    assert [failure.key for failure in ran.failures] == ["a.png", "b.png"]
    label = f"{__name__}:test_an_exception_costs_its_image.<locals>.raising"
    assert {(one.stage, one.reason, one.detail) for one in ran.failures} == {
        (
            "map",
            "map_image raised an exception",
            f"{label}: FileNotFoundError: [Errno 2] No such file: 'model.bin'",
        )
    }
    (logged,) = caplog.records
    assert logged.message.startswith(f"--map_image is {label}, which raised an exception\nTraceback")


def test_the_detail_has_all_lines_of_an_exception(tmp_path: Path) -> None:
    def raising(sample: Sample) -> Sample:
        raise RuntimeError("no model\nfor this image")

    (failure,) = Ran([record_of(tmp_path, encoded(PIXELS, "PNG"))], raising).failures
    assert failure.detail.endswith("raising: RuntimeError: no model for this image")


def test_the_function_may_name_its_own_reason(tmp_path: Path) -> None:
    def refuse(sample: Sample) -> Sample:
        raise BadInput("map", "too dark", "mean 3")

    ran = Ran([record_of(tmp_path, encoded(PIXELS, "PNG"))], refuse)
    assert ran.failures == [Failure("a.png", "map", "too dark", "mean 3")]


def ends(sample: Sample) -> Sample:
    if sample.key == "b.png":
        os.abort()
    if sample.key == "c.png":
        time.sleep(1000)
    if sample.key == "d.png":
        raise SystemExit(3)
    return sample


@pytest.mark.slow
def test_a_crash_or_hang_costs_its_image(tmp_path: Path) -> None:
    records = [record_of(tmp_path, encoded(PIXELS, "PNG"), f"{name}.png") for name in "abcde"]
    config = DatasetConfig(schema="classification", map_image=MapImage.of(ends))
    settings = record_settings(total(records), config)
    references = [pack_reference(record, 0) for record in records]
    with encoder_pool(settings, no_progress, 1, item_seconds=2) as pool:
        batch = pool.submit(EncodeTask(references)).result(timeout=60)
    assert batch.stats.written == 2
    details = {one.key: (one.stage, one.reason, one.detail) for one in batch.failures}
    label = f"{__name__}:ends: its process"
    assert details == {
        "b.png": ("map", "map_image crashes", f"{label} was ended by SIGABRT, two times"),
        "c.png": ("map", "map_image hangs", f"{label} did not end in 2 seconds, two times"),
        "d.png": ("map", "map_image crashes", f"{label} ended with status 3, two times"),
    }


def test_masks_and_objects_through_the_function(tmp_path: Path) -> None:
    """A tile of an image with all kinds of masks, as two schemas store it."""
    rng = np.random.default_rng(7)
    classes = rng.choice([0, 3, 255], (20, 30)).astype(np.uint8)
    things = rng.choice([0, 300, 70_000], (20, 30))
    packed = np.stack([things & 255, things >> 8 & 255, things >> 16], axis=2).astype(np.uint8)
    (tmp_path / "c.png").write_bytes(encode_mask(classes))
    (tmp_path / "p.png").write_bytes(encoded(packed, "PNG"))
    segments = (Segment(300, "cat", True), Segment(70_000, "dog", True))
    record = record_of(
        tmp_path,
        encoded(PIXELS, "PNG"),
        objects=(AnnotatedObject("cat", Box(2, 3, 20, 18)), AnnotatedObject("dog", Box(0, 0, 4, 4))),
        masks={
            "class": MaskImage(ImageRef(str(tmp_path / "c.png"))),
            "panoptic": MaskImage(ImageRef(str(tmp_path / "p.png")), segments=segments),
        },
    )
    names = {"label_classes": {0: "void", 1: "cat", 2: "dog", 3: "sky"}}
    schema = "detection,segmentation,panoptic"
    window = np.s_[4:20, 6:25]
    ran = Ran([record], lambda sample: sample.crop(6, 4, 25, 20), schema=schema, label_offset=0, **names)
    whole = Ran([record], None, schema=schema, label_offset=0, **names)
    assert not ran.failures
    for name in whole.found["a.png"]:
        if name.endswith("/encoded"):
            before, after = (one.found["a.png"][name].bytes_list.value[0] for one in (whole, ran))
            np.testing.assert_array_equal(tensorflow_pixels(after), tensorflow_pixels(before)[window])
    mask = ran.found["a.png"]["image/segmentation/class/encoded"].bytes_list.value[0]
    np.testing.assert_array_equal(decode_mask(mask), classes[window])
    boxes = [
        list(ran.found["a.png"][f"image/object/bbox/{side}"].float_list.value)
        for side in ("xmin", "ymin", "xmax", "ymax")
    ]
    np.testing.assert_allclose(boxes, [[0], [0], [14 / 19], [14 / 16]])


def test_a_mask_that_is_changed_in_its_mapping(tmp_path: Path) -> None:
    (tmp_path / "c.png").write_bytes(encode_mask(np.zeros((20, 30), np.uint8)))
    masks = {"class": MaskImage(ImageRef(str(tmp_path / "c.png")))}
    record = record_of(tmp_path, encoded(PIXELS, "PNG"), masks=masks)
    ones = np.ones((20, 30), np.uint8)

    def change(sample: Sample) -> Sample:
        sample.masks["class"] = ones  # type: ignore[index]
        return sample

    ran = Ran([record], change, schema="segmentation", label_classes={0: "void", 1: "cat"})
    stored = ran.found["a.png"]["image/segmentation/class/encoded"].bytes_list.value[0]
    np.testing.assert_array_equal(decode_mask(stored), ones)


def test_notes_of_the_source_stay(tmp_path: Path) -> None:
    box = AnnotatedObject("cat", Box(-5, 0, 5, 5))
    record = record_of(tmp_path, encoded(PIXELS, "PNG"), objects=(box,))

    def other_masks(sample: Sample) -> Sample:
        return dataclasses.replace(sample, masks={"class": np.zeros((20, 30), np.uint8)})

    for function in (None, same, halves, other_masks):
        assert Ran([record], function, schema="detection").stats.notes == {"box clipped": 1}


def test_the_size_estimate_runs_the_function(tmp_path: Path) -> None:
    data = encoded(PIXELS, "PNG")
    records = [record_of(tmp_path, data, f"{name}.png") for name in "abcd"]

    def some(sample: Sample) -> Sample | None:
        return sample if sample.key in ("a.png", "b.png") else None

    measured = [measure(records, Ran(records, function).settings) for function in (None, some, halves)]
    assert [(one.records, one.source_bytes) for one in measured] == [(4, 4 * len(data))] * 3
    plain, half, double = (one.encoded_bytes for one in measured)
    assert half == plain // 2
    assert double > 1.2 * plain


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (ImageRecord("s", None, "train", Annotations(steps=Steps((ImageRef("a"),)))), "are sequences"),
        (ImageRecord("f", None, "train", Annotations(features={"x": 1})), "have no images"),
    ],
)
def test_records_without_an_image_are_refused(record: ImageRecord, what: str) -> None:
    message = rf"map_image is {__name__}:same, and the records {what}; leave it out"
    with pytest.raises(JobError, match=message):
        record_settings(total([record]), DatasetConfig(map_image=MapImage.of(same)))


def test_the_digest_names_the_function(tmp_path: Path) -> None:
    record = record_of(tmp_path, encoded(PIXELS, "PNG"))
    config = DatasetConfig(schema="classification")
    digests = {
        record_settings(total([record]), dataclasses.replace(config, map_image=one)).digest()
        for one in (None, MapImage.of(same), MapImage.of(same, "1"), MapImage.of(same, "2"))
    }
    assert len(digests) == 4
