"""Trees with an annotation file for each image, and the image of each annotation file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    Failure,
    ImageRecord,
    Polygons,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import (
    folder_of,
    is_image_name,
    is_split_name,
    normal_split,
    skipped,
    stem_of,
)
from recordmill.transforms.sources.pairs import ORPHAN
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.file_system import scheme_of
from recordmill.transforms.storage.paths import real_path

NO_ANNOTATIONS_FILE = "neither image nor annotations by name"
IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "image", "imgs", "PNGImages")
_DRIVE = re.compile(r"[A-Za-z]:/")
_USUAL_EXTENSIONS = ("jpg", "jpeg", "png")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class FileAnnotations:
    """The content of an annotation file."""

    filename: str = ""  # path of the image
    folder: str = ""
    size: tuple[int, int] | None = None  # height, width
    objects: tuple[AnnotatedObject, ...] = ()
    labels: tuple[str, ...] = ()
    image_data: str | None = None  # the image itself in base64
    left: tuple[tuple[int, str, str], ...] = ()  # number, reason and detail of skipped shapes

    @property
    def image_folder(self) -> str:
        """The folder as the start of a key: empty, or ending in `/`."""
        folder = self.folder.replace("\\", "/").strip("/")
        return f"{folder}/" if folder and ".." not in folder.split("/") else ""


def check_has(config: SourceConfig, is_wanted: Callable[[str], bool], wanted: str) -> None:
    """Raises ValueError if no file in the input has a key that `is_wanted`."""
    files = Tree.of(config).files()
    if not any(isinstance(file, TreeFile) and is_wanted(file.key) for file in files):
        raise ValueError(f"--input is {config.input!r}: there is no {wanted}{left_out(config)}")


class AnnotatedTree:
    """The files of an input with an annotation file for each image. Subclasses sort their files in `add`."""

    def __init__(self, config: SourceConfig) -> None:
        self.selection = Selection(config)
        self.unread: list[Failure] = []  # neither image nor annotations, or not readable
        self.class_files: dict[str, TreeFile] = {}  # lists of classes
        self._root = real_path(config.input)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._confinement = Confinement((self._root, *self._image_roots))
        # path (empty if it follows from the key), size, version
        self._images: dict[str, tuple[str, int, int]] = {}
        self._by_stem: dict[str, str] = {}
        self._claims: dict[str, str] = {}  # annotation files by image

    def walk(self, config: SourceConfig) -> None:
        """Calls `add` for each file of the input."""
        for file in Tree.of(config).files():
            if isinstance(file, Failure):
                self.unread.append(file)
            elif (reason := self.add(file)) is not None:
                self.unread.append(skipped(file.key, reason))

    def add(self, file: TreeFile) -> str | None:
        """Adds a file, or returns the reason to skip it."""
        if not is_image_name(file.key):
            return NO_ANNOTATIONS_FILE
        is_usual = file.path == f"{self._root}/{file.key}"
        self._images[file.key] = ("" if is_usual else file.path, file.size, file.version)
        self._by_stem.setdefault(stem_of(file.key), file.key)
        return None

    def image_keys(self) -> list[str]:
        return sorted(self._images)

    def find(self, named: str, folders: Sequence[str], stem: str) -> TreeFile:
        """The image of an annotation: by path, or else by stem, or else the only image with its file name.

        Args:
            named: path in the annotation; may be empty.
            folders: keys of the folders in which it may lie, each empty or ending in `/`.
            stem: path without extension of the image, unless `named` is another one.

        Raises:
            BadInput: stage `annotations`; `annotation without its image`, `outside the input root`, ….
        """
        named = named.replace("\\", "/")
        if _DRIVE.match(named):
            named = named.rpartition("/")[2]  # of another machine
        if named.startswith("/") or scheme_of(named) or ".." in named.split("/"):
            if found := self._led_to(named, folders):
                return found
            named = named.rpartition("/")[2]
        keys = [folder + named for folder in folders] if named else []
        stems = (stem_of(named), stem) if named else (stem,)
        keys += [self._by_stem.get(folder + one, "") for one in stems for folder in folders]
        for key in keys:
            if found := self._image(key):
                return found
        if named and (found := self._image(self._by_name.get(named.rpartition("/")[2], ""))):
            return found
        for name in filter(None, (named, *(f"{stem}.{extension}" for extension in _USUAL_EXTENSIONS))):
            try:
                if found := self._located(name, self._image_roots):
                    return found
            except BadInput as fault:
                if fault.reason == OUTSIDE:
                    raise
        raise BadInput("annotations", ORPHAN, f"{named or stem}; where it lies, --image_root may tell")

    @functools.cached_property
    def _by_name(self) -> dict[str, str]:
        """The keys of images by file name; empty for a name of several images."""
        found: dict[str, str] = {}
        for key in self._images:
            name = key.rpartition("/")[2]
            found[name] = "" if name in found else key
        return found

    def _led_to(self, named: str, folders: Sequence[str]) -> TreeFile | None:
        """The image at a path that may lead outside the input."""
        if not named.startswith("/") and not scheme_of(named):
            for folder in folders:
                if found := self._image(posixpath.normpath(folder + named)):
                    return found
        bases = [f"{self._root}/{folder}".rstrip("/") for folder in folders]
        return self._located(named, [*bases, *self._image_roots])

    def _located(self, named: str, bases: Sequence[str]) -> TreeFile | None:
        try:
            path, key, size, version = self._confinement.find(named, bases)
        except BadInput as fault:
            if fault.reason == "not found":
                return None
            raise BadInput("annotations", fault.reason, fault.detail) from fault
        return TreeFile(key, path, size, version) if is_image_name(key) else None

    def _image(self, key: str) -> TreeFile | None:
        if key not in self._images:
            return None
        path, size, version = self._images[key]
        return TreeFile(key, path or f"{self._root}/{key}", size, version)

    def record(
        self, image: TreeFile, file: TreeFile, split: str | None, annotations: Annotations
    ) -> ImageRecord | Failure:
        """The record of an image if it is selected. Raises BadInput if it has another annotation file."""
        self._claim(image, file)
        return self.selection.item(
            image.key, lambda: ImageRecord(image.key, image.ref, split, annotations, file.key, image.size)
        )

    def _claim(self, image: TreeFile, file: TreeFile) -> None:
        other = self._claims.setdefault(image.key, file.key)
        if other != file.key:
            raise BadInput("annotations", "image has another annotation", f"{image.key} is that of {other}")

    def key_of_unread(self, file: TreeFile, folders: Sequence[str], stem: str) -> str:
        """The key to report an unreadable annotation file under: that of its image, or else its own."""
        with contextlib.suppress(BadInput):
            image = self.find("", folders, stem)
            self._claim(image, file)
            return image.key
        return file.key

    def unclaimed(self, reason: str) -> Iterator[Failure]:
        """Reports the images without an annotation file."""
        keys = (key for key in self.image_keys() if key not in self._claims)
        return (self.selection.left_out(key, reason) for key in keys)


def parsed(file: TreeFile, data: bytes | BadInput, parse: Callable[[bytes], _T]) -> _T:
    """The parsed content of a file. Raises BadInput with the file's key in its detail."""
    try:
        if isinstance(data, BadInput):
            raise data
        return parse(data)
    except BadInput as fault:
        fault.detail = f"{file.key}: {fault.detail}"
        raise


def split_folders(*choices: Iterable[str]) -> tuple[str, ...]:
    """The top folders, below any wrappers, of the first of the choices in which all are named like splits."""
    for keys in choices:
        parts = {tuple(folder_of(key).split("/")) for key in keys}
        firsts = {part[0] for part in parts}
        while len(firsts) == 1 and firsts != {""} and not is_split_name(*firsts):
            parts = {part[1:] for part in parts}
            firsts = {part[0] for part in parts}
        if firsts and all(map(is_split_name, firsts)):
            return tuple(sorted(firsts))
    return ()


def split_in(key: str, folders: Sequence[str]) -> str | None:
    """The split of a key: the first of its folders that is in `folders`, as `split_folders` returns them."""
    return next((normal_split(part) for part in key.split("/")[:-1] if part in folders), None)


def box_around(polygons: Polygons) -> Box:
    xs = [x for polygon in polygons for x in polygon[::2]]
    ys = [y for polygon in polygons for y in polygon[1::2]]
    return Box(min(xs), min(ys), max(xs), max(ys))
