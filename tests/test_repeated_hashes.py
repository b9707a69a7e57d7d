"""The hashes that occur more than once, against a count of each."""

from array import array
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.repeated_hashes import HashBuckets, RepeatedHashes, packed_repeated

_HASHES = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([0, 1 << 55, (1 << 55) - 1, 2**63 - 1]))
_FEW = st.integers(0, 7).map(lambda number: number << 60 | number)  # 63 bits


@given(st.lists(st.tuples(_HASHES, st.booleans()), max_size=50))
def test_each_hash_is_in_its_bucket(added: list[tuple[int, bool]]) -> None:
    buckets = HashBuckets()
    for hashed, forbidden in added:
        (buckets.forbid if forbidden else buckets.add)([hashed])
    taken = list(buckets.take())
    assert list(buckets.take()) == []
    assert len({bucket for bucket, _ in taken}) == len(taken)
    found = [(bucket, hashed) for bucket, packed in taken for hashed in array("Q", packed)]
    expected = [(hashed >> 55, hashed | forbidden << 63) for hashed, forbidden in added]
    assert sorted(found) == sorted(expected)


@given(st.lists(_FEW), st.lists(_FEW), st.integers(0, 3))
def test_repeated_hashes_are_those_that_occur_twice_or_that_are_forbidden(
    hashes: list[int], forbidden: list[int], cut: int
) -> None:
    buckets = HashBuckets()
    buckets.add(hashes)
    buckets.forbid(forbidden)
    found = []
    for _, packed in buckets.take():
        at = 8 * cut
        found += packed_repeated([packed[:at], packed[at:]])  # as two bundles make them
    expected = {one for one, times in Counter(hashes).items() if times > 1 or one in forbidden}
    every = sorted({*hashes, *forbidden})
    assert sorted(np.frombuffer(b"".join(found), np.uint64).tolist()) == sorted(expected)
    assert RepeatedHashes(found).has(every).tolist() == [one in expected for one in every]


def test_a_bucket_without_repeated_hashes_has_no_element() -> None:
    assert list(packed_repeated([array("Q", [3, 1]).tobytes(), array("Q", [2]).tobytes()])) == []
