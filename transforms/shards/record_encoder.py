"""One record from reference to serialised Example: load, store the image, build the features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from transforms.examples.columns import Column
from transforms.examples.features import build_example
from transforms.examples.labels import LabelMap
from transforms.examples.schema import Schema
from transforms.images.policy import ImagePolicy
from transforms.images.store import store_image, store_pixels
from transforms.records import BadInput, ImageRecord, StoredImage
from transforms.storage.local import LocalReader


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """All that the encoding of a record depends on, beside the record: sent once to each writer."""

    policy: ImagePolicy
    schema: Schema
    labels: LabelMap
    columns: Mapping[str, Column]
    rename: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A serialised Example, the image in it, and the bytes that the image had in the source."""

    payload: bytes
    image: StoredImage | None
    source_bytes: int


class RecordEncoder:
    """Encodes records, one after the other; keeps the reader's open files between them."""

    def __init__(self, settings: RecordSettings) -> None:
        self._settings = settings
        self._reader = LocalReader()

    def encode(self, record: ImageRecord) -> EncodedRecord:
        """The Example of `record`.

        Raises:
            BadInput: with the record's key; the record fails, the job goes on.
        """
        settings = self._settings
        try:
            image, source_bytes = self._stored_image(record)
            features = settings.schema.features(record, image, settings.labels, settings.columns)
            if settings.rename:
                features = {settings.rename.get(name, name): value for name, value in features.items()}
            return EncodedRecord(build_example(features), image, source_bytes)
        except BadInput as error:
            error.key = record.key
            raise

    def _stored_image(self, record: ImageRecord) -> tuple[StoredImage | None, int]:
        if record.image is None:
            return None, 0
        data = self._reader.read(record.image)
        if record.image.pixels is not None:
            return store_pixels(data, record.image.pixels, self._settings.policy), len(data)
        return store_image(data, self._settings.policy), len(data)
