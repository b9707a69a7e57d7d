"""Whole conversions from a bucket into a bucket: as local ones, whatever befalls them on the way."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw_folder
from tests.buckets.calls import Request
from tests.buckets.server import BucketServer, Faults
from tests.conftest import Figure
from tests.pipelines.comparison import payloads, shards
from tests.pipelines.conversion import by_key, convert, digests, failures, manifest

pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")

KILLS = int(os.environ.get("RECORDMILL_KILLS", "2"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 images of three labels, one that is broken, and a file that is none."""
    folder = tmp_path_factory.mktemp("input") / "pictures"
    assert len(list(draw_folder(folder, each=15))) == 45
    (folder / "circle/broken.jpg").write_bytes(b"\xff\xd8\xff nothing of the kind")
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture(scope="module")
def local(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that a local run makes of them."""
    output = tmp_path_factory.mktemp("local") / "out"
    assert convert("--input", pictures, "--output", output, *flags("shards")) == 0
    return output


@pytest.fixture
def stored(pictures: Path, bucket: str, bucket_server: BucketServer) -> str:
    """The bucket with the images in it, and other people's objects."""
    bucket_server.upload_folder(pictures, f"{bucket}/in")
    for name in FOREIGN:
        bucket_server.put(f"{bucket}/{name}", b"not ours")
    bucket_server.clear()
    return bucket


ASKED = ("list", "get-media")
FOREIGN = ("out-small/train-00000-of-00001.tfrecord", "notes.txt", ".recordmill/lock")


def flags(writer: str) -> tuple[str, ...]:
    return (f"--writer={writer}", "--num_shards=3", "--max_failure_ratio=0.1")


def gone_through(stored: str, server: BucketServer, local: Path, output: Path, writer: str) -> None:
    """Checks the dataset in the bucket: the same as the local one, and nothing else there."""
    server.download(f"{stored}/out", output)
    if writer == "shards":
        assert digests(output) == digests(local)
    assert Counter(payloads(output)) == Counter(payloads(local))
    assert len(shards(output)) == 3
    for name in ("counts", "reasons", "actions", "labels", "features"):
        assert manifest(output)[name] == manifest(local)[name], name
    assert failures(output) == failures(local)
    assert (output / "report.json").read_bytes() == (local / "report.json").read_bytes()
    listed = {*manifest(output)["files"], "manifest.json"}
    assert {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()} == listed
    for name in FOREIGN:
        assert server.get(f"{stored}/{name}") == b"not ours"
    assert server.names(f"{stored}/.recordmill") == [f"{stored}/.recordmill/lock"]


@pytest.mark.parametrize("writer", ["shards", pytest.param("beam", marks=pytest.mark.slow)])
def test_a_bucket_is_as_good_as_a_disk(
    writer: str, stored: str, bucket_server: BucketServer, local: Path, pictures: Path, tmp_path: Path
) -> None:
    assert convert("--input", f"{stored}/in", "--output", f"{stored}/out/", *flags(writer)) == 0
    requests = bucket_server.requests
    gone_through(stored, bucket_server, local, tmp_path, writer)
    assert sorted(by_key(tmp_path)) == sorted(
        str(path.relative_to(pictures)) for path in pictures.rglob("*.[jp][pn]g") if path.name != "broken.jpg"
    )
    read = Counter(request.name for request in requests if request.kind == "get-media")
    assert read.pop("in/notes.txt") == 1  # detection looks whether it lists the images
    images = Counter({name: count for name, count in read.items() if name.startswith("in/")})
    # One request an image; those of the sample that tells how large the dataset will be are read before, too.
    assert len(images) == 46  # with the damaged one
    assert set(images.values()) <= {1, 2}
    assert not [request for request in requests if request.kind == "bucket"]
    others = [request for request in requests if request.name.startswith("in/") and request.kind not in ASKED]
    # Files that other kinds of input would have are asked for once, by the launcher.
    assert {request.kind for request in others} <= {"get-metadata"}
    assert len(others) <= 10 and not images.keys() & {request.name for request in others}


@pytest.mark.slow
def test_from_a_bucket_to_a_disk_and_back(
    stored: str, bucket_server: BucketServer, local: Path, pictures: Path, tmp_path: Path
) -> None:
    assert convert("--input", f"{stored}/in", "--output", tmp_path / "down", *flags("shards")) == 0
    assert digests(tmp_path / "down") == digests(local)
    assert convert("--input", pictures, "--output", f"{stored}/out", *flags("shards")) == 0
    gone_through(stored, bucket_server, local, tmp_path / "up", "shards")


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_faults_of_the_service_leave_no_trace(
    writer: str, stored: str, bucket_server: BucketServer, local: Path, tmp_path: Path, figure: Figure
) -> None:
    bucket_server.faults = Faults(0.05, seed=7, slow_seconds=0.3)
    assert convert("--input", f"{stored}/in", "--output", f"{stored}/out", *flags(writer)) == 0
    injected = bucket_server.faults.injected
    bucket_server.faults = None
    assert injected.total() >= 5
    figure("errors", injected.total())
    gone_through(stored, bucket_server, local, tmp_path, writer)


def started(stored: str, writer: str) -> "subprocess.Popen[bytes]":
    """A conversion in a process of its own."""
    command = [sys.executable, "-m", "recordmill.pipelines.convert", "--quiet", *flags(writer)]
    command += ["--input", f"{stored}/in", "--output", f"{stored}/out"]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)


class Killer:
    """Kills a conversion around the n-th request that changes something, from 1."""

    def __init__(self, server: BucketServer, at: int, when: str) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._at = at
        self._when = when
        server.clear()
        server.on_mutation(self._look)

    def _look(self, number: int, _: Request, when: str) -> None:
        if number >= self._at and when == self._when and self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)


def moments(writer: str) -> list[Any]:
    """At which request, and before or after it; over all that a conversion makes."""
    last = {"shards": 48, "beam": 46}[writer]
    return [
        pytest.param(writer, 1 + (2 * number + 1) * last // (2 * KILLS), ("before", "after")[number % 2])
        for number in range(KILLS)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "at", "when"), [*moments("shards"), *moments("beam")])
def test_a_conversion_that_is_killed_goes_on(
    writer: str, at: int, when: str, stored: str, bucket_server: BucketServer, local: Path, tmp_path: Path
) -> None:
    killer = Killer(bucket_server, at, when)
    with started(stored, writer) as process:
        killer.process = process
        process.communicate()
    bucket_server.on_mutation(None)
    assert process.returncode == -signal.SIGKILL
    is_published = f"{stored}/out/manifest.json" in bucket_server.names(f"{stored}/out")
    finished = [name for name in bucket_server.names(f"{stored}/out") if name.endswith(".state")]
    if is_published:  # nothing but tidying up was left to do
        bucket_server.download(f"{stored}/out", tmp_path / "published")
        assert Counter(payloads(tmp_path / "published")) == Counter(payloads(local))
        return
    assert convert("--input", f"{stored}/in", "--output", f"{stored}/out", *flags(writer)) == 0
    gone_through(stored, bucket_server, local, tmp_path / "again", writer)
    assert manifest(tmp_path / "again")["provenance"]["reused_shards"] == len(finished)


@pytest.mark.slow
def test_an_interruption_says_what_is_left(stored: str, bucket_server: BucketServer) -> None:
    process: subprocess.Popen[bytes] | None = None

    def interrupt(_: int, request: Request, when: str) -> None:
        if request.name.endswith(".state") and when == "after" and process is not None:
            process.send_signal(signal.SIGINT)

    bucket_server.on_mutation(interrupt)
    process = started(stored, "shards")
    _, said = process.communicate()
    bucket_server.on_mutation(None)
    assert process.returncode == 130
    assert f"interrupted; nothing is published in {stored}/out\n" in said.decode()
    assert re.search(
        r"kept: the same command reuses (it|them), also with another --max_failure_ratio", said.decode()
    )
    # The lock was given back.
    assert f"{stored}/out/.recordmill/lock" not in bucket_server.names(f"{stored}/out")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--output=gs://no-such-bucket/out", "--output is 'gs://no-such-bucket/out', and there is no bucket"),
        ("--output=gs://", "it may be gs://BUCKET/FOLDER"),
        ("--output=s3://bucket/out", "local folders and gs:// are written"),
        ("--output=gs://pictures/in", "which is --input; give another folder"),
        ("--input=gs://no-such-bucket/in", "--input is 'gs://no-such-bucket/in'"),
        ("--input=gs://pictures/none", "--input is 'gs://pictures/none'"),
        ("--input=s3://bucket/in", "--input is 's3://bucket/in'"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(
    argument: str, said: str, stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(f"--input={stored}/in", f"--output={stored}/out", argument) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_dataset_is_replaced_only_when_that_is_asked_for(
    stored: str, bucket_server: BucketServer, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("--input", f"{stored}/in", "--output", f"{stored}/out", "--max_failure_ratio=0.1")
    assert convert(*call, "--num_shards=5") == 0
    bucket_server.put(f"{stored}/out/mine.txt", b"mine")
    assert convert(*call, "--num_shards=3") == 2
    assert "--overwrite replaces it" in capsys.readouterr().err
    assert convert(*call, "--num_shards=3", "--overwrite") == 0
    assert bucket_server.get(f"{stored}/out/mine.txt") == b"mine"
    bucket_server.remove(f"{stored}/out/mine.txt")
    gone_through(stored, bucket_server, local, tmp_path, "shards")


@pytest.mark.slow
def test_below_the_gate_nothing_is_published(stored: str, bucket_server: BucketServer) -> None:
    call = ("--input", f"{stored}/in", "--output", f"{stored}/out", "--num_shards=3")
    assert convert(*call, "--max_failure_ratio=0") == 1
    visible = [name for name in bucket_server.names(f"{stored}/out/") if "/.recordmill/" not in name]
    assert visible == [f"{stored}/out/failures.jsonl"]
    assert b"broken.jpg" in bucket_server.get(f"{stored}/out/failures.jsonl")
    bucket_server.clear()
    assert convert(*call, "--max_failure_ratio=0.5") == 0
    read = [request for request in bucket_server.requests if request.name.startswith("in/")]
    # All shards were finished; detection looks at the first bytes of a text.
    assert {request.name for request in read if request.kind == "get-media"} == {"in/notes.txt"}
