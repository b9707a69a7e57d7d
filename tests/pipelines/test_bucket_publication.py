"""Jobs on a bucket that are killed at a request that changes something: readers see nothing of it.

At every single one with RECORDMILL_EVERY_KILL set; else at one in nine.
"""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import gcs_client, lock
from tests.buckets.calls import Request
from tests.buckets.server import BucketServer, Drop
from tests.conftest import Figure
from tests.pipelines.faulty import Job, Killed, content_digest, contents

# Number of shards of the dataset that is there, none for no dataset; and of the one that the job writes.
SCENES = {"first": (0, 2), "more": (1, 3), "fewer": (3, 1), "equal": (2, 2)}
STEP = 1 if os.environ.get("RECORDMILL_EVERY_KILL") else 9


@pytest.fixture(autouse=True)
def _the_dead_are_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lock.release_all()
    monkeypatch.setattr(lock._LockObject, "dead_seconds", -1.0)


class Process:
    """Counts the requests of this process that change something; dies at the one of number `at`, from 0.

    Args:
        at: number of the request; -1 for none.
        after: it is carried out, and the process dies before it knows.
    """

    def __init__(self, at: int = -1, after: bool = False) -> None:
        self.requests = 0
        self._at = at
        self._after = after
        self._dead = False
        self._lock = threading.Lock()

    def run(self, job: Job) -> None:
        """Runs a job in it."""
        send = HTTPAdapter.send

        def sent(adapter: HTTPAdapter, request: Any, *args: Any, **options: Any) -> Any:
            with self._lock:
                last = request.method != "GET" and self.requests == self._at
                self.requests += request.method != "GET"
                if self._dead or (last and not self._after):
                    self._dead = True
                    raise Killed
                self._dead = last
            answer = send(adapter, request, *args, **options)
            if self._dead:
                raise Killed
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HTTPAdapter, "send", sent)
            try:
                job()
            finally:
                # What it has sent is carried out all the same; its threads send nothing more.
                gcs_client.pool().shutdown(cancel_futures=True)
                gcs_client.pool.cache_clear()


class Scene:
    """An output in a bucket, what is beside it, and what it has to be in the end."""

    def __init__(self, folder: Path, server: BucketServer, bucket: str, before: int, after: int) -> None:
        self.output = f"{bucket}/out"
        self._server = server
        self._after = after
        self._overwrite = before > 0
        self._pixels = folder / "pixels"
        self._pixels.write_bytes(bytes(range(12 * 5)))  # of the last image there is nothing
        # What a local run makes.
        Job(folder / "new", after, self._pixels)()
        self.expected = contents(folder / "new")
        self.old: dict[str, str] = {}
        self._template: dict[str, bytes] = {}
        if before:
            (folder / "older").write_bytes(bytes(range(100, 100 + 12 * 5)))
            Job(folder / "old", before, folder / "older")()
            self.old = contents(folder / "old")
            self._template = {name: (folder / "old" / name).read_bytes() for name in self.old}
            for name in ("notes.txt", "index/notes.txt", "train-00000-of-00009.tfrecord"):
                self._template[name] = b"not ours"
        self._template["../out-small/train-00000-of-00001.tfrecord"] = b"not ours"
        self.foreign = {
            name: content_digest(name, data) for name, data in self._template.items() if name not in self.old
        }

    def reset(self) -> None:
        """The bucket as it was."""
        for name in self._server.names(self.output.rpartition("/")[0]):
            self._server.remove(name)
        for name, data in self._template.items():
            self._server.put(self._uri(name), data)

    def job(self) -> Job:
        """The same call, made again."""
        return Job(self.output, self._after, self._pixels, self._overwrite)

    def contents(self) -> dict[str, str]:
        """Digests of all objects in the bucket, by name below the output."""
        below = f"{self.output}/"
        found = {}
        for uri in self._server.names(self.output.rpartition("/")[0]):
            name = uri.removeprefix(below) if uri.startswith(below) else uri.replace("gs://pictures/", "../")
            found[name] = content_digest(name, self._server.get(uri))
        return found

    def is_cut_off(self, at: int, after: bool) -> bool:
        """Runs a job in a process that dies; returns whether it did."""
        try:
            Process(at, after).run(self.job())
        except Killed:
            for held in lock._held.values():
                held.close()
            lock._forget()
            return True
        return False

    def check_in_between(self) -> bool:
        """The old dataset is whole, or none is there, or the new one is; returns whether it is the new."""
        found = self.contents()
        assert {name: found.get(name) for name in self.foreign} == self.foreign
        if "manifest.json" not in found:
            described = found.get("dataset_info.json")
            assert described is None or self._is_whole(found)
            return False
        visible = {name: sha for name, sha in found.items() if not name.startswith(".recordmill/")}
        assert visible in ({**self.old, **self.foreign}, {**self.expected, **self.foreign})
        return found["manifest.json"] == self.expected["manifest.json"]

    def check_again(self) -> None:
        """The same call goes to its end, writes no finished shard again, and leaves nothing else."""
        published = self.check_in_between()
        job = self.job()
        finished = sum(name.endswith(".state") for name in self.contents())
        if published and not self._overwrite:
            with pytest.raises(JobError, match="holds a dataset already"):
                job()
            return
        job()
        assert published or job.written == self._after - finished
        assert self.contents() == {**self.expected, **self.foreign}

    def _is_whole(self, found: dict[str, str]) -> bool:
        """TFDS does without a manifest: a dataset that its file describes is whole."""
        return any(
            all(found.get(name) == sha for name, sha in dataset.items() if name != "manifest.json")
            for dataset in (self.old, self.expected)
            if dataset
        )

    def _uri(self, name: str) -> str:
        parent = self.output.rpartition("/")[0]
        return f"{parent}/{name[3:]}" if name.startswith("../") else f"{self.output}/{name}"


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_every_request(
    name: str, after: bool, tmp_path: Path, bucket: str, bucket_server: BucketServer, figure: Figure
) -> None:
    scene = Scene(tmp_path, bucket_server, bucket, *SCENES[name])
    scene.reset()
    process = Process()
    process.run(scene.job())
    assert scene.contents() == {**scene.expected, **scene.foreign}
    requests = range(list(SCENES).index(name) % STEP, process.requests, STEP)
    figure("kills", len(requests))
    for at in requests:
        scene.reset()
        scene.is_cut_off(at, after)
        scene.check_again()
    assert process.requests > 20


@pytest.mark.slow
def test_killed_again_at_every_request(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    """A publication is cut off while shards are moved, and then the job that settles it."""
    scene = Scene(tmp_path, bucket_server, bucket, *SCENES["equal"])

    def is_moving() -> bool:
        found = scene.contents()
        return "manifest.json" not in found and any("/shards/" in name for name in found)

    at = cut_off = 0
    while True:
        scene.reset()
        if not scene.is_cut_off(at, after=True):
            break
        at += 1
        if not (is_moving() and "dataset_info.json" not in scene.contents()):
            continue
        again = 0
        while scene.is_cut_off(again, after=True):
            scene.check_again()
            scene.reset()
            assert scene.is_cut_off(at - 1, after=True)
            again += 3 * STEP + 1
            cut_off += 1
    assert cut_off > 3


@pytest.mark.slow
def test_each_step_may_be_repeated(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    for name in SCENES:
        folder = tmp_path / name
        folder.mkdir()
        scene = Scene(folder, bucket_server, bucket, *SCENES[name])
        scene.reset()
        scene.job()(times=2)
        assert scene.contents() == {**scene.expected, **scene.foreign}


def test_a_job_that_was_taken_for_dead_takes_its_manifest_back(
    tmp_path: Path, bucket: str, bucket_server: BucketServer
) -> None:
    """Another job has come and gone between the last look at the lock and manifest.json."""
    scene = Scene(tmp_path, bucket_server, bucket, *SCENES["first"])
    scene.reset()

    def take_over(_: int, request: Request, when: str) -> None:
        if request.name == "out/manifest.json" and request.kind == "insert" and when == "before":
            bucket_server.remove(f"{scene.output}/.recordmill/lock")

    bucket_server.on_mutation(take_over)
    with pytest.raises(JobError, match="another job has published meanwhile; this one publishes nothing"):
        scene.job()()
    bucket_server.on_mutation(None)
    assert "manifest.json" not in scene.contents()
    scene.job()()
    assert scene.contents() == {**scene.expected, **scene.foreign}


class LostAnswers:
    """Carries out every request that changes something, and does not answer it the first time."""

    def __init__(self) -> None:
        self.lost: set[tuple[str, str]] = set()

    def __call__(self, _: int, request: Request, when: str) -> None:
        asked = (request.kind, request.name)
        if when == "after" and asked not in self.lost:
            self.lost.add(asked)
            raise Drop


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_every_answer_may_be_lost(
    name: str, tmp_path: Path, bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_client, "_FIRST_WAIT_SECONDS", 0.01)
    gcs_client._retry.cache_clear()
    scene = Scene(tmp_path, bucket_server, bucket, *SCENES[name])
    scene.reset()
    lost = LostAnswers()
    bucket_server.on_mutation(lost)
    scene.job()()
    bucket_server.on_mutation(None)
    assert scene.contents() == {**scene.expected, **scene.foreign}
    assert {kind for kind, _ in lost.lost} == {"insert", "rewrite", "delete"}
    # Those of a job that settles a publication that was cut off, too.
    process = Process()
    scene.reset()
    process.run(scene.job())
    for at in range(process.requests // 2, process.requests, 4):
        scene.reset()
        if not scene.is_cut_off(at, after=True) or scene.check_in_between():
            continue
        bucket_server.on_mutation(LostAnswers())
        scene.job()()
        bucket_server.on_mutation(None)
        assert scene.contents() == {**scene.expected, **scene.foreign}
    gcs_client._retry.cache_clear()


def test_moves_are_made_side_by_side(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `MoveFiles` makes them: no rewrite waits for another."""
    from recordmill.transforms.publish import MoveFiles
    from recordmill.transforms.storage.publication import Move

    for number in range(4):
        bucket_server.put(f"{bucket}/from/{number}", b"%d" % number)
    together = threading.Barrier(4, timeout=20)

    def wait(_: int, request: Request, when: str) -> None:
        if request.kind == "rewrite" and when == "before":
            together.wait()

    bucket_server.on_mutation(wait)
    mover = MoveFiles()
    mover.start_bundle()
    for number in range(4):
        mover.process(Move(f"{bucket}/from/{number}", f"{bucket}/to/{number}", None))
    mover.finish_bundle()
    assert bucket_server.names(bucket) == [f"{bucket}/to/{number}" for number in range(4)]
