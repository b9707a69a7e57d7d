"""The processes themselves: their sockets, and their limits of processor time."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from recordmill.transforms.records import BadInput
from recordmill.transforms.workers import pool, process
from recordmill.transforms.workers.task import SharedPosition, Task, Worker, no_progress


def test_a_default_time_of_sockets_is_not_that_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's parts for Google Cloud set one; a socket that has one does not block."""
    blocking: list[bool] = []
    popen = subprocess.Popen

    def noting(*args: Any, pass_fds: list[int], **options: Any) -> Any:
        blocking.append(os.get_blocking(pass_fds[0]))
        return popen(*args, pass_fds=pass_fds, **options)

    monkeypatch.setattr(subprocess, "Popen", noting)
    former = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    try:
        worker = process.WorkerProcess.spawn()
    finally:
        socket.setdefaulttimeout(former)
    blocking.append(os.get_blocking(worker.connection.fileno()))
    worker.stop()
    assert blocking == [True, True]


def test_the_limit_of_an_image_ends_with_it() -> None:
    position = SharedPosition(is_limited=True)
    try:
        for after in (position.load, position.leave):
            position.enter(0)
            position.work(8_000_000)
            assert 20 < signal.getitimer(signal.ITIMER_PROF)[0] < 25
            assert position.read().cpu_seconds == 24
            position.measured(999_999)  # as many as any image may have
            assert position.read().cpu_seconds == 24
            position.measured(100_000_000)
            assert position.read().cpu_seconds == 70
            assert 60 < signal.getitimer(signal.ITIMER_PROF)[0] < 71
            after()
            assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    finally:
        position.leave()


@dataclasses.dataclass(frozen=True)
class _Imported(Task[Worker, list[str]]):
    """Which modules its process has imported."""

    names: tuple[str, ...]

    def run(self, worker: Worker) -> list[str]:
        return [name for name in self.names if name in sys.modules]

    def lost(self, error: BadInput) -> list[str]:
        raise AssertionError(error)


def test_the_first_process_also_imports_the_module_of_the_last_task() -> None:
    process.stop_idle()
    process.prestart(2, "colorsys", "sched")
    try:
        task = _Imported(("colorsys", "sched"))
        first = pool.ProcessExecutor(pool.worker_itself, no_progress, 1)
        with first:
            assert first.submit(task).result(timeout=60) == ["colorsys", "sched"]
            with pool.ProcessExecutor(pool.worker_itself, no_progress, 1) as second:
                assert second.submit(task).result(timeout=60) == ["colorsys"]
    finally:
        process.stop_idle()


def test_the_first_process_of_a_pool_is_the_next_one_to_be_used() -> None:
    """It has imported most."""
    workers = pool.ProcessExecutor(pool.worker_itself, no_progress, 2)
    started = [runner.start() for runner in workers._runners]
    workers.close()
    try:
        assert [process.take(), process.take()] == started
    finally:
        for one in started:
            one.stop()
