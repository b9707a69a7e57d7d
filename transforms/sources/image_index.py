"""The images beside files of annotations: which one an annotation means, and which none does."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_image_name, is_split_name, stem_of
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.file_system import scheme_of
from recordmill.transforms.storage.paths import real_path

NO_IMAGE = "annotation without its image"
IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "image", "imgs", "PNGImages")
_DRIVE = re.compile(r"[A-Za-z]:/")
_USUAL_EXTENSIONS = ("jpg", "jpeg", "png")


class ImageIndex:
    """The images of a tree, by what annotations call them.

    Args:
        config: of the source.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._root = real_path(config.input)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._confinement = Confinement((self._root, *self._image_roots))
        self._files: dict[str, tuple[str, int, int]] = {}  # path where it is no other, size, version
        self._by_stem: dict[str, str] = {}
        self._by_name: dict[str, str | None] | None = None
        self._claims: dict[str, str] = {}

    def add(self, file: TreeFile) -> None:
        """Takes an image of the tree; those that come first are found first."""
        is_usual = file.path == f"{self._root}/{file.key}"
        self._files[file.key] = ("" if is_usual else file.path, file.size, file.version)
        self._by_stem.setdefault(stem_of(file.key), file.key)

    def find(self, named: str, folders: Sequence[str], stem: str) -> TreeFile:
        """The image of an annotation: by its name, or else by a stem, or else the only one so named.

        Args:
            named: path that the annotation gives; may be empty.
            folders: keys to look below, each empty or ending in `/`.
            stem: path without its extension that the image has where it is not as `named`.

        Raises:
            BadInput: stage `annotations`; `annotation without its image`, or `outside the input root`.
            OSError: one that may pass, and has not.
        """
        named = named.replace("\\", "/")
        if _DRIVE.match(named):
            named = named.rpartition("/")[2]  # of another machine
        if named.startswith("/") or scheme_of(named) or ".." in named.split("/"):
            try:
                return self._led_to(named, folders)
            except BadInput as fault:
                if fault.reason != NO_IMAGE:
                    raise
            named = named.rpartition("/")[2]
        found = self._below(named, folders, stem)
        if found is None and self._image_roots:
            names = (named, *(f"{stem}.{extension}" for extension in _USUAL_EXTENSIONS))
            found = next(filter(None, (self._in_image_roots(name) for name in names if name)), None)
        if found is None:
            raise BadInput("annotations", NO_IMAGE, f"{named or stem}; where it lies, --image_root may tell")
        return found

    def _below(self, named: str, folders: Sequence[str], stem: str) -> TreeFile | None:
        stems = [stem_of(named), stem] if named else [stem]
        keys = [self._by_stem.get(folder + one) for one in stems for folder in folders]
        if named:
            keys[:0] = [folder + named for folder in folders]
        found = next((key for key in keys if key in self._files), None)
        if found is None and named:
            found = self._only(named.rpartition("/")[2])
        return None if found is None else self.at(found)

    def _only(self, name: str) -> str | None:
        """The key of the only image with a file name."""
        if self._by_name is None:
            self._by_name = {}
            for key in self._files:
                last = key.rpartition("/")[2]
                self._by_name[last] = None if last in self._by_name else key
        return self._by_name.get(name)

    def _led_to(self, named: str, folders: Sequence[str]) -> TreeFile:
        """The image at a path that may lead anywhere."""
        if not named.startswith("/") and not scheme_of(named):
            for folder in folders:
                found = self.at(posixpath.normpath(folder + named))
                if found is not None:
                    return found
        bases = [f"{self._root}/{folder}".rstrip("/") for folder in folders]
        return self._located(named, [*bases, *self._image_roots])

    def _in_image_roots(self, named: str) -> TreeFile | None:
        try:
            return self._located(named, self._image_roots)
        except BadInput as fault:
            if fault.reason == OUTSIDE:
                raise
            return None

    def _located(self, named: str, bases: Sequence[str]) -> TreeFile:
        try:
            found = self._confinement.find(named, bases)
        except BadInput as fault:
            reason = NO_IMAGE if fault.reason == "not found" else fault.reason
            raise BadInput("annotations", reason, fault.detail) from fault
        if not is_image_name(found.key):
            raise BadInput("annotations", NO_IMAGE, f"{named} is not an image by name")
        is_below = found.path == f"{self._root}/{found.key}"
        known = self.at(found.key) if is_below else None
        return known or TreeFile(found.key, found.path, found.size, found.version)

    def at(self, key: str) -> TreeFile | None:
        """The image with a key."""
        found = self._files.get(key)
        if found is None:
            return None
        path, size, version = found
        return TreeFile(key, path or f"{self._root}/{key}", size, version)

    def claim(self, image: TreeFile, annotation: str) -> None:
        """Tells that an image is that of an annotation.

        Raises:
            BadInput: stage `annotations`, `image has another annotation`: it is that of another one.
        """
        other = self._claims.setdefault(image.key, annotation)
        if other != annotation:
            raise BadInput("annotations", "image has another annotation", f"{image.key} is that of {other}")

    def unclaimed(self) -> Iterator[str]:
        """The keys of the images that are of no annotation, in order."""
        return (key for key in self.all_keys() if key not in self._claims)

    def all_keys(self) -> list[str]:
        """The keys of all images, in order."""
        return sorted(self._files)


def split_folders(folders: Iterable[str]) -> tuple[str, ...]:
    """The splits named by folders of annotations: all first parts below any wrapper, or none.

    Args:
        folders: of each file of annotations, ending in `/`; empty for the root.
    """
    parts = {tuple(folder.split("/")) for folder in folders}
    while len(firsts := {part[0] for part in parts}) == 1 and not is_split_name(*firsts) and firsts != {""}:
        parts = {part[1:] for part in parts}
    return tuple(sorted(firsts)) if firsts and all(map(is_split_name, firsts)) else ()
