"""Source `numpy`: images and labels as arrays in .npy and .npz files, paired by name.

The format is NEP 1's, as `numpy.lib.format` reads it. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.archives.members import naming_damage
from recordmill.transforms.sources.arrays.sets import (
    ArraySet,
    ArraysSource,
    StoredArray,
    confinement_of,
    next_to_input,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import extension_of, one_line, skipped, split_named
from recordmill.transforms.sources.source import Description
from recordmill.transforms.sources.tree import Tree
from recordmill.transforms.storage.confinement import OUTSIDE
from recordmill.transforms.storage.files import is_file, open_file, status_of
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.zip_member import LOCAL_HEADER, STORED, data_offset

_IMAGES = frozenset(("x", "images", "image", "imgs"))
_LABELS = frozenset(("y", "labels", "label", "targets", "target"))
_LEAST_SIDE = 16  # of a lone picture in colours; what is smaller is several grey ones
_UNNAMED = "neither images nor labels by name"
_READERS = {  # of headers, with the length of a header, by version
    (1, 0): (struct.Struct("<H"), np.lib.format.read_array_header_1_0),
    (2, 0): (struct.Struct("<I"), np.lib.format.read_array_header_2_0),
}
_LONGEST_HEADER = 1 << 14
_MOST_BYTES = 1 << 62  # of all elements: more is no number of any system


class NumpySource(ArraysSource):
    """Lists the images of arrays, as ranges of their files."""

    name = "numpy"
    description = Description(
        reads="`.npy` and `.npz` of uint8 images, (N, H, W) or (N, H, W, C), such as `x_train` and `y_train`",
        label="the array of labels: ids, names, one-hot or several; floats are the feature `target`",
        split="the arrays' names (`x_test`), the file's, or its folder",
        key="`train/00042`",
        example="arrays/\n  x_train.npy\n  y_train.npy\n  x_test.npy\n  y_test.npy",
    )
    no_images = "no array is called like images, such as x_train.npy, images.npy, or x_train in an .npz"

    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        found: list[tuple[str, str, StoredArray]] = []
        unread: list[Failure] = []
        for key, path in _files(config):
            if isinstance(path, Failure):
                if path.reason == OUTSIDE and extension_of(key) in ("npy", "npz"):
                    raise ValueError(f"--input is {config.input!r}: {key} is {path.reason}; {path.detail}")
                unread.append(path)
            elif extension_of(key) not in ("npy", "npz"):
                unread.append(skipped(key, "not an array by name"))
            else:
                found += [(key, member, array) for member, array in _arrays_in(path)]
        several = len({key for key, _, _ in found}) > 1
        chosen: dict[str, dict[str, StoredArray]] = {"images": {}, "labels": {}, "": {}}
        for key, member, array in found:
            part, name = _name_of(key, member, several, is_alone=len(found) == 1)
            if not part or chosen[part].setdefault(name, array) is not array:
                reason = "same set as another array" if part else _UNNAMED
                unread.append(skipped(f"{key}:{member}" if member else key, reason))
        labels = chosen["labels"]
        sets = [
            _set(name, _split_of(name, config), array, labels.pop(name, None))
            for name, array in sorted(chosen["images"].items())
        ]
        return sets, unread + [skipped(array.title, "labels without images") for array in labels.values()]


def _set(name: str, split: str | None, images: StoredArray, labels: StoredArray | None) -> ArraySet:
    shape = images.shape
    if len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > _LEAST_SIDE and labels is None:
        images = dataclasses.replace(images, shape=(1, *shape))
    return ArraySet(name or "images", split, images, labels)


def _files(config: SourceConfig) -> Iterator[tuple[str, str | Failure]]:
    """Keys of the files of a call with their paths; a lone .npy file brings the labels next to it along."""
    if not is_file(config.input):
        for file in Tree.of(config).files():
            yield (file.key, file if isinstance(file, Failure) else file.path)
        return
    folder, own = os.path.split(config.input)
    yield own, real_path(config.input)
    part, subset = _meant(own)
    if part != "images" or extension_of(own) != "npy":
        return
    wanted = "labels", subset
    name = next_to_input(config, lambda name: extension_of(name) == "npy" and _meant(name) == wanted)
    if name is not None:
        yield name, confinement_of(config).leads_to(os.path.join(folder, name))


def _meant(file: str) -> tuple[str, str]:
    """What an array is by the name of its file, `images`, `labels` or nothing, and the set that it is of."""
    name = file.rpartition(".")[0]
    parts = re.split(r"[-_. ]", name)
    for place, part in enumerate(parts):
        meant = "images" if part.lower() in _IMAGES else "labels" if part.lower() in _LABELS else ""
        if meant:
            return meant, "_".join(parts[:place] + parts[place + 1 :])
    return "", name


def is_named(key: str) -> bool:
    """Whether a file is one of images by name, or an archive, which may have some."""
    return extension_of(key) == "npz" or _meant(os.path.basename(key))[0] == "images"


def _name_of(key: str, member: str, several: bool, is_alone: bool) -> tuple[str, str]:
    """What an array is, and the name of its set: folders, file of several .npz, what is in its own name."""
    folder, _, file = key.rpartition("/")
    stem = file.rpartition(".")[0]
    part, subset = _meant(f"{member.removesuffix('.npy')}.npy" if member else file)
    if not part and (is_alone or member == "arr_0.npy"):
        part, subset = "images", "" if member else stem
    above = (folder, stem if several else "") if member else (folder,)
    return part, "/".join(name for name in (*above, subset) if name)


def _split_of(name: str, config: SourceConfig) -> str | None:
    splits = list(map(split_named, re.split(r"[/_.\- ]", name)))
    if not any(splits) and is_file(config.input):
        splits = list(map(split_named, re.split(r"[_.\-]", os.path.basename(config.input))))
    return next(filter(None, reversed(splits)), None)


def _arrays_in(path: str) -> list[tuple[str, StoredArray]]:
    """The arrays of a file by the name of their member of an archive, in the order of these names.

    Raises:
        ValueError: it is no such file, or it has an array that is not read.
    """
    status = status_of(path)
    with open_file(path) as stream:
        if not path.lower().endswith(".npz"):
            shape, dtype = _header(stream, path)
            offset = stream.tell()
            wanted = offset + math.prod(shape) * dtype.itemsize
            if status.size < wanted:
                raise ValueError(f"{path!r} has {status.size} bytes; its header {shape} means {wanted}")
            opened = functools.partial(_opened, path, "", path)
            return [("", StoredArray(path, path, shape, dtype, status, offset, "", opened))]
        with _naming(path):
            archive = zipfile.ZipFile(stream)
        members = sorted(archive.infolist(), key=lambda info: info.filename)
        found = []
        for info in members:
            if info.flag_bits & 1:
                raise ValueError(f"{path!r} has the encrypted member {info.filename!r}")
            with _naming(path):
                member = archive.open(info)
            with member:
                shape, dtype = _header(member, f"{path}[{info.filename}]")
                length = member.tell()
            start: int | None = None
            if info.compress_type == STORED:
                with _naming(path):
                    stream.seek(info.header_offset)
                    start = info.header_offset + data_offset(stream.read(LOCAL_HEADER.size)) + length
            if info.file_size < length + math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{path!r}: {info.filename!r} has fewer bytes than its header says")
            title = f"{path}[{info.filename.removesuffix('.npy')}]"
            opened = functools.partial(_opened, path, info.filename, title)
            array = StoredArray(path, title, shape, dtype, status, start, "ZIP", opened)
            found.append((info.filename, array))
        return found


def _naming(path: str) -> contextlib.AbstractContextManager[None]:
    return naming_damage(lambda what: ValueError(f"{path!r} is not a .npz file that can be read: {what}"))


@contextlib.contextmanager
def _opened(path: str, member: str, title: str) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(open_file(path))
        if member:
            archive = stack.enter_context(zipfile.ZipFile(stream))
            stream = stack.enter_context(archive.open(member))
        _header(stream, title)
        yield stream


def _header(stream: IO[bytes], title: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array; the stream is then at its elements."""
    try:
        version = np.lib.format.read_magic(stream)
        if version not in _READERS:
            raise ValueError(f"version {version} of the format is not read")
        length, read = _READERS[version]
        stated = stream.read(length.size)
        if len(stated) < length.size:
            raise ValueError("it is cut off in its header")
        if (size := length.unpack(stated)[0]) > _LONGEST_HEADER:
            raise ValueError(f"its header has {size} bytes; up to {_LONGEST_HEADER} are read")
        shape, is_fortran, dtype = read(io.BytesIO(stated + stream.read(size)))
        shape = tuple(map(int, shape))
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
