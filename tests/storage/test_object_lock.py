"""The lock of an output in a bucket."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from recordmill.transforms.records import JobError
from recordmill.transforms.storage import lock
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.owner import Owner
from tests.buckets.server import BucketServer

ELSEWHERE = Owner("other", "far.example", 7, "2026-01-01T00:00:00+00:00", "convert x", "another boot", 5.0)


@pytest.fixture
def output(bucket: str) -> str:
    return f"{bucket}/out"


@pytest.fixture(autouse=True)
def none_held() -> None:
    lock.release_all()


def written(output: str) -> Owner | None:
    return lock._owner(output)


def write(output: str, text: bytes) -> None:
    file_system(output).write(f"{output}/.recordmill/lock", [text])


def put(output: str, owner: Owner) -> None:
    write(output, owner.to_json())


def test_it_is_taken_shown_and_given_back(output: str, bucket_server: BucketServer) -> None:
    lock.acquire(output, "mine", "convert photos")
    found = json.loads(bucket_server.get(f"{output}/.recordmill/lock"))
    assert (found["token"], found["pid"], found["command"]) == ("mine", os.getpid(), "convert photos")
    lock.check(output, "mine")
    lock.acquire(output, "mine", "convert photos")  # a step that is repeated
    assert lock.holder(output) is None  # by another process
    with pytest.raises(JobError, match="another job has taken over: process"):
        lock.check(output, "other")
    lock.release(output, "other")
    assert written(output) is not None
    lock.release(output, "mine")
    assert bucket_server.names(output) == []
    with pytest.raises(JobError, match="whose lock is gone"):
        lock.check(output, "mine")


def test_a_job_at_work_elsewhere_is_named(output: str) -> None:
    put(output, ELSEWHERE)
    said = "another job is at work: process 7 on far.example, since 2026-01-01T00:00:00"
    with pytest.raises(JobError, match=said):
        lock.acquire(output, "mine")
    assert said in (lock.holder(output) or "")
    assert written(output) == ELSEWHERE


def test_a_job_of_this_process_gives_way_to_the_next(output: str) -> None:
    lock.acquire(output, "failed")
    lock.acquire(output, "next")
    lock.check(output, "next")
    lock.release(output, "next")


def test_one_that_shows_no_sign_of_life_is_dead(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(output, ELSEWHERE)
    monkeypatch.setattr(lock._LockObject, "dead_seconds", 0.2)
    time.sleep(0.3)
    assert lock.holder(output) is None
    lock.acquire(output, "mine")
    owner = written(output)
    assert owner is not None
    assert owner.token == "mine"
    lock.release(output, "mine")


def test_signs_of_life_are_given_and_end_with_the_lock(
    output: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock._LockObject, "renew_seconds", 0.02)
    lock.acquire(output, "mine")
    uri = f"{output}/.recordmill/lock"
    first = bucket_server.generation(uri)
    deadline = time.monotonic() + 20
    while bucket_server.generation(uri) == first:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # Whoever takes it over is not written over.
    put(output, ELSEWHERE)
    time.sleep(0.2)
    assert written(output) == ELSEWHERE
    lock.release(output, "mine")
    assert written(output) == ELSEWHERE


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="which boot it is, only Linux tells")
def test_a_process_of_this_machine_that_was_killed_is_dead_at_once(output: str) -> None:
    program = (
        "import os, sys; from recordmill.transforms.storage import lock\n"
        "lock.acquire(sys.argv[1], 'theirs'); print('taken', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, output]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        with pytest.raises(JobError, match=f"process {process.pid} on"):
            lock.acquire(output, "mine")
        process.kill()
    lock.acquire(output, "mine")
    lock.release(output, "mine")


def test_a_number_that_was_given_to_another_process_is_not_it() -> None:
    here = Owner.here("token", "")
    assert not here.is_gone()
    assert msgspec.structs.replace(here, process_start=here.process_start - 5).is_gone() == bool(
        here.pid_namespace
    )
    assert not msgspec.structs.replace(here, pid_namespace="", process_start=0.0).is_gone()
    assert not ELSEWHERE.is_gone()


def test_other_versions_write_and_read_the_same_fields(output: str) -> None:
    fields = {"token": "theirs", "host": "far.example", "pid": 7, "started": "2026-01-01T00:00:00+00:00"}
    fields |= {"command": "convert x", "place": "another boot", "born": 5.0}
    write(output, json.dumps({**fields, "of_a_later_version": 1}).encode())
    assert written(output) == msgspec.structs.replace(ELSEWHERE, token="theirs")
    assert json.loads(msgspec.structs.replace(ELSEWHERE, token="theirs").to_json()) == fields


def test_two_processes_of_one_job_renew_it_in_turn(output: str) -> None:
    first, second = lock._lock_of(output), lock._lock_of(output)
    for process in (first, second):
        process.acquire(output, ELSEWHERE, ())
    assert first.renew()  # learns that the other has just written it
    assert first.renew()
    assert second.renew()
    put(output, msgspec.structs.replace(ELSEWHERE, token="theirs"))
    assert not first.renew()
    for process in (first, second):
        process.close(remove=True)
    assert written(output) == msgspec.structs.replace(ELSEWHERE, token="theirs")


@pytest.mark.parametrize("content", [b"", b"{", b'{"token": "a"}'])
def test_a_lock_whose_owner_cannot_be_read_is_respected_for_a_while(
    content: bytes, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(output, content)
    assert lock.is_lock_file(f"{output}/.recordmill/lock")
    with pytest.raises(JobError, match="another job has just started"):
        lock.acquire(output, "mine")
    monkeypatch.setattr(lock._LockObject, "dead_seconds", -1.0)
    assert lock.holder(output) is None
    lock.acquire(output, "mine")
    lock.release(output, "mine")


def test_one_of_many_gets_it(output: str) -> None:
    def take(number: int) -> bool:
        try:
            owner = msgspec.structs.replace(ELSEWHERE, token=str(number))
            lock._lock_of(output).acquire(output, owner, {owner.token})
        except JobError:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(take, range(6))) == 1


@pytest.mark.slow
def test_release_all_does_not_wait_for_a_service_that_is_gone(
    output: str, bucket_server: BucketServer
) -> None:
    lock.acquire(output, "mine")
    bucket_server.on_mutation(lambda *_: time.sleep(30))
    began = time.monotonic()
    lock.release_all()
    assert time.monotonic() - began < 15  # of the 90 that a request is tried for
    bucket_server.on_mutation(None)


def test_an_object_that_no_job_wrote_is_somebodys(output: str) -> None:
    write(output, b"not ours")
    with pytest.raises(JobError, match="not a lock that recordmill wrote; move it away"):
        lock.acquire(output, "mine")
