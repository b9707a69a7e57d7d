"""One record from reference to serialised Example: load, store the image, build the features."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from recordmill.transforms.annotations.decoded import Read
from recordmill.transforms.annotations.mapping import OF_OBJECTS, map_annotations
from recordmill.transforms.annotations.sample import sample_of
from recordmill.transforms.examples.features import build_example, build_sequence_example
from recordmill.transforms.examples.schema import FeatureSettings, Schema, SequenceSchema
from recordmill.transforms.images.hashes import hash_of
from recordmill.transforms.images.mask import encoded_dtype
from recordmill.transforms.images.opened import opened, opened_array
from recordmill.transforms.images.picture import OpenedImage
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.images.reasons import check_pixels, larger_images
from recordmill.transforms.images.render import upright_colors
from recordmill.transforms.images.store import store_opened
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.records import (
    Annotations,
    BadInput,
    Failure,
    ImageRecord,
    ImageRef,
    JobError,
    Mapped,
    Steps,
    StoredImage,
)
from recordmill.transforms.shards.duplicates import HashedImage, label_texts
from recordmill.transforms.shards.mapped_images import ImageMapper, MappedImage, has_same_pixels
from recordmill.transforms.shards.references import annotations_fingerprint, has_details, reference_record
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.shards.reuse import EncodedRecord, PreviousRecords
from recordmill.transforms.shards.statistics import CountedFeatures, is_lossy
from recordmill.transforms.storage.reader import ListedReader, Loading, read_ahead
from recordmill.transforms.workers.task import SLOW_FACTOR, Worker

_NOTHING = Mapped()
_OBJECTS = frozenset({"objects"})
_OF_MASKS = frozenset(
    ("class_png", "class_raw", "instance_png", "panoptic_category_png", "panoptic_instance_png")
)
_T = TypeVar("_T")


class _ReadFault(BaseException):  # must not be caught with the errors of a decoder
    """A file could not be read now: the machine or the service is at fault, not the record."""

    def __init__(self, fault: Exception) -> None:
        super().__init__(fault)
        self.fault = fault


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """All settings that the encoding of a record depends on; sent once to each worker process."""

    policy: ImagePolicy
    schema: Schema
    features: FeatureSettings
    rename: Mapping[str, str]
    boxes: str = "clip"
    map_image: MapImage | None = None

    @property
    def is_slow(self) -> bool:
        """Whether an image may take many times as long as decoding it and encoding it once."""
        return self.policy.is_slow or self.map_image is not None

    def digest(self) -> str:
        labels = self.features.labels
        ids = sorted((type(label).__name__, str(label), number) for label, number in labels.ids.items())
        columns = [
            sorted((name, dataclasses.astuple(column)) for name, column in group.items())
            for group in (self.features.columns, self.features.attributes, self.features.steps)
        ]
        parts: list[object] = [
            dataclasses.asdict(self.policy),
            self.schema.name,
            ids,
            sorted(labels.labels.items()),
            sorted(labels.texts.items()),
            sorted(labels.mask_ids.items()) if labels.mask_ids is not None else None,
            labels.offset,
            self.schema.first_id,
            columns,
            sorted(self.features.annotated),
            sorted(self.rename.items()),
            self.boxes,
            *([] if self.map_image is None else [str(self.map_image)]),
        ]
        if labels.merged or labels.mask_values:
            parts.append([sorted(labels.merged.items()), sorted(labels.mask_values.items())])
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _has_masks(annotations: Annotations, annotated: frozenset[str]) -> bool:
    """Whether a mask of the image can be made.

    If masks are painted from objects, an annotated image without objects is background.
    """
    if annotations.masks or any(one.mask is not None for one in annotations.objects):
        return True
    is_painted = not annotated & {"class", "panoptic"}
    return is_painted and not annotations.objects and annotations.size is not None


class RecordEncoder:
    """Encodes records, one after the other; keeps the reader's open files between them."""

    def __init__(self, settings: RecordSettings, worker: Worker | None = None) -> None:
        self._settings = settings
        self._needs = settings.schema.needs(settings.features.annotated)
        self._counted = CountedFeatures(settings.schema, settings.features)
        self.worker = worker or Worker()
        self._position = self.worker.position
        if settings.is_slow:
            self._position.cpu_factor = SLOW_FACTOR
        self._reader = ListedReader()
        self._work: Counter[str] = Counter()
        self._mask_map: str | None = None
        self._is_as_listed = True
        self._mapper: ImageMapper | None = None
        if settings.map_image is not None:
            self._mapper = ImageMapper(settings.map_image, settings.features, self._position)

    @property
    def makes_one(self) -> bool:
        """Whether each reference has one record, made of its files alone."""
        return self._mapper is None

    def encode_all(
        self,
        references: Sequence[bytes],
        stats: WriteStats,
        failures: list[Failure],
        previous: PreviousRecords | None = None,
    ) -> Iterator[tuple[int, ImageRecord, EncodedRecord]]:
        """Yields index in `references`, record and encoded record, in order, except for records that fail.

        With a function of `map_image`, there are none, one or several records of a reference. Failures are
        added to `stats` and `failures`; `previous` has the records of the previous version.
        """
        self._mask_map = None if previous is None else previous.mask_map
        records = ((reference, reference_record(reference, self._reader.read)) for reference in references)
        found = (previous or PreviousRecords()).found(records)
        for index, ((record, reused), loading) in enumerate(
            read_ahead(found, self._begin, lambda one: one[0].size)
        ):
            self._work = stats.work
            self._is_as_listed = True
            try:
                with self.worker.item(index):
                    written = self._records(record, loading, reused)
            except _ReadFault as error:
                raise error.fault from None
            except BadInput as error:
                failure = error.failure(record.key)
                failures.append(failure)
                stats.add_failure(failure)
            else:
                stats.added += len(written) - 1
                for one, encoded in written:
                    stats.add(encoded.images, encoded.source_bytes)
                    sizes = [(image.width, image.height) for image in encoded.images]
                    stats.statistics.add(sizes, *encoded.counted)
                    if reused is not None:
                        stats.reused += 1
                    elif record.image is not None and is_lossy(encoded.images):
                        stats.statistics.add_reencoded(one.key, references[index])
                    if self._mapper is not None:
                        stats.label_counts[len(one.annotations.labels)] += 1
                    if self._needs or encoded.mapped.notes:
                        failures += self._notes(one, encoded.mapped, stats)
                    yield index, one, encoded
            self.worker.progress(1, record.size)

    def encode(
        self, record: ImageRecord, loading: Loading = None, reused: EncodedRecord | None = None
    ) -> EncodedRecord:
        """The Example of `record`.

        `reused` are images and masks of the previous version, made from the same source.

        Raises:
            BadInput: the record fails; the job continues.
            _ReadFault: a file cannot be read now.
        """
        if record.annotations.steps is not None:
            return self._sequence(record, record.annotations.steps, reused)
        annotations = self._masks_fingerprint(record)
        same = reused if reused is not None and annotations and annotations == reused.annotations else None
        masks: dict[ImageRef, Loading] = {}
        if same is None:
            masks = {one.image: self._reader.begin(one.image) for one in record.annotations.masks.values()}
        hashes: tuple[bytes, bytes] | None = None
        if reused is not None:
            images, source_bytes, hashes = reused.images, reused.source_bytes, reused.hashes
        elif record.image is not None:
            data = self._loaded(record.image, loading)
            images, source_bytes = (self._stored(data, record.image),), len(data)
            hashes = hash_of(data), images[0].decoded_hash
        else:
            images, source_bytes = (), 0
        encoded = self._encoded(record, images, lambda ref: self._read(ref, masks.get(ref)), same)
        return msgspec.structs.replace(
            encoded, source_bytes=source_bytes, annotations=annotations, hashes=hashes
        )

    def _encoded(
        self,
        record: ImageRecord,
        images: tuple[StoredImage, ...],
        read: Read,
        same: EncodedRecord | None = None,
    ) -> EncodedRecord:
        """The Example of a record whose image is stored, if it has one; `read` reads its masks."""
        image = next(iter(images), None)
        mapped = self._mapped(record, image, read, same)
        features = self._settings.schema.features(record, image, mapped, self._settings.features)
        payload = build_example(self._named(features))
        counted = self._counted.of(features, masks=mapped.masks)
        return EncodedRecord(payload, images, 0, mapped, counted, is_as_listed=self._is_as_listed)

    def hashed(self, record: ImageRecord, encoded: EncodedRecord) -> HashedImage | None:
        """The image of an encoded record, for a search of duplicates; None if it has none."""
        if encoded.hashes is None:
            return None
        labels = label_texts(record, self._settings.features.labels)
        return HashedImage(record.key, labels, *encoded.hashes)

    def _records(
        self, record: ImageRecord, loading: Loading, reused: EncodedRecord | None
    ) -> list[tuple[ImageRecord, EncodedRecord]]:
        """The records of a reference: one, or those that the function of `map_image` makes of its image.

        Raises:
            BadInput: the reference fails, with all its records; a `LeftOutError` if it is skipped.
        """
        if self._mapper is None or record.image is None:
            return [(record, self.encode(record, loading, reused))]
        made = self.mapped(record, record.image, loading)
        return [(one.record, self._encoded_mapped(one)) for one in made]

    def _encoded_mapped(self, one: MappedImage) -> EncodedRecord:
        def read(ref: ImageRef) -> bytes:
            return one.masks[ref] if ref in one.masks else self._read(ref)

        self._position.work(one.image.pixels)
        stored = store_opened(one.image, self._settings.policy)
        encoded = self._encoded(one.record, (stored,), read)
        mapped = dataclasses.replace(encoded.mapped, notes=(*one.notes, *encoded.mapped.notes))
        hashes = one.content, stored.decoded_hash
        return msgspec.structs.replace(encoded, source_bytes=one.source_bytes, mapped=mapped, hashes=hashes)

    def mapped(self, record: ImageRecord, ref: ImageRef, loading: Loading = None) -> Iterator[MappedImage]:
        """The records that the function of `map_image` makes of an image.

        Raises:
            BadInput: the image cannot be decoded, or the function fails; a `LeftOutError` if it makes none.
        """
        assert self._mapper is not None
        policy = self._settings.policy
        data = self._loaded(ref, loading)
        size, content = len(data), hash_of(data)
        with larger_images():
            image = self._opened(data, ref)
            work = upright_colors(image, policy.exif)
        sample, notes = sample_of(record, work, self._settings.boxes, self._read)
        for key, result in self._mapper.results(sample):
            one, masks = self._mapper.record(record, sample, result, key)
            stored = image
            if has_same_pixels(result, sample):
                check_pixels(*result.pixels.shape[1::-1])
            else:
                stored = opened_array(result.pixels, image, policy.exif, work.profile)
            # Annotations that stay are mapped from those of the source, and get their notes again.
            own = () if one.annotations is record.annotations else tuple(notes)
            yield MappedImage(one, stored, masks, own, size, content)
            notes, size = [], 0

    def build(self, record: ImageRecord, image: StoredImage | None) -> bytes:
        """The Example of a record whose image is stored. Raises BadInput if its annotations do not fit."""
        try:
            mapped = self._mapped(record, image, self._read)
        except _ReadFault as error:
            raise error.fault from None
        features = self._settings.schema.features(record, image, mapped, self._settings.features)
        return build_example(self._named(features))

    def _stored(self, data: bytes, ref: ImageRef) -> StoredImage:
        return store_opened(self._opened(data, ref), self._settings.policy)

    def _opened(self, data: bytes, ref: ImageRef) -> OpenedImage:
        self._position.work()
        self._work["images"] += 1
        image = opened(data, ref.pixels)
        self._position.measured(image.pixels)
        return image

    def _mapped(
        self, record: ImageRecord, image: StoredImage | None, read: Read, same: EncodedRecord | None = None
    ) -> Mapped:
        """The annotations in the stored image, as far as the schema stores them."""
        needs = self._needed(record.annotations)
        if image is None or not needs:
            return _NOTHING
        annotations = record.annotations
        drawn = 1 + len(annotations.objects) + len(annotations.masks)
        self._position.work(drawn * image.height * image.width)
        if same is not None:
            needs = _OBJECTS if needs & OF_OBJECTS else frozenset()
        labels = self._settings.features.labels
        mapped = map_annotations(annotations, image, needs, self._settings.boxes, read, labels)
        if same is not None:
            return dataclasses.replace(mapped, masks=same.mapped.masks, object_masks=same.mapped.object_masks)
        self._work["masks"] += len(mapped.masks) + len(mapped.object_masks)
        return mapped

    def _masks_fingerprint(self, record: ImageRecord) -> str:
        """The fingerprint of the inputs of a record's masks; empty if it needs none."""
        if self._mask_map is None or not self._needs - _OBJECTS or not has_details(record.annotations):
            return ""
        needs = self._needed(record.annotations)
        return annotations_fingerprint(record, self._settings.features.labels, needs, self._mask_map)

    def _needed(self, annotations: Annotations) -> frozenset[str]:
        """The fields of `Mapped` that a record needs: of several schemas, one may have nothing to store."""
        is_one = "," not in self._settings.schema.name
        if is_one or _has_masks(annotations, self._settings.features.annotated):
            return self._needs
        return self._needs - _OF_MASKS

    def _sequence(self, record: ImageRecord, steps: Steps, reused: EncodedRecord | None) -> EncodedRecord:
        """A SequenceExample; its frames are stored one after the other."""
        schema, features = self._settings.schema, self._settings.features
        if not isinstance(schema, SequenceSchema):
            raise JobError(f"record {record.key!r} is a sequence, which schema {schema.name!r} cannot hold")
        frames, size = self._stored_frames(steps) if reused is None else (reused.images, reused.source_bytes)
        context = schema.features(record, None, _NOTHING, features)
        lists = schema.feature_lists(record, frames, features)
        payload = build_sequence_example(self._named(context), self._named(lists))
        counted = self._counted.of(context, lists)
        return EncodedRecord(payload, frames, size, counted=counted, is_as_listed=self._is_as_listed)

    def _stored_frames(self, steps: Steps) -> tuple[tuple[StoredImage, ...], int]:
        """The frames of a sequence, stored one after the other, and their bytes in the source."""
        frames = []
        size = 0
        loadings = read_ahead(steps.frames, self._reader.begin, lambda ref: ref.length or 0)
        for number, (ref, loading) in enumerate(loadings):
            data = self._loaded(ref, loading)
            size += len(data)
            try:
                frames.append(self._stored(data, ref))
            except BadInput as error:
                raise BadInput(error.stage, error.reason, f"frame {number}: {error.detail}") from error
        return tuple(frames), size

    def _begin(self, found: tuple[ImageRecord, EncodedRecord | None]) -> Loading:
        record, reused = found
        return None if record.image is None or reused is not None else self._reader.begin(record.image)

    def _loaded(self, ref: ImageRef, loading: Loading) -> bytes:
        self._position.load()
        return self._read(ref, loading)

    def _read(self, ref: ImageRef, loading: Loading = None) -> bytes:
        """The bytes of a file; sets `_is_as_listed` to False if it has changed since it was listed."""
        self._work["source_reads"] += 1
        try:
            data = self._reader.read(ref) if loading is None else loading.result()
        except BadInput:
            raise
        except Exception as error:
            raise _ReadFault(error) from error
        self._is_as_listed &= self._reader.is_as_listed(ref)
        return data

    def _named(self, items: Mapping[str, _T]) -> Mapping[str, _T]:
        rename = self._settings.rename
        return {rename.get(name, name): value for name, value in items.items()} if rename else items

    def _notes(self, record: ImageRecord, mapped: Mapped, stats: WriteStats) -> Iterator[Failure]:
        """Counts the annotations of a written record; yields those that were changed or dropped."""
        if mapped.objects:
            stats.annotations["objects"] += len(mapped.objects)
        elif "objects" in self._needs:
            stats.annotations["images_without_objects"] += 1
        for name, mask in mapped.masks.items():
            kind, _, encoding = name.rpartition("_")
            stats.annotations[kind] += 1
            if encoding == "png":
                stats.mask_dtypes[name, encoded_dtype(mask)] += 1
        for reason, detail in mapped.notes:
            stats.notes[reason] += 1
            yield Failure(record.key, "annotations", reason, detail, kept=True)
