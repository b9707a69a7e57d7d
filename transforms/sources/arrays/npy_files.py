"""Arrays in .npy files and .npz archives: their headers, where their elements lie, and the elements in order.

The format is NEP 1's, as `numpy.lib.format` reads it. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from recordmill.transforms.records import JobError
from recordmill.transforms.sources.archives.zip_members import naming_damage
from recordmill.transforms.sources.names import one_line
from recordmill.transforms.storage.files import open_file, status_of
from recordmill.transforms.storage.zip_member import LOCAL_HEADER, STORED, data_offset

Elements = np.ndarray[Any, np.dtype[Any]]
_LENGTHS = {(1, 0): struct.Struct("<H"), (2, 0): struct.Struct("<I")}  # of the header, by version
_LONGEST_HEADER = 1 << 14
_MOST_BYTES = 1 << 62  # of all elements: more is no number of any system
_CHUNK_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class StoredArray:
    """An array of a file.

    Attributes:
        path: of the file.
        member: of the .npz archive; empty for a .npy file.
        shape: elements in each dimension.
        dtype: of the elements.
        offset: where the elements begin: in the file, or None in a packed member.
        generation: of the file, as of `Status`.
    """

    path: str
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None
    generation: int

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.path}[{self.member.removesuffix('.npy')}]" if self.member else self.path

    def rows(self) -> Iterator[Elements]:
        """The elements along the first dimension, some rows at a time.

        Raises:
            JobError: there are fewer than the header says, or the archive is damaged.
        """
        count, *inner = self.shape
        row = math.prod(inner) * self.dtype.itemsize
        step = max(1, _CHUNK_BYTES // max(1, row))
        with (
            naming_damage(lambda what: JobError(f"{self.title!r} is damaged: {what}")),
            _opened(self.path, self.member) as stream,
        ):
            _header(stream, self.title)
            for start in range(0, count, step):
                wanted = min(step, count - start)
                data = stream.read(wanted * row)
                if len(data) < wanted * row:
                    raise JobError(f"{self.title!r} is cut off; its header says {self.shape}")
                yield np.frombuffer(data, self.dtype).reshape(wanted, *inner)
            if self.member:
                stream.read(1)  # compares the checksum


def arrays_in(path: str) -> list[StoredArray]:
    """The arrays of a file, in the order of their names.

    Raises:
        ValueError: it is no such file, or it has an array that is not read.
    """
    generation = status_of(path).generation
    if not path.lower().endswith(".npz"):
        with open_file(path) as stream:
            shape, dtype = _header(stream, path)
            offset = stream.tell()
        wanted = offset + math.prod(shape) * dtype.itemsize
        if (size := status_of(path).size) < wanted:
            raise ValueError(f"{path!r} has {size} bytes; its header {shape} means {wanted}")
        return [StoredArray(path, "", shape, dtype, offset, generation)]
    with open_file(path) as stream:
        with _naming(path):
            archive = zipfile.ZipFile(stream)
        with archive:
            members = sorted(archive.infolist(), key=lambda info: info.filename)
            return [_array(path, generation, archive, stream, info) for info in members]


def _naming(path: str) -> contextlib.AbstractContextManager[None]:
    return naming_damage(lambda what: ValueError(f"{path!r} is not a .npz file that can be read: {what}"))


def _array(
    path: str, generation: int, archive: zipfile.ZipFile, stream: IO[bytes], info: zipfile.ZipInfo
) -> StoredArray:
    if info.flag_bits & 1:
        raise ValueError(f"{path!r} has the encrypted member {info.filename!r}")
    with _naming(path):
        opened = archive.open(info)
    with opened as member:
        shape, dtype = _header(member, f"{path}[{info.filename}]")
        length = member.tell()
    offset = None
    if info.compress_type == STORED:
        with _naming(path):
            stream.seek(info.header_offset)
            offset = info.header_offset + data_offset(stream.read(LOCAL_HEADER.size)) + length
    if info.file_size < length + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{path!r}: {info.filename!r} has fewer bytes than its header says")
    return StoredArray(path, info.filename, shape, dtype, offset, generation)


@contextlib.contextmanager
def _opened(path: str, member: str) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(open_file(path))
        if member:
            archive = stack.enter_context(zipfile.ZipFile(stream))
            stream = stack.enter_context(archive.open(member))
        yield stream


def _header(stream: IO[bytes], title: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array; the stream is then at its elements."""
    try:
        shape, is_fortran, dtype = _parsed(stream)
    except Exception as error:  # of Python's parser of literals, which a header is: it has many
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{title!r} is not a NumPy array that can be read: {one_line(error)}") from error
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"{title!r} holds {'objects' if dtype.hasobject else dtype}, which are not read")
    if is_fortran and len(shape) > 1:
        raise ValueError(
            f"{title!r} is in Fortran order; save it in C order, with numpy.ascontiguousarray(array)"
        )
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"{title!r} has a header that says {str(shape)[:100]}, which no array has")
    return shape, dtype


def _parsed(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """What a header says. Raises ValueError, or whatever else NumPy does."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of the format is not read")
    size = stream.read(_LENGTHS[version].size)
    if len(size) < _LENGTHS[version].size:
        raise ValueError("it is cut off in its header")
    (length,) = _LENGTHS[version].unpack(size)
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header has {length} bytes; up to {_LONGEST_HEADER} are read")
    shape, is_fortran, dtype = readers[version](io.BytesIO(size + stream.read(length)))
    return tuple(map(int, shape)), is_fortran, dtype
