"""A server of buckets on loopback, for the tests: the PyPI emulator's store behind a front of threads.

    with BucketServer() as server:
        server.bucket("photos")
        os.environ["STORAGE_EMULATOR_HOST"] = server.host

By hand: `python -m tests.buckets.server --bucket photos [--faults RATE] [--port N]`.

Of the JSON API it does, beyond the emulator, what its reference and Google's own storage-testbench say:
- Conditions: if[Source][Meta]generation[Not]Match; 412, or 304 for the Not ones; 0 is "no such object".
  From the check to the write nothing else is written. An object that is to be read, deleted, patched or
  copied and is not there is a 404 whatever the conditions. A resumable upload is checked when its last
  byte arrives, a part of a batch like a request of its own. `generation`, `sourceGeneration`: 404 unless
  they are the live one.
- Listings in order of the names' UTF-8 bytes; maxResults, pageToken, prefix, delimiter, startOffset,
  endOffset, includeTrailingDelimiter, matchGlob without a delimiter; items and prefixes together are at
  most a page; neither key where there are none. `fields` is obeyed: without nextPageToken in it, none comes.
- Media by range, by suffix, 416 past the end, the whole where Range is not understood; X-Goog-Hash (of the
  whole object, for ranges too), X-Goog-Generation, X-Goog-Stored-Content-Length.
- Uploads: media, multipart, resumable (chunks of 256 KiB, 308 and Range, status, bytes sent twice, cancel,
  X-Goog-Hash at the end); a checksum that is not the data's is a 400.
- Copies and rewrites, the latter in `rewrite_calls` calls; compose of up to 32, without an MD5.
- Batches of up to 100 calls.
Not modelled: rights and credentials (every request is let in), versions and soft deletion, metadata in
the body of a copy, decompression of gzip objects, the XML API, rate limits, locations.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
from pathlib import Path

from tests.buckets.calls import Call, Request
from tests.buckets.faults import Faults
from tests.buckets.front import Drop, Front, Mutation, Service

__all__ = ["BucketServer", "Drop", "Faults", "Request"]


class BucketServer:
    """See the module. A context manager; the server's threads end with it.

    Attributes:
        host: the URL, for STORAGE_EMULATOR_HOST.
    """

    def __init__(self, port: int = 0) -> None:
        self._service = Service()
        self._front = Front(self._service, port)
        self._thread = threading.Thread(target=self._front.serve_forever, args=(0.05,), daemon=True)
        self.host = f"http://127.0.0.1:{self._front.server_port}"

    def __enter__(self) -> BucketServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._front.close()
        self._thread.join()

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in the order of the answers; a batch comes after its parts."""
        return list(self._service.requests)

    def empty(self) -> None:
        """Has no bucket any more, injects nothing, and counts from the start."""
        self._front.service = self._service = Service()

    def clear(self) -> None:
        """Forgets the requests and starts the count of mutations again."""
        self._service.requests.clear()
        self._service.mutations = 0

    @property
    def mutations(self) -> int:
        """How many requests that change something have come."""
        return self._service.mutations

    @property
    def faults(self) -> Faults | None:
        """What is injected; none at first."""
        return self._service.faults

    @faults.setter
    def faults(self, faults: Faults | None) -> None:
        self._service.faults = faults

    @property
    def page_size(self) -> int:
        """The most items and prefixes in a page of a listing."""
        return self._service.store.page_size

    @page_size.setter
    def page_size(self, size: int) -> None:
        self._service.store.page_size = size

    @property
    def rewrite_calls(self) -> int:
        """How many calls a rewrite takes; one, as between buckets of one place and class."""
        return self._service.store.rewrite_calls

    @rewrite_calls.setter
    def rewrite_calls(self, calls: int) -> None:
        self._service.store.rewrite_calls = calls

    def on_mutation(self, callback: Mutation | None) -> None:
        """Calls (n, request, "before" | "after") around the n-th request, from 1, that changes something.

        It runs in the server's thread, outside its lock. What raises Drop before is not carried out; what
        raises it after is not answered.
        """
        self._service.on_mutation = callback

    def bucket(self, name: str) -> str:
        """Creates a bucket; its URI, without a slash at the end."""
        self._service.store.create_bucket(name)
        return f"gs://{name}"

    def put(self, uri: str, data: bytes, media_type: str = "application/octet-stream") -> None:
        """Stores an object."""
        bucket, name = split(uri)
        host = {"Host": self.host.removeprefix("http://")}
        call = Call(Request("POST", "insert", bucket, name), "", {"name": name}, host)
        self._service.store.write(call, {}, media_type, data)

    def remove(self, uri: str) -> None:
        """Deletes an object."""
        bucket, name = split(uri)
        self._service.store.delete(Call(Request("DELETE", "delete", bucket, name), "", {}, {}))

    def get(self, uri: str) -> bytes:
        """An object's bytes."""
        return self._service.store.read(*split(uri))

    def names(self, prefix: str) -> list[str]:
        """URIs of the objects that begin with a URI."""
        bucket, name = split(prefix)
        return [f"gs://{bucket}/{found}" for found in self._service.store.names(bucket, name)]

    def generation(self, uri: str) -> str:
        """An object's generation."""
        return str(self._service.store.resource(*split(uri))["generation"])

    def upload_folder(self, local: Path, uri: str) -> None:
        """Stores every file below a folder."""
        for path in sorted(Path(local).rglob("*")):
            if path.is_file():
                self.put(f"{uri.rstrip('/')}/{path.relative_to(local).as_posix()}", path.read_bytes())

    def download(self, uri: str, local: Path) -> None:
        """Writes every object below a URI into a folder."""
        below = uri.rstrip("/") + "/"
        for name in self.names(below):
            path = Path(local) / name.removeprefix(below)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(name))


def split(uri: str) -> tuple[str, str]:
    """Bucket and name of a URI.

    Raises:
        ValueError: it is none.
    """
    if not uri.startswith("gs://"):
        raise ValueError(f"not a gs:// URI: {uri}")
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


def main() -> None:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.buckets.server", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.0, metavar="RATE")
    parser.add_argument("--bucket", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have those in the background ignore it
    with contextlib.suppress(KeyboardInterrupt), BucketServer(options.port) as server:
        server.faults = Faults(options.faults) if options.faults else None
        for name in options.bucket:
            server.bucket(name)
        print(f"export STORAGE_EMULATOR_HOST={server.host}", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
