"""Requests the next images while one is encoded: a service answers slowly."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

# The most that a process holds or has requested, in listed bytes; one image may be larger.
_BYTES = 32 << 20
_IMAGES = 32
# For an image whose size the listing does not have, until a larger one was read.
_UNKNOWN_BYTES = 1 << 20

Loading = Future[bytes] | None

_T = TypeVar("_T")


def read_ahead(
    items: Iterable[_T], begin: Callable[[_T], Loading], listed_bytes: Callable[[_T], int]
) -> Iterator[tuple[_T, Loading]]:
    """Yields each item, in order, and the loading of its image, which begins ahead.

    Args:
        items: records or references.
        begin: begins the loading of an item's image; None if there is nothing to wait for.
        listed_bytes: of the image; 0 where they are not known. It then counts as the largest such image that
            was read before.
    """
    waiting: collections.deque[tuple[_T, Loading, int]] = collections.deque()
    held, unknown = 0, _UNKNOWN_BYTES
    try:
        for item in items:
            listed = listed_bytes(item)
            while waiting and (held + (listed or unknown) > _BYTES or len(waiting) >= _IMAGES):
                first, loading, size = waiting.popleft()
                held -= size
                yield first, loading
                if not listed_bytes(first):
                    unknown = max(unknown, _loaded_bytes(loading))
            loading = begin(item)
            if loading is None and not waiting:
                yield item, None
            else:
                size = listed or unknown
                waiting.append((item, loading, size))
                held += size
        while waiting:
            yield waiting.popleft()[:2]
    finally:
        for _, loading, _ in waiting:
            if loading is not None:
                loading.cancel()


def _loaded_bytes(loading: Loading) -> int:
    if loading is None or not loading.done() or loading.cancelled() or loading.exception() is not None:
        return 0
    return len(loading.result())
