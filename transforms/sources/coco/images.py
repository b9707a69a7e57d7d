"""Where the images and panoptic masks of COCO annotation files lie."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.coco.files import CocoFile
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_hidden, is_image_name, is_unicode, printable
from recordmill.transforms.sources.selection import EXCLUDED, Selection
from recordmill.transforms.sources.tables.images import image_folders
from recordmill.transforms.sources.tables.manifests import input_root
from recordmill.transforms.storage.confinement import Confinement, LocatedFile
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.paths import below, real_path

_IMAGE_FOLDERS = ("images", "data", "JPEGImages")
_HINTS = 10  # images that are looked for in further folders, for a message
_LISTED = 10_000  # names of a folder, where calls wait for a service
_DRIVE = re.compile(r"[A-Za-z]:/")


@dataclasses.dataclass(frozen=True, slots=True)
class _Bases:
    """The folders in which the file names of an annotation file are looked up.

    Attributes:
        folders: paths.
        in_any_case: whether folders whose names differ in case are included.
    """

    folders: tuple[str, ...]
    in_any_case: bool = False


class CocoPlaces:
    """Finds images and masks by the names that annotations give them.

    Args:
        config: of the source.
        files: all annotation files: what lies below their folders may be read.
    """

    def __init__(self, config: SourceConfig, files: Collection[CocoFile]) -> None:
        self._root = real_path(input_root(config))
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        folders = tuple(dict.fromkeys(file.folder for file in files))
        self._roots = (self._root, *self._image_roots, *folders)
        self._confinement = Confinement(self._roots)
        self._written: dict[str | None, dict[str, None]] = {}
        for file in files:
            self._written.setdefault(file.split, {})[file.written_split] = None
        self._is_folder: dict[str, bool] = {}
        self._image_bases: dict[str, _Bases] = {}
        self._mask_bases: dict[str, _Bases] = {}
        self._others: dict[str, list[str]] = {}  # by folder: names in it that are not those of images
        self._image_folders: dict[str, str] = {}
        self._masks: set[str] = set()
        self._hints = _HINTS

    def image(self, file: CocoFile, name: str) -> LocatedFile:
        """The image that an annotation file calls `name`.

        Raises:
            BadInput: stage `annotations`; as `Confinement.find`.
        """
        try:
            found = self._found(file, name, self._image_bases, self._image_candidates)
        except BadInput as fault:
            if fault.reason != "not found" or not self._hints:
                raise
            self._hints -= 1
            raise BadInput(fault.stage, fault.reason, fault.detail + self._remedy(file, name)) from fault
        prefix = found.key.rpartition("/")[0]
        if prefix not in self._image_folders and found.path.endswith(f"/{found.key}"):
            self._image_folders[prefix] = os.path.dirname(found.path)  # no link is on the way
        return found

    def mask(self, file: CocoFile, name: str) -> LocatedFile:
        """The panoptic mask that an annotation file calls `name`.

        Raises:
            BadInput: stage `annotations`; as `Confinement.find`.
        """
        found = self._found(file, name, self._mask_bases, self._mask_candidates)
        if os.path.dirname(found.path) in self._image_folders.values():
            self._masks.add(found.key)
        return found

    def _remedy(self, file: CocoFile, name: str) -> str:
        """The flags for the folders next to an annotation file, or in the input, that have an image."""
        found = []
        around = dict.fromkeys((file.folder, self._root))
        for folder in itertools.chain.from_iterable(map(image_folders, around)):
            with contextlib.suppress(BadInput):
                self._find(name, (folder,))
                found.append(flag_with("--image_root", folder))
        return f"; {' or '.join(found)} finds it" if found else ""

    def unlisted(self, listed: Collection[Collection[str]], selection: Selection) -> Iterator[Failure]:
        """The images in the folders of those that were found that no annotation file lists.

        Args:
            listed: keys of those that are.
            selection: of the call.
        """
        for prefix, folder in sorted(self._image_folders.items()):
            if folder in self._skip_dirs:
                continue
            for name in (entry.name for entry in entries(folder)):
                key = f"{prefix}/{name}" if prefix else name
                if is_hidden(name) or not is_image_name(name) or key in self._masks:
                    continue
                if any(key in keys for keys in listed):
                    continue
                reason = "image without annotations" if selection.takes(key) else EXCLUDED
                yield Failure(printable(key), "list", reason, skipped=True)

    def _found(
        self,
        file: CocoFile,
        name: str,
        bases: dict[str, _Bases],
        candidates: Callable[[CocoFile], Iterator[str]],
    ) -> LocatedFile:
        """The file below the candidates, or else below folders whose names differ from theirs in case."""
        known = bases.get(file.path)
        if known is None:
            known = bases[file.path] = _Bases(self._existing(candidates(file)))
        try:
            return self._find(name, known.folders)
        except BadInput as fault:
            if known.in_any_case or fault.reason != "not found":
                raise
        spelled = itertools.chain.from_iterable(map(self._in_any_case, candidates(file)))
        known = bases[file.path] = _Bases(self._existing(spelled), in_any_case=True)
        return self._find(name, known.folders)

    def _in_any_case(self, folder: str) -> Iterator[str]:
        """The folder if it exists, or else folders whose names differ from it only in case."""
        if folder in self._roots or self._is_there(folder):
            yield folder
            return
        around, _, name = folder.rpartition("/")
        for one in self._in_any_case(around):
            yield from (f"{one}/{other}" for other in self._names(one) if other.lower() == name.lower())

    def _names(self, folder: str) -> list[str]:
        """Names in a folder that are not those of images."""
        if folder not in self._others:
            try:
                names = names_in(folder, _LISTED)
            except OSError as error:
                raise os_fault(error, "annotations") from error
            self._others[folder] = [name for name in names if not is_image_name(name)]
        return self._others[folder]

    def _find(self, name: str, bases: tuple[str, ...]) -> LocatedFile:
        if not is_unicode(name):
            raise BadInput("annotations", "name is not UTF-8", printable(name))
        try:
            found = self._located(name, bases)
        except BadInput as fault:
            raise BadInput("annotations", fault.reason, fault.detail) from fault
        if not is_unicode(found.key):
            raise BadInput("annotations", "name is not UTF-8", printable(found.key))
        return found

    def _located(self, name: str, bases: tuple[str, ...]) -> LocatedFile:
        """The file of that name, or of the one that Windows would take it for."""
        try:
            return self._confinement.find(name, bases)
        except BadInput as fault:
            if "\\" not in name or fault.reason != "not found":
                raise
            inner = name.replace("\\", "/")
            of_drive = _DRIVE.match(inner)  # a path of another machine
            try:
                return self._confinement.find(inner.rpartition("/")[2] if of_drive else inner, bases)
            except BadInput as other:
                raise (fault if other.reason == "not found" else other) from None

    def _image_candidates(self, file: CocoFile) -> Iterator[str]:
        roots = dict.fromkeys((file.folder, self._root, *self._above(file), *self._image_roots))
        yield from roots
        # files of one split may name it with and without its year
        for split in dict.fromkeys((file.written_split, *self._written[file.split], file.split)):
            if not split:
                continue
            for root in roots:
                yield from (f"{root}/{folder}/{split}" for folder in _IMAGE_FOLDERS)
                yield from (f"{root}/{split}", *(f"{root}/{split}/{folder}" for folder in _IMAGE_FOLDERS))
        for root in roots:
            yield from (f"{root}/{folder}" for folder in _IMAGE_FOLDERS)

    def _mask_candidates(self, file: CocoFile) -> Iterator[str]:
        for root in dict.fromkeys((file.folder, *self._above(file), self._root, *self._image_roots)):
            yield from (f"{root}/{file.stem}", f"{root}/annotations/{file.stem}")
            yield from (f"{root}/panoptic/{file.stem}", f"{root}/panoptic", root)

    def _above(self, file: CocoFile) -> Iterator[str]:
        """The folders between an annotation file and the input."""
        folder = file.folder
        while below(self._root, folder) is not None:
            yield folder
            folder = os.path.dirname(folder)

    def _existing(self, candidates: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(self._is_there, candidates)))

    def _is_there(self, folder: str) -> bool:
        if folder not in self._is_folder:
            self._is_folder[folder] = is_folder(folder)
        return self._is_folder[folder]
