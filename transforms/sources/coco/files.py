"""The annotation files of a COCO dataset: finding them, what kind they are, which split they are of."""

from __future__ import annotations

import collections
import dataclasses
import io
import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

from recordmill.transforms.records import BadInput, Failure, JobError
from recordmill.transforms.sources.coco.json_sections import JsonSections
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
_CHUNK = 1 << 16
_DEPTH = 2  # folders below the input in which annotation files are looked for
_NAMED = re.compile(
    "(?:instances|person_keypoints|keypoints|captions|panoptic|stuff|labels|image_info)_(?P<split>.+)"
)
_ROBOFLOW = "_annotations.coco.json"
_NO_SPLIT = "default"  # what CVAT and Datumaro call the images of a task that has no splits
_OBJECT_KEYS = frozenset(("bbox", "segmentation", "keypoints"))
_ANNOTATION_KEYS = _OBJECT_KEYS | {"segments_info", "caption", "category_id"}
_LIKELY_FOLDERS = ("annotations", "panoptic")


@dataclasses.dataclass(frozen=True, slots=True)
class CocoFile:
    """One annotation file.

    Attributes:
        path: real path, or URI.
        name: below the input, where it lies there; else its file name.
        kind: `objects`, `captions`, `panoptic`, `labels`, or `images` where it has no annotations.
        split: of its images, or None.
        written_split: as its name has it, a year included; empty where it has none.
    """

    path: str
    name: str
    kind: str
    split: str | None
    written_split: str

    @property
    def folder(self) -> str:
        """Path of the folder it lies in."""
        return os.path.dirname(self.path)


def find_files(config: SourceConfig) -> tuple[list[CocoFile], list[Failure]]:
    """The annotation files of a call, and the JSON files of a folder that are none.

    Raises:
        OSError: the input cannot be looked at.
        JobError: a file that has to be one is broken in its first bytes.
        ValueError: a file that the call names is none.
    """
    found: list[CocoFile] = []
    others: list[Failure] = []
    if config.annotations or not is_folder(config.input):
        for manifest in manifests(config):
            kind = kind_of(manifest.file, must_be=True)
            if kind is None:
                raise ValueError(
                    f"{flag_of(config)} is {manifest.path!r}, which is not a COCO annotation file: "
                    "at its top there is no list `images` with one of `annotations` or `categories`"
                )
            found.append(_coco_file(config, manifest.file, manifest.name, kind))
        return found, others
    for item in _json_files(config):
        if isinstance(item, Failure):
            others.append(item)
        elif (kind := kind_of(item[0], must_be=_is_named_like_coco(item[1]))) is not None:
            found.append(_coco_file(config, *item, kind))
        else:
            others.append(skipped(item[1], "not a COCO annotation file"))
    return found, others


def _json_files(config: SourceConfig, most_folders: int | None = None) -> Iterator[tuple[str, str] | Failure]:
    """Path and name of each JSON file of a folder: folder by folder, those nearest to the input first."""
    root = real_path(config.input)
    confinement = Confinement((root, *config.image_roots))
    folders = collections.deque([(root, "")])
    seen = {root, *map(real_path, config.skip_dirs)}
    for _ in itertools.count() if most_folders is None else range(most_folders):
        if not folders:
            return
        folder, prefix = folders.popleft()
        try:
            listed = entries(folder)
        except OSError as error:
            yield failed(prefix or "./", os_fault(error, "list"))
            continue
        inner = []
        for entry in listed:
            is_inner = entry.name[-1] == "/"
            if not (is_inner or extension_of(entry.name) == "json") or entry.name == "/":
                continue
            if not is_unicode(entry.name) or is_hidden(entry.basename):
                continue
            if is_inner:
                inner.append(entry.basename)
                continue
            try:
                yield located(entry, confinement)[0], prefix + entry.name
            except BadInput as fault:
                yield failed(prefix + entry.name, fault)
            except OSError as error:
                yield failed(prefix + entry.name, os_fault(error, "list"))
        if prefix.count("/") == _DEPTH:
            continue
        for name in sorted(inner, key=lambda name: (name.lower() not in _LIKELY_FOLDERS, name)):
            path = confinement.followed(f"{folder}/{name}")
            if path is not None and path not in seen:
                seen.add(path)
                folders.append((path, f"{prefix}{name}/"))


def kind_of(path: str, must_be: bool) -> str | None:
    """The kind of an annotation file by its first megabyte, and else by its name; None where it is none.

    Args:
        path: of a JSON file.
        must_be: a broken one is an error.

    Raises:
        OSError: it cannot be read.
        JobError: it is broken, and must not be.
    """
    with open_file(path) as stream:
        data = stream.read(_PEEKED)
    sections = JsonSections(io.BytesIO(data), path, _CHUNK)
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
    annotation = firsts.get("annotations")
    if not _looks_like_coco(firsts, sections.lists, name):
        return None
    if is_complete and "annotations" not in firsts:
        return "images"
    if not isinstance(annotation, dict):
        kinds = ("panoptic", "captions", "labels")
        usual = "images" if name.startswith("image_info_") else "objects"
        return next((kind for kind in kinds if kind in re.split(r"[-_.]", name)), usual)
    if "segments_info" in annotation:
        return "panoptic"
    if "caption" in annotation:
        return "captions"
    return "labels" if "category_id" in annotation and not annotation.keys() & _OBJECT_KEYS else "objects"


def _looks_like_coco(firsts: dict[str, Any], lists: list[str], name: str) -> bool:
    image, annotation = firsts.get("images"), firsts.get("annotations")
    if isinstance(image, dict):
        return "id" in image and ("file_name" in image or "coco_url" in image)
    if isinstance(annotation, dict) and "image_id" in annotation and annotation.keys() & _ANNOTATION_KEYS:
        return True
    usual = {"images", "annotations", "categories"} & set(lists)
    # without an entry to look at: the lists are empty, or come after the first megabyte
    return not firsts.keys() & {"images", "annotations"} and (
        ("images" in usual and len(usual) > 1) or (bool(usual) and _is_named_like_coco(name))
    )


def _is_named_like_coco(name: str) -> bool:
    name = name.rpartition("/")[2]
    return name == _ROBOFLOW or bool(_NAMED.fullmatch(name.removesuffix(".json")))


def _coco_file(config: SourceConfig, path: str, name: str, kind: str) -> CocoFile:
    written = _written_split(os.path.basename(path), below(real_path(input_root(config)), path) or name)
    split = normal_split(without_year(written))
    return CocoFile(path, name, kind, None if split in ("", _NO_SPLIT) else split, written)


def _written_split(file_name: str, name: str) -> str:
    """The split in the name of a file: after its kind, or anywhere; else that of its folder."""
    folder = name.rpartition("/")[0].rpartition("/")[2]
    if file_name == _ROBOFLOW:
        return folder
    stem = file_name.removesuffix(".json")
    if match := _NAMED.fullmatch(stem):
        return match["split"]
    parts = [part for part in re.split(r"[-_.]", stem) if is_split_name(part)]
    if len(parts) == 1:
        return parts[0]
    return folder if is_split_name(folder) else ""
