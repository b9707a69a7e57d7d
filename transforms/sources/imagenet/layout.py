"""Where an ImageNet tree has what: folders of synsets, splits, boxes, and the files that tell labels."""

from __future__ import annotations

import collections
import dataclasses
import os
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
"""A WordNet id: what ImageNet calls a class."""

ILSVRC_NAME = re.compile(r"ILSVRC20[0-9]{2}_(train|val|test)_([0-9]{8})(?:_(n[0-9]{8}))?(?:\.|$)")
"""The name of an image: split, number and, as Hugging Face has it, synset."""

_ANNOTATION_FOLDERS = frozenset(
    ["annotations", "annotation", "bbox", "bboxes", "bounding_boxes", "xml", "xmls"]
)
_NOT_LOOKED_INTO = _ANNOTATION_FOLDERS | {"imagesets"}  # whose lists number the images, not the classes
_FOLDERS = 200
_DEPTH = 6


@dataclasses.dataclass(slots=True)
class Layout:
    """What there is in the folders above the images; keys of folders are empty or end in `/`.

    Attributes:
        root: real path of the input.
        confinement: inside which links have to lead.
        synsets: names of folders that are synsets.
        splits: keys of the folders of each split.
        annotations: keys of the folders of XML.
        files: keys of `.txt`, `.csv` and `.mat` files by name in lower case: those nearest to the root.
        named: an image that is named as ILSVRC's are; may be empty.
        named_splits: splits that only the names of such images tell.
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
        """The real path of a file by its key. Raises OSError where that is outside the roots."""
        return self.confinement.leads_to(self.path(key))


def split_of(key: str) -> str | None:
    """The split that the folders of an image tell, or else its name."""
    found = split_of_folders(key)
    if found is None and (match := ILSVRC_NAME.match(key.rpartition("/")[2])):
        return match[1]
    return found


def find_layout(config: SourceConfig, most: int = _FOLDERS) -> Layout:
    """Looks at the folders of a tree, down to those of synsets, which are not looked into.

    Args:
        config: of the source.
        most: folders that are looked at.

    Raises:
        OSError: one of them cannot be.
    """
    root = real_path(config.input)
    confinement = Confinement((root, *config.image_roots))
    layout = Layout(root, confinement)
    skipped = frozenset(map(real_path, config.skip_dirs))
    waiting = collections.deque([""])
    for _ in range(most):
        if not waiting:
            break
        prefix = waiting.popleft()
        for name in (entry.name for entry in entries(layout.path(prefix))):
            if is_hidden(name[:-1] if name[-1] == "/" else name):
                continue
            if name[-1] != "/":
                _note_file(layout, prefix, name)
            elif _is_visited(layout.path(prefix + name), skipped, confinement):
                _note_folder(layout, prefix, name[:-1], waiting)
    return layout


def _note_file(layout: Layout, prefix: str, name: str) -> None:
    if extension_of(name) in ("txt", "csv", "mat"):
        layout.files.setdefault(name.lower(), prefix + name)
    elif (match := ILSVRC_NAME.match(name)) and is_image_name(name):
        layout.named = layout.named or prefix + name
        if not any(map(is_split_name, prefix.split("/"))):
            layout.named_splits.add(match[1])


def _note_folder(layout: Layout, prefix: str, name: str, waiting: collections.deque[str]) -> None:
    key = f"{prefix}{name}/"
    if SYNSET.fullmatch(name):
        layout.synsets.add(name)
        return
    split = split_named(name)
    if split is not None and not any(map(is_split_name, prefix.split("/"))):
        layout.splits.setdefault(split, []).append(key)
    if name.lower() in _ANNOTATION_FOLDERS:
        layout.annotations.append(key)
    if name.lower() not in _NOT_LOOKED_INTO and key.count("/") < _DEPTH:
        waiting.append(key)


def _is_visited(path: str, skipped: frozenset[str], confinement: Confinement) -> bool:
    """Whether a folder is part of the input, as the walk over it has it."""
    return bool(os.path.basename(path)) and confinement.followed(path) not in (None, *skipped)
