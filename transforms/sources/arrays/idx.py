"""Source `idx`: the files of MNIST, Fashion-MNIST and EMNIST.

The format is Yann LeCun's: two zero bytes, the type of an element, the number of dimensions, a
big-endian uint32 a dimension, then the elements, the last dimension fastest. Images are uint8 of
(number, height, width) or (number, height, width, channels); labels are uint8 of (number).
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import math
import os
import re
import struct
from collections.abc import Iterator
from typing import IO

import numpy as np

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.archives.members import naming_damage
from recordmill.transforms.sources.arrays.sets import (
    ArraySet,
    ArraysSource,
    StoredArray,
    confinement_of,
    in_order,
    next_to_input,
)
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import IDX_NAME, normal_split, skipped
from recordmill.transforms.sources.source import Description
from recordmill.transforms.storage.files import is_file, is_folder, names_in, open_file, status_of
from recordmill.transforms.storage.paths import real_path

_SPLITS = {"train": "train", "t10k": "test", "test": "test"}
_UINT8 = 0x08
_MOST_UNPACKED = 1032  # bytes that a byte of gzip can become, at most


class IdxSource(ArraysSource):
    """Lists the images of IDX files, as ranges of them."""

    name = "idx"
    description = Description(
        reads="`…images-idx3-ubyte` and `…labels-idx1-ubyte` of uint8, plain or gzip, paired by name",
        label="the number in the labels file",
        split="`train`; `t10k` and `test` are `test`",
        key="`train/00042`",
        example="mnist/\n  train-images-idx3-ubyte.gz\n  train-labels-idx1-ubyte.gz",
    )
    no_images = "no file is called like IDX images, such as train-images-idx3-ubyte.gz"

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            return tuple(sorted(filter(None, {_split_of(subset) for subset in _named(config)[0]})))

    def sets(self, config: SourceConfig) -> tuple[list[ArraySet], list[Failure]]:
        named, skipped = _named(config)
        folder = os.path.dirname(config.input) if is_file(config.input) else config.input
        confinement = confinement_of(config)

        def stored(name: str) -> StoredArray:
            return _stored(confinement.leads_to(os.path.join(folder, name)), name.endswith(".gz"))

        sets = []
        for subset, (images, labels) in named.items():
            of_labels = None if labels is None else stored(labels)
            if of_labels is not None and len(of_labels.shape) != 1:
                raise ValueError(
                    f"{of_labels.path!r} has the shape {of_labels.shape}; IDX labels are (number)"
                )
            name = _SPLITS.get(subset) or subset or "images"
            sets.append(ArraySet(name, _split_of(subset), stored(images), of_labels))
        return sets, skipped


def _names(config: SourceConfig, most: int | None = None) -> list[str]:
    """Names of the files to look at, in order: those in the folder, or the one that is the input."""
    if is_file(config.input):
        return [os.path.basename(config.input)]
    return in_order(names_in(config.input, most)) if is_folder(config.input) else []


def _named(config: SourceConfig) -> tuple[dict[str, tuple[str, str | None]], list[Failure]]:
    """Names of images and of their labels by set, and what else is there.

    The labels next to an input that is a file belong to it.
    """
    skip_dirs = set(map(real_path, config.skip_dirs))
    found: dict[str, dict[str, str]] = {"images": {}, "labels": {}}
    left = []
    for name in _names(config):
        if (match := IDX_NAME.fullmatch(name)) is None:
            if real_path(os.path.join(config.input, name)) not in skip_dirs:
                left.append(skipped(name, "not an IDX file by name"))
        elif (taken := found[match["part"]].setdefault(match["set"], name)) != name:
            left.append(skipped(name, "same set as another file", taken))
    images, labels = found.values()
    if is_file(config.input):
        for subset in images:
            beside = next_to_input(config, functools.partial(_is_labels_of, subset))
            labels.update({} if beside is None else {subset: beside})
    sets = {subset: (name, labels.pop(subset, None)) for subset, name in images.items()}
    return sets, left + [skipped(name, "labels without images") for name in labels.values()]


def _is_labels_of(subset: str, name: str) -> bool:
    match = IDX_NAME.fullmatch(name)
    return match is not None and match["part"] == "labels" and match["set"] == subset


def _split_of(subset: str) -> str | None:
    return _SPLITS.get(normal_split(re.split("[-_.]", subset)[-1]))


def _stored(path: str, is_packed: bool) -> StoredArray:
    """The array of an IDX file, of which the header is read.

    Raises:
        ValueError: it is no IDX file, not of uint8, or of another length than it says.
    """
    with (
        naming_damage(lambda what: ValueError(f"{path!r} is a broken gzip file: {what}")),
        _opened(path, is_packed, 0) as stream,
    ):
        magic = stream.read(4)
        sizes = stream.read(4 * magic[3]) if len(magic) == 4 else b""
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(f"{path!r} is not an IDX file: it starts with {magic.hex(' ') or 'nothing'}")
    if magic[2] != _UINT8:
        raise ValueError(f"{path!r} has elements of type 0x{magic[2]:02x}; IDX of uint8 (0x08) is read")
    if len(sizes) < 4 * magic[3]:
        raise ValueError(f"{path!r} is cut off in its header")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    offset = len(magic) + len(sizes)
    end = offset + math.prod(shape)
    status = status_of(path)
    means = f"{str(shape)[:100]} means {str(end)[:100]}"
    if not is_packed and status.size != end:
        raise ValueError(f"{path!r} has {status.size} bytes; its header {means}")
    if is_packed and status.size * _MOST_UNPACKED < end:
        raise ValueError(f"{path!r} has {status.size} bytes of gzip, too few for its header, which {means}")
    opened = functools.partial(_opened, path, is_packed, offset)
    packing = "gzip" if is_packed else ""
    uint8 = np.dtype("uint8")
    return StoredArray(path, path, shape, uint8, status, None if is_packed else offset, packing, opened)


@contextlib.contextmanager
def _opened(path: str, is_packed: bool, offset: int) -> Iterator[IO[bytes]]:
    with open_file(path) as stored:
        stream: IO[bytes] = gzip.GzipFile(fileobj=stored) if is_packed else stored  # type: ignore[assignment]
        stream.seek(offset)
        yield stream
