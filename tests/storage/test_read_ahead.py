"""Images that are requested ahead: in order, and bounded in bytes and in number."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from recordmill.transforms.storage.reader import _BYTES, _IMAGES, Loading, read_ahead

MIB = 1 << 20


class Service:
    """Counts, as each image is read, it and those that are requested ahead."""

    def __init__(self, sizes: list[int], listed: bool = True) -> None:
        self.sizes = sizes
        self.listed = listed
        self.requested: dict[int, Future[bytes]] = {}
        self.bytes: list[int] = []
        self.images: list[int] = []

    def begin(self, item: int) -> Loading:
        self.requested[item] = Future()
        return self.requested[item]

    def listed_bytes(self, item: int) -> int:
        return self.sizes[item] if self.listed else 0

    def read(self) -> Iterator[int]:
        for item, loading in read_ahead(range(len(self.sizes)), self.begin, self.listed_bytes):
            assert loading is self.requested[item]
            self.bytes.append(sum(self.sizes[number] for number in self.requested))
            self.images.append(len(self.requested))
            loading.set_result(bytes(self.sizes[item]))
            yield item
            del self.requested[item]


def test_bounded_in_bytes_and_in_number() -> None:
    large = Service([5 * MIB] * 40)
    assert list(large.read()) == list(range(40))
    assert max(large.bytes) == 30 * MIB
    small = Service([1000] * 100)
    assert list(small.read()) == list(range(100))
    assert max(small.images) == _IMAGES


def test_one_image_may_be_larger() -> None:
    service = Service([MIB, 2 * _BYTES, MIB, MIB])
    assert list(service.read()) == [0, 1, 2, 3]
    assert service.images == [1, 1, 2, 1]
    assert max(service.bytes) == 2 * _BYTES


def test_images_of_unknown_size_count_as_the_largest_before_them() -> None:
    service = Service([8 * MIB] * 60, listed=False)
    assert list(service.read()) == list(range(60))
    assert service.images[0] == _IMAGES
    assert max(service.bytes[_IMAGES:]) == _BYTES


def test_nothing_is_held_where_there_is_nothing_to_wait_for() -> None:
    pulled = []

    def items() -> Iterator[int]:
        for number in range(5):
            pulled.append(number)
            yield number

    for item, loading in read_ahead(items(), lambda _: None, lambda _: MIB):
        assert loading is None
        assert pulled[-1] == item


def test_requests_that_nobody_waits_for_are_cancelled() -> None:
    service = Service([MIB] * 10)
    reading = read_ahead(range(10), service.begin, service.listed_bytes)
    assert next(reading)[0] == 0
    reading.close()  # type: ignore[attr-defined]
    assert not service.requested[0].cancelled()
    assert all(service.requested[number].cancelled() for number in range(1, 10))


@pytest.mark.parametrize("error", [None, OSError()])
def test_images_that_fail_or_are_not_there(error: OSError | None) -> None:
    """Those without an image are yielded in their turn."""
    failing: Future[bytes] = Future()
    failing.set_exception(error or ValueError())
    loadings = [failing, None, failing, None] * 20
    read = list(read_ahead(range(80), loadings.__getitem__, lambda _: 0))
    assert read == list(enumerate(loadings))
