"""The HTTP server before the store: threads, connections that are kept, counts, faults."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from tests.buckets.calls import (
    MUTATIONS,
    Answer,
    Call,
    Request,
    batch_answer,
    batch_calls,
    multipart,
    parse,
)
from tests.buckets.faults import Fault, Faults
from tests.buckets.listing import partial
from tests.buckets.store import Refused, Store
from tests.buckets.uploads import Uploads

JSON = "application/json"
_BATCH_LIMIT = 100
Mutation = Callable[[int, Request, str], object]


class Drop(Exception):
    """Raised by a callback: the request ends here, its connection closed without an answer."""


class Service:
    """Answers calls, counts them, and injects the faults that need no connection."""

    def __init__(self) -> None:
        self.store = Store()
        self.uploads = Uploads(self.store)
        self.requests: list[Request] = []
        self.faults: Faults | None = None
        self.on_mutation: Mutation | None = None
        self.mutations = 0
        self._counting = threading.Lock()
        self._handlers: dict[str, Callable[[Call], Answer]] = {
            "get-media": self.store.get_media,
            "get-metadata": self.store.get_metadata,
            "list": self.store.list,
            "insert": self.store.insert,
            "resumable-start": self.uploads.begin,
            "resumable-chunk": self.uploads.put,
            "resumable-status": self.uploads.put,
            "resumable-cancel": self.uploads.cancel,
            "rewrite": self.store.copy,
            "copy": self.store.copy,
            "compose": self.store.compose,
            "delete": self.store.delete,
            "patch": self.store.patch,
            "batch": self._batch,
            "bucket": self.store.other,
            "other": self.store.other,
        }

    def resolve(self, call: Call) -> Call:
        """The call with its object, which an upload does not always have in its URL."""
        if (upload_id := call.query.get("upload_id")) is not None:
            return call.named(*(self.uploads.object(upload_id) or (call.request.bucket, "")))
        if call.request.kind in ("insert", "resumable-start") and not call.request.name:
            return call.named(call.request.bucket, name_in(call))
        return call

    def answer(self, call: Call, fault: Fault | None) -> Answer | None:
        """The answer; None where the connection shall be closed instead. Recorded either way."""
        try:
            answer = self._answer(call, fault)
        except Drop:
            answer = None
        if fault is not None and fault.kind == "reset-after":
            answer = None
        status, sent = (answer.status, len(answer.body)) if answer else (0, 0)
        name = str(fault.kind) if fault else ""
        self.requests.append(replace(call.request, status=status, sent=sent, fault=name))
        return answer

    def draw(self, request: Request) -> Fault | None:
        """The fault of a request."""
        return self.faults.draw(request) if self.faults is not None else None

    def _answer(self, call: Call, fault: Fault | None) -> Answer | None:
        if fault is not None and fault.kind == "reset":
            return None
        if fault is not None and isinstance(fault.kind, int):
            answer = Answer.error(fault.kind, "injected")
            answer.headers |= {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            return answer
        if call.request.kind not in MUTATIONS:
            answer = self._handled(call)
            if fault is not None and fault.kind == "cut":
                answer.body = answer.body[: len(answer.body) // 2]
            return answer
        with self._counting:
            self.mutations += 1
            number = self.mutations
        self._tell(number, call.request, "before")
        answer = self._handled(call)
        self._tell(number, replace(call.request, status=answer.status), "after")
        return answer

    def _tell(self, number: int, request: Request, moment: str) -> None:
        if self.on_mutation is not None:
            self.on_mutation(number, request, moment)

    def _handled(self, call: Call) -> Answer:
        try:
            answer = self._handlers[call.request.kind](call)
            return (
                answer if call.request.kind == "get-media" else trimmed(answer, call.query.get("fields", ""))
            )
        except Refused as refused:
            return refused.answer
        except Drop:  # of a part of a batch
            raise
        except Exception as error:
            traceback.print_exc()
            return Answer.error(501, f"the bucket server failed: {error!r}")  # which no client asks again

    def _batch(self, call: Call) -> Answer:
        parts, answers = list(batch_calls(call)), []
        if len(parts) > _BATCH_LIMIT:
            raise Refused(400, f"The batch has {len(parts)} calls, more than {_BATCH_LIMIT}")
        for content_id, part in parts:
            answer = self.answer(part, self.draw(part.request))
            if answer is None:
                raise Drop
            answers.append((content_id, answer))
        return batch_answer(answers)


def trimmed(answer: Answer, fields: str) -> Answer:
    """An answer with the fields alone that the request named."""
    if not fields or answer.status != 200 or not answer.headers.get("Content-Type", "").startswith(JSON):
        return answer
    return Answer.of(partial(json.loads(answer.body), fields))


def name_in(call: Call) -> str:
    """The name that the metadata of an upload gives; nothing where they do not."""
    try:
        if call.request.kind == "resumable-start":
            return str(call.json().get("name", ""))
        return str(multipart(call.headers.get("Content-Type", ""), call.body)[0].get("name", ""))
    except ValueError:
        return ""


class Front(ThreadingHTTPServer):
    """A loopback server with a thread a connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, service: Service, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.service = service
        self._open: set[socket.socket] = set()

    def server_bind(self) -> None:
        """Without the look-up of the host's name, which takes seconds on some machines."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of the server's errors; any other is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Ends the server and every connection that is still open."""
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    disable_nagle_algorithm = True
    _reset = False

    def log_message(self, format: str, *args: object) -> None:
        """The requests are counted; nothing is printed."""

    def do_GET(self) -> None:
        service = self.server.service
        call = service.resolve(parse(self.command, self.path, self.headers, self._body()))
        fault = service.draw(call.request)
        answer = service.answer(call, fault)
        if answer is None:
            self._reset = self.close_connection = True
            return
        self._send(answer, fault, service.faults.slow_seconds if service.faults else 0)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0].strip() or b"-1", 16):
            pieces.append(self._read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        """So many bytes of the body; of a client that died over it nothing is carried out."""
        data = self.rfile.read(size) if size >= 0 else b""
        if len(data) != size:
            raise ConnectionResetError("the request ends before its body does")
        return data

    def _send(self, answer: Answer, fault: Fault | None, slow_seconds: float) -> None:
        slow = fault is not None and fault.kind == "slow"
        trickled = fault is not None and fault.trickled
        if slow and not trickled:
            time.sleep(slow_seconds)
        self.send_response_only(answer.status, None if answer.status != 308 else "Resume Incomplete")
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Server", "UploadServer")
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        body = answer.body
        if fault is not None and fault.kind == "truncated" and body:
            body, self.close_connection = body[: len(body) // 2], True
        if trickled:
            self._trickle(body, slow_seconds)
        else:
            self.wfile.write(body)

    def _trickle(self, body: bytes, seconds: float) -> None:
        step = max(1, -(-len(body) // 10))
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            time.sleep(seconds / 10)

    def finish(self) -> None:
        """A connection that is reset sends no more than that."""
        if self._reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        super().finish()
        if self._reset:
            self.connection.close()
