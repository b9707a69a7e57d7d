"""Resumable uploads: sessions that take an object in chunks and make it when its last byte is there."""

from __future__ import annotations

import re
import threading
import uuid
from dataclasses import dataclass, field
from urllib.parse import urlencode

from tests.buckets.calls import Answer, Call
from tests.buckets.listing import Resource
from tests.buckets.store import Refused, Store

QUANTUM = 256 * 1024
_RANGE = re.compile(r"bytes (?:(?P<first>\d+)-(?P<last>\d+|\*)|\*)/(?P<total>\d+|\*)")


@dataclass
class _Session:
    """An upload under way; `made` is the answer once it is complete."""

    start: Call
    metadata: Resource
    media_type: str
    data: bytearray = field(default_factory=bytearray)
    made: Answer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """The sessions of a server. The conditions given at the start are checked when the last byte is there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, _Session] = {}

    def object(self, upload_id: str) -> tuple[str, str] | None:
        """Bucket and name of what a session uploads."""
        session = self._sessions.get(upload_id)
        return None if session is None else (session.start.request.bucket, session.start.request.name)

    def begin(self, call: Call) -> Answer:
        """Opens a session; its URL is the Location."""
        metadata = call.json()
        bucket, name = call.request.bucket, call.query.get("name") or metadata.get("name", "")
        if not name:
            raise Refused(400, "Required parameter: name")
        self._store.check_bucket(bucket)
        media_type = call.headers.get("X-Upload-Content-Type", "application/octet-stream")
        upload_id = uuid.uuid4().hex
        self._sessions[upload_id] = _Session(call.named(bucket, name), metadata, media_type)
        query = urlencode({"uploadType": "resumable", "upload_id": upload_id})
        location = f"http://{call.headers['Host']}{call.path}?{query}"
        return Answer(200, b"", {"Location": location, "X-GUploader-UploadID": upload_id})

    def cancel(self, call: Call) -> Answer:
        """Ends a session."""
        if self._sessions.pop(call.query["upload_id"], None) is None:
            raise Refused(404, "No such upload")
        return Answer(499)

    def put(self, call: Call) -> Answer:
        """A chunk, or the question how many bytes are there."""
        session = self._sessions.get(call.query["upload_id"])
        if session is None:
            raise Refused(404, "No such upload")
        with session.lock:
            if session.made is None:
                session.made = self._take(session, call)
            if session.made is not None:
                return session.made
            last = len(session.data) - 1
            return Answer(308, b"", {"Range": f"bytes=0-{last}"} if last >= 0 else {})

    def _take(self, session: _Session, call: Call) -> Answer | None:
        """Adds a chunk; the answer to the whole upload where it was the last."""
        given = call.headers.get("Content-Range")
        match = _RANGE.fullmatch(given) if given is not None else None
        if given is not None and match is None:
            raise Refused(400, f"Invalid Content-Range: {given}")
        total = len(call.body) if match is None else int(match["total"]) if match["total"] != "*" else None
        if match is None or match["first"] is not None:
            self._append(session, call.body, int(match["first"]) if match else 0, total)
        if total is None or len(session.data) < total:
            return None
        return self._complete(session, call)

    def _append(self, session: _Session, chunk: bytes, first: int, total: int | None) -> None:
        there = len(session.data)
        if first > there:
            raise Refused(
                503, f"bytes {there}-{first - 1} have not arrived"
            )  # what the client must ask about
        if (total is None or first + len(chunk) < total) and len(chunk) % QUANTUM:
            raise Refused(400, f"a chunk of {len(chunk)} bytes, not a multiple of {QUANTUM}")
        if total is not None and first + len(chunk) > total:
            raise Refused(400, f"more than the {total} bytes that were announced")
        session.data += chunk[there - first :]  # bytes that are there already are passed over

    def _complete(self, session: _Session, call: Call) -> Answer:
        metadata = dict(session.metadata)
        sums = dict(
            item.strip().split("=", 1) for item in call.headers.get("X-Goog-Hash", "").split(",") if item
        )
        metadata |= {"crc32c": sums["crc32c"]} if "crc32c" in sums else {}
        metadata |= {"md5Hash": sums["md5"]} if "md5" in sums else {}
        data = bytes(session.data)
        answer = self._store.write(session.start, metadata, session.media_type, data)
        session.data = bytearray()
        return answer
