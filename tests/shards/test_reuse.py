"""Lineage, and what is reused by it: images and masks, and never what is damaged or of another record."""

import dataclasses
import gzip
import io
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.features import build_example, bytes_feature
from recordmill.transforms.examples.framing import read_records
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import AnnotatedObject, Annotations, Box, ImageRecord, ImageRef, Steps
from recordmill.transforms.shards.dataset_plan import plan_dataset
from recordmill.transforms.shards.previous import MaskMap, PreviousSplit, PreviousVersion, ShardPaths
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import is_versioned, pack_reference, source_fingerprint
from recordmill.transforms.shards.report import Checkpoint, ShardFile
from recordmill.transforms.shards.reuse import (
    DamagedLineageError,
    PreviousRecords,
    Spans,
    read_lineage,
    reusable_shard,
    write_lineage,
)
from recordmill.transforms.shards.tasks import PartTask, join_parts, write_part
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.files import open_named
from recordmill.transforms.storage.local import version_of

CONFIG = DatasetConfig(
    policy=ImagePolicy(image_format="jpeg", jpeg_quality=60, max_side=40), schema="detection", num_shards=1
)


def picture(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.kron(pixels, np.ones((8, 8, 1), np.uint8))).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def drawn(folder: Path, number: int, label: str = "cat") -> ImageRecord:
    """A picture with an outlined object."""
    path = folder / f"{number}.jpg"
    if not path.exists():
        path.write_bytes(picture(number))
    outline = ((1.0, 1.0, 30.0, 1.0, 30.0, 30.0 + number),)
    found = AnnotatedObject(label, Box(1, 1, 30, 30 + number), outline)
    status = path.stat()
    image = ImageRef(str(path), version=version_of(status))
    return ImageRecord(path.name, image, "train", Annotations(objects=(found,)), "", status.st_size)


def settings(records: list[ImageRecord]) -> RecordSettings:
    return plan_dataset(total(records), CONFIG).settings


def written(
    records: list[ImageRecord], folder: Path, take: PreviousRecords | None, name: str = "shard"
) -> ShardFile:
    """A finished shard of records."""
    folder.mkdir(exist_ok=True)
    references = sorted(pack_reference(record, 0) for record in records)
    checkpoint = Checkpoint(str(folder), "train", 0, "digest")
    task = PartTask(references, str(folder / name), checkpoint, take)
    return task.run(RecordEncoder(settings(records)))


def taken(file: ShardFile) -> PreviousRecords:
    assert file.lineage_path is not None
    return PreviousRecords((ShardPaths(file.path, file.index_path, file.lineage_path, file.lineage_sha256),))


def test_images_and_masks_are_taken_over_and_examples_made_anew(tmp_path: Path) -> None:
    records = [drawn(tmp_path, number) for number in range(8)]
    first = written(records, tmp_path / "first", PreviousRecords())
    assert first.stats.work == Counter(source_reads=8, images=8, masks=8)
    # A class that shifts all ids, one record less, another, and two changed: one's pixels, one's outline.
    (tmp_path / "0.jpg").write_bytes(picture(100))
    now = [drawn(tmp_path, number) for number in (0, 1, 2, 4, 5, 6, 7)]
    outlined = AnnotatedObject("cat", Box(1, 1, 9, 9), ((1.0, 1.0, 9.0, 1.0, 9.0, 9.0),))
    now[1] = msgspec.structs.replace(now[1], annotations=Annotations(objects=(outlined,)))
    now.append(drawn(tmp_path, 9, "ape"))
    second = written(now, tmp_path / "second", taken(first))
    anew = written(now, tmp_path / "anew", None)
    assert Path(second.path).read_bytes() == Path(anew.path).read_bytes()
    assert Path(second.index_path).read_bytes() == Path(anew.index_path).read_bytes()
    assert second.stats.work == Counter(source_reads=2, images=2, masks=3)
    assert (second.stats.reused, anew.stats.reused) == (6, 0)
    figures = [msgspec.structs.replace(file.stats, work=Counter(), reused=0) for file in (second, anew)]
    assert {key for key, _ in figures[0].statistics.reencoded} == {"0.jpg", "9.jpg"}
    for one in figures:
        one.statistics.reencoded.clear()
    assert figures[0] == figures[1]


def test_lineage_says_where_each_image_lies(tmp_path: Path) -> None:
    file = written([drawn(tmp_path, number) for number in range(3)], tmp_path / "first", PreviousRecords())
    assert file.lineage_path is not None
    found = read_lineage(file.lineage_path)
    assert (found.header.digest, found.header.size, found.header.sha256) == ("digest", file.size, file.sha256)
    assert found.header.stats.work == Counter()
    data = Path(file.path).read_bytes()
    lines = [line.split() for line in Path(file.index_path).read_text().splitlines()]
    rows = list(found.rows())
    assert [offset for offset, _ in rows] == [int(offset) for offset, _ in lines]
    assert [row.sort_key for _, row in rows] == sorted(row.sort_key for _, row in rows)
    for offset, row in rows:
        (start, length), stored = row.images[0]
        with Image.open(io.BytesIO(data[offset + 12 + start :][:length])) as image:
            assert (image.format, image.size) == ("JPEG", (40, 30))
        assert (stored.image_format, stored.height, stored.width, stored.channels) == ("jpeg", 30, 40, 3)
        assert stored.data == b""


def test_parts_leave_the_lineage_of_the_complete_shard(tmp_path: Path) -> None:
    records = [drawn(tmp_path, number) for number in range(6)]
    references = sorted(pack_reference(record, 0) for record in records)
    encoder = RecordEncoder(settings(records))
    whole = write_part(references, str(tmp_path / "whole"), encoder, PreviousRecords())
    parts = [
        write_part(references[start:end], str(tmp_path / f"part{start}-{end}"), encoder, PreviousRecords())
        for start, end in ((0, 2), (2, 2), (2, 6))
    ]
    joined = join_parts(parts, str(tmp_path / "joined"))
    assert whole.lineage_path is not None and joined.lineage_path is not None
    expected, found = (
        [row for packed in read_records(open_named(path)) for row in msgspec.msgpack.decode(packed)]
        for path in (whole.lineage_path, joined.lineage_path)
    )
    assert found == expected and len(found) == 6


@pytest.mark.parametrize("damaged", [pytest.param("path", marks=pytest.mark.slow), "lineage_path"])
def test_every_flipped_byte_is_made_anew(damaged: str, tmp_path: Path) -> None:
    records = [drawn(tmp_path, number) for number in range(2)]
    first = written(records, tmp_path / "first", PreviousRecords())
    path = Path(getattr(first, damaged))
    good = path.read_bytes()
    references = sorted(pack_reference(record, 0) for record in records)
    encoder = RecordEncoder(settings(records))
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        again = write_part(references, str(tmp_path / "again"), encoder, taken(first))
        assert again.sha256 == first.sha256, at
    path.write_bytes(good[: len(good) // 2])
    again = write_part(references, str(tmp_path / "again"), encoder, taken(first))
    assert again.sha256 == first.sha256
    assert again.stats.work["images"] > 0
    path.unlink()
    again = write_part(references, str(tmp_path / "again"), encoder, taken(first))
    assert (again.sha256, again.stats.work["images"]) == (first.sha256, 2)


def test_a_shard_in_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    """Frames of the same lengths, complete, and not those of the lineage."""
    config = dataclasses.replace(CONFIG, policy=ImagePolicy(image_format="raw"))
    records = [drawn(tmp_path, 1)]
    encoder = RecordEncoder(plan_dataset(total(records), config).settings)
    references = [pack_reference(record, 0) for record in records]
    first = PartTask(
        references, str(tmp_path / "one"), Checkpoint(str(tmp_path), "train", 0, ""), PreviousRecords()
    )
    kept = first.run(encoder)
    payload = next(read_records(io.BytesIO(Path(kept.path).read_bytes())))
    other = bytearray(payload)
    other[payload.index(b"image/encoded") + 200] ^= 1
    from recordmill.transforms.examples.tfrecord import RecordWriter

    with open(kept.path, "wb") as file:
        RecordWriter(file).write(bytes(other))
    again = write_part(references, str(tmp_path / "again"), encoder, taken(kept))
    assert (again.sha256, again.stats.reused) == (kept.sha256, 0)


def version(file: ShardFile, folder: Path) -> PreviousVersion:
    """A published version that has a shard, and nothing else."""
    splits = {"train": PreviousSplit(2, 1, file.size)}
    lineage = {"state/train-00000-of-00001.rows.gz": file.lineage_sha256}
    previous = PreviousVersion("1.0.0", str(folder), splits, lineage, True, MaskMap(None, 0, ""))
    *paths, _ = previous.paths("train", 0)
    for source, target in zip((file.path, file.index_path, file.lineage_path), paths, strict=True):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(str(source)).rename(target)
    return previous


def test_a_shard_that_is_the_same_is_taken_whole(tmp_path: Path) -> None:
    file = written([drawn(tmp_path, number) for number in range(2)], tmp_path / "made", PreviousRecords())
    previous = version(file, tmp_path / "1.0.0")
    checkpoint = Checkpoint(str(tmp_path), "train", 0, "digest")
    found = reusable_shard(previous, 1, checkpoint)
    assert found is not None and found.is_unchanged
    report = found.report(checkpoint)
    assert report.file.paths == list(previous.paths("train", 0)[:3])
    assert (report.file.sha256, report.file.stats.reused, report.file.stats.work) == (file.sha256, 2, {})
    assert reusable_shard(previous, 2, checkpoint) is None
    assert reusable_shard(previous, 1, dataclasses.replace(checkpoint, digest="other")) is None
    assert reusable_shard(previous, 1, dataclasses.replace(checkpoint, split="val")) is None


def test_what_it_tells_of_its_records_is_told_again(tmp_path: Path) -> None:
    clipped = AnnotatedObject("cat", Box(1, 1, 900, 30))
    records = [msgspec.structs.replace(drawn(tmp_path, 1), annotations=Annotations(objects=(clipped,)))]
    file = written(records, tmp_path / "made", PreviousRecords())
    assert file.failures_path is not None
    told = Path(file.failures_path).read_text()
    assert '"kept": true' in told
    checkpoint = Checkpoint(str(tmp_path / "not there yet"), "train", 0, "digest")
    found = reusable_shard(version(file, tmp_path / "1.0.0"), 1, checkpoint)
    assert found is not None and found.is_unchanged
    again = found.report(checkpoint).file.failures_path
    assert again is not None and Path(again).read_text() == told


@pytest.mark.parametrize("name", ["records_path", "index_path", "lineage_path"])
def test_a_shard_that_was_touched_is_not_taken_whole(name: str, tmp_path: Path) -> None:
    file = written([drawn(tmp_path, number) for number in range(2)], tmp_path / "made", PreviousRecords())
    previous = version(file, tmp_path / "1.0.0")
    path = Path(getattr(previous.paths("train", 0), name))
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert reusable_shard(previous, 1, Checkpoint(str(tmp_path), "train", 0, "digest")) is None
    path.unlink()
    assert reusable_shard(previous, 1, Checkpoint(str(tmp_path), "train", 0, "digest")) is None


def test_lineage_of_another_format_is_none(tmp_path: Path) -> None:
    file = written([drawn(tmp_path, 1)], tmp_path / "first", PreviousRecords())
    assert file.lineage_path is not None
    header = read_lineage(file.lineage_path).header
    (tmp_path / "rows").touch()
    write_lineage(
        file.lineage_path, msgspec.structs.replace(header, format_version=99), str(tmp_path / "rows")
    )
    with pytest.raises(DamagedLineageError, match="format_version is 99, not 4"):
        read_lineage(file.lineage_path)
    Path(file.lineage_path).write_bytes(
        gzip.compress(b'{"format_version":2,"digest":"a0fe"}\n')
    )  # by version 0.1
    with pytest.raises(DamagedLineageError, match="is damaged"):
        read_lineage(file.lineage_path)


def test_fingerprints_tell_versions_apart() -> None:
    ref = ImageRef("/a.jpg", version=5)
    record = ImageRecord("a", ref, size=9)
    frames = Annotations(steps=Steps(frames=(ref, ref)))
    every = [
        record,
        msgspec.structs.replace(record, key="b"),
        msgspec.structs.replace(record, size=8),
        *(
            msgspec.structs.replace(record, image=msgspec.structs.replace(ref, **change))
            for change in (
                {"uri": "/b.jpg"},
                {"version": 6},
                {"offset": 1},
                {"length": 7},
                {"pixels": (1, 2, 3)},
                {"wrapping": "zip:1:1:1"},
                {"version": -5},
            )
        ),
        ImageRecord("a", None, annotations=frames),
    ]
    found = [source_fingerprint(one) for one in every]
    assert len(set(found)) == len(every)
    assert all(len(one) == 32 for one in found)
    # Bytes that have left their container are the same wherever they lie.
    moved = [ImageRef(uri, offset, 4, None, -7) for uri, offset in (("/x/1", 0), ("/y/2", 90))]
    assert len({source_fingerprint(ImageRecord("a", one)) for one in moved}) == 1


def test_what_may_change_unseen_has_no_fingerprint() -> None:
    unknown = ImageRef("/a.jpg")
    assert source_fingerprint(ImageRecord("a", unknown)) == ""
    assert source_fingerprint(ImageRecord("a", None)) == ""
    assert not is_versioned(ImageRecord("a", unknown))
    one = AnnotatedObject("cat", mask=unknown)
    known = ImageRef("/a.jpg", version=3)
    assert not is_versioned(ImageRecord("a", known, annotations=Annotations(objects=(one,))))
    assert is_versioned(ImageRecord("a", known))


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=6), st.permutations(range(6)))
def test_parts_are_found_in_any_order(parts: list[bytes], order: list[int]) -> None:
    payload = build_example({f"f{number}": bytes_feature([part]) for number, part in enumerate(parts)})
    spans = Spans(payload)
    for number in order:
        if number < len(parts):
            start, length = spans.of(parts[number])
            assert payload[start : start + length] == parts[number]
    with pytest.raises(ValueError, match="not in it"):
        spans.of(b"not there")
