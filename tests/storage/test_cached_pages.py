"""Objects that are found by listing many at a time: what is found, and in how many requests."""

from __future__ import annotations

import errno
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage import confinement as cached_pages
from recordmill.transforms.storage.confinement import CachedPages
from recordmill.transforms.storage.file_system import Entry, Status
from recordmill.transforms.storage.gcs import GcsFileSystem
from tests.buckets.server import BucketServer


class Service:
    """Objects of one bucket, listed and asked for; counts the requests."""

    def __init__(self, names: set[str], ignores_offsets: bool = False) -> None:
        self.stored = {
            f"gs://b/{name}": Status(len(name), 100 + at, 1000 + at, 0)
            for at, name in enumerate(sorted(names))
        }
        self.ignores_offsets = ignores_offsets
        self.requests = 0

    def list_page(
        self, folder: str, prefix: str = "", first: str = "", most: int = 1000
    ) -> tuple[list[Entry], bool]:
        self.requests += 1
        assert "\0" not in first
        start = folder if self.ignores_offsets else folder + first
        found = [
            Entry(uri[len(folder) :], uri, False, status)
            for uri, status in sorted(self.stored.items())
            if uri.startswith(folder) and uri >= start
        ]
        assert most == cached_pages.PAGE
        return found[:most], len(found) > most

    def find(self, uri: str) -> Status | None:
        self.requests += 1
        return self.stored.get(uri)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> Service:
        for name in ("list_page", "find"):
            monkeypatch.setattr(GcsFileSystem, name, staticmethod(getattr(self, name)))
        return self

    def answer(self, uri: str) -> tuple[int, int] | None:
        found = self.stored.get(uri)
        return None if found is None else (found.size, found.version)


NAMES = st.lists(
    st.sampled_from(["a", "b", "a-", "0", "é", "\U0001f600", "a.jpg"]), min_size=1, max_size=4
).map("/".join)


@given(
    names=st.sets(NAMES.map("r/".__add__), max_size=40),
    asked=st.lists(NAMES.map("r/".__add__), max_size=60),
    page=st.integers(2, 5),
    remembered=st.sampled_from([1, 30, 1000]),
    few=st.sampled_from([0, 3, 20]),
    ignores_offsets=st.booleans(),
)
def test_what_is_found_is_what_is_there(
    names: set[str], asked: list[str], page: int, remembered: int, few: int, ignores_offsets: bool
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(cached_pages, "PAGE", page)
        monkeypatch.setattr(cached_pages, "_REMEMBERED", remembered)
        monkeypatch.setattr(cached_pages, "_FEW", few)
        service = Service(names | {"q/1.jpg", "r-/1.jpg", "r0/1.jpg"}, ignores_offsets).use(monkeypatch)
        known = CachedPages()
        for name in [*asked, *names]:
            before, uri = service.requests, f"gs://b/{name}"
            assert known.find(uri, "gs://b/r/") == service.answer(uri)
            assert service.requests - before <= 3


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
@pytest.mark.parametrize(("folders", "files"), [(1, 3000), (50, 60), (3000, 1), (300, 10)])
def test_all_of_a_dataset_costs_few_requests(
    monkeypatch: pytest.MonkeyPatch, order: str, folders: int, files: int
) -> None:
    monkeypatch.setattr(cached_pages, "PAGE", 100)
    names = [f"r/{a:04}/{b:04}.jpg" for a, b in itertools.product(range(folders), range(files))]
    service, known = Service(set(names)).use(monkeypatch), CachedPages()
    if order == "random":
        random.Random(0).shuffle(names)
    elif order == "backward":
        names.reverse()
    for name in names:
        assert known.find(f"gs://b/{name}", "gs://b/r/") == service.answer(f"gs://b/{name}")
    # 30 pages, each perhaps three times: of its root, of a folder in it, and a name beyond that
    assert service.requests <= (45 if order == "forward" else 90)


def test_few_of_many_cost_two_requests_each(bucket: str, bucket_server: BucketServer) -> None:
    for number in range(3000):
        bucket_server.put(f"{bucket}/in/{number:04}.jpg", b"x" * (number % 7))
    bucket_server.clear()
    known = CachedPages()
    for name, size in (("0001.jpg", 1), ("2500.jpg", 1), ("0700.jpg", 0), ("none.jpg", None)):
        found = known.find(f"{bucket}/in/{name}", f"{bucket}/in/")
        assert (found and found[0]) == size
    kinds = [request.kind for request in bucket_server.requests]
    # the first thousand; the second, and the one beyond; none; the third, and the one beyond
    assert kinds == ["list", "list", "get-metadata", "list", "get-metadata"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_pages, "PAGE", 10)
    monkeypatch.setattr(cached_pages, "_REMEMBERED", 200)
    names = [f"r/{number:04}.jpg" for number in range(1000)]
    service, known = Service(set(names)).use(monkeypatch), CachedPages()
    for name in names:
        assert known.find(f"gs://b/{name}", "gs://b/r/") == service.answer(f"gs://b/{name}")
        assert len(known._pages) == len(known._starts) <= 10
    # the pages, and those of the root's own listing, which comes after
    assert service.requests <= 1000 / 9 * 2


def test_a_root_that_may_not_be_listed_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def refuse(_: GcsFileSystem, uri: str, **options: object) -> None:
        requests.append(uri)
        raise PermissionError(errno.EACCES, "no", uri)

    monkeypatch.setattr(GcsFileSystem, "list_page", refuse)
    known = CachedPages()
    for name in ("a", "b"):
        with pytest.raises(PermissionError):
            known.find(f"gs://b/r/{name}", "gs://b/r/")
    assert requests == ["gs://b/r/"]
