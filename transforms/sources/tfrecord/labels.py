"""Names of labels that lie beside TFRecords, or in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.records import ClassNames, JobError
from recordmill.transforms.sources.names import clipped
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.files import open_file

MANIFEST = "manifest.json"

_LABELS_TXT = ("image.class.label", "label", "labels", "class", "image.object.class.label", "image.label")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|#[^\n]*|[{}:;,<>\[\]]|[^\s{}:;,<>\[\]"\'#]+')
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_METADATA = (MANIFEST, "features.json", "dataset_info.json", "failures.jsonl")
_MOST_BYTES = 64 << 20


def is_metadata_name(name: str) -> bool:
    """Whether a file is called like those that tell of the TFRecords beside it."""
    return name in _METADATA or name.endswith(("label_map.pbtxt", ".labels.txt", ".idx"))


class Manifest(NamedTuple):
    """The manifest.json of a dataset of ours.

    Attributes:
        folder: key of the folder it lies in, ending in `/`, or empty.
        splits: of each file it lists, by key.
        labels: names by id.
    """

    folder: str
    splits: Mapping[str, str]
    labels: Mapping[int, str]


def manifests(beside: Mapping[str, TreeFile]) -> list[Manifest]:
    """The manifests of ours that lie beside TFRecords; files of that name that are none are passed over."""
    found = []
    for key, file in sorted(beside.items()):
        folder, _, name = key.rpartition("/")
        if name == MANIFEST and (read := _manifest(file, f"{folder}/" if folder else "")) is not None:
            found.append(read)
    return found


def _manifest(file: TreeFile, folder: str) -> Manifest | None:
    try:
        content: Any = json.loads(_text(file))
        splits = {
            f"{folder}{shard['file']}": str(split)
            for split, described in content["splits"].items()
            for shard in described["shards"]
        }
        labels = {int(number): str(name) for number, name in content["labels"].items()}
        return Manifest(folder, splits, labels) if "format_version" in content else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def names_beside(beside: Mapping[str, TreeFile], found: Iterable[Manifest]) -> ClassNames | None:
    """The classes that a manifest of ours, else label maps, else a label file of TFDS define.

    Raises:
        JobError: two of them name a class differently, or one cannot be read.
    """
    names = [ClassNames(manifest.labels) for manifest in found if manifest.labels]
    if not names:
        maps = (file for key, file in sorted(beside.items()) if key.endswith("label_map.pbtxt"))
        names = [_label_map(file) for file in maps]
    if not names:
        names = [_label_file(file) for file in _label_files(beside)]
    return _joined(names) if names else None


def _joined(found: list[ClassNames]) -> ClassNames:
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for one in found:
        texts.update(one.texts)
        for number, name in one.names.items():
            add_name(names, number, name)
    return ClassNames(names, texts)


def add_name(names: dict[int, str], number: int, name: str) -> None:
    """Takes in the name of a class. Raises JobError where it has another already."""
    if names.setdefault(number, name) != name:
        raise JobError(
            f"class {number} is called {names[number]!r} and {name!r} in the input; "
            "convert the parts of it apart"
        )


def _label_files(beside: Mapping[str, TreeFile]) -> list[TreeFile]:
    """The label files of the likeliest feature that has any."""
    for feature in _LABELS_TXT:
        name = f"{feature}.labels.txt"
        if files := [file for key, file in sorted(beside.items()) if key.rpartition("/")[2] == name]:
            return files
    return []


def _label_file(file: TreeFile) -> ClassNames:
    lines = _text(file).removeprefix("\ufeff").rstrip().split("\n")
    return ClassNames({number: line.strip() for number, line in enumerate(lines) if line.strip()})


def _label_map(file: TreeFile) -> ClassNames:
    try:
        return read_label_map(_text(file))
    except ValueError as error:
        raise JobError(f"{file.path!r} is not a label map: {error}") from error


def read_label_map(text: str) -> ClassNames:
    """The classes of a label_map.pbtxt: items of the TF Object Detection API, as text.

    Raises:
        ValueError: it has no item, or one without an id or a name.
    """
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for item in _items(text):
        number, name = item.get("id", ""), item.get("name", item.get("display_name", ""))
        if not re.fullmatch(r"-?[0-9]{1,18}", number) or not name:
            raise ValueError(f"an item has the id {clipped(number)!r} and the name {clipped(name)!r}")
        add_name(names, int(number), name)
        if item.get("display_name", name) != name:
            texts[name] = item["display_name"]
    if not names:
        raise ValueError("it has no item")
    return ClassNames(names, texts)


def _items(text: str) -> list[dict[str, str]]:
    """The fields of each item, those of messages within it left out."""
    items: list[dict[str, str]] = []
    depth, last, field = 0, "", ""
    for token in _TOKEN.findall(text):
        if token.startswith("#") or token in ",;[]":
            continue
        if token in "{<":
            depth += 1
            if depth == 1 and (field or last) == "item":
                items.append({})
            last = field = ""
        elif token in "}>":
            depth -= 1
            last = field = ""
        elif token == ":":
            field = last
        elif field:
            if depth == 1 and items:
                items[-1][field] = _unquoted(token)
            last = field = ""
        else:
            last = token
    return items


def _unquoted(token: str) -> str:
    if token[0] not in "\"'":
        return token
    return _ESCAPE.sub(_escaped, token[1:-1].encode()).decode(errors="replace")


def _escaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes((int(code[1:], 16),))
    if code.isdigit() and code[0] < ord("8"):
        return bytes((int(code, 8) & 0xFF,))
    return _ESCAPES.get(code, code)


def _text(file: TreeFile) -> str:
    """The text of a small file. Raises JobError where it is not UTF-8."""
    with open_file(file.path) as stored:
        data = stored.read(_MOST_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JobError(f"{file.path!r} is not UTF-8: {error}") from error
