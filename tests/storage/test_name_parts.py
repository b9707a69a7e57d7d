"""Parts of a bucket's names: every key in one of them, of about as many names each, in few requests."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.storage import name_parts as module
from recordmill.transforms.storage.file_system import Entry
from recordmill.transforms.storage.gcs import GcsFileSystem
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange, after, name_parts


@dataclasses.dataclass
class Listing:
    """A folder of a bucket that lists `page` names a request, in place of `FileSystem.list_page`."""

    names: list[str]
    page: int
    requests: int = 0
    heeds_offsets: bool = True

    def list_page(self, uri: str, prefix: str, first: str, most: int) -> tuple[list[Entry], bool]:
        self.requests += 1
        start = bisect.bisect_left(self.names, max(prefix, first) if self.heeds_offsets else prefix)
        size = min(self.page, most)
        found = [name for name in self.names[start : start + size + 1] if name.startswith(prefix)]
        return [Entry(name, f"{uri}/{name}") for name in found[:size]], len(found) > size

    def use(self, patch: pytest.MonkeyPatch) -> Listing:
        patch.setattr(GcsFileSystem, "list_page", lambda _, *args: self.list_page(*args))
        return self


Parted = Callable[..., tuple[list[KeyRange], Listing]]


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> Parted:
    def run(
        names: Iterable[str],
        page: int = 10,
        parts: int = 50,
        shut: frozenset[str] = frozenset(),
        heeds_offsets: bool = True,
    ) -> tuple[list[KeyRange], Listing]:
        listing = Listing(sorted(set(names)), page, heeds_offsets=heeds_offsets).use(monkeypatch)
        return name_parts("gs://b/in", parts, lambda key: key not in shut), listing

    return run


def sizes(ranges: list[KeyRange], names: Iterable[str]) -> list[int]:
    return [sum(map(keys.has, names)) for keys in ranges]


CHARACTERS = ("a", "b", "/", ".", "0", "9", "é", "\ud7ff", "\ue000", "\U0010ffff")


@settings(deadline=None)
@given(
    names=st.lists(st.text(st.sampled_from(CHARACTERS), min_size=1, max_size=6), max_size=60),
    page=st.integers(1, 4),
    parts=st.integers(2, 60),
    shut=st.frozensets(st.text(st.sampled_from("ab/."), max_size=3).map(lambda text: f"{text}/"), max_size=4),
)
def test_every_key_is_in_one_part_and_no_part_begins_in_a_folder_that_is_not_entered(
    names: list[str], page: int, parts: int, shut: frozenset[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Listing(sorted(set(names)), page).use(patch)
        ranges = name_parts("gs://b/in", parts, lambda key: key not in shut)
    assert ranges[0].first == "" and ranges[-1].end == ""
    assert [keys.end for keys in ranges[:-1]] == [keys.first for keys in ranges[1:]]
    for name in names:
        assert [keys.has(name) for keys in ranges].count(True) == 1
    for keys in ranges:
        assert not any(keys.first.startswith(folder) and keys.first != folder for folder in shut)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        [f"IMG_2026_{number:06}.jpg" for number in range(20_000)],
        [f"{number * 2654435761 % 2**32:08x}/0.png" for number in range(20_000)],
        [
            f"2026/{day:02}/{hour:02}/c/{n:05}.jpg"
            for day in range(20)
            for hour in range(24)
            for n in range(40)
        ],
        [f"n{synset:08}/n{synset:08}_{n}.JPEG" for synset in range(1000) for n in range(0, 1300, 65)],
    ],
    ids=["numbers", "hashes", "dates", "synsets"],
)
def test_parts_are_alike_in_size_and_found_in_few_requests(parted: Parted, names: list[str]) -> None:
    ranges, listing = parted(names, page=20, parts=100)
    found = sizes(ranges, names)
    assert sum(found) == len(names)
    assert 100 <= len(ranges) <= 1000
    assert max(found) <= len(names) / 50
    assert listing.requests <= 3 * len(ranges)


def test_what_one_request_lists_is_not_divided(parted: Parted) -> None:
    for names in ([], ["a.jpg"], [f"{number}.jpg" for number in range(10)]):
        ranges, listing = parted(names, page=10)
        assert (ranges, listing.requests) == ([EVERYTHING], 1)


def test_a_service_that_heeds_no_offsets_is_not_asked_for_ever(parted: Parted) -> None:
    names = [f"{number:04}.jpg" for number in range(100)]
    ranges, listing = parted(names, heeds_offsets=False)
    assert sum(sizes(ranges, names)) == 100
    assert listing.requests < 1000


def test_names_that_are_the_beginning_of_others(parted: Parted) -> None:
    names = ["a" * length for length in range(1, 60)]
    for page in (1, 2, 3):
        ranges, _ = parted(names, page=page, parts=20)
        assert sum(sizes(ranges, names)) == 59


@pytest.mark.parametrize("files", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_scripts_of_many_characters(parted: Parted, files: int) -> None:
    names = [
        f"{chr(0x4E00 + one)}{chr(0x4E00 + one * 7 % 3000)}/{file:02}.jpg"
        for one in range(600)
        for file in range(files)
    ]
    ranges, listing = parted(names, page=10, parts=50)
    found = sizes(ranges, names)
    assert sum(found) == len(names)
    assert max(found) <= 40
    assert listing.requests <= 20 * 50


@pytest.mark.slow
def test_an_alphabet_without_end_ends(parted: Parted) -> None:
    names = [f"{chr(0x4E00 + number)}/{file}" for number in range(3000) for file in range(3)]
    ranges, listing = parted(names, page=2, parts=40)
    assert sum(sizes(ranges, names)) == len(names)
    assert listing.requests < 3000


def test_what_comes_after_a_prefix() -> None:
    assert after("a") == "b"
    assert after("a/") == "a0"
    assert after("a\ud7ff") == "a\ue000"
    assert after("a\U0010ffff") == "b"
    assert after("\U0010ffff") is None
    assert after("") is None
    assert module._LOWEST == "\0"


@pytest.mark.parametrize(
    ("keys", "folder", "has", "meets", "within"),
    [
        (KeyRange(), "a/", True, True, KeyRange()),
        (KeyRange("a/", "b"), "a/", True, True, KeyRange()),
        (KeyRange("a/m"), "a/", False, True, KeyRange("m")),
        (KeyRange("", "a/m"), "a/", True, True, KeyRange("", "m")),
        (KeyRange("a/b/c", "a/b/d"), "a/", False, True, KeyRange("b/c", "b/d")),
        (KeyRange("a"), "a/", True, True, KeyRange()),
        (KeyRange("b"), "a/", False, False, KeyRange()),
        (KeyRange("", "a/"), "a/", False, False, KeyRange()),
        (KeyRange("", "a"), "a/", False, False, KeyRange()),
    ],
)
def test_a_range_and_a_folder(keys: KeyRange, folder: str, has: bool, meets: bool, within: KeyRange) -> None:
    assert (keys.has(folder), keys.meets(folder)) == (has, meets)
    if meets:
        assert keys.within(folder) == within
