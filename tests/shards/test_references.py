"""References: round trips, equal bytes for equal records, and what they take."""

import dataclasses
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ImageRecord,
    ImageRef,
    MaskImage,
    Part,
    Rle,
    Segment,
    Steps,
)
from recordmill.transforms.shards.references import (
    ListedRecord,
    annotations_fingerprint,
    listed_content,
    pack_record,
    pack_reference,
    plain_record,
    reference_digest,
    reference_record,
    unpack_record,
)
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.spool import Spool

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = text | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.binary() | st.booleans()
values = scalars | st.lists(scalars).map(tuple)
numbers = st.floats(allow_nan=False)
labels = text | st.integers(0, 2**60)
refs = st.builds(
    ImageRef,
    uri=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    offset=st.integers(0, 2**60),
    length=st.none() | st.integers(0, 2**60),
    pixels=st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999), st.integers(1, 4)),
    version=st.integers(-(2**63), 2**63),
    wrapping=st.just("") | text,
)
boxes = st.builds(Box, numbers, numbers, numbers, numbers)
masks = (
    st.lists(st.lists(numbers, min_size=1).map(tuple), min_size=1).map(tuple)
    | st.builds(Rle, st.integers(0, 99), st.integers(0, 99), text | st.lists(st.integers(0, 99)).map(tuple))
    | refs
)
objects = st.builds(
    AnnotatedObject,
    label=labels,
    box=st.none() | boxes,
    mask=st.none() | masks,
    keypoints=st.lists(st.tuples(numbers, numbers, st.integers(0, 2)), max_size=3).map(tuple),
    parts=st.lists(st.builds(Part, text, boxes), max_size=2).map(tuple),
    attributes=st.dictionaries(text, values, max_size=3),
)
mask_images = st.builds(
    MaskImage,
    image=refs,
    colors=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=2).map(tuple),
    segments=st.lists(st.builds(Segment, st.integers(0, 99), labels, st.booleans()), max_size=2).map(tuple),
)
steps = st.builds(
    Steps,
    frames=st.lists(refs, max_size=2).map(tuple),
    labels=st.lists(st.lists(labels, max_size=2).map(tuple), max_size=2).map(tuple),
    lists=st.dictionaries(text, st.lists(values, max_size=3).map(tuple), max_size=2),
)
annotations = st.builds(
    Annotations,
    labels=st.lists(labels).map(tuple),
    features=st.dictionaries(text, values),
    objects=st.lists(objects, max_size=3).map(tuple),
    captions=st.lists(text, max_size=2).map(tuple),
    masks=st.dictionaries(text, mask_images, max_size=3),
    size=st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99)),
    relative=st.booleans(),
    upright=st.booleans(),
    source_id=text,
    steps=st.none() | steps,
)
records = st.builds(
    ImageRecord,
    key=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
    image=st.none() | refs,
    split=st.none() | text,
    annotations=annotations,
    origin=text,
    size=st.integers(0, 2**60),
)


@given(records)
def test_round_trip(record: ImageRecord) -> None:
    packed = pack_record(record)
    assert repr(unpack_record(packed)) == repr(record)
    assert pack_record(unpack_record(packed)) == packed


@given(records, st.integers(0, 9))
def test_reference_round_trip(record: ImageRecord, seed: int) -> None:
    assert reference_record(pack_reference(record, seed)) == record


def test_the_key_is_not_packed_twice() -> None:
    image = ImageRef("/data/photos/cat/0.jpg", version=7)
    record = ImageRecord("cat/0.jpg", image, "train", Annotations(("cat",)), size=9)
    packed = pack_record(record)
    assert packed.count(b"cat/0.jpg") == 1
    assert unpack_record(packed) == record


def test_a_reference_of_a_plain_image_takes_a_hundred_bytes_and_its_key() -> None:
    key = "train/n01440764/n01440764_10026.JPEG"
    image = ImageRef(f"/data/imagenet/{key}", version=1_718_031_234_567_890_123)
    record = ImageRecord(key, image, "train", Annotations(("n01440764",)), size=113_697)
    assert len(pack_reference(record, 0)) == 98 + len(key)


def test_another_version_is_another_reference_to_the_same_content() -> None:
    old, new = (ImageRecord("1.jpg", ImageRef("/d/1.jpg", version=version)) for version in (1, 2))
    assert listed_content(old) == listed_content(new)
    assert reference_digest(pack_reference(old, 0)) != reference_digest(pack_reference(new, 0))


def test_large_annotations_are_spooled(tmp_path: Path) -> None:
    ref = ImageRef("/masks/1.png", version=3)
    found = Annotations(("x",), {"n": (1, b"2")}, (AnnotatedObject("cat", Box(1, 2, 3, 4), ref),) * 50)
    record = ImageRecord("a.jpg", ImageRef("/d/a.jpg", version=1), "train", found, size=5)
    with Spool(str(tmp_path), "annotations", 0) as spool:
        reference = ListedRecord.of(record, spool).reference(record.key, 0)
    assert len(reference) < 250
    assert reference_record(reference, ImageReader().read) == record
    assert reference_digest(reference) == reference_digest(pack_reference(record, 0))
    assert reference_record(reference) == ImageRecord("a.jpg", record.image, "train", size=5)


def test_masks_of_other_classes_have_other_fingerprints() -> None:
    """Classes that are merged or ignored change the masks in which they are, and no others."""
    file = ImageRef("/m.png", version=7)
    segments = (Segment(1, "cat", True), Segment(2, "sky", False))
    panoptic = Annotations(masks={"panoptic": MaskImage(file, segments=segments)})
    drawn = Annotations(objects=(AnnotatedObject("cat", None, file),))
    empty = Annotations(size=(4, 4))
    classes = LabelMap.build([], classes={1: "cat", 2: "sky", 3: "dog"})

    def fingerprint(annotations: Annotations, merged: dict[int, int], need: str = "class_png") -> str:
        record = ImageRecord("k", ImageRef("/i.png", version=1), annotations=annotations)
        ids = dataclasses.replace(classes, merged=merged)
        return annotations_fingerprint(record, ids, frozenset({need}), "map")

    changed = {
        name: [
            number
            for number in range(4)
            if fingerprint(annotations, {number: 255}) != fingerprint(annotations, {})
        ]
        for name, annotations in (("panoptic", panoptic), ("drawn", drawn), ("empty", empty))
    }
    assert changed == {"panoptic": [0, 1, 2], "drawn": [0, 1], "empty": [0]}
    assert fingerprint(drawn, {1: 255}) != fingerprint(drawn, {1: 3})
    assert fingerprint(drawn, {1: 255}, "object_masks") == fingerprint(drawn, {}, "object_masks")


def test_what_pipelines_of_users_give_is_packed_as_plain_values() -> None:
    found = Annotations((np.int64(3), np.str_("x")), {"n": np.float32(1.5), "list": np.arange(3)})  # type: ignore[dict-item, arg-type]
    box = Box(*np.array([1, 2, 3, 4.5], np.float32))
    found = Annotations(found.labels, found.features, (AnnotatedObject(np.str_("cat"), box),))
    expected = Annotations(
        (3, "x"), {"n": 1.5, "list": (0, 1, 2)}, (AnnotatedObject("cat", Box(1.0, 2.0, 3.0, 4.5)),)
    )
    packed = pack_record(plain_record(ImageRecord("a", None, annotations=found)))
    assert packed == pack_record(ImageRecord("a", None, annotations=expected))
    assert repr(unpack_record(packed).annotations) == repr(expected)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (2**64, BadInput, "number out of range"),
        (-(2**63) - 1, BadInput, "number out of range"),
        ((1, 2**70), BadInput, "number out of range"),
        ("\ud800", UnicodeEncodeError, "surrogates not allowed"),
        ({1}, TypeError, "a feature of type set"),
    ],
)
def test_what_cannot_be_packed(value: object, error: type[Exception], message: str) -> None:
    record = ImageRecord("a", None, annotations=Annotations(features={"n": value}))  # type: ignore[dict-item]
    with pytest.raises(error, match=message):
        pack_reference(plain_record(record), 0)


def test_a_value_of_another_type_names_the_record() -> None:
    packed = pack_record(ImageRecord("a.jpg", None, size=1.5))  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"record 'a.jpg' has a value of the wrong type: Expected `int`, got `float`"
    ):
        unpack_record(packed)


def test_the_order_of_masks_is_not_significant_and_that_of_features_is() -> None:
    def packed(names: str, **fields: Callable[[str], object]) -> bytes:
        given = {field: {name: value(name) for name in names} for field, value in fields.items()}
        return pack_reference(ImageRecord("a", None, annotations=Annotations(**given)), 0)  # type: ignore[arg-type]

    assert packed("ab", masks=lambda name: MaskImage(ImageRef(name))) == packed(
        "ba", masks=lambda name: MaskImage(ImageRef(name))
    )
    assert packed("ab", features=str) != packed("ba", features=str)


@pytest.mark.slow
def test_equal_records_have_equal_bytes_in_every_process() -> None:
    """With other seeds of Python's hashes, and on every version of Python: these bytes are recorded."""
    code = "from tests.shards.test_references import golden; print(golden())"
    found = set()
    for seed in ("0", "1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(run.stdout.strip())
    assert found == {golden()}
    assert golden() == (
        "4faa77b03de5489acfc6aee3210f3e5f98cafdae41fb5d759297a5612e6a706783a17401a175a42f642f00a17607a574"
        "7261696e9a91a363617480909080c0c2c2a0c0a17809c400c0 "
        "f3fa9099d0e907f1f47687e2705931eb41b2922b4e8ddf473dd4a03977a76edb"
    )


def golden() -> str:
    """The bytes of a plain record, and a hash of those of one that has everything."""
    plain = ImageRecord("a.jpg", ImageRef("/d/a.jpg", version=7), "train", Annotations(("cat",)), "x", 9)
    file = ImageRef("/m", 1, 2, (3, 4, 1), -5, "zip:1:2:3")
    one = AnnotatedObject(
        "cat", Box(1, 2.5, 3, 4), ((1.0, 2.0, 3.5),), ((1, 2, 2),), (Part("head", Box(0, 0, 1, 1)),)
    )
    run_lengths = AnnotatedObject(3, None, Rle(2, 2, (1, 3)), attributes={"is_crowd": True, "area": 2.5})
    found = Annotations(
        ("cat", 3),
        {"b": 1, "a": (1.5, "x", b"y")},
        (one, run_lengths, AnnotatedObject("dog", mask=file)),
        ("a caption",),
        {"panoptic": MaskImage(file, ((1, 2),), (Segment(1, "cat", True),)), "class": MaskImage(file)},
        (2, 3),
        True,
        True,
        "id",
        Steps((file,), (("cat",),), {"z": (1, (2, 3)), "y": ("x",)}),
    )
    full = pack_reference(ImageRecord("a", file, None, found, "m.csv, line 2", 5), 3)
    return f"{pack_reference(plain, 0).hex()} {hashlib.sha256(full).hexdigest()}"
