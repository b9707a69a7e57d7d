"""The emulator's storage, with what Cloud Storage does and the emulator does not.

The emulator's own handlers make, copy, compose, patch and delete the objects; they are called here, in
the process, since its server has one thread and reads no multipart body of any size or kind.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from gcp_storage_emulator.handlers import buckets, objects
from gcp_storage_emulator.server import HANDLERS
from gcp_storage_emulator.storage import Storage

from tests.buckets.calls import Answer, Call, multipart
from tests.buckets.listing import Resource, page, shown


class Refused(Exception):
    """The store's answer is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.answer = Answer.error(status, message) if status != 304 else Answer(304)


class _Asked:
    """What the emulator's handlers want of a request."""

    def __init__(self, call: Call, params: dict[str, str], query: dict[str, str], data: object) -> None:
        self.method = call.request.method
        self.path = call.path
        self.params = params
        self.query = {key: [value] for key, value in query.items()}
        self.data = data
        self.base_url = f"http://{call.headers.get('Host', 'localhost')}"
        self.full_url = self.base_url + call.path
        self._headers = call.headers

    def get_header(self, key: str, default: str | None = None) -> str | None:
        return self._headers.get(key, default)


class _Answered(dict[str, str]):
    """What the emulator's handlers want of a response; its items are the headers."""

    status = 200
    resource: Any = None

    def json(self, resource: object) -> None:
        self.resource = resource

    def write(self, text: str) -> None:
        self.resource = text


class Store:
    """Buckets in memory. Whatever writes holds the lock from the check of its conditions to the write."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.page_size = 1000
        self.rewrite_calls = 1
        self._rewrites: dict[str, int] = {}
        self._storage = Storage(use_memory_fs=True)
        # The emulator writes a JSON of everything at each change, and takes a//b for a/b.
        self._storage._write_config_to_file = lambda: None
        self._storage._object_path = lambda bucket, name: f"{bucket}/{quote(name, safe='')}"

    def create_bucket(self, name: str) -> None:
        """Creates a bucket without soft deletion, which would keep the bytes of every deleted object."""
        with self.lock:
            if buckets.create_bucket(name, self._storage) is False:
                raise ValueError(f"the bucket {name} exists")
            self._storage.buckets[name]["softDeletePolicy"] = {"retentionDurationSeconds": "0"}

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """The objects' names, in order of their UTF-8 bytes, which is that of their code points."""
        with self.lock:
            return sorted(name for name in self._objects(bucket) if name.startswith(prefix))

    def read(self, bucket: str, name: str) -> bytes:
        """An object's bytes."""
        with self.lock:
            self.resource(bucket, name)
            return bytes(self._storage.get_file(bucket, name))

    def check_bucket(self, bucket: str) -> None:
        """Raises Refused (404) where there is no such bucket."""
        with self.lock:
            self._objects(bucket)

    def _objects(self, bucket: str) -> dict[str, Resource]:
        if bucket not in self._storage.buckets:
            raise Refused(404, "The specified bucket does not exist.")
        found: dict[str, Resource] = self._storage.objects.get(bucket, {})
        return found

    def resource(self, bucket: str, name: str, generation: str | None = None) -> Resource:
        """An object's live resource; 404 where there is none, or none of that generation."""
        found = self._objects(bucket).get(name)
        if found is None or (generation is not None and generation != found["generation"]):
            raise Refused(404, f"No such object: {bucket}/{name}")
        return found

    def check(self, call: Call, bucket: str, name: str, source: bool = False) -> None:
        """Raises Refused (412, 304) unless the conditions of a request on an object hold."""
        found = self._objects(bucket).get(name, {})
        for field in ("generation", "metageneration"):
            live = found.get(field, "0")
            stem = ("ifSource" if source else "if") + field.capitalize()
            wanted, unwanted = call.query.get(f"{stem}Match"), call.query.get(f"{stem}NotMatch")
            if wanted is not None and wanted != live:
                raise Refused(412, f"{field} of {bucket}/{name} is {live}, not {wanted}")
            if unwanted is not None and unwanted == live:
                raise Refused(304, f"{field} of {bucket}/{name} is {live}")

    def get_metadata(self, call: Call) -> Answer:
        """objects.get."""
        with self.lock:
            found = self._live(call)
            return Answer.of(shown(found))

    def get_media(self, call: Call) -> Answer:
        """objects.get with alt=media, or a range of it."""
        with self.lock:
            found = dict(self._live(call))
            data = self._storage.get_file(call.request.bucket, call.request.name)
        hashes = [f"crc32c={found['crc32c']}"] + ([f"md5={found['md5Hash']}"] if found.get("md5Hash") else [])
        headers = {
            "Content-Type": found.get("contentType") or "application/octet-stream",
            "ETag": found["etag"],
            "X-Goog-Generation": found["generation"],
            "X-Goog-Metageneration": found["metageneration"],
            "X-Goog-Hash": ",".join(hashes),
            "X-Goog-Storage-Class": found["storageClass"],
            "X-Goog-Stored-Content-Encoding": found.get("contentEncoding", "identity"),
            "X-Goog-Stored-Content-Length": str(len(data)),
            "Accept-Ranges": "bytes",
        }
        span = byte_span(call.headers.get("Range", ""), len(data))
        if span is None:
            return Answer(200, data, headers)
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{len(data)}"
        return Answer(206, data[span.start : span.stop], headers)

    def _live(self, call: Call) -> Resource:
        found = self.resource(call.request.bucket, call.request.name, call.query.get("generation"))
        self.check(call, call.request.bucket, call.request.name)
        return found

    def list(self, call: Call) -> Answer:
        """objects.list: a page."""
        if call.query.get("versions") == "true" or call.query.get("softDeleted") == "true":
            raise Refused(501, "listing of noncurrent or deleted objects is not modelled")
        if "matchGlob" in call.query and "delimiter" in call.query:
            raise Refused(501, "matchGlob with a delimiter is not modelled")
        with self.lock:
            try:
                return Answer.of(page(self._objects(call.request.bucket), call.query, self.page_size))
            except ValueError as error:
                raise Refused(400, f"Invalid argument: {error}") from error

    def insert(self, call: Call) -> Answer:
        """objects.insert, simple or multipart."""
        if call.query.get("uploadType") == "multipart":
            try:
                metadata, media_type, data = multipart(call.headers.get("Content-Type", ""), call.body)
            except ValueError as error:
                raise Refused(400, str(error)) from error
        else:
            metadata, media_type, data = {}, call.headers.get("Content-Type", ""), call.body
        return self.write(call, metadata, media_type, data)

    def write(self, call: Call, metadata: Resource, media_type: str, data: bytes) -> Answer:
        """Makes an object, if the conditions of the call hold at this moment."""
        bucket, name = call.request.bucket, call.query.get("name") or metadata.get("name", "")
        if not name:
            raise Refused(400, "Required parameter: name")
        body = {"meta": {**metadata, "name": name}, "content": data, "content-type": media_type}
        with self.lock:
            self.check(call, bucket, name)
            asked = _Asked(call, {"bucket_name": bucket}, {"uploadType": "multipart", "name": name}, body)
            return self._made(objects.insert, asked, bucket, name)

    def _made(self, handler: Callable[..., None], asked: _Asked, bucket: str, name: str) -> Answer:
        """Runs a handler that makes an object; mends its metageneration and the name in its links."""
        answered = _Answered()
        handler(asked, answered, self._storage)
        if answered.status >= 400:
            raise Refused(int(answered.status), _message(answered.resource))
        made = self._storage.objects[bucket][name]
        path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        link = f"{asked.base_url}/download{path}?generation={made['generation']}&alt=media"
        made |= {"metageneration": "1", "selfLink": asked.base_url + path, "mediaLink": link}
        return Answer.of(shown(made))

    def copy(self, call: Call) -> Answer:
        """objects.copy and objects.rewrite; the latter in `rewrite_calls` calls."""
        (from_bucket, from_name), to = call.source, call.request
        with self.lock:
            found = self.resource(from_bucket, from_name, call.query.get("sourceGeneration"))
            self.check(call, from_bucket, from_name, source=True)
            self.check(call, to.bucket, to.name)
            if to.kind == "rewrite" and (unfinished := self._unfinished(call, int(found["size"]))):
                return unfinished
            params = {"bucket_name": from_bucket, "object_id": from_name}
            params |= {"dest_bucket_name": to.bucket, "dest_object_id": to.name}
            answer = self._made(objects.copy, _Asked(call, params, {}, None), to.bucket, to.name)
        if to.kind == "copy":
            return answer
        resource = json.loads(answer.body)
        size = resource["size"]
        done = {"kind": "storage#rewriteResponse", "done": True, "resource": resource}
        return Answer.of({**done, "totalBytesRewritten": size, "objectSize": size})

    def _unfinished(self, call: Call, size: int) -> Answer | None:
        token = call.query.get("rewriteToken") or f"rewrite-{len(self._rewrites)}"
        done = self._rewrites[token] = self._rewrites.get(token, 0) + 1
        if done >= self.rewrite_calls:
            return None
        part = {"totalBytesRewritten": str(size * done // self.rewrite_calls), "objectSize": str(size)}
        return Answer.of({"kind": "storage#rewriteResponse", "done": False, "rewriteToken": token, **part})

    def compose(self, call: Call) -> Answer:
        """objects.compose; such an object has no MD5."""
        bucket, name, body = call.request.bucket, call.request.name, call.json()
        if len(body.get("sourceObjects", [])) > 32:
            raise Refused(400, "The number of source components provided exceeds the maximum of 32")
        with self.lock:
            self.check(call, bucket, name)
            for source in body.get("sourceObjects", []):
                found = self.resource(bucket, source["name"], source.get("generation"))
                wanted = source.get("objectPreconditions", {}).get("ifGenerationMatch")
                if wanted is not None and str(wanted) != found["generation"]:
                    raise Refused(412, f"generation of {bucket}/{source['name']} is not {wanted}")
            params = {"bucket_name": bucket, "object_id": name}
            asked = _Asked(call, params, {}, {"destination": {}, **body})
            self._made(objects.compose, asked, bucket, name)
            made = self._storage.objects[bucket][name]
            made.pop("md5Hash", None)
            made["size"] = str(made["size"])
            return Answer.of(shown(made))

    def delete(self, call: Call) -> Answer:
        """objects.delete."""
        with self.lock:
            self._live(call)
            self._storage.delete_file(call.request.bucket, call.request.name)
        return Answer(204)

    def patch(self, call: Call) -> Answer:
        """objects.patch."""
        with self.lock:
            found = self._live(call)
            params = {"bucket_name": call.request.bucket, "object_id": call.request.name}
            objects.patch(_Asked(call, params, {}, call.json()), _Answered(), self._storage)
            return Answer.of(shown(found))

    def other(self, call: Call) -> Answer:
        """Whatever else the emulator has a handler for: buckets, for the most part."""
        for pattern, handlers in HANDLERS:
            match = re.fullmatch(pattern, call.path)
            handler = handlers.get(call.request.method) if match else None
            if match and handler and "object_id" not in match.groupdict():
                data = json.loads(call.body) if call.body.strip() else {}
                answered = _Answered()
                with self.lock:
                    handler(_Asked(call, match.groupdict(), call.query, data), answered, self._storage)
                if answered.status >= 400:
                    raise Refused(int(answered.status), _message(answered.resource))
                return Answer.of(answered.resource, int(answered.status))
        raise Refused(501, f"not implemented: {call.request.method} {call.path}")


def byte_span(header: str, size: int) -> slice | None:
    """The bytes that a Range header asks for; None for all, as where it is not understood.

    Raises:
        Refused: 416, it asks for none.
    """
    match = re.fullmatch(r"\s*bytes=(\d*)-(\d*)\s*", header)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    else:
        start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
        if match[2] and int(match[2]) < start:
            return None
    if start >= size:
        raise Refused(416, f"The requested range cannot be satisfied: {header} of {size} bytes")
    return slice(start, stop)


def _message(resource: Any) -> str:
    return str(resource["error"]["message"]) if isinstance(resource, dict) else "Not Found"
