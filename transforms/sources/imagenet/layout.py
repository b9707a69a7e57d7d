"""The folders of an ImageNet tree: synsets, splits, boxes, and the files that name labels."""

from __future__ import annotations

import collections
import dataclasses
import re

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    extension_of,
    is_hidden,
    is_image_name,
    is_split_name,
    split_named,
    split_of_folders,
)
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.paths import real_path

SYNSET = re.compile(r"n[0-9]{8}")
"""A WordNet id: ImageNet's name of a class."""

ILSVRC_NAME = re.compile(r"ILSVRC20[0-9]{2}_(train|val|test)_([0-9]{8})(?:_(n[0-9]{8}))?(?:\.|$)")
"""The name of an image: split, number and, in Hugging Face's copy, synset."""

_ANNOTATION_FOLDERS = ("annotations", "annotation", "bbox", "bboxes", "bounding_boxes", "xml", "xmls")
_NOT_ENTERED = (*_ANNOTATION_FOLDERS, "imagesets")  # lists in ImageSets number the images, not the classes
_FOLDERS = 200
_DEPTH = 6


@dataclasses.dataclass(slots=True)
class Layout:
    """The folders above the images; keys of folders are empty or end in `/`.

    Attributes:
        root: real path of the input.
        confinement: where links may lead.
        synsets: names of folders that are synsets.
        splits: keys of the folders of each split.
        annotations: keys of the folders of XML.
        files: keys of `.txt`, `.csv` and `.mat` files by name in lower case: those nearest to the root.
        named: an image named as ILSVRC's are; may be empty.
        named_splits: splits that only the names of such images have.
    """

    root: str
    confinement: Confinement
    synsets: set[str] = dataclasses.field(default_factory=set)
    splits: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    annotations: list[str] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    named: str = ""
    named_splits: set[str] = dataclasses.field(default_factory=set)

    def path(self, key: str) -> str:
        """The path of a file or folder by its key."""
        return f"{self.root}/{key}".rstrip("/")

    def file(self, key: str) -> str:
        """The real path of a file by its key. Raises OSError if that is outside the roots."""
        return self.confinement.leads_to(self.path(key))


def split_of(key: str) -> str | None:
    """The split in the folders of an image, or else in its name."""
    found = split_of_folders(key)
    if found is None and (match := ILSVRC_NAME.match(key.rpartition("/")[2])):
        return match[1]
    return found


def find_layout(config: SourceConfig, most: int = _FOLDERS) -> Layout:
    """Lists up to `most` folders of a tree, down to those of synsets, which are not entered.

    Raises:
        OSError: one of them cannot be listed.
    """
    root = real_path(config.input)
    layout = Layout(root, Confinement((root, *config.image_roots)))
    skipped = frozenset(map(real_path, config.skip_dirs))
    waiting = collections.deque([""])
    for _ in range(most):
        if not waiting:
            break
        prefix = waiting.popleft()
        is_in_split = any(map(is_split_name, prefix.split("/")))
        for entry in entries(layout.path(prefix)):
            name = entry.name.removesuffix("/")
            if is_hidden(name):
                continue
            if name == entry.name:
                _note_file(layout, prefix, name, is_in_split)
                continue
            path, key = layout.path(prefix + name), prefix + entry.name
            if not name or layout.confinement.followed(path) in (None, *skipped):
                continue
            if SYNSET.fullmatch(name):
                layout.synsets.add(name)
                continue
            if (split := split_named(name)) is not None and not is_in_split:
                layout.splits.setdefault(split, []).append(key)
            if name.lower() in _ANNOTATION_FOLDERS:
                layout.annotations.append(key)
            if name.lower() not in _NOT_ENTERED and key.count("/") < _DEPTH:
                waiting.append(key)
    return layout


def _note_file(layout: Layout, prefix: str, name: str, is_in_split: bool) -> None:
    if extension_of(name) in ("txt", "csv", "mat"):
        layout.files.setdefault(name.lower(), prefix + name)
    elif (match := ILSVRC_NAME.match(name)) and is_image_name(name):
        layout.named = layout.named or prefix + name
        if not is_in_split:
            layout.named_splits.add(match[1])
