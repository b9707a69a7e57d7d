"""The second run from a bucket into a bucket: what is asked of the service, and what befalls it there."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from recordmill.transforms.storage import lock
from tests.buckets.calls import Request
from tests.buckets.server import BucketServer, Faults
from tests.pipelines.conversion import convert, digests
from tests.pipelines.versions.edits import put
from tests.pipelines.versions.forked import Forks, forks, kill_group
from tests.pipelines.versions.homes import (
    NEXT,
    Rerun,
    latest,
    taken_over,
    versions,
    work,
)

pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")


class Stored:
    """Photos in a bucket, converted once into a home in it.

    Attributes:
        home: URI of the versions.
        input: URI of the photos.
    """

    def __init__(self, server: BucketServer, bucket: str, rerun: Rerun) -> None:
        self.server = server
        self.rerun = rerun
        self.input, self.home = f"{bucket}/in", f"{bucket}/out"
        for path, data in rerun.edit.before.items():
            server.put(f"{self.input}/{path}", data)
        server.put(f"{bucket}/out-small/1.0.7/manifest.json", b"not ours")
        server.put(f"{bucket}/.recordmill/lock", b"not ours")

    def call(self, *flags: str) -> list[str]:
        given = ["--input", self.input, "--output", self.home, *self.rerun.edit.flags]
        return [*given, "--dataset_version=auto", *flags]

    def convert(self, *flags: str) -> int:
        """Exit status; the requests of this conversion alone are counted."""
        self.server.clear()
        return convert(*self.call(*flags))

    def edit(self) -> None:
        """Puts the second state there: what has not changed is not written again."""
        edit = self.rerun.edit
        for path in edit.edited:
            self.server.put(f"{self.input}/{path}", edit.after[path])
        for path in edit.before.keys() - edit.after.keys():
            self.server.remove(f"{self.input}/{path}")

    @property
    def read(self) -> Counter[str]:
        """How often each object of the input was read since."""
        names = (request.name for request in self.server.requests if request.kind == "get-media")
        return Counter(name.removeprefix("in/") for name in names if name.startswith("in/"))

    def download(self, folder: Path) -> Path:
        """A copy of the home."""
        self.server.download(self.home, folder)
        return folder

    def check(self, folder: Path) -> Path:
        """What is there in the end: what a local run makes, and nothing else."""
        home = self.download(folder)
        assert (latest(home), versions(home)) == (NEXT, ["1.0.0", NEXT])
        self.check_next(home / NEXT)
        assert digests(home / "1.0.0") == digests(self.rerun.first / "1.0.0")
        bucket = self.home.removesuffix("/out")
        assert self.server.get(f"{bucket}/out-small/1.0.7/manifest.json") == b"not ours"
        assert self.server.get(f"{bucket}/.recordmill/lock") == b"not ours"
        return home

    def check_next(self, version: Path) -> None:
        scratch = self.rerun.scratch
        assert digests(version) == digests(scratch)
        for name in ("features.json", "image.class.label.labels.txt", "failures.jsonl"):
            assert (version / name).read_bytes() == (scratch / name).read_bytes()


@pytest.fixture
def stored(bucket: str, bucket_server: BucketServer, some: Rerun) -> Stored:
    found = Stored(bucket_server, bucket, some)
    assert found.convert() == 0
    return found


@pytest.mark.slow
def test_what_is_asked_of_the_service(stored: Stored, tmp_path: Path) -> None:
    assert set(stored.read) == set(stored.rerun.edit.before)
    stored.edit()
    assert stored.convert() == 0
    assert set(stored.read) == set(stored.rerun.edit.edited)
    others = [request for request in stored.server.requests if request.name.startswith("in/")]
    asked = Counter(request.kind for request in others if request.kind not in ("list", "get-media"))
    # Files that other kinds of input would have are asked for once, by the launcher; no image is.
    assert asked.keys() <= {"get-metadata"} and asked.total() <= 10
    images = {f"in/{path}" for path in stored.rerun.edit.after}
    assert not images & {request.name for request in others if request.kind == "get-metadata"}
    home = stored.check(tmp_path)
    assert work(home / NEXT) == (2, 2, 0)
    assert taken_over(home / NEXT)["records"] == 28


@pytest.mark.slow
def test_shards_are_copied_where_they_are(stored: Stored, tmp_path: Path) -> None:
    """One photo changes: three shards of four are copied by the service, and not one of their bytes read."""
    stored.server.put(f"{stored.input}/a/00.jpg", stored.rerun.edit.after["a/00.jpg"])
    assert stored.convert() == 0
    home = stored.download(tmp_path)
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 29, "shards": 3, "reason": ""}
    same = digests(home / "1.0.0").items() & digests(home / NEXT).items()
    taken = {name for name, _ in same if name.endswith(".tfrecord")}
    assert len(taken) == 3
    read = {request.name for request in stored.server.requests if request.kind == "get-media"}
    assert not {f"out/1.0.0/{name}" for name in taken} & read


@pytest.mark.slow
def test_nothing_has_changed(stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> dict[str, str]:
        names = stored.server.names(f"{stored.home}/")
        return {name: stored.server.generation(name) for name in names if not name.endswith("/lock")}

    before = state()
    assert stored.convert() == 0
    assert not stored.read
    assert state() == before
    assert "Nothing has changed since version 1.0.0" in capsys.readouterr().out


@pytest.mark.slow
def test_the_same_bytes_uploaded_again_are_not_read(stored: Stored) -> None:
    """As copies of every night do: all generations are others."""
    for path, data in stored.rerun.edit.before.items():
        stored.server.put(f"{stored.input}/{path}", data)
    assert stored.convert() == 0
    assert not stored.read
    assert f"{stored.home}/{NEXT}/manifest.json" not in stored.server.names(stored.home)


@pytest.mark.slow
def test_other_bytes_of_the_same_size_are(stored: Stored) -> None:
    path = "a/00.jpg"
    data = bytearray(stored.rerun.edit.before[path])
    data[-3] ^= 1
    stored.server.put(f"{stored.input}/{path}", bytes(data))
    assert stored.convert("--max_failure_ratio=0.5") == 0
    assert set(stored.read) == {path}


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_faults_of_the_service_leave_no_trace(seed: int, stored: Stored, tmp_path: Path) -> None:
    stored.edit()
    stored.server.faults = Faults(0.08, seed=seed, slow_seconds=0.3)
    assert stored.convert("--keep_versions=5") == 0
    injected = stored.server.faults.injected
    stored.server.faults = None
    assert injected.total() >= 5
    assert set(stored.read) == set(stored.rerun.edit.edited)
    stored.check(tmp_path)


@pytest.mark.slow
def test_from_a_disk_into_a_bucket_and_back(
    bucket: str, bucket_server: BucketServer, some: Rerun, tmp_path: Path
) -> None:
    put(some.input, some.edit.before)
    assert some.convert(f"{bucket}/up/out") == 0
    some.edited()
    assert some.convert(f"{bucket}/up/out") == 0
    bucket_server.download(f"{bucket}/up/out", tmp_path / "up")
    assert digests(tmp_path / "up" / NEXT) == digests(some.scratch)
    assert work(tmp_path / "up" / NEXT) == (2, 2, 0)
    stored = Stored(bucket_server, bucket, some)
    stored.home = str(tmp_path / "down/out")
    assert stored.convert() == 0
    stored.edit()
    assert stored.convert() == 0
    assert set(stored.read) == set(some.edit.edited)
    assert digests(tmp_path / "down/out" / NEXT) == digests(some.scratch)


@pytest.mark.slow
def test_old_versions_leave(stored: Stored, tmp_path: Path) -> None:
    stored.edit()
    assert stored.convert("--keep_versions=1") == 0
    home = stored.download(tmp_path)
    assert (latest(home), versions(home)) == (NEXT, [NEXT])
    stored.check_next(home / NEXT)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("forks")) as started:
        yield started


EVERY = bool(os.environ.get("RECORDMILL_EVERY_KILL"))
# A process that is killed has just started its writers: one is enough.
ONE = "--direct_num_workers=1"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_each_request(
    when: str, stored: Stored, forked: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around each request that changes something; at all of them with RECORDMILL_EVERY_KILL set."""
    server = stored.server
    environment = {"STORAGE_EMULATOR_HOST": server.host}
    first = {name: server.get(name) for name in server.names(stored.home)}
    stored.edit()
    server.clear()
    flags = ["--keep_versions=1"]
    assert stored.convert(*flags, ONE) == 0
    last = server.mutations
    assert last > 20
    for at in range(1, last + 1, 1 if EVERY else 11):
        restore(server, stored.home, first)
        server.clear()
        kill(server, at, when, forked, stored.call(*flags, ONE), environment)
        check_readers(stored, tmp_path / f"{at}-killed")
        # The lock of a dead process of this machine is known to be one.
        assert stored.convert(*flags) == 0, (when, at)
        home = stored.download(tmp_path / str(at))
        assert (latest(home), versions(home)) == (NEXT, [NEXT]), (when, at)
        stored.check_next(home / NEXT)


def restore(server: BucketServer, home: str, contents: Mapping[str, bytes]) -> None:
    for name in server.names(home + "/"):
        if name not in contents:
            server.remove(name)
    for name, data in contents.items():
        server.put(name, data)


def kill(
    server: BucketServer, at: int, when: str, forked: Forks, call: list[str], environment: Mapping[str, str]
) -> None:
    """Runs a conversion that is killed around its n-th request that changes something."""
    group = 0

    def look(number: int, _: Request, moment: str) -> None:
        if number >= at and moment == when and group:
            kill_group(group)

    server.on_mutation(look)
    group = forked.start(call, environment)
    assert forked.wait() == -9
    server.on_mutation(None)
    settle(server)


def settle(server: BucketServer, seconds: float = 0.5) -> None:
    """Waits for what a dead process has sent: it is carried out all the same."""
    while True:
        before = len(server.requests)
        time.sleep(seconds)
        if len(server.requests) == before:
            return


def check_readers(stored: Stored, folder: Path) -> None:
    """latest.json names a whole version at any moment; what has a manifest is whole."""
    home = stored.download(folder)
    whole = [path.name for path in home.iterdir() if (path / "manifest.json").exists()]
    assert latest(home) in whole
    for name in whole:
        if name == "1.0.0":
            assert digests(home / name) == digests(stored.rerun.first / name)
        else:
            stored.check_next(home / name)


@pytest.fixture(autouse=True)
def _no_lock_is_left() -> Iterator[None]:
    yield
    lock.release_all()
