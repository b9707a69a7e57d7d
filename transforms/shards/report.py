"""The result of writing a shard, or a part of one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import msgspec

from recordmill.transforms.records import Failure, StoredImage
from recordmill.transforms.shards.statistics import Statistics, add_counts

# The attributes of `ShardFile` that are paths.
_PATHS = ("path", "index_path", "failures_path", "lineage_path")


class WriteStats(msgspec.Struct):
    """Mergeable counts of the records written to a file, and of those that failed.

    Attributes:
        written: records.
        failed: failed records by (stage, reason).
        source_bytes: of the images that were written, as the source stores them.
        encoded_bytes: of the same images, as the records store them.
        actions: what was done to them, by name.
        formats: image formats as stored, by name.
        channels: number of channels of the decoded images.
        dtypes: of their pixels.
        colorspaces: of the stored images.
        alpha_images: stored with their transparency where a JPEG or less of a WebP was asked for.
        alpha_bytes: of those, as stored.
        flattened_bytes: of those, had they been flattened.
        qualities: that --target_ssim chose; 0 where the source was kept.
        annotations: what was stored: `objects`, `class` (masks), …; `images_without_objects`.
        mask_dtypes: PNG masks of images, by name in `Mapped.masks` and type of their pixels.
        notes: annotations that were clipped or dropped, by reason.
        statistics: of the written records.
        work: operations: `source_reads` (files), `images` (through the codecs, or the check of their
            header), `masks` (made).
        reused: records whose images are those of the previous version.
        unversioned: records one of whose files has no version, so a change may go unnoticed.
    """

    written: int = 0
    failed: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
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
            self.actions.update(image.actions)
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
        """Counts one failed record."""
        self.failed[failure.stage, failure.reason] += 1

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
        path: of the TFRecord file.
        index_path: of its index.
        failures_path: of the failed records, as lines of failures.jsonl; None where there are none.
        size: bytes.
        sha256: of the file, in hex.
        stats: counts.
        lineage_path: of the rows of its lineage, in a finished shard after a header (see `lineage`); None
            where there are no versions.
        lineage_sha256: of that file, in hex; empty for a part.
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
        """Of all its files."""
        return [path for name in _PATHS if (path := getattr(self, name)) is not None]

    def in_folder(self, folder: str) -> ShardFile:
        """The same with its files in another folder; with their names alone where that is empty."""
        paths = {name: getattr(self, name) for name in _PATHS}
        moved = {name: path and os.path.join(folder, os.path.basename(path)) for name, path in paths.items()}
        return msgspec.structs.replace(self, **moved)


class ShardReport(msgspec.Struct, frozen=True):
    """One finished, unpublished shard: what Publish moves and the manifest lists.

    Attributes:
        split: its name.
        shard: number within the split.
        file: the finished file.
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
