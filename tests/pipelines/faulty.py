"""A machine that fails, or dies, at the n-th operation on files; and a whole job without a runner for it."""

import builtins
import contextlib
import hashlib
import json
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms import plan as planning
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.publish import Reconcile, write_metadata
from recordmill.transforms.records import Failure, ImageRecord, ImageRef
from recordmill.transforms.shards.dataset_plan import DatasetPlan, shard_index
from recordmill.transforms.shards.manifest import Provenance
from recordmill.transforms.shards.record_encoder import RecordEncoder
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import Checkpoint, ShardReport, shard_digest
from recordmill.transforms.shards.tasks import PartTask
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.local import version_of
from recordmill.transforms.storage.publication import Move, move_file
from recordmill.transforms.storage.scratch import scratch_folder

SPLIT = "train"
_DUPLICATES = (
    '{"across_splits":false,"different_labels":false,"bytes_equal":true,'
    '"records":[{"key":"0","split":"train","labels":[]},{"key":"1","split":"train","labels":[]}]}'
)
# What makes the name of an unfinished file unique.
_UNIQUE = re.compile(r"\.[0-9a-f]{12}\.part$")
_WRITING = frozenset("wxa+")
_OPERATIONS = ("open", "replace", "remove", "unlink", "rmdir", "mkdir", "utime", "pwrite", "ftruncate")


class Killed(BaseException):
    """The end of a process: nothing that it would still do on the disk happens."""


class Machine:
    """Counts operations on the files of an output; the one of number `at` fails, or is the last.

    Args:
        output: the folder; the input's files have faults of their own.
        at: number of the operation, from 0; -1 for none.
        error: number of the error that it raises; None where the process dies before it, or half way
            through where it is a write.
    """

    def __init__(self, output: Path, at: int = -1, error: int | None = None) -> None:
        self.operations: list[str] = []
        self._output = str(output)
        self._at = at
        self._error = error
        self._dead = False

    def do(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """One operation."""
        if self._comes(name, args[0]):
            raise self._fault(*[arg for arg in args if isinstance(arg, str)])
        return function(*args, **options)

    def write(self, file: Any, data: Any) -> Any:
        """One write."""
        if self._comes("write", file.name):
            raise self._fault()
        if self._dead:
            file.write(data[: len(data) // 2])
            file.flush()
            raise Killed
        return file.write(data)

    def _fault(self, *paths: str) -> OSError:
        assert self._error is not None
        return OSError(self._error, os.strerror(self._error), *paths)

    def _comes(self, name: str, path: object) -> bool:
        """Whether the operation shall fail; raises Killed where it is not reached."""
        if self._dead:
            raise Killed  # what `finally` would do
        if isinstance(path, str) and path.startswith("/") and not path.startswith(self._output):
            return False
        self.operations.append(_UNIQUE.sub(".part", f"{name} {path}"))
        if len(self.operations) - 1 != self._at:
            return False
        self._dead = self._error is None
        if self._dead and name != "write":
            raise Killed
        return not self._dead

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Every operation on files in the block is one of this machine."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _OPERATIONS:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            # Whether data reach the disk is another test's.
            patch.setattr(os, "fsync", self._counted("fsync", os.fstat))
            patch.setattr(builtins, "open", self._open(builtins.open))
            yield

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: self.do(name, function, *args, **options)

    def _open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            file = self.do("open", function, path, mode, *args, **options)
            return _File(self, file) if _WRITING & set(mode) else file

        return opened


class _File:
    """A file whose writes are operations."""

    def __init__(self, machine: Machine, file: Any) -> None:
        self._machine = machine
        self._file = file

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> Any:
        return self._machine.write(self._file, data)

    def writelines(self, lines: Any) -> None:
        pieces = list(lines)
        if pieces:
            self.write(pieces[0][:0].join(pieces))


class Job:
    """Everything that `convert` does with an output, in this thread; counts the shards that it writes."""

    def __init__(self, output: Path | str, num_shards: int, pixels: Path, overwrite: bool = False) -> None:
        self.config = DatasetConfig(num_shards=num_shards, max_failure_ratio=0.5, overwrite=overwrite)
        self.run = Run(str(output), self.config.digest({}), uuid.uuid4().hex, "a test")
        self.written = 0
        version = version_of(pixels.stat())
        self._records = [
            ImageRecord(f"{n}.png", ImageRef(str(pixels), 12 * n, 12, (2, 2, 3), version), size=12)
            for n in range(6)
        ]
        self._failures = [Failure("notes.txt", "list", "not an image", skipped=True)]

    def __call__(self, times: int = 1) -> str:
        """Plans, writes, publishes; each step of publishing several times, as a runner may."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("recordmill.transforms.shards.dataset_plan.measure", lambda *_: (1, 12, 500))
            plan = planning.make_plan(
                b"", self.config, [total(self._records)], self._failures, self.run.output, self.run
            )
        reports = list(self._write(plan))
        for _ in range(times):
            reconcile = Reconcile(self.run, self.config)
            *moves, summary = reconcile.process(b"", plan, reports, self._failures, [_DUPLICATES])
            for move in moves * times:
                assert isinstance(move, Move)
                move_file(move)
        provenance = Provenance({"kind": "test", "input": ""}, self.run.digest, "none", "")
        with pytest.MonkeyPatch.context() as patch:
            # Drawing the page only reads, and takes as long as all the rest.
            patch.setattr("recordmill.transforms.publish.report_page", lambda *_: "a page")
            paths = [
                write_metadata(summary.value, [], self.run, self.config, provenance) for _ in range(times)
            ]
        assert len(set(paths)) == 1
        return paths[0]

    def _write(self, plan: DatasetPlan) -> Iterator[ShardReport]:
        shards: dict[int, list[bytes]] = defaultdict(list)
        for record in self._records:
            reference = pack_reference(record, self.config.seed)
            shards[shard_index(reference, plan.splits[SPLIT])].append(reference)
        for shard, references in sorted(shards.items()):
            references.sort()
            digest = shard_digest(plan.settings.digest(), references)
            checkpoint = Checkpoint(self.run.shards, SPLIT, shard, digest)
            system = file_system(self.run.shards)
            with naming_faults(checkpoint.path):
                report = checkpoint.reusable(references, system.sizes(self.run.shards))
                if report is None:
                    checkpoint.discard(system.sizes(self.run.shards))
                    system.make_folder(self.run.shards)
            if report is None:
                self.written += 1
                folder = system.working_folder(self.run.shards) or scratch_folder()
                path = os.path.join(folder, f"{SPLIT}-{shard:05d}-{uuid.uuid4().hex[:12]}")
                file = PartTask(references, path, checkpoint).run(RecordEncoder(plan.settings))
                report = ShardReport(SPLIT, shard, file)
            yield report


def contents(folder: Path) -> dict[str, str]:
    """`content_digest` of every file below a folder, by path."""
    return {
        str(path.relative_to(folder)): content_digest(path.name, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def content_digest(name: str, data: bytes) -> str:
    """sha256 of a file; of manifest.json, without what differs each time."""
    if name == "manifest.json":
        manifest = json.loads(data)
        del manifest["provenance"], manifest["seal"]
        data = json.dumps(manifest).encode()
    return hashlib.sha256(data).hexdigest()
