"""The result of writing a shard, and the checkpoint of a finished, unpublished one."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from recordmill.transforms.records import BadInput, Failure, StoredImage
from recordmill.transforms.shards.references import files_of, reference_digest, reference_record
from recordmill.transforms.shards.statistics import Statistics, add_counts, decode_counter, in_order
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import read_bytes, read_text, write_file
from recordmill.transforms.storage.layout import CHECKPOINT_ENDING
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.sealed import with_digest, without_digest

# The attributes of `ShardFile` that are paths.
_PATHS = ("path", "index_path", "failures_path", "lineage_path")


class WriteStats(msgspec.Struct):
    """Mergeable counts of the records written to a file, and of those that failed.

    Attributes:
        failed: records by (stage, reason).
        skipped: likewise, of images that the function of `map_image` has left out.
        added: records of an image after its first, made by that function.
        label_counts: number of records that it made, by their number of labels.
        source_bytes: of the images that were written, as the source stores them.
        encoded_bytes: of the same images, as the records store them.
        actions: images by `StoredImage.actions`; formats, channels, dtypes and colorspaces likewise.
        alpha_images: stored with their transparency where a JPEG or less of a WebP was asked for.
        flattened_bytes: size of the images in `alpha_bytes`, had they been flattened.
        qualities: that --target_ssim chose; 0 where the source was kept.
        annotations: what was stored: `objects`, `class` (masks), …; `images_without_objects`.
        mask_dtypes: PNG masks of images, by name in `Mapped.masks` and type of their pixels.
        notes: annotations that were clipped or dropped, by reason.
        work: operations: `source_reads` (files), `images` (through the codecs, or the check of their
            header), `masks` (made).
        reused: records whose images are those of the previous version.
        unversioned: records with a file that has no version, so a change may go unnoticed.
    """

    written: int = 0
    failed: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    skipped: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    added: int = 0
    label_counts: Counter[int] = msgspec.field(default_factory=Counter)
    source_bytes: int = 0
    encoded_bytes: int = 0
    actions: Counter[str] = msgspec.field(default_factory=Counter)
    formats: Counter[str] = msgspec.field(default_factory=Counter)
    channels: Counter[int] = msgspec.field(default_factory=Counter)
    dtypes: Counter[str] = msgspec.field(default_factory=Counter)
    colorspaces: Counter[str] = msgspec.field(default_factory=Counter)
    alpha_images: int = 0
    alpha_bytes: int = 0
    flattened_bytes: int = 0
    qualities: Counter[int] = msgspec.field(default_factory=Counter)
    annotations: Counter[str] = msgspec.field(default_factory=Counter)
    mask_dtypes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    notes: Counter[str] = msgspec.field(default_factory=Counter)
    statistics: Statistics = msgspec.field(default_factory=Statistics)
    work: Counter[str] = msgspec.field(default_factory=Counter)
    reused: int = 0
    unversioned: int = 0

    def add(self, images: Iterable[StoredImage], source_bytes: int) -> None:
        """Counts one written record."""
        self.written += 1
        self.source_bytes += source_bytes
        for image in images:
            self.encoded_bytes += len(image.data)
            for action in image.actions:
                self.actions[action] += 1
            self.formats[image.image_format] += 1
            self.channels[image.channels] += 1
            self.dtypes[image.dtype] += 1
            self.colorspaces[image.colorspace] += 1
            if image.flattened_bytes is not None:
                self.alpha_images += 1
                self.alpha_bytes += len(image.data)
                self.flattened_bytes += image.flattened_bytes
            if image.jpeg_quality is not None:
                self.qualities[image.jpeg_quality] += 1

    def add_failure(self, failure: Failure) -> None:
        """Counts one record that failed or was skipped."""
        (self.skipped if failure.skipped else self.failed)[failure.stage, failure.reason] += 1

    def merge(self, other: WriteStats) -> None:
        """Adds the counts of `other`."""
        add_counts(self, other)


def merged(stats: list[WriteStats]) -> WriteStats:
    """The sum of `stats`."""
    result = WriteStats()
    for one in stats:
        result.merge(one)
    return result


class ShardFile(msgspec.Struct, frozen=True):
    """A finished file of records that no reader sees yet: a shard, or a part of one.

    Attributes:
        path: of the TFRecord file; `size` and `sha256` are of this file.
        failures_path: of the failed records, as lines of failures.jsonl; None where there are none.
        lineage_path: of the rows of its lineage, in a finished shard after a header (see `reuse`); None
            where there are neither versions nor images.
        lineage_sha256: empty for a part.
    """

    path: str
    index_path: str
    failures_path: str | None
    size: int
    sha256: str
    stats: WriteStats
    lineage_path: str | None = None
    lineage_sha256: str = ""

    @property
    def paths(self) -> list[str]:
        return [path for name in _PATHS if (path := getattr(self, name)) is not None]

    def in_folder(self, folder: str) -> ShardFile:
        """The same with its files in another folder; with their names alone if `folder` is empty."""
        paths = {name: getattr(self, name) for name in _PATHS}
        moved = {name: path and os.path.join(folder, os.path.basename(path)) for name, path in paths.items()}
        return msgspec.structs.replace(self, **moved)


class ShardReport(msgspec.Struct, frozen=True):
    """One finished, unpublished shard: what Publish moves and the manifest lists.

    Attributes:
        reused: an earlier run had finished it.
        from_previous: its files are those of the previous version.
        is_unchanged: whether the shard is identical to the previous version's.
    """

    split: str
    shard: int
    file: ShardFile
    reused: bool = False
    from_previous: bool = False
    is_unchanged: bool = False


_FORMAT_VERSION = 9


class _Stored(msgspec.Struct):
    """The contents of a checkpoint, as msgpack: `sizes` are by name, and the paths in `file` are names."""

    format_version: int
    digest: str
    sizes: dict[str, int]
    file: ShardFile


_decoder = msgspec.msgpack.Decoder(_Stored, dec_hook=decode_counter)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What determines a shard's bytes, and the file that records it once the shard is finished.

    A later run reuses the shard if its checkpoint has the same `digest`, of `shard_digest`.
    """

    folder: str
    split: str
    shard: int
    digest: str

    @property
    def path(self) -> str:
        return os.path.join(self.folder, f"{self.split}-{self.shard:05d}{CHECKPOINT_ENDING}")

    def write(self, file: ShardFile, sizes: Sequence[int]) -> None:
        """Writes the checkpoint, after its SHA-256. The files of the shard are durable before."""
        named = msgspec.structs.replace(file.in_folder(""), stats=in_order(file.stats))
        stored = _Stored(_FORMAT_VERSION, self.digest, dict(zip(named.paths, sizes, strict=True)), named)
        write_file(self.path, with_digest(msgspec.msgpack.encode(stored)))

    def reusable(self, references: Sequence[bytes], sizes: Mapping[str, int]) -> ShardReport | None:
        """The report of the shard if a run has finished it from the same references and settings.

        A shard is not reused if an image that could not be loaded now can be, or if a file has no version.
        `sizes` are the bytes of each file in the folder, by name.
        """
        report = self._stored_report(sizes)
        if report is None or report.file.stats.unversioned:
            return None
        if report.file.failures_path and _can_be_loaded(report.file.failures_path, references):
            return None
        _renew_references(report.file.stats.statistics, references)
        return report

    def discard(self, sizes: Mapping[str, int]) -> None:
        """Removes the files of the shard that an earlier run has left; `sizes` as in `reusable`."""
        if os.path.basename(self.path) in sizes:
            report = self._stored_report(sizes, any_digest=True)
            system = file_system(self.folder)
            system.remove_existing(self.path)
            if report is not None:
                system.remove_existing(*report.file.paths)

    def _stored_report(self, sizes: Mapping[str, int], any_digest: bool = False) -> ShardReport | None:
        """The report in the checkpoint; None without one, or where it is damaged or of another format."""
        if os.path.basename(self.path) not in sizes:
            return None
        try:
            stored = _decoder.decode(without_digest(read_bytes(self.path)))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if stored.format_version != _FORMAT_VERSION or not all(map(_is_name, stored.file.paths)):
            return None
        present = {name: sizes.get(name) for name in stored.file.paths}
        if not (any_digest or (stored.digest == self.digest and stored.sizes == present)):
            return None
        return ShardReport(self.split, self.shard, stored.file.in_folder(self.folder), reused=True)


def _is_name(name: str) -> bool:
    return os.path.basename(name) == name and name not in ("", ".", "..") and "\0" not in name


def shard_digest(settings: str, references: Iterable[bytes]) -> str:
    """The digest of a shard: of the digest of its settings, and of its references in their order.

    A row that moves to another line of its manifest is the same.
    """
    hashed = hashlib.sha256(settings.encode())
    for reference in references:
        hashed.update(reference_digest(reference))
    return hashed.hexdigest()


def _renew_references(statistics: Statistics, references: Iterable[bytes]) -> None:
    """Replaces remembered references by those of this run: the files of an earlier run's records are gone."""
    if statistics.reencoded:
        current = {reference_digest(reference): reference for reference in references}
        statistics.reencoded = [
            (key, current.get(reference_digest(reference), reference))
            for key, reference in statistics.reencoded
        ]


def _can_be_loaded(failures_path: str, references: Iterable[bytes]) -> bool:
    """Whether an image that could not be loaded (no permission, not there) can be now."""
    lines = filter(None, read_text(failures_path).split("\n"))
    failed = [Failure(**msgspec.json.decode(line)) for line in lines]
    unloaded = {failure.key for failure in failed if failure.stage == "load"}
    if not unloaded:
        return False
    reader = ImageReader()
    for reference in references:
        if reference_record(reference).key in unloaded:
            try:
                for ref in files_of(reference_record(reference, reader.read)):
                    reader.read(ref)
            except BadInput:
                continue
            return True
    return False
