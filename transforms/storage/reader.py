"""Reading images wherever they are: files of this machine, and objects of buckets, asked for ahead."""

from __future__ import annotations

import base64
import hashlib
import os
from concurrent.futures import Future

from recordmill.transforms.records import BadInput, ImageRef
from recordmill.transforms.storage import cloud, objects
from recordmill.transforms.storage.containers import local_copy
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.local import LocalReader, version_of
from recordmill.transforms.storage.paths import is_remote
from recordmill.transforms.storage.stored import content_version
from recordmill.transforms.storage.zip_member import check_size, unwrapped

_REST = 1 << 30  # more than a container that is copied has


class ImageReader:
    """Reads images; one reader serves one thread."""

    def __init__(self) -> None:
        self._local = LocalReader()

    def read(self, ref: ImageRef) -> bytes:
        """The stored bytes of one image.

        Raises:
            BadInput: as `LocalReader.read`.
            OSError: what may pass, and has not.
        """
        return read_object(ref) if is_remote(ref.uri) else self._local.read(ref)

    def begin(self, ref: ImageRef) -> Future[bytes] | None:
        """Asks for the bytes of an image in a bucket; None where waiting for them is none."""
        return cloud.pool().submit(read_object, ref) if is_remote(ref.uri) else None


class ListedReader(ImageReader):
    """Reads images, and tells of which the file has changed since it was listed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: set[ImageRef] = set()

    def read(self, ref: ImageRef) -> bytes:
        """As `ImageReader.read`."""
        return self._noted(ref, super().read(ref))

    def begin(self, ref: ImageRef) -> Future[bytes] | None:
        """As `ImageReader.begin`."""
        return cloud.pool().submit(self._read_object, ref) if is_remote(ref.uri) else None

    def is_as_listed(self, ref: ImageRef) -> bool:
        """Whether an image, when it was read, was of the state that its reference names."""
        return ref not in self._changed

    def _read_object(self, ref: ImageRef) -> bytes:
        return self._noted(ref, read_object(ref))

    def _noted(self, ref: ImageRef, data: bytes) -> bytes:
        if not _is_as_listed(ref, data):
            self._changed.add(ref)
        return data


def _is_as_listed(ref: ImageRef, data: bytes) -> bool:
    """Whether what was just read is of the state that its reference names, as far as that can be told."""
    if ref.version <= 0:  # it is not known, or a spool's own
        return True
    if not is_remote(ref.uri):
        try:
            return version_of(os.stat(ref.uri)) == ref.version
        except OSError:
            return False
    if ref.length is not None or ref.offset:  # read of this generation
        return True
    md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
    return ref.version == content_version(md5, len(data)) or _version_now(ref.uri) == ref.version


def _version_now(uri: str) -> int:
    """The version of an object; 0 where there is none."""
    found = objects.stat(uri)
    return 0 if found is None else found.version


def read_object(ref: ImageRef) -> bytes:
    """The stored bytes of one image in a bucket. One request, or one for all images of a small container.

    Raises:
        BadInput: stage `load`; `not found`, `permission denied`, `out of range`, `empty file`, `too large`,
            or as `unwrapped`.
        OSError: what may pass, and has not.
    """
    whole = ref.length is None and ref.offset == 0
    generation = ref.version if ref.version > 0 else None  # below 0 it is the piece's own, in a spool
    try:
        if not ref.wrapping:
            check_size(ref.length or 0, f"{ref.uri} at byte {ref.offset}")
        if whole:
            data = objects.read_image(ref.uri)
        elif ref.offset < 0 or (ref.length or 0) < 0:
            raise _out_of_range(ref)
        elif ref.version and (copy := local_copy(ref.uri, generation)) is not None:
            with open(copy, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), _REST if ref.length is None else ref.length, ref.offset)
        else:
            data = objects.read_range(ref.uri, ref.offset, ref.length, generation)
    except OSError as error:
        raise os_fault(error, "load") from error
    if ref.length is not None and len(data) < ref.length:
        raise _out_of_range(ref)
    if not data:
        raise BadInput("load", "empty file", ref.uri if whole else f"{ref.uri} at byte {ref.offset}")
    return unwrapped(data, ref.wrapping) if ref.wrapping else data


def _out_of_range(ref: ImageRef) -> BadInput:
    wanted = "the rest" if ref.length is None else f"{ref.length} bytes"
    return BadInput("load", "out of range", f"{wanted} from byte {ref.offset} of {ref.uri}")
