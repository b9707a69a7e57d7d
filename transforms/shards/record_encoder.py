"""One record from reference to serialised Example: load, store the image, build the features."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from transforms.examples.columns import Column
from transforms.examples.features import build_example
from transforms.examples.labels import LabelMap
from transforms.examples.schema import Schema
from transforms.images.policy import ImagePolicy
from transforms.images.store import store_image, store_pixels
from transforms.records import BadInput, Failure, ImageRecord, StoredImage
from transforms.shards.beacon import Beacon, Step
from transforms.shards.read_ahead import Loading, read_ahead
from transforms.shards.report import WriteStats
from transforms.storage.reader import ImageReader

# Called with the records and the source bytes done since the last call.
Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """All that the encoding of a record depends on, beside the record: sent once to each writer."""

    policy: ImagePolicy
    schema: Schema
    labels: LabelMap
    columns: Mapping[str, Column]
    rename: Mapping[str, str]

    def digest(self) -> str:
        """A hash of all that the encoding depends on, in hex."""
        ids = sorted((type(label).__name__, str(label), number) for label, number in self.labels.ids.items())
        parts = [
            dataclasses.asdict(self.policy),
            self.schema.name,
            ids,
            sorted(self.labels.labels.items()),
            sorted((name, dataclasses.astuple(column)) for name, column in self.columns.items()),
            sorted(self.rename.items()),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A serialised Example, the image in it, and the bytes that the image had in the source."""

    payload: bytes
    image: StoredImage | None
    source_bytes: int


class RecordEncoder:
    """Encodes records, one after the other; keeps the reader's open files between them.

    Args:
        settings: of the encoding.
        beacon: is told where the encoder is.
    """

    def __init__(self, settings: RecordSettings, beacon: Beacon | None = None) -> None:
        self._settings = settings
        self.beacon = beacon or Beacon()
        self._reader = ImageReader()

    def encode_all(
        self,
        references: Sequence[bytes],
        stats: WriteStats,
        failures: list[Failure],
        progress: Progress,
    ) -> Iterator[bytes]:
        """Yields the payload of each reference, in their order, but for those that fail.

        Args:
            references: packed.
            stats: counts what was encoded and what failed.
            failures: takes those that failed.
            progress: is told of each that is done.
        """
        for index, (record, loading) in enumerate(read_ahead(references, self._reader)):
            self.beacon.start(index)
            try:
                encoded = self.encode(record, loading)
            except BadInput as error:
                failure = error.failure(record.key)
                failures.append(failure)
                stats.add_failure(failure)
            else:
                stats.add(encoded.image, encoded.source_bytes)
                yield encoded.payload
            progress(1, record.size)
        self.beacon.clear()

    def encode(self, record: ImageRecord, loading: Loading = None) -> EncodedRecord:
        """The Example of `record`.

        Args:
            record: to encode.
            loading: what its image comes from, where it has been asked for.

        Raises:
            BadInput: with the record's key; the record fails, the job goes on.
        """
        settings = self._settings
        try:
            image, source_bytes = self._stored_image(record, loading)
            features = settings.schema.features(record, image, settings.labels, settings.columns)
            if settings.rename:
                features = {settings.rename.get(name, name): value for name, value in features.items()}
            return EncodedRecord(build_example(features), image, source_bytes)
        except BadInput as error:
            error.key = record.key
            raise
        finally:
            self.beacon.step(Step.OTHER)

    def _stored_image(self, record: ImageRecord, loading: Loading) -> tuple[StoredImage | None, int]:
        if record.image is None:
            return None, 0
        self.beacon.step(Step.LOAD)
        data = self._reader.read(record.image) if loading is None else loading.result()
        self.beacon.step(Step.IMAGE)
        if record.image.pixels is not None:
            return store_pixels(data, record.image.pixels, self._settings.policy), len(data)
        return store_image(data, self._settings.policy), len(data)
