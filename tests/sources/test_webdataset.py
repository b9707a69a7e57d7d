"""Tar shards of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.sources.archives.archive import ArchiveSource
from recordmill.transforms.sources.archives.webdataset import WebdatasetSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.source import Item
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff
from tests.sources.test_archives import contents, failures, records, tar_bytes

SOURCE = WebdatasetSource()
SHARD = {
    "a/0001.cls": b"3\n",
    "a/0001.jpg": b"one",
    "a/0001.json": b'{"w": 1.5, "in": {"n": [1, 2]}, "no": null, "mixed": [{"x": 1}], "label": "cat"}',
    "a/0001.txt": "a cät".encode(),
    "a/0001.seg.png": b"mask",
    "0002.png": b"two",
    "0002.json": b'{"label": "dog"}',
    "0002.bin": b"\0\1",
    "0002.big": b"x" * 70_000,
    "0003.cls": b"1",
    "0004.jpg": b"four",
    "0004.json": b"{",
}


def listed(place: object, scratch: object, **options: object) -> list[Item]:
    config = SourceConfig("webdataset", str(place), **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, str(scratch)))


@pytest.mark.parametrize("name", ["set-train-000000.tar", "set-train-000000.tar.gz"])
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_samples(tmp_path: Path, bucket: str, bucket_server: BucketServer, name: str, place: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(tar_bytes(SHARD, "w:gz" if name.endswith("gz") else "w"))
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    items = listed(f"{tmp_path if place == 'disk' else bucket}/in", tmp_path)
    prefix = "set-train-000000/"
    assert contents(items) == {f"{prefix}a/0001.jpg": b"one", f"{prefix}0002.png": b"two"}
    first, second = records(items)
    assert (first.split, first.annotations.labels, second.annotations.labels) == ("train", (3,), ("dog",))
    assert first.annotations.features == {
        "w": 1.5,
        "in/n": (1, 2),
        "mixed": '[{"x": 1}]',
        "txt": "a cät",
    }
    assert (first.annotations.masks, second.annotations.features) == ({}, {"bin": b"\0\1"})
    assert failures(items) == [
        (f"{prefix}a/0001.seg.png", "member not read", True),
        (f"{prefix}0002.big", "member not read", True),
        (f"{prefix}0003", "sample without an image", False),
        (f"{prefix}0004.jpg", "not JSON", False),
    ]


def test_captions_and_masks_where_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_bytes(SHARD))
    items = listed(tmp_path / "a.tar", tmp_path, include_annotations=("masks", "captions"), limit=1)
    annotations = records(items)[0].annotations
    assert annotations.captions == ("a cät",) and "txt" not in annotations.features
    mask = annotations.masks["class"].image
    assert (tmp_path / "a.tar").read_bytes()[mask.offset :][: mask.length] == b"mask"
    assert records(items)[0].key == "a/0001.jpg"


def test_a_sample_that_is_cut_off_is_none(tmp_path: Path) -> None:
    files = {"1.jpg": b"1" * 600, "1.cls": b"1", "2.jpg": b"2" * 600, "2.cls": b"2"}
    (tmp_path / "a.tar").write_bytes(tar_bytes(files)[: 5 * 512 + 3 * 512 + 100])
    items = listed(tmp_path / "a.tar", tmp_path)
    assert [record.key for record in records(items)] == ["1.jpg"]
    assert failures(items) == [("2", "sample may be cut off", False), ("a.tar", "damaged archive", False)]


def test_told_from_plain_archives(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_bytes(SHARD))
    config = SourceConfig("auto", str(tmp_path))
    assert sniff(SOURCE, config) == "'a.tar' is a tar with an image and 'a/0001.cls', which goes with it"
    (tmp_path / "a.tar").write_bytes(tar_bytes({"1.jpg": b"1", "2.jpg": b"2", "readme.txt": b"x"}))
    assert sniff(SOURCE, config) is None
    assert sniff(ArchiveSource(), config) == "'a.tar' is an archive that holds images such as '1.jpg'"
    (tmp_path / "b.jpg").write_bytes(b"x")
    assert sniff(ArchiveSource(), config) is None


@pytest.mark.parametrize(("text", "kind"), [(b'{"shapes": []}', None), (b'{"label": "x"}', "webdataset")])
def test_annotations_of_labelme_are_no_samples(tmp_path: Path, text: bytes, kind: str | None) -> None:
    (tmp_path / "a.tar").write_bytes(tar_bytes({"a/1.jpg": b"x", "a/1.json": text}))
    config = SourceConfig("auto", str(tmp_path))
    assert bool(sniff(WebdatasetSource(), config)) == bool(kind)
    if kind is None:
        with pytest.raises(ValueError, match="annotations of archives are not read: unpack it"):
            detect(config)
