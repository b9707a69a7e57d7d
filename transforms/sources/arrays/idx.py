"""Source `idx`: the files of MNIST, Fashion-MNIST and EMNIST.

The format is Yann LeCun's: two zero bytes, the type of an element, the number of dimensions, a
big-endian uint32 a dimension, then the elements, the last dimension fastest. Images are uint8 of
(number, height, width) or (number, height, width, channels); labels are uint8 of (number).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import itertools
import math
import os
import re
import struct
import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

from recordmill.transforms.records import Annotations, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import normal_split, printable
from recordmill.transforms.sources.outline import check_roots_used
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
)
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, is_folder, names_in, open_file, status_of
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST

_NAME = re.compile(r"(?P<set>.*?)[-_.]?(?P<part>images|labels)[-_.]idx\d-[a-z0-9]+(?:\.gz)?")
_SPLITS = {"train": "train", "t10k": "test", "test": "test"}
_UINT8 = 0x08
_CHANNELS = (1, 3, 4)
_CHUNK = 1 << 20
_GZIP_FAULTS = (EOFError, gzip.BadGzipFile, zlib.error)
_MOST_UNPACKED = 1032  # bytes that a byte of gzip can become, at most


class IdxSource(Source):
    """Lists the images of IDX files, as ranges of them."""

    name = "idx"
    description = Description(
        reads="`…images-idx3-ubyte` and `…labels-idx1-ubyte` of uint8, plain or gzip, paired by name",
        label="the number in the labels file",
        split="`train`; `t10k` and `test` are `test`",
        key="`train/00042`",
        example="mnist/\n  train-images-idx3-ubyte.gz\n  train-labels-idx1-ubyte.gz",
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = ("annotations", "image_column", "label_column", "label_pattern")
        check_unused(config, self.name, *unused)
        check_roots_used(config, self.name)
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

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _records(config, scratch)


class IdxFile(NamedTuple):
    """One file.

    Attributes:
        path: real path.
        is_packed: whether it is gzip, by its name, which a link may have alone.
    """

    path: str
    is_packed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    """The files of one set.

    Attributes:
        name: what keys start with: the split of MNIST's own names, else what the files have in common.
        split: `train`, `test` or None.
        images: its images.
        labels: None where there are none.
    """

    name: str
    split: str | None
    images: IdxFile
    labels: IdxFile | None


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


def _records(config: SourceConfig, scratch: str) -> Generator[ImageRecord | Failure, None, None]:
    try:
        pairs, skipped = _pairs(config)
    except ValueError as error:
        raise JobError(str(error)) from error
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
    digits = max(5, len(str(count - 1)))
    with contextlib.closing(_places(pair.images, header, pixels, scratch)) as places:
        for number, (ref, known) in enumerate(zip(places, _annotations(pair.labels, count), strict=True)):
            key = f"{pair.name}/{number:0{digits}}"
            if selection.takes(key):
                yield ImageRecord(key, ref, pair.split, known, size=math.prod(pixels))
            else:
                yield Failure(key, "list", EXCLUDED, skipped=True)


def _names(config: SourceConfig, most: int | None = None) -> list[str]:
    """Names of the files to look at, in order: those in the folder, or the one that is the input."""
    if is_file(config.input):
        return [os.path.basename(config.input)]
    return _in_order(config.input, most) if is_folder(config.input) else []


def _in_order(folder: str, most: int | None = None) -> list[str]:
    """Names in a folder, as of `names_in`; the unpacked ones first."""
    return sorted(names_in(folder, most), key=lambda name: (name.endswith(".gz"), name))


def _pairs(config: SourceConfig) -> tuple[list[_Pair], list[Failure]]:
    """Images with their labels, by name, and what else lies there.

    A lone file as the input brings the labels beside it along.

    Raises:
        OSError: one of the files is a link that leads outside the input, or to nothing.
    """
    is_lone = is_file(config.input)
    folder = os.path.dirname(config.input) if is_lone else config.input
    folders = (folder or ".", os.path.dirname(real_path(config.input))) if is_lone else (folder,)
    confinement = Confinement((*folders, *config.image_roots, real_path(config.input)))
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
    files = {
        name: IdxFile(confinement.leads_to(os.path.join(folder, name)), name.endswith(".gz"))
        for name in (*images.values(), *labels.values())
    }
    pairs = [_pair(subset, files[name], files.get(labels.pop(subset, ""))) for subset, name in images.items()]
    skipped += [Failure(name, "list", "labels without images", skipped=True) for name in labels.values()]
    return pairs, skipped


def _pair(subset: str, images: IdxFile, labels: IdxFile | None) -> _Pair:
    split = _SPLITS.get(normal_split(re.split("[-_.]", subset)[-1]))
    name = _SPLITS.get(subset) or subset or "images"
    return _Pair(name, split, images, labels)


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
            f"{pair.images.path!r} has the shape {shape}; IDX images are (number, height, width), "
            "or (number, height, width, channels) with 1, 3 or 4 channels, and none is 0"
        )
    if (size := math.prod(shape[1:])) > LARGEST:
        raise ValueError(f"{pair.images.path!r} has images of {size} bytes; up to {LARGEST} are read")
    if pair.labels is not None:
        labels_header = read_header(pair.labels)
        labels = labels_header.shape
        if len(labels) != 1:
            raise ValueError(f"{pair.labels.path!r} has the shape {labels}; IDX labels are (number)")
        if labels[0] != shape[0]:
            raise ValueError(
                f"{pair.images.path!r} has {shape[0]} images and {pair.labels.path!r} has {labels[0]} labels"
            )
        _check_packed(pair.labels, labels_header)
    _check_packed(pair.images, header)
    return header


def read_header(file: IdxFile) -> IdxHeader:
    """Reads the header of an IDX file, gzip or plain.

    Raises:
        ValueError: it is no IDX file, not of uint8, or (where it is plain) of another length than it says.
    """
    path = file.path
    try:
        with _open(file) as stream:
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
    size = status_of(path).size
    if not file.is_packed and size != header.end:
        raise ValueError(f"{path!r} has {size} bytes; its header {_shown(header)}")
    return header


def _check_packed(file: IdxFile, header: IdxHeader) -> None:
    """Raises ValueError where a gzip file cannot have as many bytes in it as its header says."""
    size = status_of(file.path).size
    if file.is_packed and size * _MOST_UNPACKED < header.end:
        raise ValueError(
            f"{file.path!r} has {size} bytes of gzip, too few for its header, which {_shown(header)}"
        )


def _shown(header: IdxHeader) -> str:
    return f"{str(header.shape)[:100]} means {str(header.end)[:100]}"


@contextlib.contextmanager
def _open(file: IdxFile) -> Iterator[gzip.GzipFile | io.BufferedReader]:
    with open_file(file.path) as stored:
        yield gzip.GzipFile(fileobj=stored) if file.is_packed else stored


def _annotations(file: IdxFile | None, count: int) -> Iterator[Annotations]:
    """The label of each image, read as it is asked for.

    Raises:
        JobError: there are not as many labels as the header says, or gzip is broken.
    """
    if file is None:
        yield from itertools.repeat(Annotations(), count)
        return
    known = [Annotations((label,)) for label in range(256)]
    read = 0
    path = file.path
    with _open(file) as stream:
        try:
            stream.seek(read_header(file).offset)
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


def _places(
    file: IdxFile, header: IdxHeader, pixels: tuple[int, int, int], scratch: str
) -> Generator[ImageRef, None, None]:
    """Where each image is: in the file itself, or unpacked where that is gzip."""
    length = math.prod(pixels)
    path = file.path
    status = status_of(path)  # before its bytes are read
    if not file.is_packed:
        for number in range(header.shape[0]):
            yield ImageRef(path, header.offset + number * length, length, pixels, status.generation)
        return
    with Spool(scratch, path, status.version) as spool:
        spool.check_room(header.end)
        for picture in _unpacked(file, header, length):
            yield spool.add(picture, pixels)


def _unpacked(file: IdxFile, header: IdxHeader, length: int) -> Iterator[bytes]:
    """The images of a gzip file, of `length` bytes each.

    Raises:
        JobError: it is broken, or not as long as its header says.
    """
    path, unpacked = file.path, header.offset
    try:
        with _open(file) as packed:
            packed.seek(header.offset)
            while unpacked < header.end and (picture := packed.read(length)):
                unpacked += len(picture)
                if len(picture) == length:
                    yield picture
            # at the end, one byte more also makes gzip compare its checksum
            if packed.read(1) or unpacked < header.end:
                more = unpacked if unpacked < header.end else "more"
                raise JobError(
                    f"{path!r} unpacks to {more} bytes; its header {header.shape} means {header.end}"
                )
    except _GZIP_FAULTS as error:
        raise JobError(f"{path!r} is a broken gzip file: {error}") from error
