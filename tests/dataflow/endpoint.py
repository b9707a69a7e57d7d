"""A Dataflow service on loopback, which takes jobs, tells what a test says of them, and runs none.

with DataflowServer() as server:
    server.states = ["JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_DONE"]
    [f"--dataflow_endpoint={server.url}", "--no_auth"]
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

JOB_ID = "2026-11-21_07_00_00-1234567890"
_JOBS = re.compile(r"/v1b3/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/jobs")
_JOB = re.compile(rf"{_JOBS.pattern}/(?P<id>[^/]+)(?:/(?P<part>messages|metrics))?")


@dataclass
class Told:
    """What the service says of the job that it has.

    Attributes:
        states: one for each time it is asked; the last from then on.
        messages: (importance, text), in the order in which they come; two come at a time.
        metrics: values of counters by (name, step).
        other_job: the id of a job of the same name that is at work already.
        refusal: HTTP status and message with which jobs are refused.
    """

    states: list[str] = field(default_factory=lambda: ["JOB_STATE_DONE"])
    messages: list[tuple[str, str]] = field(default_factory=list)
    metrics: dict[tuple[str, str], int] = field(default_factory=dict)
    other_job: str = ""
    refusal: tuple[int, str] | None = None


class DataflowServer(Told):
    """See the module. A context manager; the server's threads end with it.

    Attributes:
        jobs: the bodies of the requests that create jobs.
        requests: (method, path) of all.
        on_job: called with each job when it comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.on_job: Callable[[dict[str, Any]], None] | None = None
        self._asked = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        # With the name, and not the address, Beam asks over HTTP.
        self.url = f"http://localhost:{self._server.server_port}"

    def __enter__(self) -> DataflowServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON."""
        path = urlsplit(target).path
        self.requests.append((method, path))
        if method == "POST" and (match := _JOBS.fullmatch(path)):
            return self._created(json.loads(body), match)
        if method == "GET" and (match := _JOB.fullmatch(path)) and match["id"] == JOB_ID:
            parts = {"messages": self._messages, "metrics": self._metrics, None: self._state}
            return 200, parts[match["part"]]()
        return 404, {"error": {"code": 404, "message": f"{method} {path}: not found"}}

    def _created(self, job: dict[str, Any], match: re.Match[str]) -> tuple[int, Mapping[str, Any]]:
        if self.refusal is not None:
            status, message = self.refusal
            return status, {"error": {"code": status, "message": message, "status": "PERMISSION_DENIED"}}
        self.jobs.append({**job, "project": match["project"], "region": match["region"]})
        if self.on_job is not None:
            self.on_job(job)
        request_id = "of-the-other-job" if self.other_job else job["clientRequestId"]
        answer = {"id": self.other_job or JOB_ID, "name": job["name"], "clientRequestId": request_id}
        return 200, {**answer, "currentState": self.states[0]}

    def _state(self) -> Mapping[str, Any]:
        state = self.states[min(self._asked, len(self.states) - 1)]
        self._asked += 1
        return {"id": JOB_ID, "currentState": state}

    def _messages(self) -> Mapping[str, Any]:
        shown = self.messages[: 2 * self._asked]
        messages = [
            {
                "id": f"m{number}",
                "time": f"2026-11-21T07:00:{number:02d}.123456789Z",
                "messageImportance": importance,
                "messageText": text,
            }
            for number, (importance, text) in enumerate(shown)
        ]
        return {"jobMessages": messages}

    def _metrics(self) -> Mapping[str, Any]:
        return {
            "metrics": [
                {
                    "name": {
                        "origin": "user",
                        "name": name,
                        "context": {"namespace": "recordmill", "step": step, **tentative},
                    },
                    "scalar": value,
                }
                for (name, step), value in self.metrics.items()
                for tentative in ({}, {"tentative": "true"})
            ]
        }


def _handler(server: DataflowServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Hands requests on."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """A question."""
            self._answer()

        def do_POST(self) -> None:
            """A new job."""
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Handler
