"""The checkpoint of a finished, unpublished shard: by it a later run decides whether to reuse the shard."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.shards.fingerprint import files_of
from recordmill.transforms.shards.references import reference_digest, reference_record
from recordmill.transforms.shards.report import ShardFile, ShardReport
from recordmill.transforms.shards.statistics import decode_counter, in_order
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import read_bytes, read_text, write_file
from recordmill.transforms.storage.layout import CHECKPOINT_ENDING
from recordmill.transforms.storage.reader import ImageReader

_FORMAT_VERSION = 8


class _Stored(msgspec.Struct):
    """The contents of a checkpoint, as msgpack.

    Attributes:
        format_version: of the file.
        digest: of the settings and references that the shard was made from.
        sizes: bytes of each of its files, by name.
        file: the shard; its paths are names of files in the same folder.
    """

    format_version: int
    digest: str
    sizes: dict[str, int]
    file: ShardFile


_decoder = msgspec.msgpack.Decoder(_Stored, dec_hook=decode_counter)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What determines a shard's bytes, and the file that records it once the shard is finished.

    Attributes:
        folder: of the unpublished shards of a run.
        split: name.
        shard: number.
        digest: of the settings and of the references, in their order.
    """

    folder: str
    split: str
    shard: int
    digest: str

    @property
    def path(self) -> str:
        """Of the file."""
        return os.path.join(self.folder, f"{self.split}-{self.shard:05d}{CHECKPOINT_ENDING}")

    def write(self, file: ShardFile, sizes: Sequence[int]) -> None:
        """Writes the checkpoint. The files of the shard are durable before."""
        named = msgspec.structs.replace(file.in_folder(""), stats=in_order(file.stats))
        stored = _Stored(_FORMAT_VERSION, self.digest, dict(zip(named.paths, sizes, strict=True)), named)
        write_file(self.path, msgspec.msgpack.encode(stored))

    def reusable(self, references: Sequence[bytes], sizes: Mapping[str, int]) -> ShardReport | None:
        """The report of the shard if a run has finished it from the same references and settings.

        A shard is not reused if an image that could not be loaded now can be, or if a file has no version.

        Args:
            sizes: bytes of each file in the folder, by name.
        """
        report = self._stored_report(sizes)
        if report is None or report.file.stats.unversioned:
            return None
        if report.file.failures_path and _can_be_loaded(report.file.failures_path, references):
            return None
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
            stored = _decoder.decode(read_bytes(self.path))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if stored.format_version != _FORMAT_VERSION or not all(map(_is_name, stored.file.paths)):
            return None
        present = {name: sizes.get(name) for name in stored.file.paths}
        if not (any_digest or (stored.digest == self.digest and stored.sizes == present)):
            return None
        return ShardReport(self.split, self.shard, stored.file.in_folder(self.folder), reused=True)


def _is_name(name: str) -> bool:
    """Whether it names a file in the same folder."""
    return os.path.basename(name) == name and name not in ("", ".", "..") and "\0" not in name


def shard_digest(settings: str, references: Iterable[bytes]) -> str:
    """The digest of a shard: of the digest of its settings, and of its references in their order.

    A row that moves to another line of its manifest is the same.
    """
    hashed = hashlib.sha256(settings.encode())
    for reference in references:
        hashed.update(reference_digest(reference))
    return hashed.hexdigest()


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
