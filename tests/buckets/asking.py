"""What was asked of a bucket server, and asking it without Google's client."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from tests.buckets.server import BucketServer, Request


def asked(server: BucketServer) -> list[Request]:
    """The requests, but for the client's look at the bucket, which it takes in its own time."""
    return [request for request in server.requests if request.kind != "bucket"]


def kinds(server: BucketServer) -> list[str]:
    """The kinds of those requests."""
    return [request.kind for request in asked(server)]


def ask(
    server: BucketServer, method: str, path: str, body: bytes | Iterator[bytes] | None = None, **given: str
) -> tuple[int, bytes, dict[str, str]]:
    """A request without Google's client; a body that is an iterator is sent in HTTP's chunks."""
    connection = http.client.HTTPConnection(server.host.removeprefix("http://"), timeout=20)
    try:
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in given.items()})
        response = connection.getresponse()
        return response.status, response.read(), dict(response.headers)
    finally:
        connection.close()
