"""The annotation files of a COCO dataset: finding them, their kinds and splits, reading them.

Their JSON is read in one pass, an element of a list at a time: files may be larger than memory. The standard
library's decoder, on a window of the text, takes half the time of a streaming parser, gives the same floats
as `json.load`, and locates a fault in the text.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from recordmill.transforms.records import BadInput, Failure, JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    extension_of,
    failed,
    is_hidden,
    is_split_name,
    is_unicode,
    normal_split,
    skipped,
    without_year,
)
from recordmill.transforms.sources.tables.manifests import flag_of, input_root, manifests
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.files import is_folder, open_file
from recordmill.transforms.storage.listing import entries, located
from recordmill.transforms.storage.paths import below, real_path

_PEEKED = 1 << 20
_DEPTH = 2  # levels of folders below the input that are searched for annotation files
_NAMED = re.compile(
    "(?:instances|person_keypoints|keypoints|captions|panoptic|stuff|labels|image_info)_(?P<split>.+)"
)
_ROBOFLOW = "_annotations.coco.json"
_NO_SPLIT = "default"  # CVAT's and Datumaro's name for the images of a task without splits
_KIND_OF_KEY = {
    "segments_info": "panoptic",
    "caption": "captions",
    "bbox": "objects",
    "segmentation": "objects",
    "keypoints": "objects",
    "category_id": "labels",
}
_LIKELY_FOLDERS = ("annotations", "panoptic")
_CHUNK = 1 << 20
_LONGEST = 1 << 26  # characters of one element, or of one other value
_TOKEN = 16  # most characters between the start of a cut token and the cut
_EXPONENT = 3
_UNTERMINATED = "Unterminated string"
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclasses.dataclass(frozen=True, slots=True)
class CocoFile:
    """One annotation file."""

    path: str  # real path, or URI
    name: str  # path below the input, or the file name if it lies elsewhere
    kind: str  # objects, captions, panoptic, labels; images if it has no annotations
    split: str | None
    written_split: str  # as in its name, with its year; empty if the name has no split

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


def find_files(config: SourceConfig) -> tuple[list[CocoFile], list[Failure]]:
    """The annotation files of a call, and the other JSON files of its folder.

    Raises:
        OSError: the input cannot be listed or read.
        JobError, ValueError: a file that has to be an annotation file is broken, or is something else.
    """
    found: list[CocoFile] = []
    others: list[Failure] = []
    is_named = bool(config.annotations) or not is_folder(config.input)
    named = ((manifest.file, manifest.name) for manifest in manifests(config)) if is_named else ()
    for item in named or _json_files(config):
        if isinstance(item, Failure):
            others.append(item)
            continue
        path, name = item
        kind = kind_of(path, must_be=is_named or _is_named_like_coco(name))
        if kind is not None:
            found.append(_coco_file(config, path, name, kind))
        elif is_named:
            raise ValueError(
                f"{flag_of(config)} is {path!r}, which is not a COCO annotation file: "
                "at its top there is no list `images` with one of `annotations` or `categories`"
            )
        else:
            others.append(skipped(name, "not a COCO annotation file"))
    return found, others


def _json_files(config: SourceConfig) -> Iterator[tuple[str, str] | Failure]:
    """Path and name of each JSON file in the input: folder by folder, the nearest first."""
    root = real_path(config.input)
    confinement = Confinement((root, *config.image_roots))
    folders = collections.deque([(root, "")])
    seen = {root, *map(real_path, config.skip_dirs)}
    while folders:
        folder, prefix = folders.popleft()
        try:
            listed = entries(folder)
        except OSError as error:
            yield failed(prefix or "./", os_fault(error, "list"))
            continue
        inner = []
        for entry in listed:
            name = entry.basename
            if not name or is_hidden(name) or not is_unicode(name):
                continue
            if entry.name[-1] == "/":
                inner.append(name)
            elif extension_of(name) == "json":
                try:
                    yield located(entry, confinement)[0], prefix + name
                except (BadInput, OSError) as error:
                    fault = error if isinstance(error, BadInput) else os_fault(error, "list")
                    yield failed(prefix + name, fault)
        if prefix.count("/") == _DEPTH:
            continue
        for name in sorted(inner, key=lambda name: (name.lower() not in _LIKELY_FOLDERS, name)):
            path = confinement.followed(f"{folder}/{name}")
            if path is not None and path not in seen:
                seen.add(path)
                folders.append((path, f"{prefix}{name}/"))


def kind_of(path: str, must_be: bool) -> str | None:
    """The kind of a COCO file by its first megabyte, or else by its name; None for other JSON files.

    Raises:
        OSError: the file cannot be read.
        JobError: it `must_be` a COCO file, and is broken.
    """
    with open_file(path) as stream:
        data = stream.read(_PEEKED)
    sections = JsonSections(io.BytesIO(data), path, chunk=1 << 16)
    firsts: dict[str, Any] = {}
    is_complete = False
    try:
        for element in sections.elements():
            firsts.setdefault(element.section, element.value)
            if "images" in firsts and "annotations" in firsts:
                break
        else:
            is_complete = True
    except JobError:
        if len(data) < _PEEKED and must_be:
            raise
    name = os.path.basename(path)
    image, annotation = firsts.get("images"), firsts.get("annotations")
    if isinstance(image, dict):
        is_coco = "id" in image and ("file_name" in image or "coco_url" in image)
    elif isinstance(annotation, dict) and "image_id" in annotation:
        is_coco = bool(annotation.keys() & _KIND_OF_KEY.keys())
    else:  # the lists are empty, or come after the first megabyte
        lists = {"images", "annotations", "categories"}.intersection(sections.lists)
        is_likely = ("images" in lists and len(lists) > 1) or (bool(lists) and _is_named_like_coco(name))
        is_coco = is_likely and not firsts.keys() & {"images", "annotations"}
    if not is_coco:
        return None
    if is_complete and "annotations" not in firsts:
        return "images"
    if isinstance(annotation, dict):
        return next((kind for key, kind in _KIND_OF_KEY.items() if key in annotation), "objects")
    usual = "images" if name.startswith("image_info_") else "objects"
    words = re.split(r"[-_.]", name)
    return next((kind for kind in ("panoptic", "captions", "labels") if kind in words), usual)


def _is_named_like_coco(name: str) -> bool:
    name = name.rpartition("/")[2]
    return name == _ROBOFLOW or bool(_NAMED.fullmatch(name.removesuffix(".json")))


def _coco_file(config: SourceConfig, path: str, name: str, kind: str) -> CocoFile:
    """The file with its split: from its name, after the kind or anywhere, or else from its folder."""
    folder = (below(real_path(input_root(config)), path) or name).rpartition("/")[0].rpartition("/")[2]
    file_name = os.path.basename(path)
    stem = file_name.removesuffix(".json")
    written = folder if file_name == _ROBOFLOW or is_split_name(folder) else ""
    if match := _NAMED.fullmatch(stem):
        written = match["split"]
    elif len(parts := [part for part in re.split(r"[-_.]", stem) if is_split_name(part)]) == 1:
        (written,) = parts
    split = normal_split(without_year(written))
    return CocoFile(path, name, kind, None if split in ("", _NO_SPLIT) else split, written)


class Element(NamedTuple):
    """An element of the list with the key `section`."""

    section: str
    value: Any
    text: str  # in the file


class JsonSections:
    """The lists at the top level of a JSON file; `lists` has the keys of those read so far."""

    def __init__(self, stream: BinaryIO, path: str, chunk: int = _CHUNK) -> None:
        self._stream = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        self._path = path
        self._chunk = chunk
        self._text = ""
        self._at = 0
        self._ended = False
        self._passed = 0  # characters, and lines, before the text that is held
        self._lines = 1
        self.lists: list[str] = []

    def elements(self) -> Iterator[Element]:
        """The elements of all lists, in the order of the file.

        Raises:
            JobError: the file is no JSON object, is broken, or has a value of more than 64M characters.
        """
        if self._next() != "{":
            raise self._fault("no JSON object starts", self._at)
        for _ in self._until("}"):
            if self._next() != '"':
                raise self._fault("a key in double quotes is expected", self._at)
            key, _ = self._decode()
            self._take(":")
            if self._next() != "[":
                self._decode()
                continue
            self.lists.append(key)
            for _ in self._until("]"):
                self._next()
                yield Element(key, *self._decode())
        if self._next():
            raise self._fault("there is more after the end of the object", self._at)

    def _until(self, close: str) -> Iterator[None]:
        """Yields at each item of the object or list that starts here; consumes commas and brackets."""
        self._at += 1
        if self._next() != close:
            yield
        while self._next() != close:
            self._take(",")
            yield
        self._at += 1

    def _next(self) -> str:
        """The next character that is no space, without consuming it; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, char: str) -> None:
        if self._next() != char:
            raise self._fault(f"{char!r} is expected", self._at)
        self._at += 1

    def _decode(self) -> tuple[Any, str]:
        """Consumes a value; returns it, and its text."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self._text) - _TOKEN or error.msg.startswith(_UNTERMINATED)
                if not (cut and self._more()):
                    raise self._fault(error.msg[:1].lower() + error.msg[1:], error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self._fault("a value is nested too deeply, or too long a number", self._at) from error
            else:
                # a number at the end of the text may go on, at worst with `e-1`
                if end + _EXPONENT <= len(self._text) or not self._more():
                    text, self._at = self._text[self._at : end], end
                    return value, text

    def _more(self) -> bool:
        """Reads on, more for a longer value; False at the end of the file."""
        held = len(self._text) - self._at
        if held > _LONGEST:
            raise self._fault(f"a value has more than {_LONGEST} characters", self._at)
        try:
            more = self._stream.read(max(self._chunk, held))
        except UnicodeDecodeError as error:
            raise self._fault("a byte is not UTF-8", len(self._text)) from error
        self._ended = not more
        if more:
            self._passed += self._at
            self._lines += self._text.count("\n", 0, self._at)
            self._text = self._text[self._at :] + more
            self._at = 0
        return bool(more)

    def _fault(self, fault: str, at: int) -> JobError:
        line = self._lines + self._text.count("\n", 0, at)
        is_cut = self._ended and (at >= len(self._text.rstrip()) or fault.startswith(_UNTERMINATED.lower()))
        cut = "; it is cut off there" if is_cut else ""
        return JobError(
            f"{self._path!r} is broken: {fault}, at character {self._passed + at}, line {line}{cut}"
        )
