"""The folders of an ImageNet tree: synsets, splits, boxes, and the files that name labels."""

from __future__ import annotations

import collections
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
_IMAGE_SETS = "imagesets"  # its lists number the images, not the classes
_FOLDERS = 200
_DEPTH = 6


class Layout:
    """The folders above the images, down to those of synsets; keys of folders are empty or end in `/`.

    Args:
        config: of the source.
        most: the number of folders to list.

    Raises:
        OSError: a folder cannot be listed.
    """

    def __init__(self, config: SourceConfig, most: int = _FOLDERS) -> None:
        self.root = real_path(config.input)
        self.confinement = Confinement((self.root, *config.image_roots))
        self.synsets: set[str] = set()  # names of folders
        self.splits: dict[str, list[str]] = {}  # keys of the folders of each split
        self.annotations: list[str] = []  # keys of the folders of XML
        self.files: dict[str, str] = {}  # keys by name in lower case, of .txt, .csv and .mat near the root
        self.named = ""  # an image named as ILSVRC's are
        self.named_splits: set[str] = set()  # splits that only the names of such images have
        skipped = (None, *map(real_path, config.skip_dirs))
        self._waiting = collections.deque([""])
        for _ in range(most):
            if not self._waiting:
                break
            prefix = self._waiting.popleft()
            is_in_split = any(map(is_split_name, prefix.split("/")))
            for entry in entries(self.path(prefix)):
                name = entry.name.removesuffix("/")
                if not name or is_hidden(name):
                    continue
                if name == entry.name:
                    self._note_file(prefix, name, is_in_split)
                elif self.confinement.followed(self.path(prefix + name)) not in skipped:
                    self._note_folder(prefix, name, is_in_split)

    def _note_file(self, prefix: str, name: str, is_in_split: bool) -> None:
        if extension_of(name) in ("txt", "csv", "mat"):
            self.files.setdefault(name.lower(), prefix + name)
        elif (match := ILSVRC_NAME.match(name)) and is_image_name(name):
            self.named = self.named or prefix + name
            if not is_in_split:
                self.named_splits.add(match[1])

    def _note_folder(self, prefix: str, name: str, is_in_split: bool) -> None:
        key = f"{prefix}{name}/"
        if SYNSET.fullmatch(name):
            self.synsets.add(name)
            return
        if (split := split_named(name)) is not None and not is_in_split:
            self.splits.setdefault(split, []).append(key)
        if name.lower() in _ANNOTATION_FOLDERS:
            self.annotations.append(key)
        elif name.lower() != _IMAGE_SETS and key.count("/") < _DEPTH:
            self._waiting.append(key)

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
