"""Requests of the JSON API, taken apart, and the answers to them."""

from __future__ import annotations

import email
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Headers = Message | dict[str, str]
MUTATIONS = frozenset(
    {"insert", "resumable-start", "resumable-chunk", "rewrite", "copy", "compose", "delete", "patch"}
)
_OBJECT = re.compile(
    r"(?:/storage/v1|/download/storage/v1)?/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)"
    r"(?:/(?P<verb>rewriteTo|copyTo)/b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)|/(?P<compose>compose))?"
)
_OBJECTS = re.compile(r"(?:/storage/v1)?/b/(?P<bucket>[^/]+)/o")
_BUCKET = re.compile(r"(?:/storage/v1)?/b(?:/(?P<bucket>[^/]+))?")
_UPLOAD = re.compile(r"(?:/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o")
_PLAIN = {"GET": "get-metadata", "DELETE": "delete", "PATCH": "patch", "PUT": "patch"}


@dataclass(frozen=True)
class Request:
    """One request as a test counts it; each part of a batch is one too.

    Attributes:
        kind: get-media, get-metadata, list, insert, resumable-start, resumable-chunk, resumable-status,
            resumable-cancel, rewrite, copy, compose, delete, patch, batch, bucket (the client asks for
            its metadata once), or other.
        name: the object; the destination of a copy; the prefix of a listing.
        source: the source of a copy.
        byte_range: the Range or Content-Range header, or nothing.
        status: of the answer; 0 where the connection was closed without one.
        sent: bytes of the answer's body.
        fault: the injected one, or nothing.
    """

    method: str
    kind: str
    bucket: str = ""
    name: str = ""
    source: str = ""
    byte_range: str = ""
    status: int = 0
    sent: int = 0
    in_batch: bool = False
    fault: str = ""


@dataclass
class Call:
    """A request, its parts decoded."""

    request: Request
    path: str
    query: dict[str, str]
    headers: Headers
    body: bytes = b""

    @property
    def source(self) -> tuple[str, str]:
        """Bucket and name of what is copied."""
        bucket, _, name = self.request.source.partition("/")
        return bucket, name

    def json(self) -> dict[str, Any]:
        """The body; empty where there is none."""
        return dict(json.loads(self.body)) if self.body.strip() else {}

    def named(self, bucket: str, name: str) -> Call:
        """The same call, its object known."""
        return replace(self, request=replace(self.request, bucket=bucket, name=name))


@dataclass
class Answer:
    """An answer, not yet sent."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resource: object, status: int = 200) -> Answer:
        """A resource as JSON."""
        body = json.dumps(resource).encode()
        return cls(status, body, {"Content-Type": "application/json; charset=UTF-8"})

    @classmethod
    def error(cls, status: int, message: str) -> Answer:
        """An error as the JSON API words it."""
        reasons = {404: "notFound", 412: "conditionNotMet", 416: "requestedRangeNotSatisfiable"}
        reasons |= {400: "invalid", 429: "rateLimitExceeded", 503: "backendError", 408: "requestTimeout"}
        detail = {"domain": "global", "reason": reasons.get(status, "other"), "message": message}
        return cls.of({"error": {"code": status, "message": message, "errors": [detail]}}, status)


def parse(method: str, target: str, headers: Headers, body: bytes) -> Call:
    """Takes a request apart; its kind is `other` where it is none about objects."""
    url = urlsplit(target)
    query = {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
    method = headers.get("X-HTTP-Method-Override", method)
    return Call(_request(method, url.path, query, headers), url.path, query, headers, body)


def _request(method: str, path: str, query: dict[str, str], headers: Headers) -> Request:
    if path == "/batch/storage/v1":
        return Request(method, "batch")
    if (match := _UPLOAD.fullmatch(path)) is not None:
        kind = _upload_kind(method, query, headers)
        given = headers.get("Content-Range", "")
        return Request(method, kind, unquote(match["bucket"]), query.get("name", ""), byte_range=given)
    if (match := _OBJECTS.fullmatch(path)) is not None and method == "GET":
        return Request(method, "list", unquote(match["bucket"]), query.get("prefix", ""))
    if (match := _BUCKET.fullmatch(path)) is not None:
        return Request(method, "bucket", unquote(match["bucket"] or ""))
    if (match := _OBJECT.fullmatch(path)) is None:
        return Request(method, "other")
    bucket, name = unquote(match["bucket"]), unquote(match["name"])
    if match["verb"]:
        kind = match["verb"].removesuffix("To")
        to_bucket, to_name = unquote(match["to_bucket"]), unquote(match["to_name"])
        return Request(method, kind, to_bucket, to_name, f"{bucket}/{name}")
    if match["compose"]:
        return Request(method, "compose", bucket, name)
    kind = _PLAIN.get(method, "other")
    if kind == "get-metadata" and query.get("alt") == "media":
        return Request(method, "get-media", bucket, name, byte_range=headers.get("Range", ""))
    return Request(method, kind, bucket, name)


def _upload_kind(method: str, query: dict[str, str], headers: Headers) -> str:
    if "upload_id" in query:
        if method == "DELETE":
            return "resumable-cancel"
        return "resumable-status" if "*/" in headers.get("Content-Range", "") else "resumable-chunk"
    return "resumable-start" if query.get("uploadType") == "resumable" else "insert"


def multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], str, bytes]:
    """Metadata, media type and media of a multipart/related upload.

    Raises:
        ValueError: it is not one.
    """
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    mark = b"--" + (found[1].encode() if found else b"")
    start = body.find(mark)
    if found is None or start < 0:
        raise ValueError("a multipart upload without its boundary")
    start += len(mark)
    eol = b"\r\n" if body.startswith(b"\r\n", start) else b"\n"
    middle, end = body.find(eol + mark, start), body.rfind(eol + mark + b"--")
    if not start < middle < end:
        raise ValueError("a multipart upload without two parts")
    metadata = body[start + len(eol) : middle].partition(eol * 2)[2]
    head, _, media = body[middle + len(eol + mark + eol) : end].partition(eol * 2)
    media_type = email.message_from_bytes(head + b"\n\n").get_content_type()
    return dict(json.loads(metadata or b"{}")), media_type, media


def batch_calls(call: Call) -> Iterator[tuple[str, Call]]:
    """(Content-ID, request) of each part of a batch."""
    whole = b"Content-Type: " + call.headers["Content-Type"].encode() + b"\r\n\r\n" + call.body
    for part in email.message_from_bytes(whole).get_payload():
        assert isinstance(part, Message)
        line, _, rest = str(part.get_payload()).lstrip().partition("\n")
        method, target = line.split()[:2]
        inner = email.message_from_string(rest)
        found = parse(method, target, inner, str(inner.get_payload()).encode())
        found.request = replace(found.request, in_batch=True)
        yield part.get("Content-ID", ""), found


def batch_answer(answers: list[tuple[str, Answer]]) -> Answer:
    """One answer of those to the parts of a batch, in their order."""
    pieces = []
    for content_id, answer in answers:
        wanted = f"Content-ID: <response-{content_id.strip('<>')}>\r\n" if content_id else ""
        head = "".join(f"{key}: {value}\r\n" for key, value in answer.headers.items())
        pieces.append(
            f"--batch_parts\r\nContent-Type: application/http\r\n{wanted}\r\n"
            f"HTTP/1.1 {answer.status} -\r\n{head}Content-Length: {len(answer.body)}\r\n\r\n"
            f"{answer.body.decode()}\r\n"
        )
    body = "".join(pieces) + "--batch_parts--"
    return Answer(200, body.encode(), {"Content-Type": "multipart/mixed; boundary=batch_parts"})
