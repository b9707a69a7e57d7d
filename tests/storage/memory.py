"""A file system in memory, for paths `mem://…`: a store in the process of a test, which all processes reach.

It is what CONTRIBUTING.md asks of another file system: a class, and an entry in `FILE_SYSTEMS`.
"""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from recordmill.transforms.storage.file_system import (
    ChangedError,
    Entry,
    FileSystem,
    Reader,
    Status,
    version_of_bytes,
)
from recordmill.transforms.storage.zip_member import check_size

ADDRESS = "RECORDMILL_TEST_MEMORY"


class Store:
    """The files, by their path, and a server of its methods on loopback; each call is atomic."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, Status]] = {}
        self.on_put: Callable[[str], None] = lambda path: None
        self._lock = threading.RLock()
        self._is_open = True
        self._listener = Listener(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        """The value of the environment variable `ADDRESS`."""
        return str(self._listener.address[1])

    def close(self) -> None:
        """Takes no more connections."""
        self._is_open = False
        Client(self._listener.address).close()
        self._listener.close()

    def get(self, path: str) -> tuple[bytes, Status]:
        """Contents and status of a file."""
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.files[path]

    def find(self, path: str) -> Status | None:
        """The status of a file."""
        return self.get(path)[1] if path in self.files else None

    def below(self, prefix: str) -> list[tuple[str, Status]]:
        """Files whose paths begin so."""
        return [(path, found) for path, (_, found) in sorted(self.files.items()) if path.startswith(prefix)]

    def put(self, path: str, data: bytes, if_generation: int | None = None, modified: int = 0) -> Status:
        """Writes a file."""
        self._check(path, if_generation)
        now = time.time_ns()
        self.files[path] = data, Status(len(data), version_of_bytes(data), now, modified or now)
        self.on_put(path)
        return self.files[path][1]

    def delete(self, path: str, if_generation: int | None = None) -> None:
        """Removes a file."""
        self._check(path, if_generation)
        self.get(path)
        del self.files[path]

    def _check(self, path: str, generation: int | None) -> None:
        found = self.find(path)
        if generation is not None and generation != (found.generation if found is not None else 0):
            raise ChangedError(errno.EEXIST, "it is of another generation", path)

    def _listen(self) -> None:
        while self._is_open:
            connection = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        while True:
            try:
                name, *args = connection.recv()
                try:
                    with self._lock:
                        answer = getattr(self, name)(*args)
                except OSError as error:
                    answer = error
                connection.send(answer)
            except (EOFError, OSError):
                return


class MemoryFileSystem(FileSystem):
    """Files of a `Store`."""

    scheme = "mem"
    has_latency = False

    def __init__(self) -> None:
        self._local = threading.local()

    def find(self, path: str) -> Status | None:
        found: Status | None = self._ask("find", path)
        return found

    def is_content_version(self, version: int) -> bool:
        return True

    def list(self, folder: str, first: str = "", end: str = "", most: int | None = None) -> Iterator[Entry]:
        above = f"{folder.rstrip('/')}/"
        found = {}
        for path, status in self._ask("below", above):
            name, slash, _ = path[len(above) :].partition("/")
            found[name + slash] = Entry(name + slash, above + name, False, None if slash else status)
        return iter(sorted(found.values())[:most])

    def open(self, path: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._ask("get", path)[0]))  # type: ignore[arg-type]

    def reader(self) -> Reader:
        return _MemoryReader(self._ask)

    def write(
        self, path: str, pieces: Iterable[bytes], if_generation: int | None = None, unfinished_in: str = ""
    ) -> Status:
        written: Status = self._ask("put", path, b"".join(pieces), if_generation)
        return written

    def link(self, source: str, target: str, if_generation: int | None = None) -> None:
        data, found = self._ask("get", source)
        self._ask("put", target, data, if_generation, found.modified)

    def remove(self, path: str, if_generation: int | None = None, within: float | None = None) -> None:
        self._ask("delete", path, if_generation)

    def _ask(self, *call: object) -> Any:
        if getattr(self._local, "connected", None) != (os.environ[ADDRESS], os.getpid()):
            self._local.connection = Client(("127.0.0.1", int(os.environ[ADDRESS])))
            self._local.connected = os.environ[ADDRESS], os.getpid()
        self._local.connection.send(call)
        answer = self._local.connection.recv()
        if isinstance(answer, OSError):
            raise answer
        return answer


class SlowMemoryFileSystem(MemoryFileSystem):
    """The same, as if it were far away."""

    has_latency = True


class _MemoryReader(Reader):
    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def read(self, path: str) -> bytes:
        data: bytes = self._ask("get", path)[0]
        check_size(len(data), path)
        return data

    def read_range(self, path: str, start: int, length: int | None, generation: int | None) -> bytes:
        data, found = self._ask("get", path)
        if generation and generation != found.generation:
            raise ChangedError(errno.ESTALE, "it was replaced while the job read it", path)
        return bytes(data[start:] if length is None else data[start : start + length])
