"""A shard of the version before that is the same: taken over as it is, without a look at its records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.packing import reference_record
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.previous import PreviousVersion, ShardPaths
from recordmill.transforms.shards.record_state import DamagedStateError, StateHeader, read_state
from recordmill.transforms.shards.report import ShardFile, ShardReport
from recordmill.transforms.shards.state import ShardState
from recordmill.transforms.storage import files
from recordmill.transforms.storage.durable import write_lines
from recordmill.transforms.storage.files import stamp_of


@dataclasses.dataclass(frozen=True)
class WholeShard:
    """A shard that was made from the same references by the same settings.

    Attributes:
        paths: of its files.
        header: of its state.
        state_sha256: of the state file, in hex.
        is_same: made again, it would be the same: not known while records that failed are not tried again,
            nor where files may have changed unseen.
        work: what it took to know.
    """

    paths: ShardPaths
    header: StateHeader
    state_sha256: str
    is_same: bool
    work: Counter[str] = dataclasses.field(default_factory=Counter)

    def failed_lines(self) -> list[str]:
        """The lines of failures.jsonl of the records that it lacks."""
        return [line for line in self.header.failures if not json.loads(line).get("kept")]

    def task(self, references: Iterable[bytes]) -> tuple[EncodeTask, list[ImageRecord]]:
        """What tries the records that it lacks again, and those records."""
        keys = {json.loads(line)["key"] for line in self.failed_lines()}
        every = [(reference, reference_record(reference)) for reference in references]
        chosen = [(reference, record) for reference, record in every if record.key in keys]
        return EncodeTask([one for one, _ in chosen], sizes_only=True), [record for _, record in chosen]

    def tried_again(self, batch: EncodedBatch) -> WholeShard:
        """The same, once the records that it lacks have been tried again."""
        lines = [failure.to_json() for failure in batch.failures]
        is_same = not batch.stats.written and lines == self.failed_lines()
        return dataclasses.replace(self, is_same=is_same, work=batch.stats.work)

    def report(self, state: ShardState) -> ShardReport:
        """Its report; what it has to tell of records is put into a file of the run."""
        stats = dataclasses.replace(self.header.stats, taken_over=self.header.stats.written, work=self.work)
        failures = None
        if self.header.failures:
            failures = f"{state.path}.failures"
            files.make_folder(state.folder)
            lines = (f"{line}\n" for line in self.header.failures)
            write_lines(failures, lines)
        file = ShardFile(
            self.paths.records_path,
            self.paths.index_path,
            failures,
            self.header.size,
            self.header.sha256,
            stats,
            self.paths.state_path,
            self.state_sha256,
        )
        return ShardReport(state.split, state.shard, file, taken_whole=True, is_same=True)


def whole_shard(previous: PreviousVersion, num_shards: int, state: ShardState) -> WholeShard | None:
    """The shard of the version before in the place of one, if it was made from the same.

    Args:
        previous: the version.
        num_shards: of the split, as they are to be.
        state: of the shard, as it is to be.
    """
    split = previous.splits.get(state.split)
    if split is None or split.num_shards != num_shards:
        return None
    paths = previous.paths(state.split, state.shard)
    try:
        found = read_state(paths.state_path)
        header = found.header
        if header.digest != state.digest:
            return None
        if stamp_of(paths.records_path) != (header.size, header.stamp):
            return None
        if hashlib.sha256(files.read_bytes(paths.index_path)).hexdigest() != header.index_sha256:
            return None
    except (FileNotFoundError, DamagedStateError):
        return None
    is_same = not header.stats.failed and not header.stats.unknown
    return WholeShard(paths, header, found.sha256, is_same)
