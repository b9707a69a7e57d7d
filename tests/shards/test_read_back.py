"""Shards that TensorFlow has written, read back for their reports."""

import hashlib
from pathlib import Path

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.shards.read_back import read_back, shard_of_name
from recordmill.transforms.shards.report import WriteStats
from tests.lazy import tf

PAYLOADS = [b"", b"a" * 5, bytes(range(256)) * 9000]


def shard(folder: Path, payloads: list[bytes] = PAYLOADS) -> Path:
    path = folder / "my-split-00003-of-00012.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("payloads", [PAYLOADS, []])
def test_report_and_index(tmp_path: Path, payloads: list[bytes]) -> None:
    path = shard(tmp_path, payloads)
    contents = path.read_bytes()
    report = read_back(str(path))
    assert (report.split, report.shard, report.reused) == ("my-split", 3, False)
    assert report.file.path == str(path)
    assert report.file.size == len(contents)
    assert report.file.sha256 == hashlib.sha256(contents).hexdigest()
    assert report.file.stats == WriteStats(written=len(payloads))
    assert report.file.failures_path is None
    index = Path(report.file.index_path)
    assert index.parent == tmp_path
    found = []
    end = 0
    for line in index.read_text("ascii").splitlines():
        offset, length = map(int, line.split(" "))
        assert offset == end
        end = offset + length
        found.append(contents[offset + 12 : end - 4])
    assert (found, end) == (payloads, len(contents))


@pytest.mark.slow
def test_each_attempt_has_an_index_of_its_own(tmp_path: Path) -> None:
    path = shard(tmp_path)
    first, second = read_back(str(path)), read_back(str(path))
    assert first.file.index_path != second.file.index_path
    assert Path(first.file.index_path).read_bytes() == Path(second.file.index_path).read_bytes()


def test_damage_is_an_error_of_the_job_that_names_it(tmp_path: Path) -> None:
    path = shard(tmp_path)
    data = bytearray(path.read_bytes())
    data[16 + 13] ^= 4
    path.write_bytes(data)
    with pytest.raises(JobError) as raised:
        read_back(str(path))
    assert str(raised.value).startswith(f"{path}: record 1 at byte 16: its 5 bytes do not have the checksum")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.glob("*.idx")) == []


def test_a_file_that_has_vanished(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001.tfrecord"
    with pytest.raises(JobError, match=f"^{path}: No such file or directory; "):
        read_back(str(path))


def test_names() -> None:
    assert shard_of_name("/x-1/a-00001-of-00002-00000-of-00001.tfrecord") == ("a-00001-of-00002", 0)
    for name in ("train.tfrecord", "train-0-of-1.tfrecord", "train-00000-of-00001.tfrecord.gz"):
        with pytest.raises(ValueError, match="is not named"):
            shard_of_name(name)
