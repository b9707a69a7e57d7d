"""One stored record against its source: whether it is what the source says, and where it is not."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.features import build_sequence_example
from recordmill.transforms.examples.schema import SequenceSchema
from recordmill.transforms.reading.against_difference import Difference, counted, shown
from recordmill.transforms.reading.against_features import feature_differences, stored_images
from recordmill.transforms.reading.against_images import ImageMatch, match_image
from recordmill.transforms.records import BadInput, ImageRecord, ImageRef, Mapped, StoredImage
from recordmill.transforms.shards.hashing import with_split
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.storage.reader import ImageReader

# From the least alike to the most.
_ACTIONS = ("lossy", "lossless", "kept")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """What the comparison of one record with its source has found.

    Attributes:
        key: of the record.
        action: `kept` where the stored image is the source's bytes, `lossless` where other bytes hold the
            same pixels, `lossy` where they need not; of a sequence the one that its frames are least alike
            by; empty without an image, or where it could not be compared.
        identical: every pixel is the source's, as the settings ask for it; so too where there is no image.
        ssim: of luma, of a lossy image; the lowest of a sequence. None where there is none.
        psnr: in dB, likewise; never infinite.
        differences: all that was found to be otherwise than the source says; empty where nothing was.
        source_bytes: of the images in the source.
        stored_bytes: of the images in the record.
    """

    key: str
    action: str
    identical: bool
    ssim: float | None
    psnr: float | None
    differences: tuple[Difference, ...]
    source_bytes: int
    stored_bytes: int


class SourceComparer:
    """Compares records with their source, one after the other; keeps open files between them.

    One serves one thread. It is made where it works: it is not to be pickled, its settings are.

    Args:
        settings: of the encoding of the dataset: `record_settings` of the totals of the source
            and `against_settings.config_of` of the manifest.
    """

    def __init__(self, settings: RecordSettings) -> None:
        self._settings = settings
        self._encoder = RecordEncoder(settings)
        self._reader = ImageReader()
        own = "image_raw" if settings.schema.name == "plain" else "image/encoded"
        self._image_name = settings.rename.get(own, own)

    def compare(self, payload: bytes, record: ImageRecord) -> Compared:
        """Whether a stored record is what its source says.

        Args:
            payload: of the record as it is stored: a serialised Example or SequenceExample.
            record: of the source, of the same key.

        Raises:
            OSError: the source cannot be read for now. One that is not there or cannot be decoded is a
                difference: its record should not be there.
        """
        try:
            images = stored_images(payload, self._image_name)
        except BadInput as error:
            return _failed(record.key, Difference(record.key, "", "an Example", str(error)))
        refs = _images_of(record)
        if len(refs) != len(images):
            told = Difference(record.key, "", counted(len(refs), "image"), counted(len(images), "image"))
            return _failed(record.key, told, images)
        try:
            return self._compared(payload, record, list(zip(refs, images, strict=True)))
        except BadInput as error:
            told = Difference(record.key, "", "a record that the source still makes", str(error))
            return _failed(record.key, told, images)

    def _compared(
        self, payload: bytes, record: ImageRecord, pairs: Sequence[tuple[ImageRef, bytes]]
    ) -> Compared:
        """As `compare`, of a record that has as many images as its source."""
        matches, differences, source_bytes = [], [], 0
        for number, (ref, stored) in enumerate(pairs):
            source = self._reader.read(ref)
            source_bytes += len(source)
            match = match_image(stored, source, ref.pixels, self._settings.policy)
            matches.append(match)
            if match.fault is not None:
                step = f"step {number}" if record.annotations.steps is not None else ""
                where = ", ".join(part for part in (step, match.fault.where) if part)
                expected, found = match.fault.expected, match.fault.found
                differences.append(Difference(record.key, self._image_name, expected, found, where))
        told = [match.stored for match in matches if match.stored is not None]
        if len(told) == len(pairs):
            rebuilt = self._rebuilt(record, told)
            differences += feature_differences(record.key, rebuilt, payload, self._image_name)
        sizes = (source_bytes, sum(len(stored) for _, stored in pairs))
        return _summed(record.key, matches, differences, *sizes)

    def _rebuilt(self, record: ImageRecord, images: Sequence[StoredImage]) -> bytes:
        """The payload that the source makes with the images that are stored.

        Raises:
            BadInput: it makes none.
        """
        if record.annotations.steps is None:
            return self._encoder.build(record, images[0] if images else None)
        schema, features = self._settings.schema, self._settings.features
        if not isinstance(schema, SequenceSchema):
            raise ValueError(f"record {record.key!r} is a sequence, which schema {schema.name!r} cannot hold")
        context = schema.features(record, None, Mapped(), features)
        lists = schema.feature_lists(record, images, features)
        return build_sequence_example(self._named(context), self._named(lists))

    def _named(self, items: Mapping[str, _T]) -> dict[str, _T]:
        """Features under the names that they are stored by."""
        return {self._settings.rename.get(name, name): item for name, item in items.items()}


def split_difference(record: ImageRecord, split: str, config: DatasetConfig) -> Difference | None:
    """What is wrong with where a record lies; None where it is in its split.

    Args:
        record: of the source.
        split: that the record is stored in.
        config: of the dataset.
    """
    pattern = None if config.group_pattern is None else re.compile(config.group_pattern)
    try:
        expected = with_split(record, config, pattern).split
    except BadInput as error:
        return Difference(record.key, "", "a record that the source still makes", str(error))
    if expected == split:
        return None
    return Difference(record.key, "split", str(expected), split)


def class_differences(labels: Mapping[int, str], settings: RecordSettings) -> list[Difference]:
    """Where the names of the classes in a manifest are not those that the source makes; their key is empty.

    Args:
        labels: name by stored id, as the manifest has them.
        settings: of the totals of the source.
    """
    wanted = settings.features.labels.labels
    return [
        Difference("", "labels", _class_shown(wanted, number), _class_shown(labels, number), f"id {number}")
        for number in sorted(wanted.keys() | labels.keys())
        if wanted.get(number) != labels.get(number)
    ]


def _class_shown(names: Mapping[int, str], number: int) -> str:
    return shown(names[number]) if number in names else "no class"


def _images_of(record: ImageRecord) -> Sequence[ImageRef]:
    """Its images in the source: the frames of a sequence, else one or none."""
    if record.annotations.steps is not None:
        return record.annotations.steps.frames
    return () if record.image is None else (record.image,)


def _failed(key: str, difference: Difference, images: Sequence[bytes] = ()) -> Compared:
    """What is found of a record that cannot be compared any further."""
    return Compared(key, "", False, None, None, (difference,), 0, sum(map(len, images)))


def _summed(
    key: str, matches: Sequence[ImageMatch], differences: Sequence[Difference], source: int, stored: int
) -> Compared:
    """What the images of a record come to."""
    actions = {match.action for match in matches}
    action = "" if "" in actions else next((one for one in _ACTIONS if one in actions), "")
    likenesses = [match.likeness for match in matches if match.likeness is not None]
    ssim = min((one.ssim for one in likenesses), default=None)
    psnr = min((one.psnr for one in likenesses if math.isfinite(one.psnr)), default=None)
    identical = not matches or action in ("kept", "lossless")
    return Compared(key, action, identical, ssim, psnr, tuple(differences), source, stored)
