"""Pipelines that make images: records that bring their bytes."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from PIL import Image

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    Failure,
    ImageRecord,
    ImageRef,
    Steps,
)
from recordmill.transforms.storage import zip_member
from recordmill.transforms.storage.layout import Run
from recordmill.transforms.storage.lock import acquire, release
from recordmill.transforms.storage.owner import make_marked_folder
from recordmill.transforms.storage.runs import mark_run, recover_runs
from recordmill.transforms.storage.sealed import without_digest
from recordmill.transforms.write import WriteDataset
from tests.buckets.server import BucketServer
from tests.lazy import tf
from tests.pipelines.comparison import payloads
from tests.pipelines.conversion import by_key, command, digests, failures, manifest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JPEG = ImagePolicy(image_format="jpeg", jpeg_quality=80)
COUNT = 24
# Large enough that the annotations are spooled as well.
BOXES = tuple(AnnotatedObject("dot", Box(1.0, 2.0, 3.0 + at, 4.0)) for at in range(12))


def pixels(seed: int, side: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def png(seed: int, side: int = 16) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(seed, side)).save(file, "PNG")
    return file.getvalue()


def key_of(number: int) -> str:
    return f"made/{number:03d}.png"


def made(number: int, seed: int = 0) -> ImageRecord:
    """A record that brings its bytes."""
    objects = BOXES if number % 2 else ()
    annotations = Annotations((f"class {number % 3}",), {"number": number}, objects)
    return ImageRecord(key_of(number), annotations=annotations, data=png(number + seed))


def stored(number: int, folder: str) -> ImageRecord:
    """The same record, with a file."""
    record = made(number)
    path = Path(folder) / record.key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(record.data)
    annotations = record.annotations
    return ImageRecord(record.key, ImageRef(str(path)), annotations=annotations, size=len(record.data))


DIRECT = ("--runner=FnApiRunner",)


def write(output: object, entries: Iterable[object], flags: Sequence[str] = DIRECT, **settings: Any) -> None:
    """Runs a pipeline that makes records of numbers; other entries are passed on."""
    config = DatasetConfig(**{"num_shards": 8, "workers": 1, "policy": JPEG, **settings})
    with beam.Pipeline(options=PipelineOptions(list(flags))) as pipeline:
        _ = (
            pipeline
            | beam.Create(list(entries))
            | beam.Map(lambda entry: made(entry) if isinstance(entry, int) else entry)
            | beam.Map(lambda entry: entry() if callable(entry) else entry)
            | WriteDataset(str(output), config)
        )


def from_files(output: Path, folder: Path) -> Path:
    write(output, [stored(number, str(folder.resolve())) for number in range(COUNT)])
    return output


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the same images in files."""
    folder = tmp_path_factory.mktemp("files")
    return from_files(folder / "out", folder / "in")


def check(output: Path, expected: Path) -> None:
    """Checks that a dataset is the expected one, and that no other file is there."""
    assert digests(output) == digests(expected)
    for name in ("report.json", "report.html", "features.json", "failures.jsonl"):
        assert (output / name).read_bytes() == (expected / name).read_bytes(), name
    assert manifest(output)["counts"] == {"read": COUNT, "written": COUNT, "failed": 0, "skipped": 0}
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert files == {*manifest(output)["files"], "manifest.json"}


def test_the_dataset_is_that_of_the_same_images_in_files(tmp_path: Path, expected: Path) -> None:
    write(tmp_path / "out", range(COUNT))
    check(tmp_path / "out", expected)
    found = by_key(tmp_path / "out")
    assert set(found) == {key_of(number) for number in range(COUNT)}
    for number in range(COUNT):
        one = found[key_of(number)]
        assert one["number"] == [number]
        decoded = tf.io.decode_jpeg(one["image/encoded"][0]).numpy()
        difference = np.abs(decoded.astype(int) - pixels(number))
        assert decoded.shape == (16, 16, 3) and difference.mean() < 60
    assert json.loads((tmp_path / "out/report.json").read_text())["crops"]
    assert command("verify", tmp_path / "out") == 0


@pytest.mark.slow
@pytest.mark.parametrize("shards", [None, 8])
def test_the_writer_of_beam(tmp_path: Path, expected: Path, shards: int | None) -> None:
    write(tmp_path / "out", range(COUNT), writer="beam", num_shards=shards)
    assert Counter(payloads(tmp_path / "out")) == Counter(payloads(expected))
    assert manifest(tmp_path / "out")["counts"] == manifest(expected)["counts"]
    assert command("verify", tmp_path / "out") == 0


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_a_bucket(
    tmp_path: Path, expected: Path, bucket: str, bucket_server: BucketServer, writer: str
) -> None:
    write(f"{bucket}/out", range(COUNT), writer=writer)
    puts = [request.name for request in bucket_server.requests if "/scratch/" in request.name]
    assert any(name.endswith("-00000") for name in puts)  # of the spool
    bucket_server.download(f"{bucket}/out", tmp_path)
    if writer == "shards":
        check(tmp_path, expected)
    assert Counter(payloads(tmp_path)) == Counter(payloads(expected))
    assert bucket_server.names(f"{bucket}/out/.recordmill") == []


def test_bad_images_cost_one_record_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_member, "LARGEST", 5_000)
    bad = {"text": b"no image", "cut": png(0)[:200], "none": b"", "large": png(0, 64)}
    entries = [0, 1, Failure("x", "draw", "nothing"), *(ImageRecord(key, data=bad[key]) for key in bad)]
    write(
        tmp_path / "out", [*entries, *(ImageRecord(key, data=png(9)) for key in "abc")], max_failure_ratio=0.9
    )
    assert manifest(tmp_path / "out")["counts"] == {"read": 10, "written": 5, "failed": 5, "skipped": 0}
    reasons = {one["key"]: (one["stage"], one["reason"]) for one in failures(tmp_path / "out")}
    assert reasons == {
        "x": ("draw", "nothing"),
        "text": ("decode", "not an image"),
        "cut": ("decode", "truncated"),
        "none": ("build", "no image"),
        "large": ("load", "too large"),
    }
    same = {by_key(tmp_path / "out")[key]["image/encoded"][0] for key in "abc"}
    assert len(same) == 1


def test_a_repeated_key_names_the_origins(tmp_path: Path) -> None:
    again = ImageRecord(key_of(1), data=png(5), origin="step 5")
    with pytest.raises(Exception, match=r"key 'made/001.png' is not unique: \(no origin\); step 5\. Keys"):
        write(tmp_path / "out", [1, again])


@pytest.mark.parametrize("settings", [{}, {"splits": {"train": 1.0}}])
def test_a_key_that_is_not_unicode(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    message = r"record 'a\\udcff' has a text with '\\udcff', which is not Unicode; replace it"
    with pytest.raises(Exception, match=message):
        write(tmp_path / "out", [functools.partial(ImageRecord, "a\udcff", data=png(0))], **settings)


@pytest.mark.parametrize("data", [np.zeros(3, np.uint8), "text", bytearray(b"x"), None])
def test_data_of_another_type(data: Any) -> None:
    with pytest.raises(TypeError, match=f"ImageRecord.data is of type {type(data).__name__}; it must be the"):
        ImageRecord("a", data=data)


@pytest.mark.parametrize(
    "other", [{"image": ImageRef("/a.png")}, {"annotations": Annotations(steps=Steps((ImageRef("/a.png"),)))}]
)
def test_data_and_another_image(other: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"ImageRecord 'a' has data and [a-z.]+; it may have one of the two"):
        ImageRecord("a", data=b"x", **other)
    assert ImageRecord("a", data=b"", **other) == ImageRecord("a", **other)


_KILLED = """
import os, signal
from recordmill.transforms.write_shards import WriteShardsFn
from tests.pipelines.test_own_images import COUNT, write

results, done = WriteShardsFn.results, []

def killing(self, shard, result):
    done.append(shard)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from results(self, shard, result)

WriteShardsFn.results = killing
write({output!r}, range(COUNT))
"""


@pytest.mark.slow
def test_a_killed_job_is_resumed(tmp_path: Path, expected: Path) -> None:
    output = tmp_path / "out"
    call = [sys.executable, "-c", _KILLED.format(output=str(output))]
    for _ in range(2):
        assert subprocess.run(call, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    (run,) = (output / ".recordmill").glob("*/")
    checkpoints = [
        msgspec.msgpack.decode(without_digest(path.read_bytes())) for path in run.glob("shards/*.state")
    ]
    finished = {(run / "shards" / one["file"]["path"]).stat().st_ino for one in checkpoints}
    assert len(finished) >= 6
    spools = [path for path in run.glob("scratch/*") if path.is_dir()]
    assert len(spools) == 1  # the second job has removed those of the first
    write(output, range(COUNT))
    # The crops of report.html, too: they are made of the images again.
    check(output, expected)
    assert {path.stat().st_ino for path in output.glob("*.tfrecord")} > finished
    assert manifest(output)["provenance"]["reused_shards"] == len(finished)


def test_the_records_of_a_dead_job_are_removed_and_unpacked_files_stay(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "out"), "0123456789abcdef" * 4, "token")
    for name in ("dead", "token"):
        make_marked_folder(run.scratch)
        os.makedirs(f"{run.scratch}/{name}")
        Path(run.scratch, name, "digest-00000").write_bytes(b"piece")
    Path(run.scratch, "digest-00000").write_bytes(b"unpacked")
    acquire(run.locked, run.token, "")
    mark_run(run, "1.0")
    recover_runs(run)
    release(run.locked, run.token)
    left = {str(path.relative_to(run.scratch)) for path in Path(run.scratch).rglob("*") if path.is_file()}
    assert left == {"made-by-recordmill.json", "digest-00000", "token/digest-00000"}


@pytest.mark.slow
def test_a_version_reuses_the_images_that_have_not_changed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, range(COUNT), dataset_version="auto")
    write(home, range(COUNT), dataset_version="auto")
    assert sorted(path.name for path in home.glob("*.*.*")) == ["1.0.0"]
    changed = made(7, seed=1000)
    assert len(changed.data) == len(made(7).data)
    entries = [changed if number == 7 else number for number in range(COUNT)]
    write(home, entries, dataset_version="auto")
    write(tmp_path / "scratch", entries, dataset_version="1.0.1")
    assert digests(home / "1.0.1") == digests(tmp_path / "scratch/1.0.1")
    provenance = manifest(home / "1.0.1")["provenance"]
    assert provenance["taken_over"]["records"] == COUNT - 1
    assert provenance["work"]["images"] == 1


_PEAK = """
import resource, sys
from tests.pipelines.test_own_images import write_many

write_many({output!r}, int(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_many(output: str, count: int) -> None:
    """Writes images of 100 KB, which a step of the pipeline makes."""
    config = DatasetConfig(num_shards=4, workers=1, policy=ImagePolicy(validate="header"))
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create([count])
            | beam.FlatMap(lambda number: list(range(number)))
            | beam.Map(lambda number: ImageRecord(key_of(number), data=png(number, 185)))
            | WriteDataset(output, config)
        )


@pytest.mark.slow
def test_memory_does_not_grow_with_the_bytes(tmp_path: Path) -> None:
    assert 100_000 < len(png(0, 185)) < 110_000

    def peak(count: int) -> int:
        call = [sys.executable, "-c", _PEAK.format(output=str(tmp_path / f"out{count}")), str(count)]
        return int(subprocess.run(call, cwd=ROOT, check=True, capture_output=True).stdout) * 1024

    growth = peak(2000) - peak(20)
    assert growth < 40_000_000  # of 200 MB
