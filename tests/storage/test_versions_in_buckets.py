"""Versions of a dataset in a bucket: moved object by object, seen by latest.json, killed at any request."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import gcs, lock
from recordmill.transforms.storage.gcs_client import called
from recordmill.transforms.storage.output import check_output
from recordmill.transforms.storage.publication import Move, Publication, move_file, write_metadata_files
from recordmill.transforms.storage.runs import mark_run, marked_run_folders, remove_staging
from recordmill.transforms.storage.versions import (
    check_home,
    latest_version,
    publish_version,
    published_versions,
    recover_versions,
    remove_old_versions,
    version_to_write,
)
from tests.buckets.server import BucketServer, Faults
from tests.storage.versioned import FILES, KEPT, Killed, convert, locked, publish, run_of, whole, work

EXPOSING = ".recordmill/exposing.json"


@pytest.fixture(autouse=True)
def none_held() -> None:
    lock.release_all()


@pytest.fixture
def home(bucket: str, bucket_server: BucketServer) -> str:
    """A folder with three versions."""
    return with_versions(f"{bucket}/birds", bucket_server, "1.0.0", "1.0.9", "1.0.10")


def with_versions(home: str, server: BucketServer, *versions: str) -> str:
    for version in versions:
        for name, text in whole(version).items():
            server.put(f"{home}/{version}/{name}", text.encode())
    latest = {"format_version": 1, "version": versions[-1]}
    server.put(f"{home}/latest.json", json.dumps(latest).encode())
    return home


def contents(server: BucketServer, folder: str) -> dict[str, str]:
    """Text of each object below a folder, by name."""
    return {uri.removeprefix(f"{folder}/"): server.get(uri).decode() for uri in server.names(f"{folder}/")}


def latest_seen(server: BucketServer, home: str) -> str:
    return str(json.loads(server.get(f"{home}/latest.json"))["version"])


def check_readers(server: BucketServer, home: str) -> None:
    """What latest.json names is whole, and so is all that has a manifest."""
    found = contents(server, home)
    wholes = {name.removesuffix("/manifest.json") for name in found if name.count("/") == 1}
    wholes = {name for name in wholes if f"{name}/manifest.json" in found}
    assert latest_seen(server, home) in wholes
    for version in wholes:
        below = {name: text for name, text in found.items() if name.startswith(f"{version}/")}
        assert below == {f"{version}/{name}": text for name, text in whole(version).items()}


def test_versions_are_found(home: str) -> None:
    check_home(home)
    assert list(map(str, published_versions(home))) == ["1.0.0", "1.0.9", "1.0.10"]
    assert str(latest_version(home)) == "1.0.10"
    assert str(version_to_write(home, "auto")) == "1.0.11"
    with pytest.raises(ValueError, match=r"has 1\.0\.10 already"):
        version_to_write(home, "1.0.10")


def test_homes_that_take_none(bucket: str, bucket_server: BucketServer) -> None:
    check_home(f"{bucket}/new")
    check_home(bucket)
    bucket_server.put(f"{bucket}/dataset/manifest.json", b"{}")
    with pytest.raises(ValueError, match="holds a dataset without versions"):
        check_home(f"{bucket}/dataset")
    bucket_server.put(f"{bucket}/photos/a.jpg", b"")
    with pytest.raises(ValueError, match=r"not empty and has no versions \('a\.jpg'\)"):
        check_home(f"{bucket}/photos")
    bucket_server.put(f"{bucket}/damaged/latest.json", b"")
    with pytest.raises(ValueError, match=r"damaged/latest\.json' names no version"):
        check_home(f"{bucket}/damaged")
    with pytest.raises(ValueError, match="there is no bucket 'nowhere'"):
        check_home("gs://nowhere/out")


def test_each_file_is_copied_once_and_latest_json_written_last(
    home: str, bucket_server: BucketServer
) -> None:
    run = run_of(home, "1.0.11")
    with locked(home, run.token):
        seen: list[tuple[str, str]] = []

        def note(number: int, request: Any, when: str) -> None:
            if when == "after" and request.kind != "delete":
                seen.append((request.kind, request.name.removeprefix("birds/")))

        bucket_server.on_mutation(note)
        convert(run)
        publish_version(run)
        bucket_server.on_mutation(None)
    copied = [name for kind, name in seen if kind == "rewrite"]
    assert sorted(copied) == [f"1.0.11/{name}" for name in FILES[1:]]
    made = [name for _, name in seen if name.startswith("1.0.11/") or name in ("latest.json", EXPOSING)]
    assert made[len(copied) :] == [
        "1.0.11/dataset_info.json",
        EXPOSING,
        "1.0.11/manifest.json",
        "latest.json",
    ]
    assert latest_seen(bucket_server, home) == "1.0.11"
    assert bucket_server.names(f"{home}/.recordmill") == []
    check_readers(bucket_server, home)
    publish_version(run)  # a step that is repeated
    check_readers(bucket_server, home)


def test_nothing_is_published_without_the_lock(home: str, bucket_server: BucketServer) -> None:
    run = run_of(home, "1.0.11")
    with locked(home, "another's"), pytest.raises(JobError, match="another job has published meanwhile"):
        convert(run)
    assert latest_seen(bucket_server, home) == "1.0.10"
    assert list(map(str, published_versions(home))) == ["1.0.0", "1.0.9", "1.0.10"]
    with locked(home, run.token):
        recover_versions(home, "1.0.12")
    assert bucket_server.names(f"{home}/1.0.11") == []
    assert bucket_server.names(f"{home}/.recordmill") == []


def test_nothing_in_the_way_is_replaced(home: str, bucket_server: BucketServer) -> None:
    run = run_of(home, "1.0.11")
    bucket_server.put(f"{home}/1.0.11/train-00000-of-00001.tfrecord", b"mine")
    with pytest.raises(ValueError, match=r"not empty \('train-.*move that away, or give a higher"):
        check_output(run.output, work=run.work)
    with locked(home, run.token):
        with pytest.raises(JobError, match="no dataset's has the name 'train-00000-of-00001.tfrecord'"):
            convert(run)
        recover_versions(home, "1.0.12")
        assert contents(bucket_server, f"{home}/1.0.11") == {"train-00000-of-00001.tfrecord": "mine"}
        bucket_server.remove(f"{home}/1.0.11/train-00000-of-00001.tfrecord")
        work(run)
    assert latest_seen(bucket_server, home) == "1.0.11"
    check_readers(bucket_server, home)


def test_the_oldest_are_removed(home: str, bucket_server: BucketServer) -> None:
    bucket_server.put(f"{home}/1.0.0/notes.txt", b"notes")
    with locked(home):
        assert list(map(str, remove_old_versions(home, 1))) == ["1.0.0", "1.0.9"]
    assert contents(bucket_server, f"{home}/1.0.0") == {"notes.txt": "notes"}
    assert bucket_server.names(f"{home}/1.0.9") == []
    assert bucket_server.names(f"{home}/.recordmill") == []
    check_readers(bucket_server, home)


def test_a_removal_goes_on_with_what_makes_it_whole(home: str, bucket_server: BucketServer) -> None:
    manifest = whole("1.0.0")["manifest.json"].encode()
    bucket_server.put(f"{home}/.recordmill/removing-1.0.0.json", manifest)
    removed: list[str] = []

    def note(number: int, request: Any, when: str) -> None:
        if when == "after":
            removed.append(request.name.removeprefix("birds/"))

    bucket_server.on_mutation(note)
    recover_versions(home, "1.0.11")
    bucket_server.on_mutation(None)
    assert removed[:2] == ["1.0.0/manifest.json", "1.0.0/dataset_info.json"]
    assert removed[-1] == ".recordmill/removing-1.0.0.json"
    assert bucket_server.names(f"{home}/1.0.0/") == []
    check_readers(bucket_server, home)


def test_a_removal_that_had_only_begun_is_called_off_by_latest_json(
    home: str, bucket_server: BucketServer
) -> None:
    manifest = whole("1.0.0")["manifest.json"].encode()
    bucket_server.put(f"{home}/.recordmill/removing-1.0.0.json", manifest)
    bucket_server.put(f"{home}/latest.json", b'{"format_version": 1, "version": "1.0.0"}')
    recover_versions(home, "1.0.11")
    assert bucket_server.names(f"{home}/.recordmill") == []
    check_readers(bucket_server, home)
    assert contents(bucket_server, f"{home}/1.0.0") == whole("1.0.0")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_faults_of_the_service(
    bucket: str, bucket_server: BucketServer, waits: list[float], seed: int
) -> None:
    home = with_versions(f"{bucket}/birds", bucket_server, "1.0.0", "1.0.1")
    bucket_server.faults = Faults(0.2, seed, [503, 429, 408, "reset", "reset-after", "truncated"])
    publish(home, "1.0.2", keep=2)
    injected = bucket_server.faults.injected.total()
    bucket_server.faults = None
    assert injected > 5
    assert latest_seen(bucket_server, home) == "1.0.2"
    assert list(map(str, published_versions(home))) == ["1.0.1", "1.0.2"]
    check_readers(bucket_server, home)
    assert bucket_server.names(f"{home}/1.0.0") == []


class Stop:
    """Kills a process before one of its requests, and in it all that comes after."""

    def __init__(self, before: int) -> None:
        self.requests = itertools.count(1)
        self._before = before

    def __call__(self, uri: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if next(self.requests) >= self._before:
            raise Killed
        return called(uri, function, *args, **options)


def one_by_one(_: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Makes calls in order: no thread outlives the process that was killed."""
    return [function(item) for item in items]


def killed_job(home: str, token: str, before: int) -> bool:
    """Whether the job was killed before it was done."""
    run = run_of(home, "1.0.2", token)
    lock.acquire(home, token)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gcs.GcsFileSystem, "each", one_by_one)
        patched.setattr(gcs, "called", Stop(before))
        try:
            work(run)
        except Killed:
            return True
    return False


@pytest.mark.parametrize(
    ("again", "step"),
    [("same", 1), ("auto", 1)],
)
@pytest.mark.slow
def test_a_job_killed_at_any_request(bucket: str, bucket_server: BucketServer, again: str, step: int) -> None:
    """The next job, which is killed too, and one more leave all as it would have been."""
    for before in itertools.count(4, step):
        home = with_versions(f"{bucket}/{before}", bucket_server, "1.0.0", "1.0.1")
        if not killed_job(home, "killed", before):
            break
        check_readers(bucket_server, home)
        killed_job(home, "second", before * 7 % 50)
        check_readers(bucket_server, home)
        check_home(home)
        version = "1.0.2" if again == "same" else str(version_to_write(home, again))
        publish(home, version, KEPT)
        assert latest_seen(bucket_server, home) == version
        assert len(published_versions(home)) == KEPT
        kept = {f"{found}/{name}" for found in published_versions(home) for name in whole(str(found))}
        assert contents(bucket_server, home).keys() == {"latest.json", *kept}
        check_readers(bucket_server, home)
    assert before > 45


def test_a_job_that_was_suspended_replaces_no_file_of_a_published_version(
    home: str, bucket_server: BucketServer
) -> None:
    previous, published = f"{home}/1.0.9/{FILES[2]}", f"{home}/1.0.10/{FILES[2]}"
    text = bucket_server.get(published)
    with pytest.raises(JobError, match="is another job's, published meanwhile"):
        move_file(Move(previous, published, None, stays=True))
    assert bucket_server.get(published) == text
    run = run_of(home, "1.0.10")
    publication = Publication({}, (FILES[0], "manifest.json"), None)
    with pytest.raises(JobError, match="dataset_info.json is another job's, published meanwhile"):
        write_metadata_files(run, {FILES[0]: "another"}, publication)
    assert contents(bucket_server, f"{home}/1.0.10") == whole("1.0.10")
    run = run_of(home, "1.0.11")
    for text in ("an interrupted try's", "mine"):
        write_metadata_files(run, {FILES[0]: text}, publication)
    assert bucket_server.get(f"{home}/1.0.11/{FILES[0]}") == b"mine"
    for _ in range(2):  # the step may be repeated
        move_file(Move(previous, f"{home}/1.0.11/{FILES[2]}", None, stays=True))
    assert bucket_server.get(f"{home}/1.0.11/{FILES[2]}") == bucket_server.get(previous)


def test_what_others_put_into_a_staging_folder_stays(home: str, bucket_server: BucketServer) -> None:
    note = f"{home}/.recordmill/1.0.11/notes.txt"
    bucket_server.put(note, b"mine")
    run = run_of(home, "1.0.11")
    with locked(home):
        mark_run(run, "1.0")
        remove_staging(run.work)  # as of an unchanged version
        assert not marked_run_folders(run.work)
        mark_run(run, "1.0")
        recover_versions(home, "1.0.12")
        assert not marked_run_folders(run.work)
    assert bucket_server.names(f"{home}/.recordmill") == [note]
