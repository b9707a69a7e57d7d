"""FindDuplicates against a dictionary, also if hashes are equal only in part."""

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import msgspec
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.transforms.duplicates import (
    FindDuplicates,
    HashImages,
    LocatedImage,
    SelectImages,
    images_of_batch,
)
from recordmill.transforms.shards.duplicates import HashedImage
from recordmill.transforms.shards.references import encode


def images(seed: int, count: int, identities: int) -> list[tuple[str, HashedImage]]:
    """Images in two splits; each third shares only the first eight bytes of its identity with another."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        identity = chance.randrange(identities)
        start = identity if identity % 3 else identity + 1
        decoded = start.to_bytes(8, "little") + identity.to_bytes(8, "little")
        labels = (f"c{chance.randrange(2)}",)
        image = HashedImage(f"{number:05}", labels, bytes([chance.randrange(2)]) * 16, decoded)
        found.append((chance.choice(("train", "test")), image))
    return found


def groups_of(found: list[tuple[str, HashedImage]]) -> list[dict[str, Any]]:
    """The groups by a dictionary of all identities."""
    every: defaultdict[bytes, list[tuple[str, HashedImage]]] = defaultdict(list)
    for split, image in found:
        every[image.decoded].append((split, image))
    return [
        {
            "across_splits": len({split for split, _ in same}) > 1,
            "different_labels": len({image.labels for _, image in same}) > 1,
            "bytes_equal": len({image.content for _, image in same}) == 1,
            "records": [{"key": one.key, "split": split, "labels": list(one.labels)} for split, one in same],
        }
        for same in every.values()
        if len(same) > 1
    ]


@pytest.mark.parametrize(
    ("count", "identities"), [(0, 1), pytest.param(200, 1, marks=pytest.mark.slow), (1000, 700)]
)
def test_they_are_those_of_a_dictionary(count: int, identities: int) -> None:
    found = images(7, count, identities)
    batches = [
        (split, encode([image for other, image in found[start : start + 90] if other == split]))
        for start in range(0, count, 90)
        for split in ("train", "test")
    ]
    with beam.Pipeline() as pipeline:
        lines = pipeline | beam.Create(batches) | FindDuplicates(images_of_batch)
        assert_that(lines | beam.Map(msgspec.json.decode), equal_to(groups_of(found)))


def test_a_part_of_the_hash_selects() -> None:
    def read(numbers: list[int]) -> Iterator[LocatedImage]:
        for at, number in enumerate(numbers):
            image = HashedImage(str(number), (), number.to_bytes(16, "big"))
            yield LocatedImage(image, "train", 3, at)

    one, other = 5 << 65, (5 << 65) + 1  # equal in their first eight bytes
    hashing = HashImages(read)
    hashing.start_bundle()
    assert list(hashing.process([one, other])) == []
    assert [window.value for window in hashing.finish_bundle()] == [(0, (5).to_bytes(8, "little") * 2)]
    selecting = SelectImages(read)
    selecting.start_bundle()
    selected = list(selecting.process([one, other, 1, 6 << 65, 9 << 120], [(5).to_bytes(8, "little")]))
    assert [identity for identity, _ in selected] == [number.to_bytes(16, "big") for number in (one, other)]
    selecting.start_bundle()
    assert list(selecting.process([one], [])) == []
