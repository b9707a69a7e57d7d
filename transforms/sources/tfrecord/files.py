"""The TFRecord files of an input, the splits in their names, and files with class names next to them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.examples.framing import RecordFile
from recordmill.transforms.examples.label_map import map_items
from recordmill.transforms.records import ClassNames, Failure, JobError, add_classes
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import folder_of, split_named
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, open_file, status_of
from recordmill.transforms.storage.layout import LATEST, MANIFEST
from recordmill.transforms.storage.paths import absolute, real_path
from recordmill.transforms.storage.versions import latest_version, version_folder

_EXTENSION = r"\.(?:tfrecords?|tfrec|record)"
_SHARD = r"-\d{5}-of-\d{5}"
_PACKED = r"(?:\.(?:gz|gzip|zlib|zz))?"
_NAME = re.compile(
    rf"(?P<stem>.+?)(?:{_EXTENSION}{_PACKED}(?:{_SHARD})?{_PACKED}|{_SHARD}(?:{_EXTENSION})?{_PACKED})",
    re.IGNORECASE,
)
# Files with class names that are looked for next to an input that is one file.
_NEXT_TO_FILE = (MANIFEST, "label_map.pbtxt", "image.class.label.labels.txt", "label.labels.txt")
# Features of TFDS that may have a label file, the likeliest first.
_LABELS_TXT = ("image.class.label", "label", "labels", "class", "image.object.class.label", "image.label")
_METADATA = (MANIFEST, "features.json", "dataset_info.json", "failures.jsonl", "duplicates.jsonl")
_MOST_BYTES = 64 << 20


def is_tfrecord_name(name: str) -> bool:
    """Whether a file is named like TFRecords."""
    return _NAME.fullmatch(name) is not None


def split_of(key: str) -> str | None:
    """The split in a file's own name, or else in that of the nearest folder."""
    *folders, name = key.split("/")
    match = _NAME.fullmatch(name)
    stem = re.sub(f"{_SHARD}$", "", match["stem"]) if match else name
    parts = re.split(r"[-_. ]", stem)
    within = list(filter(split_named, parts))  # flowers_train_00000-of-00005
    tried = (stem, parts[-1], parts[0], *within[: len(within) == 1], *reversed(folders))
    return next(filter(None, map(split_named, tried)), None)


class Inputs(NamedTuple):
    """The TFRecord files of an input in the order of their keys, other files by key, and failures to list."""

    files: list[TreeFile]
    others: dict[str, TreeFile]
    failures: list[Failure]


def inputs(config: SourceConfig) -> Inputs:
    """The files in a folder, or in that of its latest version; or one file and the metadata next to it."""
    found = Inputs([], {}, [])
    if is_file(config.input):
        (folder, name), path = os.path.split(absolute(config.input)), real_path(config.input)
        status = status_of(path)
        found.files.append(TreeFile(name, path, status.size, status.version))
        around = Tree(folder, (os.path.dirname(path), *config.image_roots))
        others = map(around.file, _NEXT_TO_FILE)
        found.others.update({other.key: other for other in others if isinstance(other, TreeFile)})
        return found
    for item in Tree(_latest(config), config.image_roots, config.skip_dirs).files():
        if isinstance(item, Failure):
            found.failures.append(item)
        elif is_tfrecord_name(item.key.rpartition("/")[2]):
            found.files.append(item)
        else:
            found.others[item.key] = item
    return found


def _latest(config: SourceConfig) -> str:
    """The folder of the latest version, or the input. Raises OSError where a link to it leads outside."""
    folder, within = config.input, Confinement((config.input, *config.image_roots))
    with contextlib.suppress(ValueError):  # a latest.json of another program
        if within.holds(f"{folder}/{LATEST}") and (version := latest_version(folder)) is not None:
            return within.leads_to(version_folder(folder, version))
    return folder


def looks_framed(path: str) -> bool:
    """Whether a file begins as TFRecords do; the path is a real one."""
    with open_file(path) as stored:
        return RecordFile(stored).begins_with_record()


def is_metadata_name(name: str) -> bool:
    """Whether a file has the name of one that describes TFRecords."""
    return name in _METADATA or name.endswith(("label_map.pbtxt", ".labels.txt", ".idx"))


class Manifest(NamedTuple):
    """The manifest.json of ours in a folder, whose key is empty or ends in `/`."""

    folder: str
    splits: Mapping[str, str]  # by key of the file
    labels: Mapping[int, str]


def read_manifests(files: Mapping[str, TreeFile]) -> list[Manifest]:
    """The manifests of ours among files; other files of that name are ignored."""
    found = []
    for key, file in sorted(files.items()):
        folder = folder_of(key)
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
    if not defined:
        return None
    first = os.path.dirname(files[min(files)].path)
    return _merged(defined, f"the files that name classes, below {first!r}")


def _merged(found: Iterable[ClassNames], where: str) -> ClassNames:
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    for one in found:
        add_classes(names, texts, one, where)
    return ClassNames(names, texts)


def _labels_txt(file: TreeFile) -> ClassNames:
    lines = _text(file).removeprefix("\ufeff").rstrip().split("\n")
    return ClassNames({number: line.strip() for number, line in enumerate(lines) if line.strip()})


def _label_map(file: TreeFile) -> ClassNames:
    try:
        return read_label_map(_text(file), repr(file.path))
    except ValueError as error:
        raise JobError(f"{file.path!r} is not a label map: {error}") from error


def read_label_map(text: str, where: str = "the label map") -> ClassNames:
    """The classes of a label_map.pbtxt of the TF Object Detection API.

    Raises:
        ValueError: names the line, from 1, and its error.
        JobError: two items name a class differently.
    """
    items = [item for _, item in map_items(text)]
    texts = ({one.name: one.display} if one.display not in ("", one.name) else {} for one in items)
    return _merged(
        (ClassNames({one.number: one.name}, text) for one, text in zip(items, texts, strict=True)), where
    )


def _text(file: TreeFile) -> str:
    with open_file(file.path) as stored:
        data = stored.read(_MOST_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JobError(f"{file.path!r} is not UTF-8: {error}") from error
