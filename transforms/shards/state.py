"""The state that a finished, unpublished shard leaves beside it: by it, a later run knows and reuses it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.transforms.records import BadInput
from recordmill.transforms.shards.fingerprint import files_of
from recordmill.transforms.shards.references import reference_digest, reference_record
from recordmill.transforms.shards.report import PATHS, ShardFile, ShardReport, WriteStats
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage import files
from recordmill.transforms.storage.durable import write_text
from recordmill.transforms.storage.reader import ImageReader

_FORMAT_VERSION = 6
_ENDING = ".state.json"


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

    def write(self, file: ShardFile, sizes: Sequence[int]) -> None:
        """Notes that the shard is finished; its files have to be on disk, or in the bucket.

        Args:
            file: of the shard.
            sizes: of its files, as `ShardFile.paths` has them.
        """
        names = {name: path and os.path.basename(path) for name, path in file.named_paths.items()}
        report = {
            "split": self.split,
            "shard": self.shard,
            "file": {
                **names,
                "size": file.size,
                "sha256": file.sha256,
                "state_sha256": file.state_sha256,
                "stats": stats_json(file.stats),
            },
        }
        state = {
            "format_version": _FORMAT_VERSION,
            "digest": self.digest,
            "report": report,
            "sizes": list(sizes),
        }
        write_text(self.path, json.dumps(state, ensure_ascii=False))

    def reusable(self, references: Sequence[bytes], sizes: Mapping[str, int]) -> ShardReport | None:
        """The report of the shard if a run has finished it from exactly this.

        A shard some of whose images could not be loaded, and now can be, is not reused; nor is one of files
        that may have changed unseen.

        Args:
            references: of the shard.
            sizes: bytes of each file in the folder, by name.
        """
        report = self._noted(sizes)
        if report is None or report.file.stats.unknown:
            return None
        if report.file.failures_path and _can_be_loaded(report.file.failures_path, references):
            return None
        return report

    def discard(self, sizes: Mapping[str, int]) -> None:
        """Removes what runs have left of the shard, if it is no use any more; `sizes` as in `reusable`."""
        if os.path.basename(self.path) in sizes:
            report = self._noted(sizes, any_digest=True)
            files.remove_if_there(self.path)
            if report is not None:
                files.remove_if_there(*report.file.paths)

    def _file(self, found: Mapping[str, Any]) -> ShardFile:
        """The file of a report as it was written.

        Raises:
            ValueError, KeyError, TypeError: it was not written so.
        """
        paths = {name: found[name] for name in PATHS}
        for name, path in paths.items():
            if path is None and name in ("failures_path", "state_path"):
                continue
            if os.path.basename(path) != path or path in ("", ".", "..") or "\0" in path:
                raise ValueError(f"{name} is {path!r}")
            paths[name] = os.path.join(self.folder, path)
        return ShardFile(
            **paths,
            size=found["size"],
            sha256=found["sha256"],
            state_sha256=found["state_sha256"],
            stats=stats_of(found["stats"]),
        )

    def _noted(self, sizes: Mapping[str, int], any_digest: bool = False) -> ShardReport | None:
        if os.path.basename(self.path) not in sizes:
            return None
        try:
            state = json.loads(files.read_bytes(self.path))
            if state["format_version"] != _FORMAT_VERSION or not (
                any_digest or state["digest"] == self.digest
            ):
                return None
            shard_file = self._file(state["report"]["file"])
            found = [sizes.get(os.path.basename(path)) for path in shard_file.paths]
            if not (any_digest or found == state["sizes"]):
                return None
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None  # of another version, or damaged: as good as none
        return ShardReport(self.split, self.shard, shard_file, reused=True)


def shard_digest(settings: str, references: Iterable[bytes]) -> str:
    """The digest of a shard: of the digest of its settings, and of its references in their order.

    A row that moves to another line of its manifest is the same.

    Args:
        settings: digest of them.
        references: packed.
    """
    hashed = hashlib.sha256(settings.encode())
    for reference in references:
        hashed.update(reference_digest(reference))
    return hashed.hexdigest()


def _can_be_loaded(failures_path: str, references: Iterable[bytes]) -> bool:
    """Whether an image that could not be loaded (no permission, not there) can be now."""
    failed = [json.loads(line) for line in filter(None, files.read_text(failures_path).split("\n"))]
    unloaded = {failure["key"] for failure in failed if failure["stage"] == "load"}
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


def stats_json(stats: WriteStats) -> Mapping[str, object]:
    """Counts as they are, and in order; counters as lists of [key, count]."""
    return {field.name: _json(getattr(stats, field.name)) for field in dataclasses.fields(stats)}


def _json(value: object) -> object:
    if isinstance(value, Statistics):
        return value.as_json()
    return sorted(value.items()) if isinstance(value, Counter) else value


def stats_of(fields: Mapping[str, Any]) -> WriteStats:
    """What `stats_json` made.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it did not make that.
    """
    stats = WriteStats()
    for name, value in fields.items():
        if isinstance(value, list):
            value = Counter({_key(key): count for key, count in value})
        elif isinstance(value, dict):
            value = Statistics.from_json(value)
        setattr(stats, name, value)
    return stats


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
