"""Reads images: complete files, and ranges of containers; requests the next ones of a service ahead."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.file_system import Reader, file_system
from recordmill.transforms.storage.zip_member import check_size, unwrapped


class ImageReader:
    """Reads images; one reader serves one thread."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}

    def read(self, ref: ImageRef) -> bytes:
        """The stored bytes of one image.

        Raises:
            BadInput: stage `load`; `not found`, `not a file`, `permission denied`, `name too long`,
                `not a file name`, `out of range`, `empty file`, `too large`, or as `unwrapped`.
            OSError: a fault that may pass, and has not.
        """
        system = file_system(ref.uri)
        reader = self._readers.get(system.scheme) or self._readers.setdefault(system.scheme, system.reader())
        try:
            return _read(ref, reader)
        except OSError as error:
            error.filename = error.filename or ref.uri
            raise os_fault(error, "load") from error
        except ValueError as error:  # a NUL byte or a lone surrogate: no file can be called that
            raise BadInput("load", "not a file name", repr(ref.uri)) from error

    def begin(self, ref: ImageRef) -> Future[bytes] | None:
        """Requests the bytes of an image; None where there is nothing to wait for."""
        return file_system(ref.uri).submit(self.read, ref)

    def close(self) -> None:
        """Closes the containers that are open; the reader may be used again."""
        for reader in self._readers.values():
            reader.close()


class ListedReader(ImageReader):
    """Reads images, and notes those whose file has changed since it was listed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: set[ImageRef] = set()

    def read(self, ref: ImageRef) -> bytes:
        data = super().read(ref)
        if not _is_as_listed(ref, data):
            self._changed.add(ref)
        return data

    def is_as_listed(self, ref: ImageRef) -> bool:
        """Whether an image, when it was read, was of the state that its reference names."""
        return not self._changed or ref not in self._changed


def _read(ref: ImageRef, reader: Reader) -> bytes:
    if ref.length is None and ref.offset == 0:
        data = reader.read(ref.uri)
        if not data:
            raise BadInput("load", "empty file", ref.uri)
    else:
        data = _read_range(ref, reader)
    return unwrapped(data, ref.wrapping) if ref.wrapping else data


def _read_range(ref: ImageRef, reader: Reader) -> bytes:
    where = f"{ref.uri} at byte {ref.offset}"
    if ref.offset < 0 or (ref.length or 0) < 0:
        raise _out_of_range(ref)
    if not ref.wrapping:  # that of a member may be somewhat longer than what is in it
        check_size(ref.length or 0, where)
    # A version below 0 identifies a piece in a spool, whose files never change.
    generation = max(ref.version, 0) if ref.version else None
    data = reader.read_range(ref.uri, ref.offset, ref.length, generation)
    if len(data) < (ref.length or 0) or (not data and ref.length is None and _size(ref) < ref.offset):
        raise _out_of_range(ref)
    if not data:
        raise BadInput("load", "empty file", where)
    return data


def _is_as_listed(ref: ImageRef, data: bytes) -> bool:
    """Whether the bytes just read have the version of their reference, if it has one."""
    if ref.version <= 0:  # it has none, or it is of a spool
        return True
    system = file_system(ref.uri)
    if (ref.length is not None or ref.offset) and system.has_conditions:
        return True  # the range was read of this generation
    return system.is_unchanged(ref.uri, ref.version, data)


def _size(ref: ImageRef) -> int:
    found = file_system(ref.uri).find(ref.uri)
    return found.size if found is not None else 0


def _out_of_range(ref: ImageRef) -> BadInput:
    wanted = "the rest" if ref.length is None else f"{ref.length} bytes"
    detail = f"{wanted} from byte {ref.offset} of {ref.uri}, which has {_size(ref)} bytes"
    return BadInput("load", "out of range", detail)


# The most that a process holds or has requested, in listed bytes; one image may be larger.
_BYTES = 32 << 20
_IMAGES = 32
# For an image whose size the listing does not have, until a larger one was read.
_UNKNOWN_BYTES = 1 << 20

Loading = Future[bytes] | None

_T = TypeVar("_T")
_L = TypeVar("_L", bound=Future[Any] | None)


def read_ahead(
    items: Iterable[_T], begin: Callable[[_T], _L], listed_bytes: Callable[[_T], int]
) -> Iterator[tuple[_T, _L]]:
    """Yields each item, in order, and the loading of its image, which begins ahead.

    Args:
        items: records or references.
        begin: begins the loading of an item's image; None if there is nothing to wait for.
        listed_bytes: of the image; 0 where they are not known. It then counts as the largest such image that
            was read before, if loading returns its bytes.
    """
    waiting: collections.deque[tuple[_T, _L, int]] = collections.deque()
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
                yield item, loading
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


def _loaded_bytes(loading: Future[Any] | None) -> int:
    if loading is None or not loading.done() or loading.cancelled() or loading.exception() is not None:
        return 0
    return len(loading.result())
