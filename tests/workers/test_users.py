"""An unexpected exception in the image code costs one image, whatever the task; its traceback is logged."""

import dataclasses
import functools
import importlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw
from recordmill.transforms import internal_errors
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.reading.against import CompareTask
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.verify_dataset import Expected, open_dataset
from recordmill.transforms.reading.verify_report import Tally
from recordmill.transforms.reading.verify_shard import RecordRange, scan_shard
from recordmill.transforms.reading.verify_tasks import CheckTask, StoredLocation
from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, ImageRef
from recordmill.transforms.reporting.tasks import ChangeTask
from recordmill.transforms.shards.dataset_plan import plan_dataset
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.tasks import EncodeTask, PartTask
from recordmill.transforms.shards.totals import total
from recordmill.transforms.sweeping.measure import CropTask, MeasureTask, Worst
from recordmill.transforms.sweeping.settings import SweepConfig
from recordmill.transforms.sweeping.settings import settings as sweep_settings
from recordmill.transforms.workers import process
from recordmill.transforms.workers.pool import ProcessExecutor, worker_itself
from recordmill.transforms.workers.task import C, R, Task, Worker, no_progress
from tests.pipelines.conversion import convert

ROOT = "recordmill.transforms"
MARK = b"the one that raises"
RAISED = "internal error: ZeroDivisionError"


def raising(module: str, name: str, setup: Callable[[Worker], C], worker: Worker) -> C:
    """A setup of processes in which a function raises where one of its arguments are bytes with a mark."""
    *owners, last = name.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(f"{ROOT}.{module}"))
    function = getattr(owner, last)

    def replaced(*args: Any) -> Any:
        if any(isinstance(arg, bytes) and MARK in arg for arg in args):
            raise ZeroDivisionError("injected")
        return function(*args)

    setattr(owner, last, replaced)
    return setup(worker)


@pytest.fixture(autouse=True)
def one_traceback(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test logs one traceback; no later test gets a process whose functions raise."""
    monkeypatch.setattr(internal_errors, "_logged", set())
    process.stop_idle()
    yield
    process.stop_idle()
    (logged,) = caplog.get_records("call")
    assert "ZeroDivisionError: injected" in logged.message
    assert "Traceback (most recent call last)" in logged.message


def ran(task: Task[C, R], setup: Callable[[Worker], C], module: str, name: str) -> R:
    """The result of a task in a process in which a function raises."""
    with ProcessExecutor(functools.partial(raising, module, name, setup), no_progress, 1) as pool:
        return pool.submit(task).result(timeout=60)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[ImageRecord]:
    """Six images, the third with a mark."""
    folder = tmp_path_factory.mktemp("users") / "images"
    folder.mkdir()
    found = []
    for number in range(6):
        encoded = io.BytesIO()
        draw("circle", number, 64, 48).save(encoded, "JPEG")
        path = folder / f"{number}.jpg"
        path.write_bytes(encoded.getvalue() + MARK * (number == 2))
        size = path.stat().st_size
        found.append(ImageRecord(path.name, ImageRef(str(path)), "train", Annotations(), "", size))
    return found


@pytest.fixture(scope="module")
def references(records: list[ImageRecord]) -> list[bytes]:
    return [pack_reference(record, 0) for record in records]


@pytest.fixture(scope="module")
def settings(records: list[ImageRecord]) -> RecordSettings:
    return plan_dataset(total(records[:1]), DatasetConfig()).settings


@pytest.fixture(scope="module")
def opened_dataset(records: list[ImageRecord]) -> tuple[Dataset, Expected, Tally]:
    """A dataset of one shard that holds the images."""
    assert records[0].image is not None
    images = Path(records[0].image.uri).parent
    output = images.parent / "out"
    assert convert("--input", images, "--output", output, "--num_shards=1", "--order=key", "--quiet") == 0
    return open_dataset(str(output))


@pytest.fixture(scope="module")
def stored(opened_dataset: tuple[Dataset, Expected, Tally]) -> RecordRange:
    (shard,) = opened_dataset[0].shards
    _, (found,) = scan_shard(shard, Path(shard.path).name, 0)
    return found


def faults(tally: Tally) -> list[tuple[int | None, str]]:
    return [(fault.record, fault.what) for named in tally.named.values() for fault in named]


def test_shards(references: list[bytes], settings: RecordSettings, tmp_path: Path) -> None:
    task = PartTask(references, str(tmp_path / "part"))
    setup = functools.partial(RecordEncoder, settings)
    file = ran(task, setup, "shards.record_encoder", "opened")
    assert (file.stats.written, file.stats.failed) == (5, {("encode", RAISED): 1})
    assert file.failures_path is not None
    assert '"key": "2.jpg"' in Path(file.failures_path).read_text()


@pytest.mark.slow
def test_batches(references: list[bytes], settings: RecordSettings) -> None:
    setup = functools.partial(RecordEncoder, settings)
    batch = ran(EncodeTask(references), setup, "shards.record_encoder", "opened")
    assert batch.failures == [Failure("2.jpg", "encode", RAISED, "injected")]
    assert (len(batch.payloads), batch.stats.written) == (5, 5)
    encoder = RecordEncoder(settings)
    every = list(encoder.encode_all(references, batch.stats, []))
    assert batch.payloads == [encoded.payload for index, _, encoded in every if index != 2]


def test_verify(stored: RecordRange, opened_dataset: tuple[Dataset, Expected, Tally]) -> None:
    task = CheckTask(stored, opened_dataset[1])
    found = ran(task, worker_itself, "reading.verify_record", "RecordChecker.check").tally
    assert faults(found) == [(2, f"decode: {RAISED} (injected)")]
    assert found.checked["images"] == 5


@pytest.mark.slow
def test_verify_against_the_source(
    stored: RecordRange, references: list[bytes], settings: RecordSettings
) -> None:
    offsets = [offset for offset, _ in stored.read()]
    locations = [
        StoredLocation(stored.path, stored.name, "train", number, offset, stored.lengths[number])
        for number, offset in enumerate(offsets)
    ]
    task = CompareTask(references, locations, settings, DatasetConfig())
    found = ran(task, worker_itself, "reading.against", "SourceComparer.compare")
    assert faults(found) == [(2, f"{RAISED}: injected")]
    assert found.checked["compared"] == 5


@pytest.mark.slow
def test_sweep(references: list[bytes], settings: RecordSettings) -> None:
    config = SweepConfig(qualities=(60,), targets=(), worst=2)
    every = sweep_settings(config)
    measure = MeasureTask(references[2], every, config.seen, settings)
    found = ran(measure, worker_itself, "images.similarity", "opened")
    assert found == Failure("2.jpg", "encode", RAISED, "injected")
    worst = Worst(0.5, "2.jpg", 0, references[2], (0.5,) * len(every))
    crop = CropTask(references[2], every, config.seen, worst)
    assert ran(crop, worker_itself, "images.similarity", "opened") == []


def test_report(references: list[bytes], settings: RecordSettings) -> None:
    settings = dataclasses.replace(settings, policy=ImagePolicy("jpeg", reencode="always"))
    task = ChangeTask(references[2], "2.jpg", settings)
    found = ran(task, worker_itself, "images.opened", "opened")
    assert isinstance(found, BadInput) and str(found) == f"encode: {RAISED} (injected)"
