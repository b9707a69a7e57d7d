"""A cluster of Flink on loopback: a job manager, task managers and a pool of Python workers, each a process.

with Cluster(jar, folder) as cluster:
    convert(..., *cluster.flags())
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
TASK_MANAGERS = 2
PARALLELISM = 4
_START_SECONDS = 60
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

# Small and soon at work; none of what Flink's scripts open on Java 17 (--add-opens) is missed.
_JAVA = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Flink's scripts work these out.
_MEMORY = {
    "taskmanager.cpu.cores": "1",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "taskmanager.network.sort-shuffle.min-buffers": "16",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}


class Cluster:
    """Runs while the block does; all its processes are gone at the end of it.

    Args:
        jar: of the job server, with the classes of Flink.
        folder: for its temporary files and logs.
        python_path: put before this checkout for the Python workers.
    """

    def __init__(self, jar: Path, folder: Path, python_path: str = "") -> None:
        self._jar = jar
        self._folder = folder
        self._rest, self._rpc, self._workers = _free_ports(3)
        self._python_path = python_path
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Cluster":
        try:
            self._start_java("job-manager", _JOB_MANAGER, {})
            self._start_workers()
            for number in range(TASK_MANAGERS):
                self.start_task_manager(number)
            self.wait_for(TASK_MANAGERS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def flags(self) -> list[str]:
        """Those that bring a conversion here, and let it survive a task manager."""
        return [
            "--runner=FlinkRunner",
            f"--flink_master=localhost:{self._rest}",
            f"--flink_job_server_jar={self._jar}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{self._workers}",
            # The workers have Beam: it is not fetched for them.
            "--sdk_location=container",
            f"--parallelism={PARALLELISM}",
            "--environment_cache_millis=600000",
            # The cluster has the classes: none is sent there.
            f"--files_to_stage={self._jar}",
        ]

    def start_task_manager(self, number: int) -> None:
        """One more, or one again."""
        own = {
            # What one loses, the other can take over.
            "taskmanager.numberOfTaskSlots": str(PARALLELISM),
            "taskmanager.host": "localhost",
            "taskmanager.resource-id": f"task-manager-{number}-{time.monotonic_ns()}",
            **_MEMORY,
        }
        self._start_java(f"task-manager-{number}", _TASK_MANAGER, own)

    def kill_task_manager(self, number: int) -> None:
        """As the kernel does it: nothing that it still would do happens. Its Python workers stay."""
        process = self._processes[f"task-manager-{number}"]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def wait_for(self, task_managers: int) -> None:
        """Waits until so many task managers have announced themselves."""
        deadline = time.monotonic() + _START_SECONDS
        while len(self.ask("taskmanagers").get("taskmanagers", ())) != task_managers:
            gone = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not gone, f"{gone}: {self._said(gone[0])}"
            said = self._said("job-manager")
            assert time.monotonic() < deadline, f"no {task_managers} task managers: {said}"
            time.sleep(0.2)

    def ask(self, what: str) -> dict[str, Any]:
        """What the job manager answers; nothing while it does not yet."""
        try:
            with urllib.request.urlopen(f"http://localhost:{self._rest}/{what}", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}

    def attempts(self) -> int:
        """Of all subtasks of all jobs: how often one was begun again."""
        jobs = [self.ask(f"jobs/{job['id']}") for job in self.ask("jobs")["jobs"]]
        tasks = [
            subtask
            for job in jobs
            for vertex in job["vertices"]
            for subtask in self.ask(f"jobs/{job['jid']}/vertices/{vertex['id']}")["subtasks"]
        ]
        return sum(subtask["attempt"] for subtask in tasks)

    def _start_java(self, name: str, main: str, own: dict[str, str]) -> None:
        settings = {
            "rest.address": "localhost",
            "rest.bind-address": "localhost",
            "rest.port": str(self._rest),
            "jobmanager.rpc.address": "localhost",
            "jobmanager.bind-host": "localhost",
            "jobmanager.rpc.port": str(self._rpc),
            "jobmanager.memory.process.size": "700m",
            "blob.server.port": "0",
            "io.tmp.dirs": str(self._folder),
            # Who does not answer twice is gone.
            "heartbeat.interval": "1000",
            "taskmanager.load-balance.mode": "SLOTS",
            # Beam's classes are the cluster's: Python workers outlive the stage that has started them.
            "classloader.resolve-order": "parent-first",
            # Beam's --number_of_execution_retries is heeded for streams only.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "3 s",
            **own,
        }
        conf = self._folder / f"conf-{name}"
        conf.mkdir(exist_ok=True)
        text = "".join(f"{key}: {value}\n" for key, value in settings.items())
        (conf / "flink-conf.yaml").write_text(text)
        call = ["java", *_JAVA, "-cp", str(self._jar), main, "--configDir", str(conf)]
        self._start(name, call, dict(os.environ))

    def _start_workers(self) -> None:
        paths = [self._python_path, str(ROOT)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            # The pool starts its workers as `python`.
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        }
        call = [sys.executable, "-m", "tests.runners.worker_pool", str(self._workers)]
        self._start("workers", call, environment)

    def _start(self, name: str, call: list[str], environment: dict[str, str]) -> None:
        with open(self._folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                call, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()[-2000:]

    def _stop(self) -> None:
        """Kills all, and the workers that the pool has started: they are of its group."""
        for process in self._processes.values():
            kill_group(process)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads a group, and all of that."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that are free, below those that the kernel gives to connections, which might take them."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 1_000):
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("localhost", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports from 20000 to 32000")
