"""Source `numpy`: images and labels as arrays in .npy and .npz files, paired by name."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from recordmill.transforms.records import Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.arrays.npy_files import StoredArray, arrays_in
from recordmill.transforms.sources.arrays.numpy_labels import annotations_of
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import extension_of, skipped, split_named
from recordmill.transforms.sources.outline import check_roots_used, left_out
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.sources.tree import Tree
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.files import is_file, names_in
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool

_IMAGES = frozenset(("x", "images", "image", "imgs"))
_LABELS = frozenset(("y", "labels", "label", "targets", "target"))
_CHANNELS = (1, 3, 4)
_LEAST_SIDE = 16  # of a lone picture in colours; what is smaller is several grey ones
_UNNAMED = "neither images nor labels by name"


class NumpySource(Source):
    """Lists the images of arrays, as ranges of their files."""

    name = "numpy"
    description = Description(
        reads="`.npy` and `.npz` of uint8 images, (N, H, W) or (N, H, W, C), such as `x_train` and `y_train`",
        label="the array of labels: ids, names, one-hot or several; floats are the feature `target`",
        split="the arrays' names (`x_test`), the file's, or its folder",
        key="`train/00042`",
        example="arrays/\n  x_train.npy\n  y_train.npy\n  x_test.npy\n  y_test.npy",
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = ("annotations", "image_column", "label_column", "label_pattern")
        check_unused(config, self.name, *unused, "input_features", "mask_pattern", "include_annotations")
        check_roots_used(config, self.name)
        check_selection(config)
        with readable("--input", config.input):
            sets, _ = _sets(config)
        if not sets:
            raise ValueError(
                f"--input is {config.input!r}: no array is called like images, such as x_train.npy, "
                f"images.npy, or x_train in an .npz{left_out(config)}"
            )
        for one in sets:
            one.check()

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            sets, _ = _sets(config)
        return tuple(sorted({one.split for one in sets if one.split is not None}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config, scratch)


class _Set(NamedTuple):
    """Images, and their labels.

    Attributes:
        name: what keys start with.
        split: that names tell.
        images: the array.
        labels: likewise, or None.
    """

    name: str
    split: str | None
    images: StoredArray
    labels: StoredArray | None

    @property
    def pictures(self) -> tuple[int, tuple[int, int, int]]:
        """How many there are, and their height, width and channels. Raises ValueError, as `check`."""
        title, shape = self.images.title, self.images.shape
        if len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > _LEAST_SIDE and self.labels is None:
            shape = (1, *shape)
        if len(shape) == 4 and shape[3] not in _CHANNELS and shape[1] in _CHANNELS:
            raise ValueError(
                f"{title!r} has the shape {shape}, channels first; save array.transpose(0, 2, 3, 1) instead"
            )
        if len(shape) not in (3, 4) or 0 in shape or (len(shape) == 4 and shape[3] not in _CHANNELS):
            raise ValueError(
                f"{title!r} has the shape {shape}; images are (number, height, width), or (number, height, "
                "width, channels) with 1, 3 or 4 channels, and none is 0"
            )
        return shape[0], (shape[1], shape[2], shape[3] if len(shape) > 3 else 1)

    def check(self) -> None:
        """Raises ValueError where these are no images, or the labels do not fit."""
        count, _ = self.pictures
        dtype = self.images.dtype
        if dtype.kind != "b" and str(dtype) != "uint8":
            raise ValueError(
                f"{self.images.title!r} has elements of type {dtype}; save uint8 from 0 to 255, such as "
                "(255 * array).round().astype('uint8') of shares from 0 to 1"
            )
        if self.labels is None:
            return
        shape, kind = self.labels.shape, self.labels.dtype.kind
        if len(shape) not in (1, 2) or (len(shape) == 2 and not shape[1]) or kind not in "iubfUS":
            raise ValueError(
                f"{self.labels.title!r} has the shape {shape} of {self.labels.dtype}; labels are (number) or "
                "(number, classes), of whole numbers, floats or text"
            )
        if shape[0] != count:
            raise ValueError(
                f"{self.images.title!r} has {count} images and {self.labels.title!r} has {shape[0]} labels"
            )


def _files(config: SourceConfig) -> Iterator[tuple[str, str | Failure]]:
    """Keys of the files of a call with their paths; a lone .npy file brings those beside it along."""
    if not is_file(config.input):
        for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
            yield (file.key, file if isinstance(file, Failure) else file.path)
        return
    path = real_path(config.input)
    yield os.path.basename(config.input), path
    part, subset = _meant(os.path.basename(config.input).rpartition(".")[0])
    if part != "images" or extension_of(config.input) != "npy":
        return
    folder = os.path.dirname(config.input) or "."
    for name in sorted(names_in(folder)):
        if extension_of(name) == "npy" and _meant(name.rpartition(".")[0]) == ("labels", subset):
            yield name, _labels_next_to(config, os.path.join(folder, name), path)
            return


def _labels_next_to(config: SourceConfig, labels: str, images: str) -> str:
    """The real path of the labels next to a file of images. Raises OSError if that is outside."""
    folders = (os.path.dirname(labels), os.path.dirname(images))
    return Confinement((*folders, *config.image_roots)).leads_to(labels)


def _meant(name: str) -> tuple[str, str]:
    """What an array is by its name, `images`, `labels` or nothing, and the set that it is of."""
    parts = re.split(r"[-_. ]", name)
    for place, part in enumerate(parts):
        meant = "images" if part.lower() in _IMAGES else "labels" if part.lower() in _LABELS else ""
        if meant:
            return meant, "_".join(parts[:place] + parts[place + 1 :])
    return "", name


def _is_named(key: str) -> bool:
    """Whether a file is one of images by name, or an archive, which may have some."""
    return extension_of(key) == "npz" or _meant(os.path.basename(key).rpartition(".")[0])[0] == "images"


def _sets(config: SourceConfig) -> tuple[list[_Set], list[Failure]]:
    """Images with their labels, by name, and what else is there. Raises ValueError where one is not read."""
    found: list[tuple[str, StoredArray]] = []
    unread: list[Failure] = []
    for key, path in _files(config):
        if isinstance(path, Failure):
            if path.reason == OUTSIDE and extension_of(key) in ("npy", "npz"):
                raise ValueError(f"--input is {config.input!r}: {key} is {path.reason}; {path.detail}")
            unread.append(path)
        elif extension_of(key) not in ("npy", "npz"):
            unread.append(skipped(key, "not an array by name"))
        else:
            found += [(key, array) for array in arrays_in(path)]
    several = len({key for key, _ in found}) > 1
    images: dict[str, StoredArray] = {}
    labels: dict[str, StoredArray] = {}
    for key, array in found:
        part, name = _name_of(key, array, several, is_alone=len(found) == 1)
        chosen = {"images": images, "labels": labels}.get(part)
        if chosen is None or name in chosen:
            reason = _UNNAMED if chosen is None else "same set as another array"
            unread.append(skipped(f"{key}:{array.member}" if array.member else key, reason))
        else:
            chosen[name] = array
    sets = [
        _Set(name or "images", _split_of(name, config), array, labels.pop(name, None))
        for name, array in sorted(images.items())
    ]
    unread += [skipped(array.title, "labels without images") for array in labels.values()]
    return sets, unread


def _name_of(key: str, array: StoredArray, several: bool, is_alone: bool) -> tuple[str, str]:
    """What an array is, and the name of its set: folders, file of several .npz, what is in its own name."""
    folder, _, file = key.rpartition("/")
    stem = file.rpartition(".")[0]
    part, subset = _meant(array.member.removesuffix(".npy") if array.member else stem)
    if not part and (is_alone or array.member == "arr_0.npy"):
        part, subset = "images", "" if array.member else stem
    above = (folder, stem if several else "") if array.member else (folder,)
    return part, "/".join(name for name in (*above, subset) if name)


def _split_of(name: str, config: SourceConfig) -> str | None:
    splits = list(map(split_named, re.split(r"[/_.\- ]", name)))
    if not any(splits) and is_file(config.input):
        splits = list(map(split_named, re.split(r"[_.\-]", os.path.basename(config.input))))
    return next(filter(None, reversed(splits)), None)


def _items(config: SourceConfig, scratch: str) -> Generator[Item, None, None]:
    try:
        sets, unread = _sets(config)
        for one in sets:
            one.check()
    except ValueError as error:
        raise JobError(str(error)) from error
    yield from unread
    selection = Selection(config)
    for one in sets:
        count, pixels = one.pictures
        digits = max(5, len(str(count - 1)))
        places = _places(one.images, count, pixels, scratch)
        with contextlib.closing(places):
            annotations = annotations_of(one.labels, count)
            for number, (ref, known) in enumerate(zip(places, annotations, strict=True)):
                key = f"{one.name}/{number:0{digits}}"
                if selection.takes(key):
                    yield ImageRecord(key, ref, one.split, known, one.images.title, math.prod(pixels))
                else:
                    yield skipped(key, EXCLUDED)


def _places(
    images: StoredArray, count: int, pixels: tuple[int, int, int], scratch: str
) -> Generator[ImageRef, None, None]:
    """Where each image is: in the file itself, or unpacked where that has other bytes."""
    length = math.prod(pixels)
    if images.offset is not None and images.dtype.kind != "b":
        for number in range(count):
            yield ImageRef(images.path, images.offset + number * length, length, pixels, images.generation)
        return
    with Spool(scratch, images.title, images.generation) as spool:
        for rows in images.rows():
            data = rows.astype("uint8") * 255 if images.dtype.kind == "b" else rows
            for picture in data.reshape(-1, *pixels):
                yield spool.add(picture.tobytes(), pixels)
