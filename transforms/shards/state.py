"""The state that a finished, unpublished shard leaves beside it: by it, a later run knows and reuses it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transforms.records import BadInput
from transforms.shards.packing import reference_record
from transforms.shards.report import ShardFile, ShardReport, WriteStats
from transforms.storage.durable import write_text
from transforms.storage.local import LocalReader

_FORMAT_VERSION = 1
_ENDING = ".state.json"
_length = struct.Struct("<I").pack


@dataclasses.dataclass(frozen=True, slots=True)
class ShardState:
    """What decides a shard's bytes, and where that is noted once the shard is finished.

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
        """Of the state file."""
        return os.path.join(self.folder, f"{self.split}-{self.shard:05d}{_ENDING}")

    def write(self, file: ShardFile) -> None:
        """Notes that the shard is finished; its files have to be on disk."""
        names = {
            "path": os.path.basename(file.path),
            "index_path": os.path.basename(file.index_path),
            "failures_path": file.failures_path and os.path.basename(file.failures_path),
        }
        report = {
            "split": self.split,
            "shard": self.shard,
            "file": {**names, "size": file.size, "sha256": file.sha256, "stats": _stats_json(file.stats)},
        }
        state = {"format_version": _FORMAT_VERSION, "digest": self.digest, "report": report}
        write_text(self.path, json.dumps(state, ensure_ascii=False))

    def reusable(self, references: Sequence[bytes]) -> ShardReport | None:
        """The report of the shard if a run has finished it from exactly this.

        A shard some of whose images could not be loaded, and now can be, is not reused.
        """
        report = self._noted()
        if report is None or not _is_there(report.file):
            return None
        if report.file.failures_path and _can_be_loaded(report.file.failures_path, references):
            return None
        return report

    def discard(self) -> None:
        """Removes what runs have left of the shard, if it is no use any more."""
        report = self._noted(any_digest=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
        if report is not None:
            for path in filter(None, (report.file.path, report.file.index_path, report.file.failures_path)):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)

    def _noted(self, any_digest: bool = False) -> ShardReport | None:
        try:
            with open(self.path, encoding="utf-8") as file:
                state = json.load(file)
            if state["format_version"] != _FORMAT_VERSION or not (
                any_digest or state["digest"] == self.digest
            ):
                return None
            found = state["report"]["file"]
            paths = {
                name: found[name] and os.path.join(self.folder, os.path.basename(found[name]))
                for name in ("path", "index_path", "failures_path")
            }
            stats = _stats_of(found["stats"])
            shard_file = ShardFile(**paths, size=found["size"], sha256=found["sha256"], stats=stats)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):  # of another version, or damaged: as good as none
            return None
        return ShardReport(self.split, self.shard, shard_file, reused=True)


def shard_digest(settings: str, references: Iterable[bytes]) -> str:
    """The digest of a shard: of the digest of its settings, and of its references in their order."""
    hashed = hashlib.sha256(settings.encode())
    for reference in references:
        hashed.update(_length(len(reference)) + reference)
    return hashed.hexdigest()


def _is_there(file: ShardFile) -> bool:
    """Whether the files are, whole: they were on disk before the state was."""
    if not os.path.isfile(file.path) or os.path.getsize(file.path) != file.size:
        return False
    return os.path.isfile(file.index_path) and (
        file.failures_path is None or os.path.isfile(file.failures_path)
    )


def _can_be_loaded(failures_path: str, references: Iterable[bytes]) -> bool:
    """Whether an image that could not be loaded (no permission, not there) can be now."""
    with open(failures_path, encoding="utf-8", newline="\n") as file:
        failed = [json.loads(line) for line in file]
    unloaded = {failure["key"] for failure in failed if failure["stage"] == "load"}
    if not unloaded:
        return False
    reader = LocalReader()
    for reference in references:
        record = reference_record(reference)
        if record.key in unloaded and record.image is not None:
            try:
                reader.read(record.image)
            except BadInput:
                continue
            return True
    return False


def _stats_json(stats: WriteStats) -> Mapping[str, object]:
    """Counts as they are; counters as lists of [key, count]."""
    fields = {field.name: getattr(stats, field.name) for field in dataclasses.fields(stats)}
    return {
        name: list(value.items()) if isinstance(value, Counter) else value for name, value in fields.items()
    }


def _stats_of(fields: Mapping[str, Any]) -> WriteStats:
    stats = WriteStats()
    for name, value in fields.items():
        if isinstance(value, list):
            value = Counter({_key(key): count for key, count in value})
        setattr(stats, name, value)
    return stats


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
