"""The file system of Google Cloud Storage.

Source: https://cloud.google.com/storage/docs/json_api/v1
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import io
import itertools
import mimetypes
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, BinaryIO, ParamSpec, TypeVar

import google_crc32c

from recordmill.transforms.storage.file_system import (
    LEAST_CONTENT_VERSION,
    ChangedError,
    Entry,
    FileSystem,
    List,
    Reader,
    Status,
    content_version,
    file_system,
    hash63,
    version_of_bytes,
)
from recordmill.transforms.storage.gcs_client import (
    blob,
    bucket,
    called,
    client,
    is_anonymous,
    pool,
    split_uri,
)
from recordmill.transforms.storage.zip_member import check_size

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from google.cloud.storage import Blob

_ITEM_FIELDS = "name,size,generation,crc32c,md5Hash,updated"
_LIST_FIELDS = f"items({_ITEM_FIELDS}),prefixes,nextPageToken"
# A piece of a file that is sent: held in memory, and sent again after a broken connection.
_UPLOAD_PIECE = 16 << 20
_HELD_BYTES = 16 << 20  # of contents that are written in one request
_BUFFER = 4 << 20
_FIRST_READ = 1 << 20
# An answer that breaks off is requested again: the client's own continuation has no checksum of all of it.
_IN_ONE_PIECE = {"single_shot_download": True}
# https://cloud.google.com/storage/docs/buckets#naming
_BUCKET_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/(?!/)|$)")

# Containers of which a process holds a copy: one request for all their images.
_LARGEST_COPY = 256 << 20
_ALL_COPIES = 1 << 30

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")


class GcsFileSystem(FileSystem):
    """Objects as files; a folder is what names with a `/` have in common."""

    scheme = "gs"

    def check_path(self, path: str) -> None:
        container, name = split_uri(path)
        if not container:
            raise ValueError("it names no bucket, as gs://BUCKET/FOLDER does")
        parts = name.rstrip("/").split("/") if name.strip("/") else ()
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(
                "names in a bucket are read to the letter, and may have no part //, . or .. here"
            )

    def check_output_path(self, folder: str) -> None:
        if not _BUCKET_URI.match(folder):
            raise ValueError("it may be gs://BUCKET/FOLDER, with a bucket of 3 letters or more")

    def check_output(self, folder: str) -> None:
        try:
            next(_pages(folder, _prefix(folder), None, most=1))
        except FileNotFoundError as error:
            raise ValueError(f"and there is no bucket {split_uri(folder)[0]!r}") from error

    def is_anonymous(self) -> bool:
        return is_anonymous()

    def find(self, path: str) -> Status | None:
        if not split_uri(path)[1]:
            return None
        found = blob(path)
        try:
            called(path, found.reload)
        except FileNotFoundError:
            return None
        return _status(found)

    def is_folder(self, path: str) -> bool:
        """Whether there is an object below a URI, or the URI is an existing bucket. One request."""
        prefix = _prefix(path)
        try:
            # A page may be empty, and others follow. An empty bucket is a folder, too.
            return any(page.num_items or not prefix for page in _pages(path, prefix, None, most=1))
        except FileNotFoundError:
            return False

    def missing(self, path: str) -> str:
        return "object or folder" if self.is_folder(f"gs://{split_uri(path)[0]}") else "bucket"

    def is_content_version(self, version: int) -> bool:
        """Whether the object has an MD5; a composed object has none."""
        return version >= LEAST_CONTENT_VERSION

    def is_unchanged(self, path: str, version: int, data: bytes) -> bool:
        """Needs a request only where the bytes do not have the listed version."""
        return version == version_of_bytes(data) or super().is_unchanged(path, version, data)

    def list(self, folder: str, first: str = "", end: str = "", most: int | None = None) -> Iterator[Entry]:
        """Page by page, one request each. An object that only stands for the folder itself is left out."""
        return itertools.islice(_entries(folder, first, end), most)

    def list_page(
        self, folder: str, prefix: str = "", first: str = "", most: int = 1000
    ) -> tuple[List[Entry], bool]:
        """One request, unless a page is empty and others follow."""
        above = _prefix(folder)
        between = (above + first if first else "", "")
        for page in _pages(folder, above + prefix, None, between, most):
            if found := [_entry(folder, above, item) for item in page]:
                return found, bool(page.raw_page.get("nextPageToken"))
        return [], False

    def list_below(self, folder: str) -> Iterator[Entry]:
        above = _prefix(folder)
        return (_entry(folder, above, item) for page in _pages(folder, above, None) for item in page)

    def open(self, path: str) -> io.BufferedReader:
        """Reads a few MB at a time, all of one generation."""
        return _ObjectReader(_ObjectFile(path, self.stat(path)), _BUFFER)

    def read(self, path: str) -> bytes:
        """One request; the checksum is compared."""
        return bytes(called(path, blob(path).download_as_bytes, **_IN_ONE_PIECE))

    def reader(self) -> Reader:
        return _ImageReader()

    def write(
        self, path: str, pieces: Iterable[bytes], if_generation: int | None = None, unfinished_in: str = ""
    ) -> Status:
        """One request; large contents are collected in a file of this machine first."""
        every = iter(pieces)
        held, size = [], 0
        for piece in every:
            held.append(piece)
            size += len(piece)
            if size > _HELD_BYTES:
                break
        else:
            return _write(path, b"".join(held), if_generation)
        from recordmill.transforms.storage.scratch import scratch_folder

        with tempfile.NamedTemporaryFile(dir=scratch_folder()) as file:
            file.writelines(itertools.chain(held, every))
            file.flush()
            return _upload(file.name, path, if_generation)

    def put(self, local_path: str, path: str, if_generation: int | None = None) -> Status:
        status = _upload(local_path, path, if_generation)
        os.remove(local_path)
        return status

    def link(self, source: str, target: str, if_generation: int | None = None) -> None:
        origin, made = blob(source), blob(target)
        token = None
        while True:
            token, _, _ = called(source, made.rewrite, origin, token=token, if_generation_match=if_generation)
            if token is None:
                return

    def remove(self, path: str, if_generation: int | None = None, within: float | None = None) -> None:
        """One request. Where the answer of a try was lost, the next one raises FileNotFoundError."""
        called(path, blob(path).delete, within=within, if_generation_match=if_generation)

    def each(self, function: Callable[[_T], _R], items: Iterable[_T]) -> List[_R]:
        listed = list(items)
        return list(pool().map(function, listed)) if len(listed) > 1 else [function(item) for item in listed]

    def submit(self, function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T] | None:
        return pool().submit(function, *args, **options)


def _bounded(uri: str, **options: Any) -> bytes:
    file = _Bounded(uri)
    blob(uri).download_to_file(file, **options)
    return file.getvalue()


class _Bounded(io.BytesIO):
    """Takes as many bytes as an image may have."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._uri = uri

    def write(self, data: ReadableBuffer, /) -> int:
        check_size(self.tell() + memoryview(data).nbytes, self._uri)
        return super().write(data)


def _read_range(uri: str, start: int, length: int | None, generation: int | None = None) -> bytes:
    """Bytes `start` to `start + length`, or to the end, as far as there are any. One request.

    Raises ChangedError if the object has another generation.
    """
    from google.cloud.exceptions import RequestRangeNotSatisfiable

    if length is not None and length <= 0:
        return b""
    found = blob(uri, generation)
    try:
        data = called(
            uri,
            _unless_past_end(found.download_as_bytes, RequestRangeNotSatisfiable),
            start=start,
            end=None if length is None else start + length - 1,
            raw_download=True,
            **_IN_ONE_PIECE,
        )
    except FileNotFoundError as error:
        if generation is None or file_system(uri).find(uri) is None:
            raise
        raise ChangedError(errno.ESTALE, "it was replaced while the job read it", uri) from error
    return bytes(data)


def _download(uri: str, found: Status, file: BinaryIO) -> None:
    """Writes the bytes of a state of an object into a file; memory does not grow with it.

    Raises ChangedError if the object has another generation, and OSError if its checksum does not match.
    """
    checksum = google_crc32c.Checksum()
    for start in range(0, found.size, _BUFFER):
        piece = _read_range(uri, start, min(_BUFFER, found.size - start), found.generation)
        checksum.update(piece)
        file.write(piece)
    if base64.b64encode(checksum.digest()).decode() != found.crc32c:
        raise OSError(errno.EIO, "its checksum does not match", uri)


def _write(uri: str, data: bytes, if_generation: int | None = None) -> Status:
    """Writes a complete object, in one request. Raises ChangedError if another writer has changed it."""
    made = blob(uri)
    try:
        return _sent(made, uri, made.upload_from_string, data, if_generation)
    except ChangedError:
        present = file_system(uri).find(uri)
        with contextlib.suppress(FileNotFoundError):
            if present is not None and file_system(uri).read(uri) == data:
                return present
        raise


def _upload(path: str, uri: str, if_generation: int | None = None) -> Status:
    """Writes an object from a local file, in pieces: memory does not grow with it. Raises ChangedError."""
    made = blob(uri)
    made.chunk_size = _UPLOAD_PIECE
    return _sent(made, uri, made.upload_from_filename, path, if_generation)


def _sent(
    made: Blob, uri: str, upload: Callable[..., None], contents: bytes | str, if_generation: int | None
) -> Status:
    content_type = mimetypes.guess_type(uri)[0] or "application/octet-stream"
    condition = {"if_generation_match": if_generation}
    called(uri, upload, contents, content_type=content_type, checksum="crc32c", **condition)
    return _status(made)


def _entries(folder: str, first: str, end: str) -> Iterator[Entry]:
    prefix = _prefix(folder)
    between = (prefix + first if first else "", prefix + end if end else "")
    root, start = f"gs://{split_uri(folder)[0]}/", len(prefix)
    for page in _pages(folder, prefix, "/", between):
        found = [Entry(name[start:], root + name[:-1]) for name in page.prefixes]
        found += [_entry(folder, prefix, item) for item in page if len(item.name) > start]
        found.sort()
        yield from found


def _entry(folder: str, above: str, item: Any) -> Entry:
    path = f"gs://{split_uri(folder)[0]}/{item.name}"
    return Entry(item.name[len(above) :], path, False, _status(item))


class _ImageReader(Reader):
    """Ranges of a small container are read from a copy that the process holds."""

    def read(self, path: str) -> bytes:
        return bytes(called(path, lambda **options: _bounded(path, **options), **_IN_ONE_PIECE))

    def read_range(self, path: str, start: int, length: int | None, generation: int | None) -> bytes:
        if generation is not None and (copy := _copies.path(path, generation or None)) is not None:
            with open(copy, "rb", buffering=0) as file:
                return os.pread(file.fileno(), _LARGEST_COPY if length is None else length, start)
        return _read_range(path, start, length, generation or None)


class _Copies:
    """Local copies of containers, by URI and generation; None where a copy is not worth it."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, int | None], str | None] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def path(self, uri: str, generation: int | None) -> str | None:
        key = (uri, generation)
        with self._lock:  # another thread waits for the same copy
            if key not in self._paths:
                self._paths[key] = self._copied(uri, generation)
            return self._paths[key]

    def _copied(self, uri: str, generation: int | None) -> str | None:
        found = file_system(uri).find(uri)
        if found is None or generation not in (None, found.generation):
            return None  # reading a range raises what is wrong
        if found.size > _LARGEST_COPY or self._bytes + found.size > _ALL_COPIES:
            return None
        name = hashlib.sha256(f"{uri} {generation}".encode()).hexdigest()[:16]
        from recordmill.transforms.storage.scratch import scratch_folder

        path = os.path.join(scratch_folder(), f"container-{name}")
        try:
            with open(path, "wb") as file:
                _download(uri, found, file)
        except OSError as error:
            if error.filename != path:
                raise
            return None  # no room
        self._bytes += found.size
        return path


class _ObjectFile(io.RawIOBase):
    """An object that is read in ranges, all of one generation."""

    def __init__(self, uri: str, found: Status) -> None:
        super().__init__()
        self.name = uri
        self._stored = found
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stored.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        # More each time: whoever looks at the start of a large object alone does not wait for much of it.
        length = min(len(view), self._stored.size - self._at, max(3 * self._at, _FIRST_READ))
        data = _read_range(self.name, self._at, length, self._stored.generation)
        if len(data) < length:
            raise OSError(errno.EIO, f"{len(data)} of {length} bytes came", self.name)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


class _ObjectReader(io.BufferedReader):
    """Reads ahead also for callers that ask for a few KB at a time, as readers of text do."""

    def read1(self, size: int = -1, /) -> bytes:
        self.peek(1)
        return super().read1(size)


def _prefix(uri: str) -> str:
    name = split_uri(uri)[1]
    return f"{name.rstrip('/')}/" if name.strip("/") else ""


def _pages(
    uri: str,
    prefix: str,
    delimiter: str | None,
    between: tuple[str, str] = ("", ""),
    most: int | None = None,
) -> Iterator[Any]:
    """The pages of a listing of the bucket of `uri`, one request each. Raises if a page cannot be read."""
    token: str | None = None

    # Each attempt makes a new iterator: a generator that has raised would end without an error.
    def page(**options: Any) -> Any:
        listing = client().list_blobs(
            bucket(split_uri(uri)[0]),
            prefix=prefix or None,
            delimiter=delimiter,
            start_offset=between[0] or None,
            end_offset=between[1] or None,
            fields=_LIST_FIELDS,
            max_results=most,
            page_token=token,
            **options,
        )
        try:
            return next(listing.pages)
        except AttributeError as error:  # an empty body, or JSON that is not an object
            raise OSError(errno.EIO, "the answer is not a listing", uri) from error

    while True:
        found = called(uri, page)
        yield found
        token = found.raw_page.get("nextPageToken")
        if not token:
            return


def _unless_past_end(download: Callable[..., bytes], past_end: type[Exception]) -> Callable[..., bytes]:
    def downloaded(**options: object) -> bytes:
        try:
            return download(**options)
        except past_end:
            return b""

    return downloaded


def _status(found: Any) -> Status:
    """The status of an object, from the client's handle.

    Its version comes from the MD5, so the same bytes written again have the same version; a composed object
    has no MD5.
    """
    size, generation, crc32c = int(found.size or 0), int(found.generation or 0), found.crc32c or ""
    if found.md5_hash:
        version = content_version(found.md5_hash, size)
    else:
        version = hash63(f"{generation} {crc32c}".encode()) % LEAST_CONTENT_VERSION or 1
    modified = int(found.updated.timestamp() * 1_000_000) * 1000 if found.updated else 0
    return Status(size, version, generation, modified, crc32c)


_copies = _Copies()


def _forget() -> None:
    """In a forked child: the copies are the parent's."""
    global _copies
    _copies = _Copies()


os.register_at_fork(after_in_child=_forget)
