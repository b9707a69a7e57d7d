"""Source `idx`: the files of MNIST, Fashion-MNIST and EMNIST.

The format is Yann LeCun's: two zero bytes, the type of an element, the number of dimensions, a
big-endian uint32 a dimension, then the elements, the last dimension fastest. Images are uint8 of
(number, height, width) or (number, height, width, channels); labels are uint8 of (number).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import itertools
import math
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from transforms.records import Annotations, Failure, ImageRecord, ImageRef, JobError
from transforms.sources.names import printable
from transforms.sources.selection import EXCLUDED, Selection, check_selection, limited
from transforms.sources.source import (
    Description,
    Item,
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from transforms.storage import objects
from transforms.storage.cloud import ChangedError
from transforms.storage.paths import absolute, is_remote, real_path
from transforms.storage.places import is_file, is_folder, names_in, open_file, status_of
from transforms.storage.scratch import scratch_folder
from transforms.storage.write_faults import naming_faults

_NAME = re.compile(r"(?P<set>.*?)[-_.]?(?P<part>images|labels)[-_.]idx\d-[a-z0-9]+(?:\.gz)?")
_SPLITS = {"train": "train", "t10k": "test", "test": "test"}
_UINT8 = 0x08
_CHANNELS = (1, 3, 4)
_CHUNK = 1 << 20
_SNIFFED = 10_000  # names in a bucket that tell what it is
_GZIP_FAULTS = (EOFError, gzip.BadGzipFile, zlib.error)


class IdxSource:
    """Lists the images of IDX files, as ranges of them."""

    name = "idx"
    description = Description(
        reads="`…images-idx3-ubyte` and `…labels-idx1-ubyte` of uint8, plain or gzip, paired by name",
        label="the number in the labels file",
        split="`train`; `t10k` and `test` are `test`",
        key="`train/00042`",
        example="mnist/\n  train-images-idx3-ubyte.gz\n  train-labels-idx1-ubyte.gz",
    )
    untyped = False

    def sniff(self, config: SourceConfig) -> str | None:
        if config.annotations:
            return None
        with readable("--input", config.input):
            name = next((name for name in _names(config, _SNIFFED) if _NAME.fullmatch(name)), None)
        return None if name is None else f"{name!r} is an IDX file by name"

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = ("annotations", "image_root", "image_column", "label_column", "label_pattern")
        check_unused(config, self.name, *unused)
        check_selection(config)
        with readable("--input", config.input):
            pairs, _ = _pairs(config)
            if not pairs:
                raise ValueError(
                    f"--input is {config.input!r}: no file is called like IDX images, "
                    "such as train-images-idx3-ubyte.gz"
                )
            for pair in pairs:
                _read_headers(pair)

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            pairs, _ = _pairs(config)
        return tuple(sorted({pair.split for pair in pairs if pair.split is not None}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def read(self, config: SourceConfig, scratch: str) -> Iterator[Item]:
        return limited(_records(config, scratch), config.limit)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    """The files of one set.

    Attributes:
        name: what keys start with: the split of MNIST's own names, else what the files have in common.
        split: `train`, `test` or None.
        images: path.
        labels: path, or None where there are none.
    """

    name: str
    split: str | None
    images: str
    labels: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class IdxHeader:
    """The header of an IDX file of uint8.

    Attributes:
        shape: number of elements in each dimension.
        offset: bytes of the header: where the elements start.
    """

    shape: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        """Bytes of the whole file, unpacked."""
        return self.offset + math.prod(self.shape)


def _records(config: SourceConfig, scratch: str) -> Iterator[ImageRecord | Failure]:
    pairs, skipped = _pairs(config)
    yield from skipped
    selection = Selection(config)
    for pair in pairs:
        yield from _pair_records(pair, selection, scratch)


def _pair_records(pair: _Pair, selection: Selection, scratch: str) -> Iterator[ImageRecord | Failure]:
    """The records of one set, in the order of its files."""
    try:
        header = _read_headers(pair)
    except ValueError as error:
        raise JobError(str(error)) from error
    count, *size = header.shape
    pixels = (size[0], size[1], size[2] if len(size) > 2 else 1)
    length = math.prod(pixels)
    path, version = absolute(pair.images), status_of(pair.images).version  # before its bytes are read
    if path.endswith(".gz"):
        path, version = _spool(path, version, header, scratch)
    annotations = _annotations(pair.labels, count)
    digits = max(5, len(str(count - 1)))
    for number in range(count):
        known = next(annotations)
        key = f"{pair.name}/{number:0{digits}}"
        if not selection.takes(key):
            yield Failure(key, "list", EXCLUDED, skipped=True)
            continue
        ref = ImageRef(path, header.offset + number * length, length, pixels, version)
        yield ImageRecord(key, ref, pair.split, known, size=length)


def _names(config: SourceConfig, most: int | None = None) -> list[str]:
    """Names of the files to look at, in order: those in the folder, or the one that is the input."""
    if is_file(config.input):
        return [os.path.basename(config.input)]
    return _in_order(config.input, most) if is_folder(config.input) else []


def _in_order(folder: str, most: int | None = None) -> list[str]:
    """Names in a folder, `most` if that is a bucket's; the unpacked ones first."""
    return sorted(names_in(folder, most), key=lambda name: (name.endswith(".gz"), name))


def _pairs(config: SourceConfig) -> tuple[list[_Pair], list[Failure]]:
    """Images with their labels, by name, and what else lies there.

    A lone file as the input brings the labels beside it along.
    """
    is_lone = is_file(config.input)
    folder = os.path.dirname(config.input) if is_lone else config.input
    skip_dirs = set(map(real_path, config.skip_dirs))
    images: dict[str, str] = {}
    labels: dict[str, str] = {}
    skipped = []
    for name in _names(config):
        match = _NAME.fullmatch(name)
        if match is None:
            if real_path(os.path.join(folder, name)) not in skip_dirs:
                skipped.append(Failure(printable(name), "list", "not an IDX file by name", skipped=True))
            continue
        chosen = images if match["part"] == "images" else labels
        taken = chosen.setdefault(match["set"], name)
        if taken != name:
            skipped.append(Failure(name, "list", "same set as another file", taken, skipped=True))
    if is_lone:
        found = {subset: _labels_beside(folder, subset) for subset in images}
        labels.update({subset: name for subset, name in found.items() if name is not None})
    pairs = [_pair(folder, subset, name, labels.pop(subset, None)) for subset, name in images.items()]
    skipped += [Failure(name, "list", "labels without images", skipped=True) for name in labels.values()]
    return pairs, skipped


def _pair(folder: str, subset: str, images: str, labels: str | None) -> _Pair:
    split = _SPLITS.get(re.split("[-_.]", subset)[-1])
    name = _SPLITS.get(subset) or subset or "images"
    return _Pair(name, split, os.path.join(folder, images), labels and os.path.join(folder, labels))


def _labels_beside(folder: str, subset: str) -> str | None:
    for name in _in_order(folder or "."):
        match = _NAME.fullmatch(name)
        if match and match["part"] == "labels" and match["set"] == subset:
            return name
    return None


def _read_headers(pair: _Pair) -> IdxHeader:
    """The header of a set's images.

    Raises:
        ValueError: one of the files is not what it should be, or they do not fit each other.
    """
    header = read_header(pair.images)
    shape = header.shape
    if len(shape) not in (3, 4) or 0 in shape or (len(shape) == 4 and shape[3] not in _CHANNELS):
        raise ValueError(
            f"{pair.images!r} has the shape {shape}; IDX images are (number, height, width), "
            "or (number, height, width, channels) with 1, 3 or 4 channels, and none is 0"
        )
    if pair.labels is not None:
        labels = read_header(pair.labels).shape
        if len(labels) != 1:
            raise ValueError(f"{pair.labels!r} has the shape {labels}; IDX labels are (number)")
        if labels[0] != shape[0]:
            raise ValueError(
                f"{pair.images!r} has {shape[0]} images and {pair.labels!r} has {labels[0]} labels"
            )
    return header


def read_header(path: str) -> IdxHeader:
    """Reads the header of an IDX file, gzip or plain.

    Raises:
        ValueError: it is no IDX file, not of uint8, or (where it is plain) of another length than it says.
    """
    try:
        with _open(path) as stream:
            magic = stream.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0":
                raise ValueError(f"{path!r} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}")
            if magic[2] != _UINT8:
                raise ValueError(
                    f"{path!r} has elements of type 0x{magic[2]:02x}; IDX of uint8 (0x08) is read"
                )
            sizes = stream.read(4 * magic[3])
    except _GZIP_FAULTS as error:
        raise ValueError(f"{path!r} is a broken gzip file: {error}") from error
    if len(sizes) < 4 * magic[3]:
        raise ValueError(f"{path!r} is cut off in its header")
    header = IdxHeader(struct.unpack(f">{magic[3]}I", sizes), 4 + len(sizes))
    if not path.endswith(".gz") and (size := status_of(path).size) != header.end:
        raise ValueError(f"{path!r} has {size} bytes; its header {header.shape} means {header.end}")
    return header


@contextlib.contextmanager
def _open(path: str) -> Iterator[gzip.GzipFile | io.BufferedReader]:
    with open_file(path) as stored:
        yield gzip.GzipFile(fileobj=stored) if path.endswith(".gz") else stored


def _annotations(path: str | None, count: int) -> Iterator[Annotations]:
    """The label of each image, read as it is asked for.

    Raises:
        JobError: there are not as many labels as the header says, or gzip is broken.
    """
    if path is None:
        yield from itertools.repeat(Annotations(), count)
        return
    known = [Annotations((label,)) for label in range(256)]
    read = 0
    with _open(path) as stream:
        try:
            stream.seek(read_header(path).offset)
            while read < count:
                labels = stream.read(min(_CHUNK, count - read))
                read += len(labels)
                # at the end, one byte more also makes gzip compare its checksum
                if not labels or (read == count and stream.read(1)):
                    raise JobError(
                        f"{path!r} has {'more' if labels else read} labels; its header says {count}"
                    )
                yield from map(known.__getitem__, labels)
        except _GZIP_FAULTS as error:
            raise JobError(
                f"{path!r} is a broken gzip file: {error}, after {read} of {count} labels"
            ) from error


def _spool(path: str, version: int, header: IdxHeader, scratch: str) -> tuple[str, int]:
    """Unpacks a gzip file into `scratch`, always to the same place; returns path and version for references.

    Raises:
        JobError: it is broken, or not as long as its header says; or `scratch` cannot be written.
    """
    where = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"{os.path.basename(path)[:-3]}-{where}"
    if is_remote(scratch):
        return _spool_to_bucket(path, header, f"{scratch}/{name}-{version}")
    target = os.path.join(os.path.abspath(scratch), name)
    with naming_faults(target), _unpacked(path, header, os.path.dirname(target)) as unpacked:
        os.replace(unpacked, target)
    return target, version


def _spool_to_bucket(path: str, header: IdxHeader, target: str) -> tuple[str, int]:
    """Unpacks by way of a local file, unless an earlier try has: an object there is whole."""
    with naming_faults(target):
        stored = objects.stat(target)
        if stored is None:
            with _unpacked(path, header, scratch_folder()) as unpacked:
                stored = _uploaded(unpacked, target)
    if stored.size != header.end:
        raise JobError(f"{target!r} has {stored.size} bytes, not the {header.end} that {path!r} unpacks to")
    return target, stored.generation


def _uploaded(path: str, target: str) -> objects.StoredObject:
    """Uploads a file, unless a twin of this job has meanwhile: references to its object hold."""
    try:
        return objects.upload(path, target, objects.NEW)
    except ChangedError:
        stored = objects.stat(target)
        if stored is None:
            raise
        return stored


@contextlib.contextmanager
def _unpacked(path: str, header: IdxHeader, folder: str) -> Iterator[str]:
    """A local file of the unpacked bytes; removed if it is still there at the end."""
    descriptor, unpacked = tempfile.mkstemp(prefix=f"{os.path.basename(path)[:-3]}-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as out:
            _unpack(path, header, out)
        yield unpacked
    finally:
        with contextlib.suppress(OSError):
            os.remove(unpacked)


def _unpack(path: str, header: IdxHeader, out: BinaryIO) -> None:
    try:
        with _open(path) as packed:
            unpacked = 0
            # a byte more than the header says is enough to know that it is wrong
            while chunk := packed.read(min(_CHUNK, header.end + 1 - unpacked)):
                unpacked += out.write(chunk)
    except _GZIP_FAULTS as error:
        raise JobError(f"{path!r} is a broken gzip file: {error}") from error
    if unpacked != header.end:
        more = "more" if unpacked > header.end else str(unpacked)
        raise JobError(f"{path!r} unpacks to {more} bytes; its header {header.shape} means {header.end}")
