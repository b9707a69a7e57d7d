import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Annotations, BadInput, ImageRecord
from recordmill.transforms.shards import references as hashing


def test_golden_hashes() -> None:
    """A change here moves every record of every dataset: it must be meant."""
    assert hashing.order_hash("cat/1.jpg", 0).hex() == "f361365e7737adf3"
    assert hashing.order_hash("cat/1.jpg", 1).hex() == "857a169bfe32b4bb"
    assert hashing.key_digest("cat/1.jpg") == 0x6712A532086A1B00
    assert hashing.split_of("cat/1.jpg", {"train": 0.5, "val": 0.5}) == "val"


@given(st.binary(min_size=8, max_size=8), st.integers(1, 1000))
def test_shards_are_ranges_of_the_hash(hashed: bytes, num_shards: int) -> None:
    shard = hashing.shard_of(hashed, num_shards)
    assert 0 <= shard < num_shards
    # Against the definition, in exact arithmetic.
    place = int.from_bytes(hashed, "big")
    assert shard * 2**64 <= place * num_shards < (shard + 1) * 2**64


def test_fractions_are_met() -> None:
    fractions = {"train": 0.8, "val": 0.15, "test": 0.05}
    found = [hashing.split_of(f"image-{number}", fractions) for number in range(20_000)]
    for name, fraction in fractions.items():
        assert abs(found.count(name) / 20_000 - fraction) < 0.01


def test_growing_the_first_split_moves_nothing_out_of_it() -> None:
    keys = [f"image-{number}" for number in range(2000)]
    small = {key for key in keys if hashing.split_of(key, {"train": 0.5, "val": 0.5}) == "train"}
    large = {key for key in keys if hashing.split_of(key, {"train": 0.7, "val": 0.3}) == "train"}
    assert small < large


def test_fractions_that_add_up_to_just_below_one_lose_nobody() -> None:
    fractions = {"a": 0.1, "b": 0.2, "c": 0.7 - 1e-7}
    assert {hashing.split_of(str(number), fractions) for number in range(1000)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("field", "pattern", "group"),
    [
        (None, None, "p7/a.jpg"),
        ("patient", None, "7"),
        (None, r"^[^/]+", "p7"),
        (None, r"^p(\d+)/", "7"),
    ],
)
def test_group(field: str | None, pattern: str | None, group: str) -> None:
    record = ImageRecord("p7/a.jpg", None, annotations=Annotations(features={"patient": 7}))
    assert hashing.group_of(record, field, re.compile(pattern) if pattern else None) == group


@pytest.mark.parametrize(("field", "pattern"), [("doctor", None), (None, "^x")])
def test_no_group_is_a_failed_record(field: str | None, pattern: str | None) -> None:
    record = ImageRecord("p7/a.jpg", None, annotations=Annotations(features={"patient": 7}))
    with pytest.raises(BadInput) as error:
        hashing.group_of(record, field, re.compile(pattern) if pattern else None)
    assert (error.value.key, error.value.reason) == ("p7/a.jpg", "no value to group by")
