"""Class names in files next to TFRecords: manifest.json, label_map.pbtxt and *.labels.txt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.examples.label_map_items import map_items
from recordmill.transforms.records import ClassNames, JobError
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.files import open_file
from recordmill.transforms.storage.layout import MANIFEST

# Features of TFDS that may have a label file, the likeliest first.
_LABELS_TXT = ("image.class.label", "label", "labels", "class", "image.object.class.label", "image.label")
_METADATA = (MANIFEST, "features.json", "dataset_info.json", "failures.jsonl")
_MOST_BYTES = 64 << 20


def is_metadata_name(name: str) -> bool:
    """Whether a file has the name of one that describes TFRecords."""
    return name in _METADATA or name.endswith(("label_map.pbtxt", ".labels.txt", ".idx"))


class Manifest(NamedTuple):
    """The manifest.json of a dataset of ours: splits by key of the file, and class names by id.

    The key of its folder ends in `/`, or is empty.
    """

    folder: str
    splits: Mapping[str, str]
    labels: Mapping[int, str]


def read_manifests(files: Mapping[str, TreeFile]) -> list[Manifest]:
    """The manifests of ours among files; other files of that name are ignored."""
    found = []
    for key, file in sorted(files.items()):
        folder = key[: key.rfind("/") + 1]
        if key != f"{folder}{MANIFEST}":
            continue
        try:
            content: Any = json.loads(_text(file))
            splits = {
                f"{folder}{shard['file']}": str(split)
                for split, described in content["splits"].items()
                for shard in described["shards"]
            }
            labels = {int(number): str(name) for number, name in content["labels"].items()}
            if "format_version" in content:
                found.append(Manifest(folder, splits, labels))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found


def defined_classes(files: Mapping[str, TreeFile], found: Iterable[Manifest]) -> ClassNames | None:
    """The classes that manifests of ours, else label maps, else a label file of TFDS define.

    Raises:
        JobError: two of them name a class differently, or one cannot be read.
    """
    defined = [ClassNames(manifest.labels) for manifest in found if manifest.labels]
    if not defined:
        defined = [_label_map(files[key]) for key in sorted(files) if key.endswith("label_map.pbtxt")]
    for feature in _LABELS_TXT:
        if not defined:
            same = (key for key in sorted(files) if key.rpartition("/")[2] == f"{feature}.labels.txt")
            defined = [_labels_txt(files[key]) for key in same]
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for one in defined:
        add_classes(names, texts, one)
    return ClassNames(names, texts) if defined else None


def add_classes(names: dict[int, str], texts: dict[str, str], found: ClassNames) -> None:
    """Adds classes to names by id and display texts by name.

    Raises:
        JobError: a class has another name already.
    """
    for number, name in found.names.items():
        if names.setdefault(number, name) != name:
            raise JobError(
                f"class {number} is called {names[number]!r} and {name!r} in the input; "
                "convert the parts of it apart"
            )
    for name, text in found.texts.items():
        texts[name] = min(text, texts.get(name, text))  # whatever the order


def _labels_txt(file: TreeFile) -> ClassNames:
    lines = _text(file).removeprefix("\ufeff").rstrip().split("\n")
    return ClassNames({number: line.strip() for number, line in enumerate(lines) if line.strip()})


def _label_map(file: TreeFile) -> ClassNames:
    try:
        return read_label_map(_text(file))
    except ValueError as error:
        raise JobError(f"{file.path!r} is not a label map: {error}") from error


def read_label_map(text: str) -> ClassNames:
    """The classes of a label_map.pbtxt of the TF Object Detection API.

    Raises:
        ValueError: names the line, from 1, and its error.
        JobError: two items name a class differently.
    """
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for _, item in map_items(text):
        shown = item.display not in ("", item.name)
        add_classes(names, texts, ClassNames({item.number: item.name}, {item.name: item.display} if shown else {}))
    return ClassNames(names, texts)


def _text(file: TreeFile) -> str:
    with open_file(file.path) as stored:
        data = stored.read(_MOST_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JobError(f"{file.path!r} is not UTF-8: {error}") from error
