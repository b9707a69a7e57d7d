"""Codecs that crash or hang cost the image they were given, and nothing else."""

import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.drawings import draw
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.dataset_plan import measure, plan_dataset
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import Checkpoint
from recordmill.transforms.shards.tasks import EncodeTask, PartTask, encoder_pool, write_part
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.local import version_of
from tests.conftest import Figure
from tests.shards.planned import sizes
from tests.workers.failing_codec import failing_codec

HANG_SECONDS = 1.0


@pytest.fixture(autouse=True, scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers whose codec fails on images that say so."""
    with pytest.MonkeyPatch.context() as patch, failing_codec(tmp_path_factory.mktemp("codec"), patch):
        yield


def listed(folder: Path, ends: dict[int, bytes], count: int = 40) -> list[ImageRecord]:
    """Images; to those of some places, what they shall do is appended."""
    (folder / "images").mkdir()
    records = []
    for number in range(count):
        encoded = io.BytesIO()
        draw("circle", number, 32, 24).save(encoded, "JPEG")
        path = folder / f"images/{number:03}.jpg"
        path.write_bytes(encoded.getvalue() + ends.get(number, b""))
        size = path.stat().st_size
        image = ImageRef(str(path), version=version_of(path.stat()))
        records.append(ImageRecord(path.name, image, "train", Annotations(("a",)), "", size))
    return records


def settings(records: list[ImageRecord]) -> RecordSettings:
    return plan_dataset(total(records[:1]), DatasetConfig()).settings


def ran(
    records: list[ImageRecord], path: Path, done: list[int], hang_seconds: float = HANG_SECONDS
) -> tuple[Path, list[str], dict[object, int]]:
    """Records and failures of a part that one process writes."""
    references = [pack_reference(record, 0) for record in records]
    checkpoint = Checkpoint(str(path.parent), "train", 0, "digest")
    with encoder_pool(settings(records), lambda count, _: done.append(count), 1, hang_seconds) as pool:
        file = pool.submit(PartTask(references, str(path), checkpoint)).result(timeout=60)
    report = checkpoint.reusable(references, sizes(checkpoint.folder))
    assert report is not None and report.file == file
    assert file.sha256 == hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
    failures = Path(file.failures_path).read_text().splitlines() if file.failures_path else []
    return Path(file.path), failures, dict(file.stats.failed)


@pytest.mark.parametrize("ends", [pytest.param([0, 1, 2], marks=pytest.mark.slow), [3, 20, 39]])
def test_a_crash_costs_one_image(tmp_path: Path, ends: list[int], figure: Figure) -> None:
    figure("crashes", 2 * len(ends))
    records = listed(tmp_path, dict.fromkeys(ends, b"CRASH"))
    done: list[int] = []
    path, failures, reasons = ran(records, tmp_path / "part", done)
    assert reasons == {("decode", "crashes the codec"): len(ends)}
    assert failures == [
        f'{{"key": "{number:03}.jpg", "stage": "decode", "reason": "crashes the codec", '
        '"detail": "its process was ended by SIGSEGV, two times"}'
        for number in ends
    ]
    others = [record for number, record in enumerate(records) if number not in ends]
    expected = write_part(
        [pack_reference(record, 0) for record in others],
        str(tmp_path / "expected"),
        RecordEncoder(settings(records)),
    )
    assert path.read_bytes() == Path(expected.path).read_bytes()
    assert path.with_suffix(".idx").read_text() == Path(expected.index_path).read_text()
    # Nothing is left of the tries, and what was done twice counts once.
    assert {name.name for name in tmp_path.glob("part*")} == {"part.tfrecord", "part.idx", "part.failures"}
    assert sum(done) == len(others)


@pytest.mark.slow
def test_a_hang_costs_one_image_and_two_limits(tmp_path: Path) -> None:
    records = listed(tmp_path, {5: b"HANG"}, count=10)
    path, failures, reasons = ran(records, tmp_path / "part", [])
    assert reasons == {("decode", "hangs the codec"): 1}
    assert failures == [
        '{"key": "005.jpg", "stage": "decode", "reason": "hangs the codec", '
        '"detail": "its process did not end in 1 seconds, two times"}'
    ]


@pytest.mark.slow
def test_an_image_that_takes_too_long_is_tried_once(tmp_path: Path) -> None:
    records = listed(tmp_path, {5: b"BURN"}, count=10)
    path, failures, reasons = ran(records, tmp_path / "part", [], hang_seconds=60)
    assert reasons == {("decode", "takes too long"): 1}
    assert failures == [
        '{"key": "005.jpg", "stage": "decode", "reason": "takes too long", '
        '"detail": "it needs more than 2 seconds of processor time, the limit for its size"}'
    ]


def test_an_unexpected_exception_costs_one_image(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = listed(tmp_path, {3: b"RAISE", 7: b"RAISE"}, count=10)
    path, failures, reasons = ran(records, tmp_path / "part", [])
    assert reasons == {("encode", "internal error: IndexError"): 2}
    assert failures == [
        f'{{"key": "00{number}.jpg", "stage": "encode", "reason": "internal error: IndexError", '
        f'"detail": "{500 * "!"}"}}'
        for number in (3, 7)
    ]
    (logged,) = caplog.records
    assert logged.name == "recordmill.transforms.internal_errors" and logged.levelname == "ERROR"
    assert "Traceback (most recent call last)" in logged.getMessage()
    assert logged.getMessage().endswith("IndexError: no such row \\udcff" + 1000 * "!")


@pytest.mark.slow
def test_an_image_that_takes_all_memory_costs_itself(tmp_path: Path) -> None:
    records = listed(tmp_path, {3: b"MEMORY"}, count=6)
    path, failures, reasons = ran(records, tmp_path / "part", [])
    assert reasons == {("decode", "crashes the codec"): 1}
    assert failures == [
        '{"key": "003.jpg", "stage": "decode", "reason": "crashes the codec", '
        '"detail": "its process ran out of memory, two times"}'
    ]


@pytest.mark.slow
def test_a_sample_leaves_out_what_fails_after_one_try(tmp_path: Path) -> None:
    records = listed(tmp_path, {1: b"CRASH", 2: b"ONCE"}, count=5)
    measured = measure(records, settings(records))
    sizes = [records[number].size for number in (0, 3, 4)]
    assert (measured.records, measured.source_bytes) == (3, sum(sizes))
    assert measured.encoded_bytes > sum(sizes)


@pytest.mark.slow
def test_a_sample_leaves_out_a_file_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.transforms.shards.dataset_plan._IMAGE_SECONDS", HANG_SECONDS)
    records = [*listed(tmp_path, {}, count=2), ImageRecord("x.jpg", ImageRef("HANG/x.jpg"), "train")]
    assert measure(records, settings(records)).records == 2


def test_a_sample_is_measured_once(tmp_path: Path) -> None:
    records = listed(tmp_path, {}, count=3)
    cache = str(tmp_path / "sample.json")
    first = measure(records, settings(records), cache)
    for record in records:
        assert record.image is not None
        Path(record.image.uri).unlink()
    assert measure(records, settings(records), cache) == first
    assert measure(records[1:], settings(records), cache).records == 0


def test_a_fault_of_reading_names_the_file(tmp_path: Path) -> None:
    records = listed(tmp_path, {}, count=1)
    broken = ImageRecord("x.jpg", ImageRef("EIO/x.jpg"), "train")
    executor = encoder_pool(settings(records), lambda *_: None, 1)
    try:
        with pytest.raises(JobError, match="^EIO/x.jpg: Input/output error; "):
            executor.submit(EncodeTask([pack_reference(broken, 0)])).result(timeout=60)
    finally:
        executor.close()


def test_an_image_that_does_well_by_itself_is_not_lost(tmp_path: Path) -> None:
    records = listed(tmp_path, {5: b"ONCE"}, count=10)
    path, failures, reasons = ran(records, tmp_path / "part", [])
    assert (failures, reasons) == ([], {})
    expected = write_part(
        [pack_reference(record, 0) for record in records],
        str(tmp_path / "expected"),
        RecordEncoder(settings(records)),
    )
    assert path.read_bytes() == Path(expected.path).read_bytes()


@pytest.mark.slow
def test_a_lone_image_is_tried_twice_too(tmp_path: Path) -> None:
    records = listed(tmp_path, {0: b"CRASH"}, count=1)
    path, failures, reasons = ran(records, tmp_path / "part", [])
    assert reasons == {("decode", "crashes the codec"): 1}
    assert path.read_bytes() == b""


@pytest.mark.slow
def test_encoding_alone_is_guarded_too(tmp_path: Path) -> None:
    records = listed(tmp_path, {2: b"CRASH", 4: b"HANG"}, count=6)
    references = [pack_reference(record, 0) for record in records]
    executor = encoder_pool(settings(records), lambda *_: None, 1, HANG_SECONDS)
    try:
        batch = executor.submit(EncodeTask(references)).result(timeout=60)
    finally:
        executor.close()
    assert [(failure.key, failure.reason) for failure in batch.failures] == [
        ("002.jpg", "crashes the codec"),
        ("004.jpg", "hangs the codec"),
    ]
    encoder = RecordEncoder(settings(records))
    assert batch.payloads == [encoder.encode(records[number]).payload for number in (0, 1, 3, 5)]
    assert (batch.stats.written, sum(batch.stats.failed.values())) == (4, 2)


@pytest.mark.slow
def test_a_file_that_does_not_answer_fails_the_job(tmp_path: Path) -> None:
    records = listed(tmp_path, {}, count=3)
    hanging = ImageRecord("x.jpg", ImageRef("HANG/x.jpg"), "train")
    executor = encoder_pool(settings(records), lambda *_: None, 1, HANG_SECONDS)
    try:
        references = [pack_reference(record, 0) for record in [*records, hanging]]
        with pytest.raises(JobError, match=r"HANG/x.jpg: reading it did not end in 1 seconds, two times"):
            executor.submit(EncodeTask(references)).result(timeout=60)
    finally:
        executor.close()


@pytest.mark.slow
def test_processes_that_die_through_no_image_fail_the_job(tmp_path: Path) -> None:
    records = listed(tmp_path, dict.fromkeys(range(20), b"ONCE"), count=20)
    executor = encoder_pool(settings(records), lambda *_: None, 1, HANG_SECONDS)
    try:
        with pytest.raises(JobError, match="9 worker processes ended, and no image caused it"):
            executor.submit(EncodeTask([pack_reference(record, 0) for record in records])).result(timeout=60)
    finally:
        executor.close()


def test_a_worker_that_is_killed_between_tasks_is_replaced(tmp_path: Path) -> None:
    records = listed(tmp_path, {}, count=2)
    references = [pack_reference(record, 0) for record in records]
    executor = encoder_pool(settings(records), lambda *_: None, 1)
    try:
        first = executor.submit(EncodeTask(references)).result(timeout=60)
        worker = executor._runners[0].start()
        os.kill(worker.popen.pid, 9)
        assert executor.submit(EncodeTask(references)).result(timeout=60) == first
    finally:
        executor.close()


def test_closing_ends_what_is_at_work(tmp_path: Path) -> None:
    records = listed(tmp_path, {1: b"HANG"}, count=2)
    executor = encoder_pool(settings(records), lambda *_: None, 1)
    future = executor.submit(EncodeTask([pack_reference(record, 0) for record in records]))
    worker = executor._runners[0].start()
    while worker.position.read().item != 1:
        time.sleep(0.01)
    threads = threading.active_count()
    executor.close()
    assert worker.popen.poll() is not None
    assert threading.active_count() < threads
    with pytest.raises(JobError, match="the worker processes were stopped"):
        future.result(timeout=60)
