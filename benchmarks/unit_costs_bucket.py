"""A server of buckets on loopback that counts requests: the PyPI emulator, many at a time, in memory.

It knows no conditions (ifGenerationMatch) and no pages; of a bucket named LISTED it tells pages of objects
that are nowhere, as many as wanted.
"""

from __future__ import annotations

import collections
import functools
import importlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

LISTED = "listed"
"""A bucket that holds nothing, and is listed as if it held `listed` objects."""

PAGE = 1000
_BUCKET = "bucket"
_LIST = f"/storage/v1/b/{LISTED}/o"


class CountedBuckets:
    """What the server holds, and what it was asked for.

    Attributes:
        host: the URL, for STORAGE_EMULATOR_HOST.
        uri: of a bucket.
        requests: how many of each kind: what is done, and with an object or not.
    """

    def __init__(self, server: Any, store: Any, listed: int) -> None:
        self._store = store
        self._held: dict[str, bytes] = {}
        self.host = f"http://127.0.0.1:{server.server_port}"
        self.uri = f"gs://{_BUCKET}"
        self.requests: collections.Counter[str] = collections.Counter()
        self.listed = listed
        self.lock = threading.Lock()

    def hold(self, folder: Path, prefix: str) -> None:
        """Stores the files below a folder that are not stored yet, and removes the others; counts nothing."""
        objects = _emulator("handlers.objects")
        paths = {f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.*")}
        for name, path in sorted(paths.items()):
            data = path.read_bytes()
            if self._held.get(name) != data:
                made = objects._make_object_resource(self.host, _BUCKET, name, "image/jpeg", str(len(data)))
                self._store.create_file(_BUCKET, name, data, objects._checksums(data, made))
                self._held[name] = data
        for name in [name for name in self._held if name.startswith(f"{prefix}/") and name not in paths]:
            self._store.delete_file(_BUCKET, name)
            del self._held[name]

    def take(self) -> collections.Counter[str]:
        """The requests since the last time."""
        taken, self.requests = self.requests, collections.Counter()
        return taken


@contextmanager
def counted_buckets(listed: int = 0) -> Iterator[CountedBuckets]:
    """Serves until the block ends."""
    emulator = _emulator("server")
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    logging.getLogger("api.object").setLevel(logging.CRITICAL)
    store = _emulator("storage").Storage(use_memory_fs=True)
    _emulator("handlers.buckets").create_bucket(_BUCKET, store)

    class Handler(emulator.RequestHandler):  # type: ignore[name-defined]
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # headers and body in one piece

        def _count(self, method: str) -> None:
            parts = urlsplit(self.path)
            with buckets.lock:
                buckets.requests[_kind(method, parts.path, parse_qs(parts.query))] += 1
                if method == "GET" and parts.path == _LIST:
                    _send_page(self, parse_qs(parts.query), buckets.listed)
                else:
                    emulator.Router(self).handle(method)

        do_GET = functools.partialmethod(_count, "GET")
        do_POST = functools.partialmethod(_count, "POST")
        do_PUT = functools.partialmethod(_count, "PUT")
        do_DELETE = functools.partialmethod(_count, "DELETE")

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, store))
    server.daemon_threads = True
    buckets = CountedBuckets(server, store, listed)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield buckets
    finally:
        server.shutdown()
        server.server_close()


def _emulator(module: str) -> Any:
    """A module of the emulator, which only developers have."""
    return importlib.import_module(f"gcp_storage_emulator.{module}")


def _kind(method: str, path: str, query: dict[str, list[str]]) -> str:
    """What a request does."""
    if "/rewriteTo/" in path:
        return "copy"
    if path.startswith("/upload/"):
        return "write" if method == "POST" else "write, further piece"
    if path.endswith("/o"):
        return "list"
    if method == "DELETE":
        return "delete"
    return "read" if query.get("alt") == ["media"] or path.startswith("/download/") else "look at one"


def _send_page(handler: Any, query: dict[str, list[str]], listed: int) -> None:
    """A page of objects that are nowhere, in the order of their names."""
    most = int(query.get("maxResults", [str(PAGE)])[0])
    start = int(query.get("pageToken", ["0"])[0])
    stop = min(start + min(most, PAGE), listed)
    prefix = query.get("prefix", [""])[0]
    page: dict[str, Any] = {
        "items": [
            {
                "name": f"{prefix}photo-{number:012d}.jpg",
                "size": "100000",
                "generation": str(1_700_000_000_000_000 + number),
                "crc32c": "AAAAAA==",
                "updated": "2025-01-01T00:00:00.000Z",
            }
            for number in range(start, stop)
        ]
    }
    if stop < listed:
        page["nextPageToken"] = str(stop)
    body = json.dumps(page).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
