import json

from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Annotations, ImageRecord, ImageRef
from recordmill.transforms.shards import packing

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = text | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.binary() | st.booleans()
refs = st.builds(
    ImageRef,
    uri=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    offset=st.integers(0, 2**60),
    length=st.none() | st.integers(0, 2**60),
    pixels=st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999), st.integers(1, 4)),
    version=st.integers(0, 2**63),
)
annotations = st.builds(
    Annotations,
    labels=st.lists(text | st.integers(0, 2**60)).map(tuple),
    features=st.dictionaries(text, scalars | st.lists(scalars).map(tuple)),
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
    packed = packing.pack_record(record)
    assert packing.unpack_record(packed) == record
    assert packing.pack_record(packing.unpack_record(packed)) == packed


@given(records, st.integers(0, 9))
def test_reference_round_trip(record: ImageRecord, seed: int) -> None:
    assert packing.reference_record(packing.pack_reference(record, seed)) == record


def test_the_key_is_not_packed_twice() -> None:
    record = ImageRecord(
        "cat/0.jpg", ImageRef("/data/photos/cat/0.jpg", version=7), "train", Annotations(("cat",)), size=9
    )
    packed = packing.pack_record(record)
    assert packed.count(b"cat/0.jpg") == 1
    assert json.loads(packed) == [["cat/0.jpg", "train", 9, ["cat"], []], ["/data/photos/\0", 7], ""]


def test_where_a_record_lies() -> None:
    record = ImageRecord("train/1", ImageRef("/s/images", 16, 4, (2, 2, 1), 7), origin="m.csv, line 2")
    content, place, origin = json.loads(packing.pack_record(record))
    assert content == json.loads(packing.content_of(record)[0].text) == ["train/1", None, 0, [], []]
    assert (place, origin) == (["/s/images", 7, 16, 4, [2, 2, 1]], "m.csv, line 2")
    assert json.loads(packing.pack_record(ImageRecord("1", None)))[1:] == [[], ""]


def test_another_version_is_another_reference_to_the_same_content() -> None:
    old, new = (ImageRecord("1.jpg", ImageRef("/d/1.jpg", version=version)) for version in (1, 2))
    assert packing.content_of(old) == packing.content_of(new)
    assert packing.pack_reference(old, 0) != packing.pack_reference(new, 0)
