"""Conversions on a file system of the tests: the interface has everything that the product needs."""

import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.transforms.storage import file_system
from tests.patched import patched_site
from tests.pipelines.conversion import command, convert, convert_call, digests
from tests.pipelines.test_own_images import COUNT, from_files, write
from tests.storage.memory import ADDRESS, Store
from tests.storage.test_gcs import story

ROOT = Path(__file__).parents[2]
MODULE = "tests.storage.memory"
OUT = "mem://box/out"
ARGS = ("--num_shards=4", "--direct_num_workers=2")


@pytest.fixture(params=["MemoryFileSystem", pytest.param("SlowMemoryFileSystem", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store, which this process knows, and those that are started."""
    name = f"{MODULE}:{request.param}"
    patch = f"def patch(module):\n    module.FILE_SYSTEMS['mem'] = {name!r}\n"
    site = patched_site(tmp_path, file_system.__name__, patch)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setitem(file_system.FILE_SYSTEMS, "mem", name)
    file_system._of_scheme.cache_clear()
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


def upload(store: Store, folder: Path) -> str:
    """Puts a folder into the store."""
    for path in folder.rglob("*.*"):
        store.put(f"mem://box/in/{path.relative_to(folder)}", path.read_bytes())
    return "mem://box/in"


def is_shard(path: str) -> bool:
    return path.endswith(".tfrecord")


def is_state(path: str) -> bool:
    """Whether a file says that a shard is finished."""
    return path.endswith(".state")


def check(store: Store, local: Path, tmp_path: Path) -> None:
    """Checks that a dataset is the local one, and that nothing else is there."""
    found = downloaded(store, OUT, tmp_path / "found")
    assert digests(found) == digests(local)
    names, expected = (
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        for folder in (found, local)
    )
    assert names == expected
    assert (found / "failures.jsonl").read_bytes() == (local / "failures.jsonl").read_bytes()
    assert command("verify", OUT) == 0


def test_each_call_does_what_it_does_on_a_disk(store: Store, tmp_path: Path) -> None:
    assert story(OUT) == story(str(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("is_read", [True, False])
def test_a_conversion(store: Store, photos: Path, local: Path, tmp_path: Path, is_read: bool) -> None:
    source = upload(store, photos) if is_read else str(photos)
    assert convert("--input", source, "--output", OUT, *ARGS) == 0
    check(store, local, tmp_path)
    assert convert("--input", source, "--output", OUT, *ARGS) == 2  # there is a dataset
    assert convert("--input", source, "--output", OUT, "--overwrite", *ARGS) == 0
    check(store, local, tmp_path)


@pytest.mark.slow
def test_an_archive(store: Store, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in/photos.zip", "w") as archive:
        for path in sorted(photos.rglob("*.*")):
            archive.write(path, path.relative_to(photos))
    assert convert("--input", tmp_path / "in", "--output", tmp_path / "local", *ARGS) == 0
    assert convert("--input", upload(store, tmp_path / "in"), "--output", OUT, *ARGS) == 0
    check(store, tmp_path / "local", tmp_path)


@pytest.mark.slow
def test_records_with_their_bytes(store: Store, tmp_path: Path) -> None:
    spooled: list[str] = []
    store.on_put = lambda path: spooled.extend([path] if "/scratch/" in path else [])
    write(OUT, range(COUNT))
    assert any(path.endswith("-00000") for path in spooled)
    check(store, from_files(tmp_path / "files", tmp_path / "in"), tmp_path)


def test_what_is_refused(
    store: Store, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = {
        ("mem://box/none", OUT): "--input is 'mem://box/none': there is no such file or folder",
        ("foo://box/in", OUT): "--input is 'foo://box/in'; local paths and gs:// URIs are read",
        (photos, "foo://box"): "--output is 'foo://box'; local folders and gs:// are written",
    }
    for (source, output), message in calls.items():
        assert convert("--input", source, "--output", output) == 2
        assert capfd.readouterr().err == f"recordmill convert: error: {message}\n"


@pytest.mark.slow
def test_a_job_that_is_killed_is_resumed(store: Store, photos: Path, local: Path, tmp_path: Path) -> None:
    finished: set[str] = set()

    def kill_after_two_shards(path: str) -> None:
        finished.update(filter(is_state, [path]))
        if len(finished) == 2:
            os.killpg(job.pid, signal.SIGKILL)

    store.on_put = kill_after_two_shards
    job = subprocess.Popen(convert_call(photos, OUT, *ARGS, "--quiet"), start_new_session=True, cwd=ROOT)
    assert job.wait(120) == -signal.SIGKILL
    assert 2 <= len(finished) < 4
    again: list[str] = []
    store.on_put = again.append
    assert convert("--input", photos, "--output", OUT, *ARGS) == 0
    check(store, local, tmp_path)
    rewritten = set(filter(is_state, again))
    assert not finished & rewritten
    assert len(finished | rewritten) == 4


@pytest.mark.slow
def test_versions(store: Store, photos: Path, local: Path, tmp_path: Path) -> None:
    auto = ("--input", upload(store, photos), "--output", OUT, "--dataset_version=auto", *ARGS)
    assert convert(*auto) == 0
    assert digests(downloaded(store, f"{OUT}/1.0.0", tmp_path)) == digests(local)
    changed = sorted(path for path, _ in store.below("mem://box/in/"))[0]
    store.put(changed, (photos / "square/square_000.jpg").read_bytes())
    assert convert(*auto) == 0
    assert json.loads(store.get(f"{OUT}/latest.json")[0])["version"] == "1.0.1"
    shards = [path for path, _ in store.below(f"{OUT}/1.0.0/") if is_shard(path)]
    pairs = [(store.get(path), store.get(path.replace("/1.0.0/", "/1.0.1/"))) for path in shards]
    # All but one have been copied.
    assert [one[0] == other[0] for one, other in pairs].count(False) == 1
    assert [one[1].modified == other[1].modified for one, other in pairs].count(False) == 1
    assert command("verify", OUT) == 0
    assert convert(*auto) == 0  # nothing has changed
    assert not store.below(f"{OUT}/1.0.2/")
