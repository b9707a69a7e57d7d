"""A short run of the image fuzzer; `python -m tests.fuzz.images` makes long ones."""

from __future__ import annotations

import itertools

import pytest

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import StoredImage
from tests.fuzz.image_seeds import seeds
from tests.fuzz.images import POLICIES, finding, inputs, refusal


@pytest.mark.slow
def test_every_seed_is_sound_under_every_policy() -> None:
    for kind, files in seeds().items():
        for number, data in enumerate(files):
            for name, policy in POLICIES.items():
                assert finding(data, policy) == ("", "stored"), f"{kind} {number}, {name}"


def test_a_record_that_states_another_image_is_found() -> None:
    data = seeds()["png"][0]
    wrong = StoredImage(data, "png", 11, 14, 1, "uint8", "Grayscale", ("kept",))
    assert refusal(data, wrong)[0] == "SHAPE"
    cut = StoredImage(data[:-20], "png", 11, 13, 1, "uint8", "Grayscale", ("kept",))
    assert refusal(data, cut)[0] == "TFREFUSES"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_damage_fails_by_name_or_is_read_by_tensorflow(seed: int) -> None:
    counts = {"stored": 0, "failed": 0}
    for kind, data, name in itertools.islice(inputs(seed), 10_000):
        word, detail = finding(data, POLICIES[name])
        assert not word, f"{kind} under {name!r}: {word}, {detail}; {data.hex()}"
        counts["stored" if detail == "stored" else "failed"] += 1
    assert min(counts.values()) > 2_000, counts


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, other = (list(itertools.islice(inputs(5), 200)) for _ in range(2))
    assert one == other
    assert ImagePolicy() in POLICIES.values()
