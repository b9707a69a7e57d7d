"""Sets of images in arrays, with an array of labels each: what the sources `idx` and `numpy` share."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from recordmill.transforms.records import Annotations, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.archives.members import naming_damage
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Items, Source
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.file_system import Status
from recordmill.transforms.storage.files import is_file, names_in
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST

_Elements = np.ndarray[Any, np.dtype[Any]]
_TARGET = "target"  # the free feature of labels that are no classes
_CHANNELS = (1, 3, 4)
_CHUNK_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file.

    Attributes:
        path: real path of the file.
        title: what messages call it.
        shape: elements in each dimension.
        dtype: of the elements.
        status: of the file.
        offset: bytes before the elements in the file; None where they are compressed.
        packing: `gzip`, after whose elements nothing may follow; `ZIP`; or empty.
        open: opens a stream that is at the first element.
    """

    path: str
    title: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    status: Status
    offset: int | None
    packing: str
    open: Callable[[], contextlib.AbstractContextManager[IO[bytes]]]

    def rows(self) -> Iterator[_Elements]:
        """The elements along the first dimension, some rows at a time.

        Raises:
            JobError: there are not as many as the header says, or the file is damaged.
        """
        count, *inner = self.shape
        row = math.prod(inner) * self.dtype.itemsize
        step = max(1, _CHUNK_BYTES // max(1, row))
        kind = self.packing or "NumPy"
        with (
            naming_damage(lambda what: JobError(f"{self.title!r} is a broken {kind} file: {what}")),
            self.open() as stream,
        ):
            for start in range(0, count, step):
                wanted = min(step, count - start)
                data = stream.read(wanted * row)
                # at the end, one byte more also compares the checksum
                more = stream.read(1) if start + wanted == count else b""
                if len(data) < wanted * row or (more and self.packing == "gzip"):
                    found = "more" if more else start * row + len(data)
                    raise JobError(
                        f"{self.title!r} {'unpacks to' if self.packing else 'has'} {found} bytes; "
                        f"its header {self.shape} means {count * row}"
                    )
                yield np.frombuffer(data, self.dtype).reshape(wanted, *inner)


class ArraySet(NamedTuple):
    """Images, and their labels.

    Attributes:
        name: what keys start with.
        split: read from names.
        images: the array.
        labels: likewise, or None.
    """

    name: str
    split: str | None
    images: StoredArray
    labels: StoredArray | None

    def check(self) -> None:
        """Raises ValueError where these are no images, or the labels do not fit."""
        title, shape, dtype = self.images.title, self.images.shape, self.images.dtype
        if len(shape) == 4 and shape[3] not in _CHANNELS and shape[1] in _CHANNELS:
            raise ValueError(
                f"{title!r} has the shape {shape}, channels first; save array.transpose(0, 2, 3, 1) instead"
            )
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
        if self.labels is None:
            return
        of_labels, kind = self.labels.shape, self.labels.dtype.kind
        if len(of_labels) not in (1, 2) or (len(of_labels) == 2 and not of_labels[1]) or kind not in "iubfUS":
            raise ValueError(
                f"{self.labels.title!r} has the shape {of_labels} of {self.labels.dtype}; labels are "
                "(number) or (number, classes), of whole numbers, floats or text"
            )
        if of_labels[0] != shape[0]:
            raise ValueError(
                f"{title!r} has {shape[0]} images and {self.labels.title!r} has {of_labels[0]} labels"
            )

    def records(self, config: SourceConfig, scratch: str) -> Items:
        """The records of a set that `check` has passed, in the order of the arrays.

        Raises:
            JobError: an array is damaged.
        """
        selection = Selection(config)
        count, height, width, *channels = self.images.shape
        pixels = (height, width, channels[0] if channels else 1)
        digits = max(5, len(str(count - 1)))
        origin = self.images.title.removeprefix(f"{os.path.dirname(self.images.path)}/")
        refs = _refs(self.images, pixels, config.limit or count, scratch)
        labels = itertools.repeat(Annotations(), count) if self.labels is None else _annotations(self.labels)
        with contextlib.closing(refs):
            for number, (ref, annotations) in enumerate(zip(refs, labels, strict=True)):
                key = f"{self.name}/{number:0{digits}}"
                make = functools.partial(
                    ImageRecord, key, ref, self.split, annotations, origin, math.prod(pixels)
                )
                yield selection.item(key, make)


class ArraysSource(Source):
    """A source of images and labels in arrays, paired by name.

    Attributes:
        no_images: what is wrong with an input without a set.
    """

    flags = ()
    no_images: ClassVar[str]

    @abc.abstractmethod
    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        """Images with their labels, and what else is there.

        Raises:
            ValueError: a file is not what its name says.
            OSError: one cannot be read, or is a link that leads outside the input.
        """

    def check_input(self, config: SourceConfig) -> None:
        sets, _ = self.sets(config)
        if not sets:
            raise ValueError(f"--input is {config.input!r}: {self.no_images}{left_out(config)}")
        for one in sets:
            one.check()

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            return tuple(sorted({one.split for one in self.sets(config)[0] if one.split is not None}))

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


def in_order(names: Iterable[str]) -> list[str]:
    """Names of files in order; those that are gzip come last."""
    return sorted(names, key=lambda name: (name.endswith(".gz"), name))


def next_to_input(config: SourceConfig, is_wanted: Callable[[str], bool]) -> str | None:
    """The name of a file in the folder of an input that is a file."""
    folder = os.path.dirname(config.input) or "."
    return next(filter(is_wanted, in_order(names_in(folder))), None)


def confinement_of(config: SourceConfig) -> Confinement:
    """The input and the image roots; of a file also its folder, and the folder of what it leads to."""
    path = real_path(config.input)
    folders = (os.path.dirname(config.input) or ".", os.path.dirname(path)) if is_file(path) else ()
    return Confinement((path, *folders, *config.image_roots))


def _refs(
    images: StoredArray, pixels: tuple[int, int, int], most: int, scratch: str
) -> Generator[ImageRef, None, None]:
    """Where each image is: in the file itself, or unpacked where the file has other bytes."""
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
    meaning = _meaning(labels)
    return (meaning(row) for rows in labels.rows() for row in rows.reshape(len(rows), -1))


def _meaning(labels: StoredArray) -> Callable[[_Elements], Annotations]:
    kind = labels.dtype.kind
    if kind in "US":
        return _names
    if math.prod(labels.shape[1:]) == 1:
        if kind in "iub":
            return lambda row: _id(int(row[0]))
        return lambda row: Annotations(features={_TARGET: float(row[0])})
    if not all(bool(np.isin(rows, (0, 1)).all()) for rows in labels.rows()):
        return lambda row: Annotations(features={_TARGET: tuple(row.tolist())})
    # one-hot rows have one label each, others as many as there are ones
    return lambda row: Annotations(tuple(map(int, np.flatnonzero(row))))


def _names(row: _Elements) -> Annotations:
    names = (one.decode() if isinstance(one, bytes) else str(one) for one in row.tolist())
    return Annotations(tuple(name for name in names if name))


@functools.lru_cache(maxsize=256)
def _id(number: int) -> Annotations:
    return Annotations((number,))
