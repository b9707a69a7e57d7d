"""Annotated sources and archives in a bucket: the shards that they give from a disk, byte for byte."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert, digests, failures, manifest

pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")

pytestmark = pytest.mark.slow


def png(number: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), number * 10, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def coco(folder: Path) -> None:
    (folder / "val2017").mkdir(parents=True)
    images, annotations = [], []
    for number in range(6):
        (folder / f"val2017/{number}.png").write_bytes(png(number))
        images.append({"id": number, "file_name": f"{number}.png", "height": 20, "width": 30})
        shape = {"segmentation": [[1, 1, 9, 1, 9, 9.5]], "bbox": [1, 1, 8, 8.5], "area": 34, "iscrowd": 0}
        annotations.append({"id": number, "image_id": number, "category_id": 1, **shape})
    found = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "instances_val2017.json").write_text(json.dumps(found))


def masks(folder: Path) -> None:
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(6):
        (folder / f"images/{number}.png").write_bytes(png(number))
        Image.fromarray(np.full((20, 30), number, np.uint8)).save(folder / f"masks/{number}.png")


def archives(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "train.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(6):
            archive.writestr(f"cat/{number}.png", png(number))


def tars(folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(folder / "train-000.tar", "w") as archive:
        for number in range(6):
            for name, data in ((f"{number}.png", png(number)), (f"{number}.cls", b"%d" % (number % 2))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def tables(folder: Path) -> None:
    folder.mkdir()
    rows = [{"image": {"bytes": png(number), "path": None}, "label": number % 2} for number in range(6)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet", row_group_size=4)


def arrays(folder: Path) -> None:
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    np.savez_compressed(folder / "set.npz", x_train=pixels, y_train=np.arange(6) % 3)


@pytest.mark.parametrize(
    ("make", "flags", "names"),
    [
        (coco, ("--include_annotations=masks",), "coco"),
        (masks, (), "masks"),
        (archives, (), "archive"),
        (tars, (), "webdataset"),
        (tables, (), "parquet"),
        (arrays, (), "numpy"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_bucket_gives_the_same_shards(
    make: object, flags: tuple[str, ...], names: str, bucket: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    assert callable(make)
    make(tmp_path / "in")
    assert convert("--input", tmp_path / "in", "--output", tmp_path / "out", *flags) == 0
    assert manifest(tmp_path / "out")["source"]["kind"] == names
    assert manifest(tmp_path / "out")["counts"]["written"] == 6
    bucket_server.upload_folder(tmp_path / "in", f"{bucket}/in")
    assert convert("--input", f"{bucket}/in", "--output", f"{bucket}/out", *flags) == 0
    bucket_server.download(f"{bucket}/out", tmp_path / "remote")
    assert digests(tmp_path / "remote") == digests(tmp_path / "out")
    assert failures(tmp_path / "remote") == failures(tmp_path / "out")
    assert bucket_server.names(f"{bucket}/out/.recordmill") == [f"{bucket}/out/.recordmill/lock"] or not (
        bucket_server.names(f"{bucket}/out/.recordmill")
    )
