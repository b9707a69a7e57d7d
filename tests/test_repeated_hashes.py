"""HashBuckets: all hashes, each in the bucket of its first bits, whether forbidden or not."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.repeated_hashes import HashBuckets, packed_repeated

HASHES = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([0, 1 << 55, (1 << 55) - 1, 2**63 - 1]))


@given(st.lists(st.tuples(HASHES, st.booleans()), max_size=50))
def test_each_hash_is_in_its_bucket(added: list[tuple[int, bool]]) -> None:
    buckets = HashBuckets()
    for hashed, forbidden in added:
        buckets.add(hashed, forbidden)
    taken = list(buckets.take())
    assert list(buckets.take()) == []
    assert len({bucket for bucket, _ in taken}) == len(taken)
    found = [(bucket, hashed) for bucket, packed in taken for hashed in array("Q", packed)]
    expected = [(hashed >> 55, hashed | forbidden << 63) for hashed, forbidden in added]
    assert sorted(found) == sorted(expected)


def test_repeated_and_forbidden_hashes_are_found() -> None:
    buckets = HashBuckets()
    for hashed, forbidden in ((5, False), (7, False), (5, False), (9, True), (7, True), (9, True)):
        buckets.add(hashed, forbidden)
    ((_, packed),) = buckets.take()
    assert [hashed for part in packed_repeated([packed]) for hashed in array("Q", part)] == [5, 7]
