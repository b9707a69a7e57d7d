"""Jobs that are killed, over and over: what was finished is not done again, and the result is the same."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from benchmarks.drawings import draw_folder
from recordmill.transforms.storage.runs import finished_shards
from recordmill.transforms.storage.sealed import without_digest
from tests.conftest import Figure
from tests.patched import patched_site
from tests.pipelines.conversion import by_key, convert, convert_call, digests, failures, manifest

ROOT = Path(__file__).parents[2]
SLOW = pytest.mark.slow
KEPT = "are kept: the same command reuses them, also with another --max_failure_ratio, or without --strict"
WROTE = "an earlier version of recordmill wrote the finished shards of an interrupted run"
SHARDS = 26
KILLS = int(os.environ.get("RECORDMILL_KILLS", "4"))
ARGS = (
    "--image_format=png",
    "--num_shards=train=24,val=2",
    "--splits=train=0.8,val=0.2",
    "--direct_num_workers=2",
)
# Every writer notes the keys that it encodes.
_NOTING = """
import os

def patch(module):
    encode = module.RecordEncoder.encode
    def noting(self, record, *taken):
        with open(os.environ["ENCODED"], "a") as file:
            file.write(record.key + "\\n")
        return encode(self, record, *taken)
    module.RecordEncoder.encode = noting
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 images of 320x240, and one that is none."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=100))) == 300
    (folder / "circle/broken.jpg").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of a dataset that nothing has disturbed."""
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    assert convert("--input", photos, "--output", output, *ARGS) == 0
    return digests(output)


class Job:
    """A conversion in a process group of its own."""

    def __init__(self, photos: Path, output: Path, *args: str) -> None:
        site = patched_site(output.parent, "recordmill.transforms.shards.record_encoder", _NOTING)
        self.encoded = output.parent / "encoded"
        self.encoded.write_text("")
        environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "ENCODED": str(self.encoded)}
        call = convert_call(photos, output)
        self.process = subprocess.Popen(
            [*call, *ARGS, *args, "--progress=none"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)

    def keys(self) -> list[str]:
        return self.encoded.read_text().splitlines()


def finished_keys(output: Path) -> set[str]:
    """Keys of the records in finished shards, and of their failures."""
    found: set[str] = set()
    for path in output.glob(".recordmill/*/shards/*.state"):
        file = msgspec.msgpack.decode(without_digest(path.read_bytes()))["file"]
        name = Path(file["path"])
        found |= set(by_key(path.parent, name.stem))
        if file["failures_path"]:
            lines = (path.parent / file["failures_path"]).read_text().splitlines()
            found |= {json.loads(line)["key"] for line in lines}
    return found


def killed_until_done(photos: Path, output: Path, *args: str, old: dict[str, str] | None = None) -> None:
    """Kills a job some times at random moments, each time after one more shard; lets the last one end."""
    chance = random.Random(7)
    for _ in range(KILLS):
        before = finished_shards(str(output))
        kept = finished_keys(output)
        job = Job(photos, output, *args)
        deadline = time.monotonic() + 120
        while finished_shards(str(output)) <= before or job.keys() == []:
            assert job.process.poll() is None, job.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.15))
        job.kill()
        assert not kept & set(job.keys())
        if old is None:
            assert not (output / "manifest.json").exists()
            assert not list(output.glob("*.tfrecord"))
        else:
            assert whole(output) == old
    kept = finished_keys(output)
    reused = finished_shards(str(output))
    assert reused >= KILLS
    job = Job(photos, output, *args)
    printed, said = job.process.communicate(timeout=120)
    assert job.process.returncode == 0, said
    assert not kept & set(job.keys())
    assert f"{reused} shards finished before" in printed
    assert manifest(output)["provenance"]["reused_shards"] == reused


def whole(output: Path) -> dict[str, str]:
    """Digests of all files that a manifest lists."""
    return {
        name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in manifest(output)["files"]
    }


@pytest.mark.slow
def test_killed_at_random_moments(
    photos: Path, undisturbed: dict[str, str], tmp_path: Path, figure: Figure
) -> None:
    figure("kills", KILLS)
    output = tmp_path / "out"
    killed_until_done(photos, output)
    assert digests(output) == undisturbed
    assert [one["key"] for one in failures(output)] == ["circle/broken.jpg"]
    assert manifest(output)["counts"] == {"read": 301, "written": 300, "failed": 1, "skipped": 0}
    assert not (output / ".recordmill").exists()


@pytest.mark.slow
def test_killed_at_random_moments_over_an_older_dataset(
    photos: Path, undisturbed: dict[str, str], tmp_path: Path, figure: Figure
) -> None:
    figure("kills", KILLS)
    output = tmp_path / "out"
    older = ("--splits=train=0.8,val=0.2", "--num_shards=30", "--seed=1")
    assert convert("--input", photos, "--output", output, *older) == 0
    (output / "notes.txt").write_text("mine")
    killed_until_done(photos, output, "--overwrite", old=whole(output))
    assert digests(output) == undisturbed
    assert (output / "notes.txt").read_text() == "mine"
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert files == {*manifest(output)["files"], "notes.txt"}


@pytest.mark.slow
def test_a_higher_ratio_reuses_everything(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, *ARGS, "--max_failure_ratio=0") == 1
    assert f"{SHARDS} finished shards {KEPT}" in capfd.readouterr().err
    assert [one["key"] for one in failures(output)] == ["circle/broken.jpg"]
    job = Job(photos, output, "--max_failure_ratio=0.5")
    _, said = job.process.communicate(timeout=120)
    assert job.process.returncode == 0, said
    assert job.keys() == []
    assert manifest(output)["provenance"]["reused_shards"] == SHARDS
    assert [one["key"] for one in failures(output)] == ["circle/broken.jpg"]


# As version 0.1 wrote it.
OLD_CHECKPOINT = """{"format_version": 6,
 "digest": "376f4614c6fa8c427b2a9118d149c14d8ff86935e3522478d00be1016aa576d0",
 "report": {"split": "train", "shard": 0, "file": {"path": "train-00000-ac662429a3b4.tfrecord",
 "index_path": "train-00000-ac662429a3b4.idx", "failures_path": null, "state_path": null, "size": 357,
 "sha256": "bd7952a5b3e88c772d7d2b5a661b45d1cde597aa4cd72c73c12d3859409a7dea", "state_sha256": "",
 "stats": {"written": 1, "failed": [], "actions": [["kept", 1]]}}}, "sizes": [357, 6]}"""


@pytest.mark.slow
def test_a_run_of_version_0_1_is_started_over(
    photos: Path, undisturbed: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, *ARGS, "--max_failure_ratio=0") == 1
    for path in output.glob(".recordmill/*/shards/*.state"):
        path.unlink()
        path.with_suffix(".state.json").write_text(OLD_CHECKPOINT)
    capfd.readouterr()
    assert convert("--input", photos, "--output", output, *ARGS) == 0
    assert f"starting over: {WROTE} ({SHARDS})\n" in capfd.readouterr().err
    assert digests(output) == undisturbed
    assert manifest(output)["provenance"]["reused_shards"] == 0
    assert not (output / ".recordmill").exists()


@pytest.mark.slow
def test_only_shards_whose_images_have_changed_are_written_again(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, *ARGS, "--max_failure_ratio=0") == 1
    shard_of = {}
    for path in output.glob(".recordmill/*/shards/*.state"):
        name = msgspec.msgpack.decode(without_digest(path.read_bytes()))["file"]["path"]
        shard_of.update(dict.fromkeys(by_key(path.parent, Path(name).stem), name))
    touched = "square/square_007.jpg"
    status = (photos / touched).stat()
    os.utime(photos / touched, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    job = Job(photos, output)
    assert job.process.wait(timeout=120) == 0
    assert set(job.keys()) == {key for key, name in shard_of.items() if name == shard_of[touched]}
    assert manifest(output)["provenance"]["reused_shards"] == SHARDS - 1


@pytest.mark.parametrize(
    "other",
    ["--seed=3", *(pytest.param(flag, marks=SLOW) for flag in ("--jpeg_quality=80", "--limit=29"))],
)
def test_what_another_call_has_left_is_not_mixed_in(other: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    assert len(list(draw_folder(folder, each=10))) == 30
    (folder / "circle/broken.jpg").write_text("no image")
    args = ("--image_format=jpeg", "--num_shards=3", "--max_failure_ratio=0")
    assert convert("--input", folder, "--output", tmp_path / "out", *args) == 1
    args = (*args, other, "--exclude=broken.jpg")
    assert convert("--input", folder, "--output", tmp_path / "out", *args) == 0
    assert convert("--input", folder, "--output", tmp_path / "alone", *args) == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "alone")
    assert manifest(tmp_path / "out")["provenance"]["reused_shards"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_an_interruption_says_what_is_kept(number: signal.Signals, photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    job = Job(photos, output)
    while finished_shards(str(output)) < 2:
        assert job.process.poll() is None
        time.sleep(0.005)
    writers = psutil.Process(job.process.pid).children()
    assert len(writers) == 2
    os.killpg(job.process.pid, number)
    _, said = job.process.communicate(timeout=60)
    assert job.process.returncode == 130
    # No writer outlives its parent.
    assert psutil.wait_procs(writers, timeout=60)[1] == []
    kept = finished_shards(str(output))
    assert said.endswith(f"\ninterrupted; nothing is published in {output}\n{kept} finished shards {KEPT}\n")
    assert "Traceback" not in said
    assert not (output / ".recordmill/lock").exists()
