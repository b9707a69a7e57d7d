"""A source that is listed in parts, side by side: the dataset is the one that a single listing makes."""

from __future__ import annotations

import random
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.read import ReadSource, find_parts, list_part
from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.write import WriteDataset
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import digests, failures, manifest
from tests.sources.small_inputs import INPUTS, picture


def write(source: SourceConfig, output: Path, parts: int) -> None:
    write_dataset = WriteDataset(str(output), DatasetConfig(num_shards=3, max_failure_ratio=0.5))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = (
            pipeline
            | "ReadSource" >> ReadSource(source, write_dataset.run.scratch, parts)
            | "WriteDataset" >> write_dataset
        )


def assert_same(source: SourceConfig, folder: Path) -> None:
    write(source, folder / "whole", 1)
    write(source, folder / "apart", 20)
    assert digests(folder / "apart") == digests(folder / "whole")
    assert failures(folder / "apart") == failures(folder / "whole")
    for name in ("features.json", "image.class.label.labels.txt"):
        one, other = (folder / which / name for which in ("apart", "whole"))
        assert one.exists() == other.exists()
        assert not one.exists() or one.read_bytes() == other.read_bytes()
    mine, theirs = manifest(folder / "apart"), manifest(folder / "whole")
    assert mine["counts"] == theirs["counts"]
    assert mine["source"]["digest"] == theirs["source"]["digest"]


@pytest.mark.slow
def test_a_bucket_of_folders(bucket: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    chance = random.Random(1)
    for number in range(120):
        folder = f"{chance.choice(['train', 'val'])}/{chance.choice(['cat', 'dog', 'cow'])}"
        bucket_server.put(f"{bucket}/in/{folder}/{number:05}.png", picture(number))
    for name in ("train/cat/broken.png", "train/notes.txt", "val/.git/1", "val/.git/2"):
        bucket_server.put(f"{bucket}/in/{name}", b"no image")
    bucket_server.page_size = 7
    source = SourceConfig("folder", f"{bucket}/in")
    assert len(list(find_parts(b"", source, 20))) > 10
    assert_same(source, tmp_path)
    assert manifest(tmp_path / "apart")["counts"] == {"read": 123, "written": 120, "failed": 1, "skipped": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "webdataset",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("tar.gz", "parquet", "tfrecord.gz")),
    ],
)
def test_files_of_containers(name: str, tmp_path: Path) -> None:
    one = INPUTS[name]
    for number in range(4):
        for path, data in one.files(range(3 * number, 3 * number + 3)).items():
            file = tmp_path / f"in/{number}/{path}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    (tmp_path / "in/notes.txt").write_text("no records")
    assert_same(SourceConfig(one.kind, str(tmp_path / "in"), **one.options), tmp_path)


def test_what_is_listed_in_one_go(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    for number in range(9):
        bucket_server.put(f"{bucket}/in/{number}.png", picture(number))
        (tmp_path / f"{number}.png").write_bytes(picture(number))
    (tmp_path / "m.csv").write_text("image\n0.png\n1.png\n")
    bucket_server.page_size = 2
    for source, parts in (
        (SourceConfig("folder", f"{bucket}/in"), 1),
        (SourceConfig("folder", f"{bucket}/in", limit=5), 20),
        (SourceConfig("csv", str(tmp_path / "m.csv")), 20),
    ):
        assert list(find_parts(b"", source, parts)) == [None]
    assert len(list(find_parts(b"", SourceConfig("folder", f"{bucket}/in"), 20))) > 1


def test_a_wrong_call_fails_the_job_before_anything_is_listed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no image to convert"):
        list(find_parts(b"", SourceConfig("folder", str(tmp_path)), 20))
    with pytest.raises(JobError, match="SourceConfig.kind is 'nothing'"):
        list(find_parts(b"", SourceConfig("nothing", str(tmp_path)), 1))
    (tmp_path / "1.png").write_bytes(picture(1))
    assert len(list(list_part(None, SourceConfig("folder", str(tmp_path)), None))) == 1


def test_a_folder_around_a_dataset_is_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = tmp_path / "photos/images" / split / "cat"
        folder.mkdir(parents=True)
        (folder / f"{split}.png").write_bytes(picture(1))
    around, inside = str(tmp_path / "photos"), str(tmp_path / "photos/images")
    with pytest.raises(JobError) as raised:
        list(find_parts(b"", SourceConfig("folder", around), 1))
    assert str(raised.value) == (
        f"SourceConfig.input is {around!r}, and the dataset is in {inside!r}; give that folder"
    )
    assert list(find_parts(b"", SourceConfig("folder", inside), 1)) == [None]
