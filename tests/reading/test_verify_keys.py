"""Keys that several records have, against a dictionary of all of them."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.reading.verify_keys import BUCKETS, ENTRY_BYTES, bucketed, key_entry, repeated


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 7))
def test_repeated_keys_are_found_wherever_they_are(keys: list[int], bundles: int) -> None:
    entries = [key_entry(f"photos/{key}.jpg", at % 3, at) for at, key in enumerate(keys)]
    assert all(len(entry) == ENTRY_BYTES for entry in entries)
    buckets: dict[int, list[bytes]] = {}
    for bundle in range(bundles):
        for number, packed in bucketed(b"".join(entries[bundle::bundles])):
            assert 0 <= number < BUCKETS
            buckets.setdefault(number, []).append(packed)
    found = [pair for packed in buckets.values() for pair in repeated(packed)]
    counts = Counter(keys)
    assert len(found) == sum(count - 1 for count in counts.values())
    for (_, one), (shard, other) in found:
        assert keys[one] == keys[other] and one != other and shard == other % 3


def test_no_key_is_repeated_in_none() -> None:
    assert list(bucketed(b"")) == [] and repeated([]) == []
