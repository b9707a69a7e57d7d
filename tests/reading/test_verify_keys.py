"""Keys that several records have, against a dictionary of all of them."""

import re
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.reading.verify_report import merged
from recordmill.transforms.reading.verify_tasks import ENTRY_BYTES, REPEATED, bucketed, key_entry, repeated


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 7))
def test_repeated_keys_are_found_wherever_they_are(keys: list[int], bundles: int) -> None:
    entries = [key_entry(f"photos/{key}.jpg", at % 3, at) for at, key in enumerate(keys)]
    assert all(len(entry) == ENTRY_BYTES for entry in entries)
    buckets: dict[int, list[bytes]] = {}
    for bundle in range(bundles):
        for number, packed in bucketed(b"".join(entries[bundle::bundles])):
            assert 0 <= number < 256
            buckets.setdefault(number, []).append(packed)
    tally = merged(repeated(bucket, "abc") for bucket in buckets.items())
    assert tally.faults.total() == sum(count - 1 for count in Counter(keys).values())
    for fault in tally.first(REPEATED):
        other = fault.record
        assert other is not None
        one, name = re.findall(r"record (\d+) of (.) has the same key", fault.what)[0]
        assert keys[int(one)] == keys[other] and int(one) != other
        assert (name, fault.file) == ("abc"[int(one) % 3], "abc"[other % 3])


def test_no_key_is_repeated_in_none() -> None:
    assert list(bucketed(b"")) == [] and not repeated((0, []), "").faults
