"""Conversions on Flink: embedded, and on a cluster that loses a task manager while shards are written."""

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.buckets.asking import asked
from tests.buckets.server import BucketServer
from tests.patched import patched_site
from tests.pipelines.comparison import assert_same_dataset, payloads
from tests.pipelines.conversion import command, digests
from tests.pipelines.test_own_images import COUNT, check, write
from tests.runners.calls import (
    INPUT_FLAGS,
    assert_same_records,
    assert_same_shards,
    check_identical_images,
    convert,
    converting,
    programs_of,
)
from tests.runners.downloads import flink_job_server
from tests.runners.flink import TASK_MANAGERS, Cluster
from tests.sources.small_inputs import picture

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1200)]

# What takes a while in the workers, so that something can happen meanwhile.
_SLOW = {
    "recordmill.transforms.shards.record_encoder": ("RecordEncoder", "encode", 0.06),
    "recordmill.transforms.write_tfrecords": ("NamingWriter", "write", 0.03),
}
_PATCH = """
import time
def patch(module):
    function = module.{0}.{1}
    def slowly(*args):
        time.sleep({2})
        return function(*args)
    module.{0}.{1} = slowly
"""


def slow_site(folder: Path) -> Path:
    """A folder to put first on the workers' PYTHONPATH."""
    programs = []
    for number, (module, what) in enumerate(_SLOW.items()):
        part = folder / str(number)
        part.mkdir()
        programs.append((patched_site(part, module, _PATCH.format(*what)) / "sitecustomize.py").read_text())
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"for program in {programs!r}:\n    exec(program, {{}})\n")
    return site


@pytest.fixture(scope="module")
def job_server() -> Path:
    return flink_job_server()


@pytest.fixture(scope="module")
def embedded(job_server: Path) -> list[str]:
    return ["--runner=FlinkRunner", "--flink_master=[local]", f"--flink_job_server_jar={job_server}"]


@pytest.fixture(scope="module")
def cluster(job_server: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(job_server, folder, str(slow_site(folder))) as cluster:
        yield cluster


def test_embedded_shards_are_the_same_bytes(
    embedded: list[str], photos: Path, direct: Path, tmp_path: Path
) -> None:
    status, said = convert(photos, tmp_path / "out", *embedded, *INPUT_FLAGS, "--writer=shards")
    assert status == 0, said
    assert_same_shards(tmp_path / "out", direct)


def test_embedded_finds_identical_images(embedded: list[str], photos: Path, tmp_path: Path) -> None:
    check_identical_images(photos, tmp_path, embedded)


def test_embedded_beam_writes_the_same_records(
    embedded: list[str], photos: Path, direct: Path, tmp_path: Path
) -> None:
    # --writer=auto is beam here.
    status, said = convert(photos, tmp_path / "out", *embedded, *INPUT_FLAGS)
    assert status == 0, said
    assert_same_records(tmp_path / "out", direct)


def test_a_function_makes_the_same_bytes(embedded: list[str], photos: Path, tmp_path: Path) -> None:
    flags = [*INPUT_FLAGS, "--map_image=tests.runners.halved:halves"]
    outputs = tmp_path / "flink", tmp_path / "direct", tmp_path / "beam"
    runs = ([*embedded, "--writer=shards"], ["--writer=shards"], embedded)
    for output, more in zip(outputs, runs, strict=True):
        status, said = convert(photos, output, *flags, "--name=photos", *more)
        assert status == 0, said
    assert_same_shards(*outputs[:2])
    assert_same_dataset(*outputs[1:])
    assert Counter(payloads(outputs[1])) == Counter(payloads(outputs[2]))
    counts = json.loads((outputs[0] / "manifest.json").read_text())["counts"]
    assert counts["skipped"] and counts["added"]
    assert (
        counts["written"]
        == 2 * counts["added"]
        == 2 * (counts["read"] - counts["failed"] - counts["skipped"])
    )


def test_a_version_takes_over_from_the_one_before(embedded: list[str], photos: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(photos, tmp_path / "photos"))
    home, scratch = tmp_path / "out", tmp_path / "scratch"
    versioned = [*INPUT_FLAGS, "--dataset_version=auto"]
    assert convert(source, home, *versioned)[0] == 0
    one, other = sorted((source / "train" / "circle").iterdir())[:2]
    one.write_bytes(other.read_bytes())
    status, said = convert(source, home, *embedded, *versioned)
    assert status == 0, said
    assert convert(source, scratch, *INPUT_FLAGS, "--name=out")[0] == 0
    assert digests(home / "1.0.1") == digests(scratch)
    listed = (home / "1.0.1/duplicates.jsonl").read_bytes()
    assert listed == (scratch / "duplicates.jsonl").read_bytes()
    made = json.loads((home / "1.0.1/manifest.json").read_text())
    assert made["counts"]["failed"] == 1  # which is tried again
    assert made["provenance"]["work"] == {"source_reads": 2, "images": 2, "masks": 0}
    status, said = convert(source, home, *embedded, *versioned)
    assert status == 0, said
    assert sorted(path.name for path in home.iterdir()) == ["1.0.0", "1.0.1", "latest.json"]


def test_a_folder_of_a_bucket_is_listed_in_parts(
    embedded: list[str], bucket: str, bucket_server: BucketServer, tmp_path: Path
) -> None:
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")
    for number in range(60):
        name = f"{('train', 'val')[number % 5 == 0]}/{'cat' if number % 2 else 'dog'}/{number:04}.png"
        bucket_server.put(f"{bucket}/in/{name}", picture(number))
    bucket_server.put(f"{bucket}/in/train/cat/broken.png", b"no image")
    bucket_server.page_size = 5
    flags = ["--num_shards=2", "--max_failure_ratio=0.5", "--dataset_version=auto"]
    for number in (3, 60):
        bucket_server.put(f"{bucket}/in/train/cat/{number:04}.png", picture(100 + number))
        status, said = convert(f"{bucket}/in", f"{bucket}/out", *flags, *embedded)
        assert status == 0, said
    # Names that begin alike were looked for.
    looked_for = {request.name for request in asked(bucket_server) if request.kind == "list"}
    assert any(name.startswith("in/train/cat/00") for name in looked_for), looked_for
    assert convert(f"{bucket}/in", f"{bucket}/scratch", *flags, "--name=out")[0] == 0
    bucket_server.download(bucket, tmp_path)
    assert digests(tmp_path / "out/1.0.1") == digests(tmp_path / "scratch/1.0.0")
    made = json.loads((tmp_path / "out/1.0.1/manifest.json").read_text())
    assert made["counts"] == {"read": 62, "written": 61, "failed": 1, "skipped": 0}
    assert made["provenance"]["work"] == {"source_reads": 2, "images": 2, "masks": 0}


def test_a_fault_of_the_input_is_one_line(embedded: list[str], photos: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    image = photos / "train" / "circle" / "circle_000.jpg"
    rows.write_text(f"path,label\n{image},a\n{image},b\n")
    output = tmp_path / "out"
    status, said = convert(rows, output, *embedded, f"--image_root={photos}", "--num_shards=train=2")
    assert status == 1
    last = said.splitlines()[-1]
    assert last.startswith("python -m recordmill.pipelines.convert: error: key ")
    assert " is not unique: " in last
    assert not (output / "manifest.json").exists()
    assert not list(output.glob("*.tfrecord"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_job_server_too(
    number: signal.Signals, embedded: list[str], photos: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with converting(photos, output, *embedded, *INPUT_FLAGS) as process:
        _wait_for(output, ".recordmill/*/run.json")
        assert "java" in programs_of(process)
        process.send_signal(number)
        assert process.wait(30) == 130
        deadline = time.monotonic() + 30
        while "java" in programs_of(process):
            assert time.monotonic() < deadline, "the job server goes on"
            time.sleep(0.1)
    assert not (output / "manifest.json").exists()


@pytest.mark.parametrize(
    ("writer", "at_work", "assert_same"),
    [
        ("shards", "shards/*.state", assert_same_shards),
        ("beam", "tfrecord-*/train/beam-temp-*", assert_same_records),
    ],
)
def test_a_task_manager_that_dies(
    writer: str,
    at_work: str,
    assert_same: Callable[[Path, Path], None],
    cluster: Cluster,
    photos: Path,
    direct: Path,
    tmp_path: Path,
) -> None:
    output = tmp_path / "out"
    before = cluster.attempts()
    with converting(photos, output, *cluster.flags(), *INPUT_FLAGS, f"--writer={writer}") as process:
        _wait_for(output, f".recordmill/*/{at_work}")
        cluster.kill_task_manager(0)
        assert not (output / "manifest.json").exists()
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert cluster.attempts() > before
    assert_same(output, direct)
    cluster.start_task_manager(0)
    cluster.wait_for(TASK_MANAGERS)


def _wait_for(output: Path, pattern: str) -> None:
    """Until a conversion has come so far."""
    deadline = time.monotonic() + 120
    while not list(output.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {output}"
        time.sleep(0.05)


@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_images_that_a_pipeline_makes(embedded: list[str], tmp_path: Path, writer: str) -> None:
    write(tmp_path / "direct", range(COUNT))
    write(tmp_path / "out", range(COUNT), embedded, writer=writer)
    if writer == "shards":
        check(tmp_path / "out", tmp_path / "direct")
    assert Counter(payloads(tmp_path / "out")) == Counter(payloads(tmp_path / "direct"))
    assert command("verify", tmp_path / "out") == 0
