"""The files of a LabelMe tree, by what they are."""

from __future__ import annotations

import dataclasses
import hashlib

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.image_index import (
    ImageIndex,
    split_folders,
)
from recordmill.transforms.sources.names import extension_of, folder_of, is_image_name
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.voc.tree import NO_ANNOTATIONS_FILE

_CLASS_FILES = ("labels.txt", "class_names.txt")
_ANNOTATIONS = "Annotations"


@dataclasses.dataclass(slots=True)
class LabelmeTree:
    """A whole input.

    Attributes:
        annotations: JSON and XML, in the order of their keys.
        images: all, but for masks.
        masks: PNGs of the web tool's Masks, by key.
        class_files: lists of the classes.
        unread: what else there is, and what cannot be looked at.
    """

    annotations: list[TreeFile]
    images: ImageIndex
    masks: dict[str, TreeFile]
    class_files: list[TreeFile]
    unread: list[Failure]

    @property
    def version(self) -> int:
        """Tells one state of the annotations, and of which images there are, from another."""
        digest = hashlib.sha256()
        for file in self.annotations:
            digest.update(repr((file.key, file.size, file.version)).encode())
        for key in self.images.all_keys():
            digest.update(repr(key).encode())
        return int.from_bytes(digest.digest()[:7], "big")

    def splits(self) -> tuple[str, ...]:
        """The splits that the folders of the annotations are named as."""
        folders = [folder_of(file.key) for file in self.annotations]
        below = [folder.rpartition(f"{_ANNOTATIONS}/")[2] for folder in folders]
        return split_folders(folders) or split_folders(below)


def walk(config: SourceConfig) -> LabelmeTree:
    """Lists all files of an input."""
    tree = LabelmeTree([], ImageIndex(config), {}, [], [])
    for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
        if isinstance(file, Failure):
            tree.unread.append(file)
            continue
        extension, folders = extension_of(file.key), file.key.split("/")[:-1]
        if extension in ("json", "xml"):
            tree.annotations.append(file)
        elif file.key.rpartition("/")[2] in _CLASS_FILES:
            tree.class_files.append(file)
        elif extension == "png" and "Scribbles" in folders:
            tree.unread.append(Failure(file.key, "list", "scribbles are not read", skipped=True))
        elif extension == "png" and "Masks" in folders:
            tree.masks[file.key] = file
        elif is_image_name(file.key):
            tree.images.add(file)
        else:
            tree.unread.append(Failure(file.key, "list", NO_ANNOTATIONS_FILE, skipped=True))
    return tree


def holds_annotations(config: SourceConfig) -> bool:
    """Whether there is any file of annotations; stops at the first."""
    files = Tree(config.input, config.image_roots, config.skip_dirs).files()
    return any(isinstance(file, TreeFile) and extension_of(file.key) in ("json", "xml") for file in files)


def web_folders(key: str) -> tuple[str, str]:
    """Of an XML file, the keys of the tree that it is in, and of its folder below Annotations."""
    folders = folder_of(key).rstrip("/").split("/")
    if _ANNOTATIONS not in folders:
        return folder_of(key), ""
    at = folders.index(_ANNOTATIONS)
    above, below = ("".join(f"{folder}/" for folder in some) for some in (folders[:at], folders[at + 1 :]))
    return above, below
