"""Finds the images and panoptic masks of COCO annotation files."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Collection, Iterator

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.coco.files import CocoFile
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_hidden, is_image_name, is_unicode, printable
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.tables.manifests import image_folders, input_root
from recordmill.transforms.storage.confinement import Confinement, LocatedFile
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.paths import below, real_path

_IMAGE_FOLDERS = ("images", "data", "JPEGImages")
_HINTS = 10  # missing images for which a message suggests a folder
_LISTED = 10_000  # names of a folder in a bucket
_DRIVE = re.compile(r"[A-Za-z]:/")


class CocoImages:
    """Finds images and masks by their names in annotation files, also below the folders of these files."""

    def __init__(self, config: SourceConfig, files: Collection[CocoFile]) -> None:
        self._root = real_path(input_root(config))
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        self._roots = (self._root, *self._image_roots, *dict.fromkeys(file.folder for file in files))
        self._confinement = Confinement(self._roots)
        self._files = files
        self._is_folder = functools.cache(is_folder)
        self._other_names = functools.cache(_other_names)
        self._bases = functools.cache(self._existing)
        self._image_folders: dict[str, str] = {}
        self._masks: set[str] = set()
        self._hints = _HINTS

    def image(self, file: CocoFile, name: str) -> LocatedFile:
        """The image that an annotation file calls `name`. Raises BadInput as `Confinement.find`."""
        try:
            found = self._found(file, name, is_mask=False)
        except BadInput as fault:
            if fault.reason != "not found" or not self._hints:
                raise
            self._hints -= 1
            fault.detail += self._remedy(file, name)
            raise
        prefix = found.key.rpartition("/")[0]
        if prefix not in self._image_folders and found.path.endswith(f"/{found.key}"):
            self._image_folders[prefix] = os.path.dirname(found.path)  # no link is on the way
        return found

    def mask(self, file: CocoFile, name: str) -> LocatedFile:
        """The panoptic mask that an annotation file calls `name`. Raises BadInput as `Confinement.find`."""
        found = self._found(file, name, is_mask=True)
        if os.path.dirname(found.path) in self._image_folders.values():
            self._masks.add(found.key)
        return found

    def unlisted(self, listed: Collection[Collection[str]], selection: Selection) -> Iterator[Failure]:
        """The images in the folders of the found ones that no file lists."""
        for prefix, folder in sorted(self._image_folders.items()):
            for entry in entries(folder) if folder not in self._skip_dirs else ():
                key = f"{prefix}/{entry.name}" if prefix else entry.name
                if is_hidden(entry.name) or not is_image_name(entry.name) or key in self._masks:
                    continue
                if not any(key in keys for keys in listed):
                    yield selection.left_out(key, "image without annotations")

    def _remedy(self, file: CocoFile, name: str) -> str:
        """The flags for the folders with an image, next to its annotation file or in the input."""
        found = []
        around = dict.fromkeys((file.folder, self._root))
        for folder in itertools.chain.from_iterable(map(image_folders, around)):
            with contextlib.suppress(BadInput):
                self._find(name, (folder,))
                found.append(flag_with("--image_root", folder))
        return f"; {' or '.join(found)} finds it" if found else ""

    def _found(self, file: CocoFile, name: str, is_mask: bool) -> LocatedFile:
        """The file in one of the usual folders, or else in one whose name differs from theirs in case."""
        try:
            return self._find(name, self._bases(file, is_mask, False))
        except BadInput as fault:
            if fault.reason != "not found":
                raise
        return self._find(name, self._bases(file, is_mask, True))

    def _existing(self, file: CocoFile, is_mask: bool, in_any_case: bool) -> tuple[str, ...]:
        folders = self._mask_folders(file) if is_mask else self._usual_folders(file)
        if in_any_case:
            folders = itertools.chain.from_iterable(map(self._respelled, folders))
        return tuple(dict.fromkeys(filter(self._is_folder, folders)))

    def _respelled(self, folder: str) -> Iterator[str]:
        """The folder if it exists, or else folders whose names differ from it only in case."""
        if folder in self._roots or self._is_folder(folder):
            yield folder
            return
        around, _, name = folder.rpartition("/")
        for one in self._respelled(around):
            others = self._other_names(one)
            yield from (f"{one}/{other}" for other in others if other.lower() == name.lower())

    def _find(self, name: str, bases: tuple[str, ...]) -> LocatedFile:
        """The file of that name; if there is none, the name is read as a Windows path."""
        slashed = name.replace("\\", "/")
        if _DRIVE.match(slashed):
            slashed = slashed.rpartition("/")[2]  # of another machine
        faults = []
        for one in (name, slashed) if "\\" in name else (name,):
            try:
                found = self._confinement.find(_checked(one), bases)
                _checked(found.key)
                return found
            except BadInput as fault:
                faults.append(fault)
                if fault.reason != "not found":
                    break
        shown = faults[0] if faults[-1].reason == "not found" else faults[-1]
        raise BadInput("annotations", shown.reason, shown.detail) from shown

    def _usual_folders(self, file: CocoFile) -> Iterator[str]:
        roots = dict.fromkeys((file.folder, self._root, *self._folders_above(file), *self._image_roots))
        yield from roots
        # files of one split may name it with and without its year
        written = (one.written_split for one in self._files if one.split == file.split)
        for split in dict.fromkeys((file.written_split, *written, file.split)):
            for root in roots if split else ():
                yield from (f"{root}/{folder}/{split}" for folder in _IMAGE_FOLDERS)
                yield from (f"{root}/{split}", *(f"{root}/{split}/{folder}" for folder in _IMAGE_FOLDERS))
        yield from (f"{root}/{folder}" for root in roots for folder in _IMAGE_FOLDERS)

    def _mask_folders(self, file: CocoFile) -> Iterator[str]:
        stem = os.path.basename(file.path).removesuffix(".json")
        for root in dict.fromkeys((file.folder, *self._folders_above(file), self._root, *self._image_roots)):
            inner = (stem, f"annotations/{stem}", f"panoptic/{stem}", "panoptic")
            yield from (*(f"{root}/{folder}" for folder in inner), root)

    def _folders_above(self, file: CocoFile) -> Iterator[str]:
        folder = file.folder
        while below(self._root, folder) is not None:
            yield folder
            folder = os.path.dirname(folder)


def _checked(name: str) -> str:
    if not is_unicode(name):
        raise BadInput("annotations", "name is not UTF-8", printable(name))
    return name


def _other_names(folder: str) -> list[str]:
    try:
        names = names_in(folder, _LISTED)
    except OSError as error:
        raise os_fault(error, "annotations") from error
    return [name for name in names if not is_image_name(name)]
