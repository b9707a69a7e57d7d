"""Sources `idx` and `numpy`: images in arrays, with an array of labels each, paired by name.

IDX is Yann LeCun's format of MNIST: two zero bytes, the type of an element, the number of dimensions, a
big-endian uint32 for each dimension, then the elements in C order. Images are uint8 of
(number, height, width) or (number, height, width, channels); labels are uint8 of (number). The format of
.npy and .npz files is NEP 1's, as `numpy.lib.format` reads it. Nothing is unpickled.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import gzip
import io
import itertools
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from recordmill.transforms.records import Annotations, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.archives.members import naming_damage
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import (
    IDX_NAME,
    extension_of,
    normal_split,
    one_line,
    skipped,
    split_named,
)
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import Tree
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.file_system import Status
from recordmill.transforms.storage.files import is_file, is_folder, names_in, open_file, status_of
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST, LOCAL_HEADER, STORED, data_offset

_Elements = np.ndarray[Any, np.dtype[Any]]
_TARGET = "target"  # the free feature of labels that are not classes
_CHANNELS = (1, 3, 4)
_CHUNK_BYTES = 4 << 20

_IDX_SPLITS = {"train": "train", "t10k": "test", "test": "test"}
_UINT8 = 0x08
_MOST_UNPACKED = 1032  # bytes that a byte of gzip can become, at most

_IMAGES = frozenset(("x", "images", "image", "imgs"))
_LABELS = frozenset(("y", "labels", "label", "targets", "target"))
_LEAST_SIDE = 16  # of a single colour picture; a smaller array is several grey pictures
_HEADERS = {  # by version: the length of a header, and its reader
    (1, 0): (struct.Struct("<H"), np.lib.format.read_array_header_1_0),
    (2, 0): (struct.Struct("<I"), np.lib.format.read_array_header_2_0),
}
_LONGEST_HEADER = 1 << 14
_MOST_BYTES = 1 << 62  # of all elements; more does not fit the integers of the system


@dataclasses.dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file."""

    path: str  # real path of the file
    title: str  # its name in messages
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    status: Status  # of the file
    start: int  # bytes before the elements, unpacked
    offset: int | None  # bytes before the elements in the file; None if they are compressed
    packing: str = ""  # `gzip`, `ZIP` or empty; in gzip, nothing may follow the elements
    member: str = ""  # of a ZIP archive

    @property
    def end(self) -> int:
        """Bytes of the unpacked file or member, at least."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def wrong_size(self) -> ValueError:
        """The error for a file whose size does not fit its header."""
        packed = " of gzip, too few for its header, which" if self.packing else "; its header"
        means = f"{str(self.shape)[:100]} means {str(self.end)[:100]}"
        return ValueError(f"{self.path!r} has {self.status.size} bytes{packed} {means}")

    def rows(self) -> Iterator[_Elements]:
        """The elements, some rows at a time. Raises JobError if some are missing, or the file is damaged."""
        count, *inner = self.shape
        row = math.prod(inner) * self.dtype.itemsize
        step = max(1, _CHUNK_BYTES // max(1, row))
        kind = self.packing or "NumPy"
        with (
            naming_damage(lambda fault: JobError(f"{self.title!r} is a broken {kind} file: {fault}")),
            _opened(self.path, self.packing, self.member) as stream,
        ):
            stream.seek(self.start)
            for start in range(0, count, step):
                wanted = min(step, count - start)
                data = stream.read(wanted * row)
                # at the end, reading one more byte also verifies the checksum
                more = stream.read(1) if start + wanted == count else b""
                if len(data) < wanted * row or (more and self.packing == "gzip"):
                    found = "more" if more else start * row + len(data)
                    raise JobError(
                        f"{self.title!r} {'unpacks to' if self.packing else 'has'} {found} bytes; "
                        f"its header {self.shape} means {count * row}"
                    )
                yield np.frombuffer(data, self.dtype).reshape(wanted, *inner)


@contextlib.contextmanager
def _opened(path: str, packing: str, member: str = "") -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        stream: Any = stack.enter_context(open_file(path))
        if packing == "gzip":
            stream = gzip.GzipFile(fileobj=stream)
        elif packing == "ZIP":
            stream = stack.enter_context(stack.enter_context(zipfile.ZipFile(stream)).open(member))
        yield stream


class ArraySet(NamedTuple):
    """Images, and their labels."""

    name: str  # the first part of keys
    split: str | None
    images: StoredArray
    labels: StoredArray | None

    def check(self) -> None:
        """Raises ValueError if the arrays are not images and their labels."""
        title, shape, dtype = self.images.title, self.images.shape, self.images.dtype
        if len(shape) == 4 and shape[3] not in _CHANNELS and shape[1] in _CHANNELS:
            remedy = "save array.transpose(0, 2, 3, 1) instead"
            raise ValueError(f"{title!r} has the shape {shape}, channels first; {remedy}")
        if len(shape) not in (3, 4) or 0 in shape or (len(shape) == 4 and shape[3] not in _CHANNELS):
            raise ValueError(
                f"{title!r} has the shape {shape}; images are (number, height, width), or (number, height, "
                "width, channels) with 1, 3 or 4 channels, and none is 0"
            )
        if (size := math.prod(shape[1:])) > LARGEST:
            raise ValueError(f"{title!r} has images of {size} bytes; up to {LARGEST} are read")
        if dtype.kind != "b" and str(dtype) != "uint8":
            raise ValueError(
                f"{title!r} has elements of type {dtype}; save uint8 from 0 to 255, such as "
                "(255 * array).round().astype('uint8') of shares from 0 to 1"
            )
        if (labels := self.labels) is not None:
            shape, kind, count = labels.shape, labels.dtype.kind, self.images.shape[0]
            if len(shape) not in (1, 2) or (len(shape) == 2 and not shape[1]) or kind not in "iubfUS":
                raise ValueError(
                    f"{labels.title!r} has the shape {shape} of {labels.dtype}; labels are "
                    "(number) or (number, classes), of integers, floats or text"
                )
            if shape[0] != count:
                raise ValueError(f"{title!r} has {count} images and {labels.title!r} has {shape[0]} labels")
        for array in filter(None, (self.images, labels)):
            if array.packing == "gzip" and array.status.size * _MOST_UNPACKED < array.end:
                raise array.wrong_size()

    def records(self, config: SourceConfig, scratch: str) -> Items:
        """The records of a set that passed `check`, in their order. Raises JobError for a damaged array."""
        selection = Selection(config)
        count, height, width, *channels = self.images.shape
        pixels = (height, width, channels[0] if channels else 1)
        size = math.prod(pixels)
        digits = max(5, len(str(count - 1)))
        origin = self.images.title.removeprefix(f"{os.path.dirname(self.images.path)}/")
        refs = _refs(self.images, pixels, config.limit or count, scratch)
        labels = itertools.repeat(Annotations(), count) if self.labels is None else _annotations(self.labels)
        with contextlib.closing(refs):
            for number, (ref, annotations) in enumerate(zip(refs, labels, strict=True)):
                key = f"{self.name}/{number:0{digits}}"
                record = functools.partial(ImageRecord, key, ref, self.split, annotations, origin, size)
                yield selection.item(key, record)


def _refs(
    images: StoredArray, pixels: tuple[int, int, int], most: int, scratch: str
) -> Generator[ImageRef, None, None]:
    """A reference to each image: in the file itself, or unpacked if the file has other bytes."""
    count, length = images.shape[0], math.prod(pixels)
    if images.offset is not None and images.dtype.kind != "b":
        for start in range(images.offset, images.offset + count * length, length):
            yield ImageRef(images.path, start, length, pixels, images.status.generation)
        return
    with Spool(scratch, images.title, images.status.version) as spool:
        spool.check_room(min(count, most) * length)
        for rows in images.rows():
            data = rows.astype("uint8") * 255 if images.dtype.kind == "b" else rows
            for picture in data.reshape(-1, *pixels):
                yield spool.add(picture.tobytes(), pixels)


def _annotations(labels: StoredArray) -> Iterator[Annotations]:
    """The annotations of each image: ids, names, one-hot rows, or numbers that are free features."""
    is_text, is_single = labels.dtype.kind in "US", math.prod(labels.shape[1:]) == 1
    # rows of 0 and 1 only; one-hot rows have one label each, others as many as there are ones
    is_hot = not (is_text or is_single) and all(np.isin(rows, (0, 1)).all() for rows in labels.rows())
    for row in (row for rows in labels.rows() for row in rows.reshape(len(rows), -1)):
        if is_text:
            names = (one.decode() if isinstance(one, bytes) else str(one) for one in row.tolist())
            yield Annotations(tuple(filter(None, names)))
        elif is_hot:
            yield Annotations(tuple(map(int, np.flatnonzero(row))))
        elif is_single and labels.dtype.kind in "iub":
            yield _id(int(row[0]))
        else:
            yield Annotations(features={_TARGET: float(row[0]) if is_single else tuple(row.tolist())})


@functools.lru_cache(maxsize=256)
def _id(number: int) -> Annotations:
    return Annotations((number,))


class ArraysSource(Source):
    """A source of images and labels in arrays, paired by name."""

    no_images: ClassVar[str]  # the message for an input without images

    @abc.abstractmethod
    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        """Images with their labels, and failures for other files. Raises ValueError or OSError."""

    def check_input(self, config: SourceConfig) -> None:
        sets, _ = self.sets(config)
        if not sets:
            raise ValueError(f"--input is {config.input!r}: {self.no_images}{left_out(config)}")
        for one in sets:
            one.check()

    def splits(self, config: SourceConfig) -> list[str | None]:
        return [one.split for one in self.sets(config)[0]]

    def items(self, config: SourceConfig, scratch: str) -> Items:
        try:
            sets, others = self.sets(config)
            for one in sets:
                one.check()
        except ValueError as error:
            raise JobError(str(error)) from error
        yield from others
        for one in sets:
            yield from one.records(config, scratch)


def _in_order(names: Iterable[str]) -> list[str]:
    """File names in order; gzip files come last."""
    return sorted(names, key=lambda name: (name.endswith(".gz"), name))


def _next_to_input(config: SourceConfig, is_wanted: Callable[[str], bool]) -> list[str]:
    """The name of the first such file next to an input that is a file; empty if there is none."""
    return list(filter(is_wanted, _in_order(names_in(os.path.dirname(config.input) or "."))))[:1]


def _confinement(config: SourceConfig) -> Confinement:
    """Confines paths to the input and the image roots; if the input is a file or a link, to its folders."""
    path = real_path(config.input)
    folders = (os.path.dirname(config.input) or ".", os.path.dirname(path)) if is_file(path) else ()
    return Confinement((path, *folders, *config.image_roots))


class IdxSource(ArraysSource):
    """Lists the images of IDX files, as ranges of them."""

    name = "idx"
    description = Description(
        reads="`…images-idx3-ubyte` and `…labels-idx1-ubyte` of uint8, plain or gzip, paired by name",
        label="the number in the labels file",
        split="from the name of the file: `train` or `test`; `t10k` means `test`",
        key="`train/00042`",
        example="mnist/\n  train-images-idx3-ubyte.gz\n  train-labels-idx1-ubyte.gz",
    )
    flags = ("include_annotations",)  # it has no effect here
    no_images = "no file is named like IDX images, such as train-images-idx3-ubyte.gz"

    def splits(self, config: SourceConfig) -> list[str | None]:
        return list(map(_idx_split, _idx_names(config)[0]))

    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        named, others = _idx_names(config)
        folder = os.path.dirname(config.input) if is_file(config.input) else config.input
        confinement = _confinement(config)

        def stored(name: str) -> StoredArray:
            path = confinement.leads_to(os.path.join(folder, name))
            return _idx_array(path, "gzip" if name.endswith(".gz") else "")

        sets = []
        for subset, (images, labels) in named.items():
            of_labels = None if labels is None else stored(labels)
            if of_labels is not None and len(shape := of_labels.shape) != 1:
                raise ValueError(f"{of_labels.path!r} has the shape {shape}; IDX labels are (number)")
            name = _IDX_SPLITS.get(subset) or subset or "images"
            sets.append(ArraySet(name, _idx_split(subset), stored(images), of_labels))
        return sets, others


def _idx_names(config: SourceConfig) -> tuple[dict[str, tuple[str, str | None]], list[Failure]]:
    """Names of images and of their labels by set, and failures for other files.

    The labels next to an input that is a file belong to it.
    """
    if is_file(config.input):
        names = [os.path.basename(config.input)]
        part, wanted = _idx_part(names[0])
        if part == "images":
            names += _next_to_input(config, lambda name: _idx_part(name) == ("labels", wanted))
    else:
        names = _in_order(names_in(config.input)) if is_folder(config.input) else []
    skip_dirs = set(map(real_path, config.skip_dirs))
    found: dict[str, dict[str, str]] = {"images": {}, "labels": {}}
    others = []
    for name in names:
        part, subset = _idx_part(name)
        if not part:
            if real_path(os.path.join(config.input, name)) not in skip_dirs:
                others.append(skipped(name, "not an IDX file by name"))
        elif (taken := found[part].setdefault(subset, name)) != name:
            others.append(skipped(name, "same set as another file", taken))
    images, labels = found.values()
    sets = {subset: (name, labels.pop(subset, None)) for subset, name in images.items()}
    return sets, others + [skipped(name, "labels without images") for name in labels.values()]


def _idx_part(name: str) -> tuple[str, str]:
    """`images`, `labels` or nothing, and the name of the set, by the name of a file."""
    match = IDX_NAME.fullmatch(name)
    return (match["part"], match["set"]) if match else ("", "")


def _idx_split(subset: str) -> str | None:
    return _IDX_SPLITS.get(normal_split(re.split("[-_.]", subset)[-1]))


def _idx_array(path: str, packing: str) -> StoredArray:
    """The array of an IDX file. Raises ValueError if it is not IDX of uint8, or its length is wrong."""
    with (
        naming_damage(lambda fault: ValueError(f"{path!r} is a broken gzip file: {fault}")),
        _opened(path, packing) as stream,
    ):
        magic = stream.read(4)
        sizes = stream.read(4 * magic[3]) if len(magic) == 4 else b""
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(f"{path!r} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}")
    if magic[2] != _UINT8:
        raise ValueError(f"{path!r} has elements of type 0x{magic[2]:02x}; IDX of uint8 (0x08) is read")
    if len(sizes) < 4 * magic[3]:
        raise ValueError(f"{path!r} is cut off in its header")
    shape, start = struct.unpack(f">{magic[3]}I", sizes), len(magic) + len(sizes)
    offset = None if packing else start
    array = StoredArray(path, path, shape, np.dtype("uint8"), status_of(path), start, offset, packing)
    if not packing and array.status.size != array.end:
        raise array.wrong_size()
    return array


class NumpySource(ArraysSource):
    """Lists the images of arrays, as ranges of their files."""

    name = "numpy"
    description = Description(
        reads="`.npy` and `.npz` arrays of uint8 images, (N, H, W) or (N, H, W, C), and of labels: "
        "`x_train`, `y_train`",
        label="the array of labels: ids, names, one-hot rows or several labels; floats become the "
        "feature `target`",
        split="the names of the arrays (`x_test`), of the file or of its folder",
        key="`train/00042`",
        example="arrays/\n  x_train.npy\n  y_train.npy\n  x_test.npy\n  y_test.npy",
    )
    no_images = "no array is named like images, such as x_train.npy, images.npy, or x_train in an .npz"

    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        found: list[tuple[str, StoredArray]] = []
        others: list[Failure] = []
        for key, path in _numpy_files(config):
            if isinstance(path, Failure):
                if path.reason == OUTSIDE and extension_of(key) in ("npy", "npz"):
                    raise ValueError(f"--input is {config.input!r}: {key} is {path.reason}; {path.detail}")
                others.append(path)
            elif extension_of(key) not in ("npy", "npz"):
                others.append(skipped(key, "not an array by name"))
            else:
                found += [(key, array) for array in _numpy_arrays(path)]
        several = len({key for key, _ in found}) > 1
        chosen: dict[str, dict[str, StoredArray]] = {"images": {}, "labels": {}}
        for key, array in found:
            part, name = _part_and_set(key, array.member, several, is_alone=len(found) == 1)
            if not part or chosen[part].setdefault(name, array) is not array:
                reason = "same set as another array" if part else "neither images nor labels by name"
                others.append(skipped(f"{key}:{array.member}" if array.member else key, reason))
        labels = chosen["labels"]
        sets = []
        for name, images in sorted(chosen["images"].items()):
            shape, of_images = images.shape, labels.pop(name, None)
            if len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > _LEAST_SIDE and of_images is None:
                images = dataclasses.replace(images, shape=(1, *shape))
            sets.append(ArraySet(name or "images", _numpy_split(name, config), images, of_images))
        return sets, others + [skipped(array.title, "labels without images") for array in labels.values()]


def _numpy_files(config: SourceConfig) -> Iterator[tuple[str, str | Failure]]:
    """The key and path of each file of a call; a single .npy file comes with the labels next to it."""
    if not is_file(config.input):
        for file in Tree.of(config).files():
            yield (file.key, file if isinstance(file, Failure) else file.path)
        return
    folder, own = os.path.split(config.input)
    yield own, real_path(config.input)
    part, subset = _named(own)
    if part == "images" and extension_of(own) == "npy":

        def is_wanted(name: str) -> bool:
            return extension_of(name) == "npy" and _named(name) == ("labels", subset)

        for name in _next_to_input(config, is_wanted):
            yield name, _confinement(config).leads_to(os.path.join(folder, name))


def _named(file: str) -> tuple[str, str]:
    """`images`, `labels` or nothing, and the name of the set, by the name of a file."""
    name = file.rpartition(".")[0]
    words = re.split(r"[-_. ]", name)
    for at, word in enumerate(map(str.lower, words)):
        if word in _IMAGES or word in _LABELS:
            return "images" if word in _IMAGES else "labels", "_".join(words[:at] + words[at + 1 :])
    return "", name


def is_named(key: str) -> bool:
    """Whether a file is an array of images by name, or an archive, which may have one."""
    return extension_of(key) == "npz" or _named(os.path.basename(key))[0] == "images"


def _part_and_set(key: str, member: str, several: bool, is_alone: bool) -> tuple[str, str]:
    """As `_named`, of an array; the name of the set includes the folders and, if several, the .npz file."""
    folder, _, file = key.rpartition("/")
    stem = file.rpartition(".")[0]
    part, subset = _named(f"{member.removesuffix('.npy')}.npy" if member else file)
    if not part and (is_alone or member == "arr_0.npy"):
        part, subset = "images", "" if member else stem
    above = (folder, stem if several else "") if member else (folder,)
    return part, "/".join(name for name in (*above, subset) if name)


def _numpy_split(name: str, config: SourceConfig) -> str | None:
    splits = list(map(split_named, re.split(r"[/_.\- ]", name)))
    if not any(splits) and is_file(config.input):
        splits = list(map(split_named, re.split(r"[_.\-]", os.path.basename(config.input))))
    return next(filter(None, reversed(splits)), None)


def _numpy_arrays(path: str) -> Iterator[StoredArray]:
    """The arrays of a file, of an archive by name. Raises ValueError if one cannot be read."""
    status = status_of(path)

    def naming() -> contextlib.AbstractContextManager[None]:
        problem = f"{path!r} is not a .npz file that can be read"
        return naming_damage(lambda fault: ValueError(f"{problem}: {fault}"))

    with open_file(path) as stream:
        if not path.lower().endswith(".npz"):
            shape, dtype, start = _header(stream, path)
            array = StoredArray(path, path, shape, dtype, status, start, start)
            if status.size < array.end:
                raise array.wrong_size()
            yield array
            return
        with naming():
            archive = zipfile.ZipFile(stream)
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            if info.flag_bits & 1:
                raise ValueError(f"{path!r} has the encrypted member {info.filename!r}")
            with naming():
                member = archive.open(info)
            with member:
                shape, dtype, start = _header(member, f"{path}[{info.filename}]")
            offset: int | None = None
            if info.compress_type == STORED:
                with naming():
                    stream.seek(info.header_offset)
                    offset = info.header_offset + data_offset(stream.read(LOCAL_HEADER.size)) + start
            title = f"{path}[{info.filename.removesuffix('.npy')}]"
            array = StoredArray(path, title, shape, dtype, status, start, offset, "ZIP", info.filename)
            if info.file_size < array.end:
                raise ValueError(f"{path!r}: {info.filename!r} has fewer bytes than its header says")
            yield array


def _header(stream: IO[bytes], title: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape and type of an array, and the bytes before its elements."""
    try:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is not read")
        length, read = _HEADERS[version]
        stated = stream.read(length.size)
        if len(stated) < length.size:
            raise ValueError("it is cut off in its header")
        if (size := length.unpack(stated)[0]) > _LONGEST_HEADER:
            raise ValueError(f"its header has {size} bytes; up to {_LONGEST_HEADER} are read")
        shape, is_fortran, dtype = read(io.BytesIO(stated + stream.read(size)))
        shape = tuple(map(int, shape))
    except Exception as error:  # a header is a Python literal, whose parser raises many kinds
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{title!r} is not a NumPy array that can be read: {one_line(error)}") from error
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"{title!r} holds {'objects' if dtype.hasobject else dtype}, which are not read")
    if is_fortran and len(shape) > 1:
        remedy = "save it in C order, with numpy.ascontiguousarray(array)"
        raise ValueError(f"{title!r} is in Fortran order; {remedy}")
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"{title!r} has a header that says {str(shape)[:100]}, which no array has")
    return shape, dtype, stream.tell()
