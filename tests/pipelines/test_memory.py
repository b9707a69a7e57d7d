"""Conversions on a file system of the tests: the interface has everything that the product needs."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.storage import file_system
from tests.patched import patched_site
from tests.pipelines.conversion import command, convert, convert_call, digests
from tests.storage.memory import ADDRESS, Store

ROOT = Path(__file__).parents[2]
MEMORY = "tests.storage.memory:MemoryFileSystem"
OUT = "mem://box/out"
ARGS = ("--num_shards=4", "--direct_num_workers=2")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store, which this process knows, and those that are started."""
    patch = f"def patch(module):\n    module.FILE_SYSTEMS['mem'] = {MEMORY!r}\n"
    site = patched_site(tmp_path, file_system.__name__, patch)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setitem(file_system.FILE_SYSTEMS, "mem", MEMORY)
    made = Store()
    monkeypatch.setenv(ADDRESS, made.address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def local(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of a local run."""
    output = tmp_path_factory.mktemp("local") / "out"
    assert convert("--input", photos, "--output", output, *ARGS) == 0
    return output


def downloaded(store: Store, folder: str, target: Path) -> Path:
    """A folder of the store, on the disk."""
    for path, _ in store.below(f"{folder}/"):
        copy = target / path.removeprefix(f"{folder}/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(store.get(path)[0])
    return target


def check(store: Store, local: Path, tmp_path: Path) -> None:
    """Checks that a dataset is the local one, and that nothing else is there."""
    found = downloaded(store, OUT, tmp_path / "found")
    assert digests(found) == digests(local)
    names = [str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()) == sorted(
        names
    )
    assert (found / "failures.jsonl").read_bytes() == (local / "failures.jsonl").read_bytes()
    assert command("verify", OUT) == 0


@pytest.mark.parametrize("is_read", [False, True])
def test_a_conversion_there_and_back(
    store: Store, photos: Path, local: Path, tmp_path: Path, is_read: bool
) -> None:
    for path in photos.rglob("*.*") if is_read else ():
        store.put(f"mem://box/in/{path.relative_to(photos)}", path.read_bytes())
    source = "mem://box/in" if is_read else photos
    assert convert("--input", source, "--output", OUT, *ARGS) == 0
    check(store, local, tmp_path)
    assert convert("--input", source, "--output", OUT, *ARGS) == 2  # there is a dataset
    assert convert("--input", source, "--output", OUT, "--overwrite", *ARGS) == 0
    check(store, local, tmp_path)


def test_a_job_that_is_killed_is_resumed(store: Store, photos: Path, local: Path, tmp_path: Path) -> None:
    job: list[subprocess.Popen[bytes]] = []
    written: list[str] = []

    def kill_after_two_shards(path: str) -> None:
        written.append(path)
        if sum(path.endswith(".tfrecord") for path in written) == 2 and job[0].poll() is None:
            os.killpg(job[0].pid, signal.SIGKILL)

    store.on_put = kill_after_two_shards
    job.append(
        subprocess.Popen(
            [*convert_call(photos, OUT, *ARGS, "--progress=none")], start_new_session=True, cwd=ROOT
        )
    )
    assert job[0].wait(120) == -signal.SIGKILL
    finished = {path for path in written if path.endswith(".tfrecord")}
    store.on_put = written.append
    written.clear()
    assert convert("--input", photos, "--output", OUT, *ARGS) == 0
    check(store, local, tmp_path)


def test_versions(store: Store, photos: Path, local: Path, tmp_path: Path) -> None:
    auto = ("--input", photos, "--output", OUT, "--dataset_version=auto", *ARGS)
    assert convert(*auto) == 0
    assert convert(*auto) == 0
    for version in ("1.0.0", "1.0.1"):
        assert digests(downloaded(store, f"{OUT}/{version}", tmp_path / version)) == digests(local)
    assert json.loads(store.get(f"{OUT}/latest.json")[0])["version"] == "1.0.1"
    shards = [path for path, _ in store.below(f"{OUT}/1.0.0/") if path.endswith(".tfrecord")]
    for path in shards:
        again = store.get(path.replace("/1.0.0/", "/1.0.1/"))[1]
        assert again.modified == store.get(path)[1].modified  # not written again
    assert command("verify", OUT) == 0
