"""Runs the function of `--map_image` on an image, and checks what it returns."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from recordmill.transforms.annotations.sample import Sample, check_sample
from recordmill.transforms.examples.schema import FeatureSettings
from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.mask import encode_mask
from recordmill.transforms.images.picture import OpenedImage
from recordmill.transforms.internal_errors import logged, printable
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.records import BadInput, Failure, ImageRecord, ImageRef, JobError, MaskImage
from recordmill.transforms.shards.references import pack_record, plain_record, unpack_record
from recordmill.transforms.workers.task import SharedPosition

_LEFT_OUT = "left out by map_image"
_RAISED = "map_image raised an exception"
_WRONG = "wrong result of map_image"
_END = object()
# Results of one image: these, and one for each 64 of its pixels. A generator may not end.
_MOST_RESULTS = 10_000


class LeftOutError(BadInput):
    """The function has left out an image: its record is skipped."""

    def failure(self, key: str = "") -> Failure:
        return Failure(key or self.key, "map", _LEFT_OUT, self.detail, skipped=True)


class MappedImage(NamedTuple):
    """A record that the function makes of an image.

    Attributes:
        record: its key and its annotations.
        image: to be stored; that of the source if the function has not changed the pixels.
        masks: the bytes of its masks, by reference, except those of the source.
        notes: (reason, detail) of annotations that were clipped or dropped before the call; empty after the
            first record.
        source_bytes: of the image in the source; 0 after the first record.
        content: hash of the image in the source.
    """

    record: ImageRecord
    image: OpenedImage
    masks: Mapping[ImageRef, bytes]
    notes: tuple[tuple[str, str], ...]
    source_bytes: int
    content: bytes


class ImageMapper:
    """Calls the function, and makes records of its results.

    Args:
        map_image: the function.
        features: of the dataset: a result may have no others.
        position: of the worker process.
    """

    def __init__(self, map_image: MapImage, features: FeatureSettings, position: SharedPosition) -> None:
        self._name = map_image.label
        self._function = map_image.load()
        self._features = features
        self._position = position

    def results(self, sample: Sample) -> Iterator[tuple[str, Sample]]:
        """Yields the key and the sample of each record as the function makes them.

        Raises:
            LeftOutError: the function makes no record of the image.
            BadInput: it raises an exception, or returns a wrong result.
        """
        # A function that changes a mapping in place changes a copy, so that the change is found.
        annotations = replace(sample.annotations, features=dict(sample.annotations.features))
        given = dataclasses.replace(sample, annotations=annotations, masks=dict(sample.masks))
        with self._calling(sample):
            made = self._function(given)
        if isinstance(made, Sample):
            yield (
                f"{sample.key}#{made.suffix}" if made.suffix else sample.key,
                self._checked(sample, given, made),
            )
            return
        if made is None or isinstance(made, str):
            detail = f"{self._name}: {printable(made)}" if made else self._name
            raise LeftOutError("map", _LEFT_OUT, detail)
        if not isinstance(made, Iterable):
            raise self._wrong(f"a result {_described(made)}; it may be a Sample, several, None or a text")
        suffixes: set[str] = set()
        with self._calling(sample):
            iterator = iter(made)
        most = _MOST_RESULTS + sample.pixels.shape[0] * sample.pixels.shape[1] // 64
        for number in itertools.count():
            with self._calling(sample):
                one = next(iterator, _END)
            if one is _END:
                break
            if number == most:
                raise self._wrong(f"more than {most:,} results of one image; a generator must end")
            if not isinstance(one, Sample):
                raise self._wrong(f"result {number} is {_described(one)}; it may be a Sample")
            suffix = one.suffix or str(number)
            if suffix in suffixes:
                raise self._wrong(f"results {number} and another have the suffix {suffix!r}; it must differ")
            suffixes.add(suffix)
            yield f"{sample.key}#{suffix}", self._checked(sample, given, one, f"result {number}: ")
        if not suffixes:
            raise LeftOutError("map", _LEFT_OUT, f"{self._name}: no Sample")

    def record(
        self, record: ImageRecord, sample: Sample, result: Sample, key: str
    ) -> tuple[ImageRecord, dict[ImageRef, bytes]]:
        """The record of a result, and the bytes of its masks, by reference.

        Args:
            record: of the image in the source.
            sample: that the function got.
            result: that it returned.
            key: of the result.

        Raises:
            BadInput: a value of the wrong type.
        """
        if result.annotations is sample.annotations and _same(result.masks, sample.masks):
            return replace(record, key=key), {}
        files: dict[ImageRef, bytes] = {}
        masks = {}
        for kind, pixels in result.masks.items():
            ref, data = _file(kind, pixels)
            files[ref] = data
            known = result.annotations.masks.get(kind)
            masks[kind] = MaskImage(ref, segments=() if known is None else known.segments)
        made = replace(record, key=key, annotations=replace(result.annotations, masks=masks))
        try:
            return unpack_record(pack_record(plain_record(made))), files
        except (TypeError, ValueError) as error:
            raise self._wrong(str(error)) from error

    @contextlib.contextmanager
    def _calling(self, sample: Sample) -> Iterator[None]:
        """The block runs code of the user, whose exceptions fail the image."""
        pixels = sample.pixels.shape[0] * sample.pixels.shape[1]
        self._position.call(pixels)
        try:
            yield
        except (BadInput, JobError, MemoryError):
            raise
        except Exception as error:
            message = logged(error, f"--map_image is {self._name}, which raised an exception")
            detail = f"{self._name}: {type(error).__name__}{f': {message}' if message else ''}"
            raise BadInput("map", _RAISED, detail) from error
        self._position.work(pixels)

    def _checked(self, sample: Sample, given: Sample, result: Sample, where: str = "") -> Sample:
        """A result, with the annotations of `sample` if those of its copy `given` have not been changed."""
        try:
            if (result.key, result.split) != (sample.key, sample.split):
                raise ValueError("another key or split; set its suffix")
            check_sample(result)
            self._check_names(sample, result)
        except (AttributeError, TypeError, ValueError) as error:  # fields of any type
            raise self._wrong(f"{where}{error}") from error
        features = given.annotations.features
        if result.annotations is given.annotations and _same(features, sample.annotations.features):
            return dataclasses.replace(result, annotations=sample.annotations)
        return result

    def _check_names(self, sample: Sample, result: Sample) -> None:
        """Raises ValueError for a feature or attribute that no record of the source has: none stores it."""
        features = {"feature": result.annotations.features.keys() - self._features.columns.keys()}
        for one in result.annotations.objects:
            features.setdefault("attribute", set()).update(
                one.attributes.keys() - self._features.attributes.keys()
            )
        before = {*sample.annotations.features}
        before.update(name for one in sample.annotations.objects for name in one.attributes)
        for kind, names in features.items():
            if new := sorted(names - before):
                raise ValueError(f"{kind} {new[0]!r}, which no record of the source has")

    def _wrong(self, detail: str) -> BadInput:
        return BadInput("map", _WRONG, f"{self._name}: {detail}")


def has_same_pixels(one: Sample, other: Sample) -> bool:
    """Whether two samples have equal pixels, so that the file of the source need not be encoded again."""
    if one.pixels is other.pixels:
        return True
    return one.pixels.dtype == other.pixels.dtype and np.array_equal(one.pixels, other.pixels)


def _same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.keys() == other.keys() and all(one[kind] is other[kind] for kind in one)


def _file(kind: str, pixels: Array) -> tuple[ImageRef, bytes]:
    """The pixels of a mask as an image file, or as raw pixels."""
    height, width = pixels.shape
    name = f"map_image:{kind}"
    if kind == "panoptic":
        ids = pixels.astype(np.uint32)
        colors = np.stack([ids & 255, ids >> 8 & 255, ids >> 16], axis=2).astype(np.uint8)
        return ImageRef(name, pixels=(height, width, 3)), colors.tobytes()
    if pixels.dtype == np.uint8:
        return ImageRef(name, pixels=(height, width, 1)), pixels.tobytes()
    return ImageRef(name), encode_mask(pixels.astype(np.uint16))


def _described(value: object) -> str:
    return f"of type {type(value).__name__}"
