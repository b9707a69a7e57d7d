"""Parts, joins, and the processes that write them."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.dataset_plan import plan_dataset
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import Checkpoint, ShardFile, ShardReport, shard_digest
from recordmill.transforms.shards.tasks import PartTask, encoder_pool, join_parts, part_count, write_part
from recordmill.transforms.shards.totals import total
from tests.shards.planned import sizes


def records(count: int) -> list[ImageRecord]:
    """Features alone, under keys that tear lines apart."""
    found: list[ImageRecord] = []
    for number in range(count):
        key = f"{number:04d}\u2028\n"
        found.append(
            ImageRecord(key, None, "train", Annotations((), {"x": number, "text": "y" * (number % 50)}))
        )
    return found


def settings(count: int) -> RecordSettings:
    return plan_dataset(total(records(count)), DatasetConfig()).settings


def ignore(done: int, size: int) -> None:
    """No progress is shown."""


def contents(file: ShardFile) -> tuple[bytes, str, list[str]]:
    failures = Path(file.failures_path).read_text("utf-8").split("\n")[:-1] if file.failures_path else []
    return Path(file.path).read_bytes(), Path(file.index_path).read_text(), failures


@given(st.integers(0, 5000), st.integers(1, 40), st.integers(1, 16), st.data())
def test_part_count(count: int, num_shards: int, workers: int, data: st.DataObject) -> None:
    parts = part_count(count, data.draw(st.integers(0, num_shards - 1)), num_shards, workers)
    assert parts == 1 or count // parts >= 8


@pytest.mark.parametrize(
    ("count", "num_shards", "workers", "parts"),
    [
        (1250, 4, 2, [1, 1, 6, 6]),
        (40, 4, 2, [1, 1, 5, 5]),
        (250, 1, 2, [12]),
        (15, 1, 2, [1]),
        (1250, 5, 2, [1, 1, 1, 1, 12]),
        (20_000, 1, 2, [12]),
        (20_000, 1, 1, [1]),
        (50_001, 2, 1, [2, 2]),
        (20_000, 3, 8, [16, 16, 16]),
        (10, 1, 8, [1]),
    ],
)
def test_only_the_last_round_is_cut(count: int, num_shards: int, workers: int, parts: list[int]) -> None:
    assert [part_count(count, shard, num_shards, workers) for shard in range(num_shards)] == parts


@pytest.mark.parametrize("cuts", [[0, 30], [0, 1, 2, 30], [0, 10, 10, 30]])
def test_joined_parts_equal_the_whole(tmp_path: Path, cuts: list[int]) -> None:
    # A third of the records fail: a label that no label file has.
    names = ("cat", "dog")
    listed = [
        ImageRecord(f"{number}\u2028\n", None, "train", Annotations((("cat", "dog", "cow")[number % 3],)))
        for number in range(30)
    ]
    made = plan_dataset(total(listed), DatasetConfig(label_names=names)).settings
    encoder = RecordEncoder(made)
    references = [pack_reference(record, 0) for record in listed]
    whole = write_part(references, str(tmp_path / "whole"), encoder)
    parts = [
        write_part(references[start:end], str(tmp_path / f"part{start}-{end}"), encoder)
        for start, end in zip(cuts, cuts[1:], strict=False)
    ]
    joined = join_parts(parts, str(tmp_path / "joined"))
    assert contents(joined) == contents(whole)
    assert (joined.size, joined.sha256, joined.stats) == (whole.size, whole.sha256, whole.stats)
    assert joined.sha256 == hashlib.sha256(Path(joined.path).read_bytes()).hexdigest()
    assert joined.stats.written == 20
    assert joined.stats.failed == {("build", "unknown label"): 10}
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        f"{name}.{end}" for name in ("whole", "joined") for end in ("tfrecord", "idx", "failures")
    }


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_byte(tmp_path: Path, workers: int) -> None:
    references = sorted(pack_reference(record, 0) for record in records(700))
    expected = write_part(references, str(tmp_path / "expected"), RecordEncoder(settings(700)))
    done: list[int] = []

    def count_done(count: int, size: int) -> None:
        done.append(count)

    executor = encoder_pool(settings(700), count_done, workers)
    try:
        train = Checkpoint(str(tmp_path), "train", 0, shard_digest("", references))
        val = Checkpoint(str(tmp_path), "val", 0, shard_digest("", []))
        parts = part_count(700, 0, 2, workers)
        futures = {
            train: executor.submit(PartTask(references, f"{train.path}-1", train), parts),
            val: executor.submit(PartTask([], f"{val.path}-1", val)),
        }
        reports = [
            ShardReport(checkpoint.split, checkpoint.shard, future.result())
            for checkpoint, future in futures.items()
        ]
    finally:
        executor.close()
    assert contents(reports[0].file) == contents(expected)
    assert reports[0].file.sha256 == expected.sha256
    assert contents(reports[1].file) == (b"", "", [])
    assert train.reusable(references, sizes(str(tmp_path))) == msgspec.structs.replace(
        reports[0], reused=True
    )
    assert val.reusable([], sizes(str(tmp_path))) == msgspec.structs.replace(reports[1], reused=True)
    assert {path.suffix for path in tmp_path.iterdir()} == {".tfrecord", ".idx", ".state"}
    assert len(list(tmp_path.iterdir())) == 2 + 2 * 3
    assert sum(done) == 700


def test_a_disk_that_fails_is_an_error_of_the_job_and_of_no_record(tmp_path: Path) -> None:
    missing = str(tmp_path / "none" / "part")
    executor = encoder_pool(settings(5), ignore, 1)
    try:
        with pytest.raises(JobError, match="none/part.tfrecord: No such file or directory"):
            executor.submit(PartTask([], missing)).result(timeout=20)
        # What comes after it fails as it did: the job is over.
        with pytest.raises(JobError, match="none/part.tfrecord: No such file or directory"):
            executor.submit(PartTask([], str(tmp_path / "part")))
    finally:
        executor.close()


def test_a_defect_of_ours_crashes_with_its_traceback(tmp_path: Path) -> None:
    executor = encoder_pool(settings(5), ignore, 1)
    try:
        with pytest.raises(RuntimeError, match="Traceback"):
            executor.submit(PartTask([b"12345678no json"], str(tmp_path / "part"))).result(timeout=20)
    finally:
        executor.close()


def test_a_missing_image_is_a_failed_record(tmp_path: Path) -> None:
    listed = [ImageRecord("a.jpg", ImageRef(str(tmp_path / "a.jpg")), "train", size=10)]
    made = plan_dataset(total(listed), DatasetConfig()).settings
    file = write_part(
        [pack_reference(record, 0) for record in listed], str(tmp_path / "p"), RecordEncoder(made)
    )
    assert file.stats.failed == {("load", "not found"): 1}
    assert contents(file)[2][0].startswith('{"key": "a.jpg", "stage": "load", "reason": "not found"')
