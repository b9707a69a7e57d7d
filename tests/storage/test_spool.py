"""Where a spool puts its pieces, on disk and in a bucket."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from recordmill.transforms.records import ImageRef, JobError
from recordmill.transforms.storage import gcs
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.storage.spool import Spool
from tests.buckets.server import BucketServer

PIECES = [b"one", b"three", b"to", b"a long piece", b"end"]


def piece(ref: ImageRef) -> bytes:
    assert ref.length is not None
    return Path(ref.uri).read_bytes()[ref.offset : ref.offset + ref.length]


def spooled(scratch: object, name: str = "x.parquet", version: int = 7) -> list[ImageRef]:
    with Spool(str(scratch), name, version) as spool:
        return [spool.add(data) for data in PIECES]


def test_a_reference_leads_to_its_piece(tmp_path: Path) -> None:
    refs = spooled(tmp_path)
    assert [piece(ref) for ref in refs] == PIECES
    assert [(ref.offset, ref.length) for ref in refs] == [(0, 3), (3, 5), (8, 2), (10, 12), (22, 3)]
    (name,) = os.listdir(tmp_path)
    assert {ref.uri for ref in refs} == {f"{tmp_path}/{name}"}


def test_the_shape_of_raw_pixels_is_kept(tmp_path: Path) -> None:
    with Spool(str(tmp_path), "x", 0) as spool:
        assert spool.add(b"123456", (1, 2, 3)).pixels == (1, 2, 3)


def test_files_have_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recordmill.transforms.storage.spool._FILE_BYTES", 8)
    refs = spooled(tmp_path)
    assert [piece(ref) for ref in refs] == PIECES
    assert [(ref.uri[-6:], ref.offset) for ref in refs] == [
        ("-00000", 0),
        ("-00000", 3),
        ("-00001", 0),
        ("-00002", 0),
        ("-00003", 0),
    ]
    assert len(os.listdir(tmp_path)) == 4


def test_the_same_again_lies_at_the_same_places_and_another_name_or_version_elsewhere(tmp_path: Path) -> None:
    first = spooled(tmp_path)
    assert spooled(tmp_path) == first
    assert len(os.listdir(tmp_path)) == 1
    others = [spooled(tmp_path, "y.parquet"), spooled(tmp_path, version=8), spooled(tmp_path, "\udcff")]
    assert len({refs[0].uri for refs in (first, *others)}) == 4
    assert [[piece(ref) for ref in refs] for refs in (first, *others)] == [PIECES] * 4


def test_the_version_is_of_the_piece_alone(tmp_path: Path) -> None:
    scratch = tmp_path / "another"
    scratch.mkdir()
    with Spool(str(scratch), "y.parquet", 8) as spool:
        again = [spool.add(data) for data in (b"x", *reversed(PIECES))]
    versions = [ref.version for ref in spooled(tmp_path)]
    assert [ref.version for ref in again[1:]] == versions[::-1]
    assert len({*versions, again[0].version}) == len(PIECES) + 1
    assert all(-(2**63) < version < 0 for version in versions)  # no generation, which are above 0


def test_nothing_added_makes_no_file(tmp_path: Path) -> None:
    with Spool(str(tmp_path), "x", 0) as spool:
        spool.close()
    assert os.listdir(tmp_path) == []


def test_what_was_added_is_there_where_the_reader_stops_early(tmp_path: Path) -> None:
    def pieces() -> Generator[ImageRef, None, None]:
        with Spool(str(tmp_path), "x", 0) as spool:
            for data in PIECES:
                yield spool.add(data)

    refs = pieces()
    ref = next(refs)
    assert os.listdir(tmp_path)[0].startswith("spool-")
    refs.close()
    assert piece(ref) == b"one"


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Spool(str(tmp_path), "x", 0) as spool:
        spool.add(b"one")
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_more_may_be_added_after_it_was_closed(tmp_path: Path) -> None:
    with Spool(str(tmp_path), "x", 0) as spool:
        first = spool.add(b"one")
        spool.close()
        assert piece(first) == b"one"
        second = spool.add(b"two")
    assert (second.offset, piece(first), piece(second)) == (0, b"one", b"two")
    assert first.uri != second.uri


def test_a_scratch_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="No such file or directory"), Spool(f"{tmp_path}/no", "x", 0) as spool:
        spool.add(b"one")


def test_free_space_is_looked_at_as_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)

    def disk_usage(folder: str) -> object:
        written = sum(path.stat().st_size for path in tmp_path.iterdir())
        return usage._replace(total=50_000, free=10_000 - written)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    monkeypatch.setattr("recordmill.transforms.storage.spool._LOOKED_AFTER", 2_000)
    monkeypatch.setattr("recordmill.transforms.storage.spool._FILE_BYTES", 1_000)
    with pytest.raises(JobError, match="are free there, too few for what is unpacked"):  # noqa: SIM117
        with Spool(str(tmp_path), "x", 0) as spool:
            for _ in range(1_000):
                spool.add(bytes(100))
    assert 5_000 < sum(path.stat().st_size for path in tmp_path.iterdir()) < 10_000


def test_a_bucket(bucket: str, bucket_server: BucketServer) -> None:
    refs = spooled(f"{bucket}/scratch")
    (uri,) = {ref.uri for ref in refs}
    assert uri.startswith(f"{bucket}/scratch/")
    assert bucket_server.get(uri) == b"".join(PIECES)
    assert [ImageReader().read(ref) for ref in refs] == PIECES


def test_a_file_of_a_bucket_is_copied_once_for_its_pieces(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = spooled(f"{bucket}/copied")
    bucket_server.clear()
    assert [ImageReader().read(ref) for ref in refs] == PIECES
    assert [request.kind for request in bucket_server.requests] == ["get-metadata", "get-media"]
    # one that is too large for that is read in ranges, on no condition
    monkeypatch.setattr(gcs, "_LARGEST_COPY", 4)
    refs = spooled(f"{bucket}/large")
    bucket_server.clear()
    assert [ImageReader().read(ref) for ref in refs] == PIECES
    kinds = [request.kind for request in bucket_server.requests]
    assert kinds == ["get-metadata", *["get-media"] * len(PIECES)]


def test_a_twin_in_a_bucket_is_left_as_it_is(bucket: str, bucket_server: BucketServer) -> None:
    refs = spooled(f"{bucket}/scratch")
    before = bucket_server.generation(refs[0].uri)
    assert spooled(f"{bucket}/scratch") == refs
    assert bucket_server.generation(refs[0].uri) == before


def test_another_size_in_a_bucket_fails_the_job(bucket: str, bucket_server: BucketServer) -> None:
    uri = spooled(f"{bucket}/scratch")[0].uri
    bucket_server.put(uri, b"other")
    with pytest.raises(JobError, match="is not what was to be unpacked there; has the input changed"):
        spooled(f"{bucket}/scratch")
    assert bucket_server.get(uri) == b"other"
