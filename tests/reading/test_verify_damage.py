"""One flipped bit anywhere in a dataset is found, its file named; so is what is missing or too much."""

import io
import json
import shutil
import struct
from collections import Counter
from pathlib import Path

import google_crc32c
import pytest

from benchmarks.drawings import draw
from recordmill.pipelines import cli
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.verify_dataset import open_dataset
from recordmill.transforms.reading.verify_report import MOST_NAMED, Fault, Tally, merged
from recordmill.transforms.reading.verify_shard import scan_shard
from recordmill.transforms.reading.verify_tasks import CheckTask, ScanTask
from recordmill.transforms.workers.task import Worker
from tests.conftest import Figure


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two shards in two splits, small enough for every byte to be looked at."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    for split, shape in (("train", "circle"), ("train", "square"), ("test", "circle"), ("test", "square")):
        (folder / split / shape).mkdir(parents=True)
        draw(shape, 1, 12, 9).save(folder / split / shape / "1.png")
    output = folder.parent / "out"
    call = ("convert", "--input", folder, "--output", output, "--quiet")
    assert cli.main(list(map(str, call))) == 0
    return output


@pytest.fixture
def out(published: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(published, tmp_path / "out"))


def verify(path: Path) -> Tally:
    """All that a verification finds but keys that are there twice, in this process."""
    dataset, expected, tally = open_dataset(str(path))
    worker = Worker()
    tallies = [tally]
    for place, shard in enumerate(dataset.shards):
        scanned, ranges = ScanTask(shard, Path(shard.path).name, place).run(worker)
        tallies.append(scanned)
        tallies += [CheckTask(records, expected).run(worker).tally for records in ranges]
    return merged(tallies)


def named(tally: Tally) -> set[str]:
    """The files that have a fault."""
    assert tally.faults.total() == sum(map(len, tally.named.values()))
    return {fault.file for faults in tally.named.values() for fault in faults}


def files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def test_a_sound_dataset_has_no_fault(published: Path) -> None:
    tally = verify(published)
    assert not tally.faults and not tally.notes, tally
    assert tally.checked["records"] == tally.checked["images"] == tally.checked["keys"] == 4
    assert tally.checked["shards"] == tally.checked["indexes"] == 2
    assert tally.checked["bytes"] > sum(path.stat().st_size for path in published.glob("*.tfrecord"))


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def test_a_bit_of_every_byte_of_shards_and_indexes(published: Path, tmp_path: Path, figure: Figure) -> None:
    for place, shard in enumerate(open_dataset(str(published))[0].shards):
        assert shard.index is not None
        for path in (shard.path, shard.index):
            data = Path(path).read_bytes()
            name = str(Path(path).relative_to(published))
            places = range(0, len(data), max(1, len(data) // 250))  # all bytes of an index
            figure("bits", len(places))
            for at in places:
                _look_at(shard, place, name, flipped(data, at, at % 8), tmp_path)


def _look_at(shard: ShardEntry, place: int, name: str, data: bytes, folder: Path) -> None:
    """The shard is read with `data` in place of one of its two files."""
    own = Path(shard.path).name
    entry = ShardEntry(
        str(folder / own),
        shard.split,
        shard.size,
        str(folder / "index.idx"),
        shard.records,
        shard.expected_size,
        shard.sha256,
    )
    assert shard.index is not None and entry.index is not None
    Path(entry.path).write_bytes(data if name == own else Path(shard.path).read_bytes())
    Path(entry.index).write_bytes(Path(shard.index).read_bytes() if name == own else data)
    tally, _ = scan_shard(entry, own, place)
    assert named(tally) == ({own} if name == own else {"index.idx"})


@pytest.mark.slow
def test_a_bit_of_every_byte_of_what_lies_beside(out: Path, figure: Figure) -> None:
    beside = [name for name in files(out) if not name.endswith((".tfrecord", ".idx"))]
    assert {"manifest.json", "dataset_info.json", "features.json", "failures.jsonl"} <= set(beside)
    for name in beside:
        path = out / name
        data = path.read_bytes()
        places = range(0, len(data), max(1, len(data) // 250))  # all of small ones
        figure("bits", len(places))
        for at in places:
            path.write_bytes(flipped(data, at, at % 8))
            assert name in named(open_dataset(str(out))[2]), f"byte {at} of {name}"
        path.write_bytes(data)
    assert not open_dataset(str(out))[2].faults


def test_every_file_that_is_missing_is_named(out: Path) -> None:
    for name in files(out):
        data = (out / name).read_bytes()
        (out / name).unlink()
        if name != "manifest.json":
            assert named(verify(out)) == {name}
        else:
            assert verify(out).notes  # it is a folder of somebody's TFRecords then
        (out / name).write_bytes(data)


def test_every_file_that_is_cut_off_is_named(out: Path) -> None:
    for name in files(out):
        data = (out / name).read_bytes()
        if data:
            (out / name).write_bytes(data[:-1])
            assert name in named(verify(out))
            (out / name).write_bytes(data)


@pytest.mark.parametrize(
    "name",
    ["train-00001-of-00002.tfrecord", "index/train-00001-of-00002.idx", "more.labels.txt", "val.tfrecord"],
)
def test_a_file_too_much_is_named(out: Path, name: str) -> None:
    (out / name).write_bytes(b"")
    (out / "notes.txt").write_text("anybody's")
    tally = verify(out)
    assert tally.faults == {"file that the manifest does not list": 1} and named(tally) == {name}


def test_swapped_shards_are_named(out: Path) -> None:
    one, other = sorted(out.glob("*.tfrecord"))
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    tally = verify(out)
    assert tally.faults["wrong SHA-256"] == 2 and {one.name, other.name} <= named(tally)


def frame(payload: bytes) -> bytes:
    """A record as TFRecord frames it, written apart from the code that is tested."""

    def checksum(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    head = struct.pack("<Q", len(payload))
    return head + checksum(head) + payload + checksum(payload)


def test_damage_is_told_with_record_and_offset(out: Path) -> None:
    shard = max(out.glob("*.tfrecord"), key=lambda path: path.stat().st_size)
    offsets = [
        int(line.split()[0]) for line in (out / "index" / f"{shard.stem}.idx").read_text().splitlines()
    ]
    data = bytearray(shard.read_bytes())
    data[offsets[1] + 40] ^= 1
    shard.write_bytes(data)
    (fault,) = verify(out).named["damaged record"]
    assert (fault.file, fault.record, fault.offset) == (shard.name, 1, offsets[1])
    assert fault.what.startswith(
        f"its {len(data) - offsets[1] - 16 if len(offsets) == 2 else offsets[2] - offsets[1] - 16} bytes"
    )


def test_a_foreign_folder_is_checked_as_far_as_it_goes(tmp_path: Path) -> None:
    image = io.BytesIO()
    draw("circle", 1, 16, 12).save(image, "PNG")
    payload = b"".join(_example({"image/encoded": image.getvalue()}))
    (tmp_path / "a.tfrecord").write_bytes(frame(payload) * 3)
    tally = verify(tmp_path)
    assert not tally.faults and tally.checked["images"] == 3
    assert any("there is no manifest.json" in note for note in tally.notes)
    broken = b"".join(_example({"image/encoded": image.getvalue()[:-30]}))
    (tmp_path / "b.tfrecord").write_bytes(frame(payload) + frame(broken))
    tally = verify(tmp_path)
    (fault,) = tally.named["image that cannot be decoded"]
    assert (fault.file, fault.record, fault.offset) == ("b.tfrecord", 1, len(payload) + 16)


def _example(features: dict[str, bytes]) -> list[bytes]:
    """A tf.train.Example of bytes features, by hand."""

    def field(number: int, payload: bytes) -> bytes:
        size, length = len(payload), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + payload

    entries = (
        field(1, field(1, name.encode()) + field(2, field(1, field(1, value))))
        for name, value in features.items()
    )
    return [field(1, b"".join(entries))]


def test_faults_are_all_counted_and_the_first_of_them_named() -> None:
    total = Tally()
    for part in range(3):
        tally = Tally(Counter(records=10))
        for record in range(MOST_NAMED):
            tally.add(Fault("box outside the image", f"{part}.tfrecord", record))
        total.merge(tally)
    report = json.loads(json.dumps(total.as_json()))
    assert report["faults"] == {"box outside the image": 3 * MOST_NAMED}
    assert report["checked"] == {"records": 30} and len(report["named"]) == MOST_NAMED
    assert {fault["file"] for fault in report["named"]} == {"0.tfrecord"}
    assert [fault["record"] for fault in report["named"]] == list(range(MOST_NAMED))
