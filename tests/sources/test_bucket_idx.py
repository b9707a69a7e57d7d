"""IDX files in buckets: read in ranges where they are plain, unpacked once where they are not."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from recordmill.transforms.records import Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.sources.arrays import IdxSource
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.storage.file_system import Status
from recordmill.transforms.storage.gcs import GcsFileSystem
from recordmill.transforms.storage.reader import ImageReader
from tests.buckets.server import BucketServer
from tests.sources.placeless import without_place

SOURCE = IdxSource()


def idx(*shape: int) -> bytes:
    """An IDX file whose elements count up."""
    total = 1
    for size in shape:
        total *= size
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(
        at % 251 for at in range(total)
    )


def files(packed: bool) -> dict[str, bytes]:
    plain = {
        "train-images-idx3-ubyte": idx(7, 3, 2),
        "train-labels-idx1-ubyte": idx(7),
        "t10k-images-idx3-ubyte": idx(4, 3, 2),
        "t10k-labels-idx1-ubyte": idx(4),
    }
    return {f"{name}.gz": gzip.compress(data) for name, data in plain.items()} if packed else plain


def listed(place: str, scratch: str, **options: object) -> list[ImageRecord | Failure]:
    config = SourceConfig("idx", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, scratch))


def pixels(items: list[ImageRecord | Failure]) -> list[bytes]:
    reader = ImageReader()
    return [reader.read(item.image) for item in items if isinstance(item, ImageRecord) and item.image]


def references(items: list[ImageRecord | Failure]) -> list[ImageRef]:
    return [item.image for item in items if isinstance(item, ImageRecord) and item.image]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("images", ["disk", "bucket"])
@pytest.mark.parametrize("scratch", ["disk", "bucket"])
def test_a_bucket_gives_what_the_disk_gives(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, packed: bool, images: str, scratch: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "scratch").mkdir()
    for name, data in {**files(packed), "README": b"x"}.items():
        (tmp_path / "in" / name).write_bytes(data)
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    bucket_server.put(f"{bucket}/in/out/train-images-idx3-ubyte", b"no")
    expected = listed(f"{tmp_path}/in", f"{tmp_path}/scratch")
    assert len(pixels(expected)) == 11
    place = f"{tmp_path}/in" if images == "disk" else f"{bucket}/in"
    folder = f"{tmp_path}/scratch" if scratch == "disk" else f"{bucket}/run/scratch"
    options = {"skip_dirs": (f"{bucket}/in/out",)}
    assert detect(SourceConfig("auto", place))[0] == "idx"
    items = listed(place, folder, **options)
    assert list(map(without_place, items)) == list(map(without_place, expected))
    assert pixels(items) == pixels(expected)
    where = folder if packed else place
    for image in references(items):
        assert image.uri.startswith(f"{where}/")
        if image.uri.startswith("gs://") and not packed:
            assert str(image.version) == bucket_server.generation(image.uri)


def test_what_is_unpacked_into_a_bucket_stays_for_the_same_job_again(
    bucket: str, bucket_server: BucketServer
) -> None:
    for name, data in files(packed=True).items():
        bucket_server.put(f"{bucket}/in/{name}", data)
    first = listed(f"{bucket}/in", f"{bucket}/scratch")
    uris = bucket_server.names(f"{bucket}/scratch/")
    before = list(map(bucket_server.generation, uris))
    assert listed(f"{bucket}/in", f"{bucket}/scratch") == first
    assert bucket_server.names(f"{bucket}/scratch/") == uris
    assert (len(uris), list(map(bucket_server.generation, uris))) == (2, before)
    bucket_server.put(f"{bucket}/in/train-images-idx3-ubyte.gz", gzip.compress(idx(7, 3, 2)[:-1] + b"\xff"))
    assert pixels(listed(f"{bucket}/in", f"{bucket}/scratch"))[-1][-1] == 0xFF
    assert len(pixels(first)) == 11  # what references of before lead to is still there


def test_of_two_that_unpack_the_first_counts(
    bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in files(packed=True).items():
        bucket_server.put(f"{bucket}/in/{name}", data)
    put = GcsFileSystem.put

    def beaten(system: GcsFileSystem, path: str, uri: str, if_generation: int | None = None) -> Status:
        bucket_server.put(uri, Path(path).read_bytes())
        return put(system, path, uri, if_generation)

    monkeypatch.setattr(GcsFileSystem, "put", beaten)
    items = listed(f"{bucket}/in", f"{bucket}/scratch")
    assert len(pixels(items)) == 11
    assert len(bucket_server.names(f"{bucket}/scratch/")) == 2


def test_one_file_brings_its_labels_along(bucket: str, bucket_server: BucketServer) -> None:
    for name, data in files(packed=False).items():
        bucket_server.put(f"{bucket}/in/{name}", data)
    items = listed(f"{bucket}/in/t10k-images-idx3-ubyte", "/nowhere")
    assert [(item.key, item.annotations.labels) for item in items if isinstance(item, ImageRecord)] == [
        (f"test/{number:05}", (number,)) for number in range(4)
    ]


def test_broken_files_are_told_by_their_uri(bucket: str, bucket_server: BucketServer, tmp_path: Path) -> None:
    uri = f"{bucket}/in/train-images-idx3-ubyte"
    bucket_server.put(uri, idx(7, 3, 2)[:-1])
    with pytest.raises(ValueError, match=f"{uri}' has 57 bytes; its header .* means 58"):
        listed(f"{bucket}/in", "/nowhere")
    bucket_server.put(f"{uri}.gz", gzip.compress(idx(7, 3, 2))[:-9])
    for scratch in (str(tmp_path), f"{bucket}/scratch"):
        with pytest.raises(JobError, match=f"{uri}.gz' is a broken gzip file"):
            listed(f"{uri}.gz", scratch)
    assert (bucket_server.names(f"{bucket}/scratch"), list(tmp_path.iterdir())) == ([], [])
