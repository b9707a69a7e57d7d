"""Objects of Google Cloud Storage: whole and in ranges, listed, written on a condition, copied, deleted.

Source: https://cloud.google.com/storage/docs/json_api/v1
"""

from __future__ import annotations

import base64
import errno
import io
import mimetypes
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

import google_crc32c

from recordmill.transforms.storage.cloud import ChangedError, blob, bucket, called, client, pool, split_uri
from recordmill.transforms.storage.stored import StoredObject as StoredObject
from recordmill.transforms.storage.stored import stored_object
from recordmill.transforms.storage.zip_member import check_size

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

NEW = 0
"""The generation of an object that is not there: a write on this condition makes it, and replaces none."""

_ITEM_FIELDS = "name,size,generation,crc32c,md5Hash,updated"
_LIST_FIELDS = f"items({_ITEM_FIELDS}),prefixes,nextPageToken"
_NAME_FIELDS = "items(name),nextPageToken"
# Of a file that is sent in pieces: what is held, and what a broken connection costs.
_UPLOAD_PIECE = 16 << 20
_BUFFER = 4 << 20
_FIRST_READ = 1 << 20
# An answer that breaks off is asked for anew: one that the client goes on with has no checksum of the whole.
_IN_ONE_PIECE = {"single_shot_download": True}

_T = TypeVar("_T")
_R = TypeVar("_R")


class Entry(NamedTuple):
    """What a folder holds: an object, or a folder, which is what names with a `/` have in common.

    Attributes:
        name: within the folder; ends in `/` where it is a folder.
        stored: the object; None for a folder.
    """

    name: str
    stored: StoredObject | None


def stat(uri: str) -> StoredObject | None:
    """The object at a URI, or None, as for a bucket itself. One request."""
    if not split_uri(uri)[1]:
        return None
    found = blob(uri)
    try:
        called(uri, found.reload)
    except FileNotFoundError:
        return None
    return stored_object(split_uri(uri)[0], found)


def is_folder(uri: str) -> bool:
    """Whether there is an object below a URI, or the URI is a bucket that is there. One request."""
    _, prefix = _folder(uri)
    try:
        # A page may be empty, and others follow. An empty bucket is a folder, too.
        return any(page.num_items or not prefix for page in _pages(uri, prefix, None, max_results=1))
    except FileNotFoundError:
        return False


def check_bucket(uri: str) -> None:
    """Asks whether the bucket of a URI may be listed. One request.

    Raises:
        FileNotFoundError: there is no such bucket.
        PermissionError: it may not be listed.
    """
    next(_pages(uri, _folder(uri)[1], None, max_results=1))


def read(uri: str) -> bytes:
    """The bytes of an object, whose checksum is right. One request."""
    return bytes(called(uri, blob(uri).download_as_bytes, **_IN_ONE_PIECE))


def read_image(uri: str) -> bytes:
    """As `read`, of no more bytes than an image may have.

    Raises:
        BadInput: stage `load`, `too large`.
    """
    return bytes(called(uri, lambda **options: _bounded(uri, **options), **_IN_ONE_PIECE))


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
        """Raises BadInput where there are more."""
        check_size(self.tell() + memoryview(data).nbytes, self._uri)
        return super().write(data)


def read_range(uri: str, start: int, length: int | None, generation: int | None = None) -> bytes:
    """Bytes `start` to `start + length`, or to the end, as far as there are any. One request.

    Raises:
        ChangedError: the object is of another generation by now.
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
        if generation is None or stat(uri) is None:
            raise
        raise ChangedError(errno.ESTALE, "it was replaced while the job read it", uri) from error
    return bytes(data)


def download(found: StoredObject, file: BinaryIO) -> None:
    """Writes the bytes of a state of an object into a file; memory does not grow with it.

    Raises:
        ChangedError: the object is of another generation by now, or what came has another checksum.
    """
    checksum = google_crc32c.Checksum()
    for start in range(0, found.size, _BUFFER):
        piece = read_range(found.uri, start, min(_BUFFER, found.size - start), found.generation)
        checksum.update(piece)
        file.write(piece)
    if base64.b64encode(checksum.digest()).decode() != found.crc32c:
        raise OSError(errno.EIO, "its checksum does not match", found.uri)


def write(uri: str, data: bytes, if_generation: int | None = None) -> StoredObject:
    """Writes a whole object. One request.

    Args:
        uri: of the object.
        data: its bytes.
        if_generation: that the object has to be of now, `NEW` where there may be none; None for any.

    Raises:
        ChangedError: it is of another generation, and was not written by a try whose answer was lost.
    """
    made = blob(uri)
    try:
        called(
            uri,
            made.upload_from_string,
            data,
            content_type=_content_type(uri),
            if_generation_match=if_generation,
            checksum="crc32c",
        )
    except ChangedError as changed:
        present = stat(uri)
        try:
            if present is None or read(uri) != data:
                raise
        except FileNotFoundError:
            raise changed from None
        return present
    return stored_object(split_uri(uri)[0], made)


def upload(path: str, uri: str, if_generation: int | None = None) -> StoredObject:
    """Writes a whole object from a local file, in pieces: memory does not grow with it.

    Args:
        path: of the file.
        uri: of the object.
        if_generation: that the object has to be of now, `NEW` where there may be none; None for any.

    Raises:
        ChangedError: it is of another generation: of the one that was written, if only the answer was lost.
    """
    made = blob(uri)
    made.chunk_size = _UPLOAD_PIECE
    called(
        uri,
        made.upload_from_filename,
        path,
        content_type=_content_type(uri),
        if_generation_match=if_generation,
        checksum="crc32c",
    )
    return stored_object(split_uri(uri)[0], made)


def copy(source: str, target: str) -> None:
    """Copies an object within the service; what is at `target` is replaced.

    Raises:
        FileNotFoundError: there is none at `source`.
    """
    origin, made = blob(source), blob(target)
    token = None
    while True:
        token, _, _ = called(source, made.rewrite, origin, token=token)
        if token is None:
            return


def delete(uri: str, if_generation: int | None = None) -> None:
    """Deletes an object.

    Args:
        uri: of the object.
        if_generation: that it has to be of; None for any.

    Raises:
        FileNotFoundError: there is none, any more if an answer was lost.
        ChangedError: it is of another generation.
    """
    called(uri, blob(uri).delete, if_generation_match=if_generation)


def move(source: str, target: str) -> None:
    """Copies an object, then deletes it where it was.

    Raises:
        FileNotFoundError: there is none at `source`.
    """
    copy(source, target)
    try:
        delete(source)
    except FileNotFoundError:
        return  # by a try whose answer was lost


def list_folder(uri: str, first: str = "", end: str = "") -> Iterator[Entry]:
    """What a folder holds, page by page, each page in the order of names; nothing where there is none.

    An object that only stands for the folder itself is left out.

    Args:
        uri: of the folder.
        first: the name in it that is asked for first; all of them if empty.
        end: the name before which it ends; none if empty.
    """
    container, prefix = _folder(uri)
    between = (prefix + first if first else "", prefix + end if end else "")
    start = len(prefix)
    for page in _pages(uri, prefix, "/", between=between):
        entries = [Entry(name[start:], None) for name in page.prefixes]
        entries += [
            Entry(item.name[start:], stored_object(container, item))
            for item in page
            if len(item.name) > start
        ]
        yield from sorted(entries, key=_name_of)


def list_tree(uri: str, start: str = "") -> Iterator[StoredObject]:
    """All objects below a folder, in the order of their names.

    Args:
        uri: of the folder.
        start: the URI that the first one has, or comes after; the folder's first if not given.
    """
    container, prefix = _folder(uri)
    for page in _pages(uri, prefix, None, between=(split_uri(start)[1], "")):
        for item in page:
            yield stored_object(container, item)


def list_names(uri: str, prefix: str, first: str = "", most: int | None = None) -> tuple[list[str], bool]:
    """Names below a folder, in their order, of objects at any depth; as many as one request gives.

    Args:
        uri: of the folder.
        prefix: what all of them begin with.
        first: the name that the first one has, or comes after; of all of them if empty.
        most: how many are of use.

    Returns:
        The names, from the folder on, and whether there are more.
    """
    _, above = _folder(uri)
    between = (above + first if first else "", "")
    for page in _pages(uri, above + prefix, None, most, between, _NAME_FIELDS):
        names = [item.name[len(above) :] for item in page]
        if names:  # a page may be empty, and others follow
            return names, bool(page.raw_page.get("nextPageToken"))
    return [], False


def in_parallel(function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """The result for each item; as many requests at a time as there are connections."""
    return list(pool().map(function, items))


class ObjectFile(io.RawIOBase):
    """An object that is read in ranges, all of one generation.

    Args:
        uri: of the object.

    Raises:
        FileNotFoundError: there is none.
    """

    def __init__(self, uri: str) -> None:
        super().__init__()
        found = stat(uri)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", uri)
        self.name = uri
        self._stored = found
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Goes to a place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stored.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads one range; the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        # More each time: whoever looks at the start of a large object alone does not wait for much of it.
        length = min(len(view), self._stored.size - self._at, max(3 * self._at, _FIRST_READ))
        data = read_range(self.name, self._at, length, self._stored.generation)
        if len(data) < length:
            raise OSError(errno.EIO, f"{len(data)} of {length} bytes came", self.name)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


class _ObjectReader(io.BufferedReader):
    """Reads ahead for whom a few KB at a time are enough, too: a text file is read so."""

    def read1(self, size: int = -1, /) -> bytes:
        """Some bytes, of those that are read already if there are any."""
        self.peek(1)
        return super().read1(size)


def open_object(uri: str) -> io.BufferedReader:
    """Opens an object to be read in order, a few MB at a time."""
    return _ObjectReader(ObjectFile(uri), _BUFFER)


def _folder(uri: str) -> tuple[str, str]:
    """(bucket, prefix) of what is below a URI."""
    container, name = split_uri(uri)
    return container, f"{name.rstrip('/')}/" if name.strip("/") else ""


def _pages(
    uri: str,
    prefix: str,
    delimiter: str | None,
    max_results: int | None = None,
    between: tuple[str, str] = ("", ""),
    fields: str = _LIST_FIELDS,
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
            fields=fields,
            max_results=max_results,
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


def _name_of(entry: Entry) -> str:
    return entry.name


def _content_type(uri: str) -> str:
    return mimetypes.guess_type(uri)[0] or "application/octet-stream"
