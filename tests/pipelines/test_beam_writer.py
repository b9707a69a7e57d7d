"""--writer=beam: the records, counts and metadata of the other writer, in another order."""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import filebasedsink
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.drawings import draw, draw_folder
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.read import ReadSource
from recordmill.transforms.records import Annotations, ImageRecord
from recordmill.transforms.shards import memory, progress
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.pipelines.comparison import assert_same_dataset, described, payloads, shards
from tests.pipelines.conversion import convert, failures, manifest
from tests.workers.failing_codec import failing_codec


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images in splits train and val, three labels each; one of each split is none."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder / "train", each=7))) == 21
    assert len(list(draw_folder(folder / "val", each=3))) == 9
    for split in ("train", "val"):
        (folder / split / "square/broken.jpg").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def made(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of them in shards of fixed numbers; nothing changes it."""
    output = tmp_path_factory.mktemp("made") / "out"
    args = ("--writer=beam", "--num_shards=val=2,train=5", "--max_failure_ratio=0.1")
    assert convert("--input", photos, "--output", output, *args) == 0
    return output


@pytest.mark.parametrize(
    ("image_format", "splits"),
    [
        ("raw", ["--splits=train=0.6,test=0.4"]),
        pytest.param("keep", [], marks=pytest.mark.slow),
    ],
)
def test_the_same_records_as_the_other_writer(
    photos: Path, tmp_path: Path, splits: list[str], image_format: str
) -> None:
    args = [
        *splits,
        f"--image_format={image_format}",
        "--max_failure_ratio=0.1",
        "--num_shards=2",
        "--name=d",
    ]
    for writer in ("shards", "beam"):
        assert convert("--input", photos, "--output", tmp_path / writer, "--writer", writer, *args) == 0
    assert manifest(tmp_path / "beam")["counts"] == {"read": 32, "written": 30, "failed": 2, "skipped": 0}
    assert [one["key"] for one in failures(tmp_path / "beam")] == [
        "train/square/broken.jpg",
        "val/square/broken.jpg",
    ]
    assert sum(shards(tmp_path / "beam").values()) == 30
    assert_same_dataset(tmp_path / "shards", tmp_path / "beam")
    assert not (tmp_path / "beam/.recordmill").exists()


@pytest.mark.slow
def test_tfds_and_the_index_read_it(made: Path) -> None:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(made)
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
        "train": 21,
        "val": 9,
    }
    assert len(list(builder.as_dataset(split="train+val", as_supervised=True))) == 30
    for name in shards(made):
        stem = name.removesuffix(".tfrecord")
        contents = (made / name).read_bytes()
        lines = (made / "index" / f"{stem}.idx").read_text().splitlines()
        frames = [tuple(map(int, line.split())) for line in lines]
        found = [contents[offset + 12 : offset + length - 4] for offset, length in frames]
        assert found == payloads(made, stem)
        assert sum(length for _, length in frames) == len(contents)
    assert builder.info.splits["train"].num_bytes == sum(
        len(one) + FRAME_BYTES for one in payloads(made, "train-*")
    )


def check_shards(output: Path, expected: dict[str, int]) -> None:
    """All 30 records are in so many shards of each split, with an index each."""
    found = shards(output)
    assert {
        f"{split}-{shard:05d}-of-{count:05d}.tfrecord"
        for split, count in expected.items()
        for shard in range(count)
    } == found.keys()
    assert sum(found.values()) == 30
    assert (0 in found.values()) == (25 in expected.values())
    assert len(list((output / "index").iterdir())) == len(found)


@pytest.mark.slow
def test_number_of_shards(made: Path, photos: Path, tmp_path: Path) -> None:
    check_shards(made, {"train": 5, "val": 2})
    # More shards than records: some are empty.
    args = ("--writer=beam", "--max_failure_ratio=0.1", "--num_shards=25")
    assert convert("--input", photos, "--output", tmp_path / "out", *args) == 0
    check_shards(tmp_path / "out", {"train": 25, "val": 25})


def write(photos: Path, output: Path, config: DatasetConfig) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        records = pipeline | ReadSource(SourceConfig("folder", str(photos)))
        _ = records | WriteDataset(str(output), config)


@pytest.mark.slow
def test_a_split_that_gets_no_record_leaves_no_shard(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    names = ("train", "val", "test")
    config = DatasetConfig(writer="beam", split_names=names, num_shards=2, max_failure_ratio=0.1, workers=1)
    write(photos, output, config)
    assert {name: len(split["shards"]) for name, split in manifest(output)["splits"].items()} == {
        "train": 2,
        "val": 2,
    }
    assert sum(shards(output).values()) == 30


@pytest.mark.slow
def test_a_split_that_is_not_known_beforehand(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(
        Exception, match="split 'val' has records, but DatasetConfig.writer=beam is ready for train only"
    ):
        write(photos, output, DatasetConfig(writer="beam", max_failure_ratio=0.1, workers=1))
    assert not (output / "manifest.json").exists()


@pytest.mark.slow
def test_too_many_failures(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--writer=beam") == 1
    assert "2 of 32 inputs failed (6.25%; most often decode: " in capfd.readouterr().err
    assert [(one["key"], one["stage"]) for one in failures(output)] == [
        ("train/square/broken.jpg", "decode"),
        ("val/square/broken.jpg", "decode"),
    ]
    assert not (output / "manifest.json").exists()
    assert not list(output.glob("*.tfrecord"))
    # Nothing is kept, and nothing in the way.
    assert convert("--input", photos, "--output", output, "--writer=beam", "--max_failure_ratio=0.1") == 0
    check_shards(output, {"train": 1, "val": 1})


@pytest.mark.slow
def test_a_split_whose_records_all_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    list(draw_folder(tmp_path / "in/train", each=4))
    (tmp_path / "in/val/square").mkdir(parents=True)
    (tmp_path / "in/val/square/broken.jpg").write_text("no image")
    args = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--max_failure_ratio=0.5")
    assert convert(*args, "--writer=beam") == 1
    assert "split 'val' is empty: all its 1 records failed" in capfd.readouterr().err


@pytest.mark.slow
def test_keys_that_are_not_unique_fail_before_a_record_is_written(tmp_path: Path) -> None:
    records = [
        ImageRecord(key, None, annotations=Annotations((), {"x": number}), origin=f"line {number}")
        for number, key in enumerate(["a", "b", "c", "b"])
    ]
    output = tmp_path / "out"
    with (
        pytest.raises(Exception, match="key 'b' is not unique: line 1; line 3"),
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create(records) | WriteDataset(str(output), DatasetConfig(writer="beam"))
    assert not list(output.rglob("*.tfrecord"))
    assert not list(output.rglob("tfrecord-*"))
    assert not (output / "manifest.json").exists()


@pytest.mark.slow
def test_an_image_that_crashes_its_codec_is_lost_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    list(draw_folder(folder, each=10))
    with open(folder / "circle/circle_003.jpg", "ab") as file:
        file.write(b"CRASH")
    with failing_codec(tmp_path, monkeypatch):
        args = ("--writer=beam", "--max_failure_ratio=0.1", "--validate=header")
        assert convert("--input", folder, "--output", tmp_path / "out", *args) == 0
    assert manifest(tmp_path / "out")["counts"] == {"read": 30, "written": 29, "failed": 1, "skipped": 0}
    lost = [(one["key"], one["reason"]) for one in failures(tmp_path / "out")]
    assert lost == [("circle/circle_003.jpg", "crashes the codec")]
    assert len(payloads(tmp_path / "out")) == 29


def failing(function: Callable[..., Any], error: OSError) -> Callable[..., Any]:
    """`function`, but for Beam's unfinished files, and what writes them."""

    def fail(first: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(first, str) or "/beam-temp-" in first:
            raise error
        return function(first, *args, **options)

    return fail


FAULTS = [
    ("write", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device; "),
    ("close", OSError(errno.EIO, os.strerror(errno.EIO)), "Input/output error; look after the disk"),
    ("rename", PermissionError(errno.EACCES, "Permission denied"), "cannot be renamed: "),
    ("makedirs", PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied; allow"),
]


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", [[], ["--num_shards=2"]])
def test_a_fault_of_the_machine_is_one_clear_line(
    num_shards: list[str],
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    args = ("--input", photos, "--output", output, "--writer=beam", "--max_failure_ratio=0.1", *num_shards)
    for place, error, message in FAULTS:
        with monkeypatch.context() as patch:
            owner: Any = filebasedsink.FileBasedSinkWriter if place in ("write", "close") else os
            patch.setattr(owner, place, failing(getattr(owner, place), error))
            assert convert(*args) == 1, place
        printed = capfd.readouterr().err
        (line,) = [line for line in printed.splitlines() if "error: " in line]
        assert message in line, place
        assert "Traceback" not in printed, place
        assert not (output / "manifest.json").exists(), place
    # None of them has left anything in the way.
    assert convert(*args) == 0
    assert sum(shards(output).values()) == 30


@pytest.mark.slow
def test_what_the_disk_does_not_give_back_is_found(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    close = filebasedsink.FileBasedSinkWriter.close

    def damaging(self: filebasedsink.FileBasedSinkWriter) -> str:
        path = close(self)
        with open(path, "r+b") as file:
            file.seek(1000)
            byte = file.read(1)
            file.seek(1000)
            file.write(bytes([byte[0] ^ 1]))
        return str(path)

    monkeypatch.setattr(filebasedsink.FileBasedSinkWriter, "close", damaging)
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--writer=beam", "--max_failure_ratio=0.1") == 1
    printed = capfd.readouterr().err
    assert "-of-00001.tfrecord: record 0 at byte 0: its " in printed
    assert "Traceback" not in printed
    assert not (output / "manifest.json").exists()


@pytest.mark.slow
def test_a_dataset_whose_name_begins_alike_is_left_alone(made: Path, photos: Path, tmp_path: Path) -> None:
    args = ("--input", photos, "--max_failure_ratio=0.1", "--writer=beam", "--num_shards=2")
    shutil.copytree(made, tmp_path / "out-small")
    beside = tmp_path / "out-00000-of-00002.tfrecord"
    beside.write_bytes(b"not ours")
    before = {path: path.read_bytes() for path in (tmp_path / "out-small").rglob("*") if path.is_file()}
    assert convert(*args, "--output", tmp_path / "out") == 0
    assert sum(shards(tmp_path / "out").values()) == 30
    assert {
        path: path.read_bytes() for path in (tmp_path / "out-small").rglob("*") if path.is_file()
    } == before
    assert beside.read_bytes() == b"not ours"


@pytest.mark.slow
def test_fewer_shards_with_overwrite_leave_no_stale_one(made: Path, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    args = ("--input", photos, "--output", output, "--max_failure_ratio=0.1", "--writer=beam")
    shutil.copytree(made, output)
    old = Counter(payloads(output))
    assert convert(*args, "--num_shards=2", "--overwrite") == 0
    assert len(shards(output)) == 4
    assert len(list((output / "index").iterdir())) == 4
    assert Counter(payloads(output)) == old
    # From one writer to the other, and back.
    for writer in ("shards", "beam"):
        assert convert(*args[:-1], "--writer", writer, "--num_shards=1", "--overwrite") == 0
        assert len(shards(output)) == 2
        assert Counter(payloads(output)) == old


@pytest.mark.slow
def test_the_runner_s_own_processes(photos: Path, tmp_path: Path) -> None:
    args = ("--writer=beam", "--direct_running_mode=multi_processing", "--direct_num_workers=2")
    common = ("--input", photos, "--max_failure_ratio=0.1", "--name=d")
    assert convert(*common, "--output", tmp_path / "out", *args) == 0
    assert convert(*common, "--output", tmp_path / "shards") == 0
    assert sum(shards(tmp_path / "out").values()) == 30
    assert_same_dataset(tmp_path / "shards", tmp_path / "out")


@pytest.mark.slow
def test_records_listed_side_by_side_are_not_written_side_by_side(tmp_path: Path) -> None:
    """Of 1,000 records listed label by label, no stretch of a shard is of one label."""
    import tensorflow as tf

    records = [
        ImageRecord(f"{number:04d}", None, annotations=Annotations((number // 500,), {"x": number}))
        for number in range(1000)
    ]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        config = DatasetConfig(writer="beam", workers=1)
        _ = pipeline | beam.Create(records) | WriteDataset(str(tmp_path / "out"), config)
    found = [
        tf.train.Example.FromString(one).features.feature["x"].int64_list.value[0]
        for one in payloads(tmp_path / "out")
    ]
    assert sorted(found) == list(range(1000))
    for start in range(0, 1000, 50):
        assert 10 <= sum(number < 500 for number in found[start : start + 50]) <= 40


@pytest.mark.slow
def test_little_memory_is_said(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    args = ("--input", photos, "--max_failure_ratio=0.1", "--writer=beam")
    assert convert(*args, "--output", tmp_path / "free") == 0
    assert progress.snapshot().notes == ()
    assert convert(*args, "--output", tmp_path / "given", "--num_shards=2") == 0
    (note,) = progress.snapshot().notes
    assert "1.0 kB are available" in note
    capfd.readouterr()


def test_bad_calls(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for flag in ("--order=key", "--seed=3", "--shard_size=1MB", "--reader_hosts=2"):
        assert convert("--input", photos, "--output", tmp_path / "out", "--writer=beam", flag) == 2
        assert f"{flag.split('=')[0]} is " in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_more_than_one_task_in_flight(tmp_path: Path) -> None:
    """Enough records for two processes and many tasks: each comes out once."""
    folder = tmp_path / "in"
    folder.mkdir()
    draw("circle", 1, 32, 32).save(folder / "0000.png")
    for number in range(1, 900):
        os.link(folder / "0000.png", folder / f"{number:04d}.png")
    args = ("--writer=beam", "--num_shards=3", "--direct_num_workers=2")
    assert convert("--input", folder, "--output", tmp_path / "out", *args) == 0
    assert sum(shards(tmp_path / "out").values()) == 900
    assert len(set(payloads(tmp_path / "out"))) == 900


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif("RECORDMILL_CORPUS" not in os.environ, reason="RECORDMILL_CORPUS names no real inputs")
@pytest.mark.parametrize(("name", "records"), [("raccoon/images", 200), ("mnist", 10_000)])
def test_real_inputs(name: str, records: int, tmp_path: Path) -> None:
    source = Path(os.environ["RECORDMILL_CORPUS"]) / name
    for writer, args in (("shards", []), ("beam", ["--num_shards=3"])):
        common = ("--input", source, "--output", tmp_path / writer, "--name=d", "--writer", writer)
        assert convert(*common, *args) == 0
        assert sum(shards(tmp_path / writer).values()) == records
    found = [Counter(payloads(tmp_path / writer)) for writer in ("shards", "beam")]
    assert found[0] == found[1]
    told = [described(tmp_path / writer) for writer in ("shards", "beam")]
    for one in told:
        del one["config"]["num_shards"]
    assert told[0] == told[1]
