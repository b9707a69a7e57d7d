"""Images and their annotation files in one tree, and which image each annotation file is for."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
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
from recordmill.transforms.sources.names import (
    folder_of,
    is_image_name,
    is_split_name,
    normal_split,
    skipped,
    stem_of,
)
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.file_system import scheme_of
from recordmill.transforms.storage.paths import real_path

NO_IMAGE = "annotation without its image"
NO_ANNOTATIONS_FILE = "neither image nor annotations by name"
IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "image", "imgs", "PNGImages")
_DRIVE = re.compile(r"[A-Za-z]:/")
_USUAL_EXTENSIONS = ("jpg", "jpeg", "png")

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class FileAnnotations:
    """The content of an annotation file."""

    filename: str  # path of the image; filename and folder may be empty
    folder: str
    size: tuple[int, int] | None  # height, width
    objects: tuple[AnnotatedObject, ...]
    labels: tuple[str, ...] = ()
    image_data: str | None = None  # the image itself in base64
    left: tuple[tuple[int, str, str], ...] = ()  # number, reason and detail of shapes that are left out


class AnnotatedTree(abc.ABC):
    """The files of an input with an annotation file for each image. Subclasses sort them in `add`."""

    def __init__(self, config: SourceConfig) -> None:
        self.selection = Selection(config)
        self.unread: list[Failure] = []  # neither image nor annotations, or not readable
        self.class_files: dict[str, TreeFile] = {}  # lists of classes
        self._tree = Tree.of(config)
        self._root = real_path(config.input)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._confinement = Confinement((self._root, *self._image_roots))
        self._images: dict[
            str, tuple[str, int, int]
        ] = {}  # path unless it follows from the key, size, version
        self._by_stem: dict[str, str] = {}
        self._by_name: dict[str, str | None] | None = None
        self._claims: dict[str, str] = {}

    @abc.abstractmethod
    def is_annotation(self, key: str) -> bool:
        """Whether a file has annotations, by its name and folders."""

    def holds_annotations(self) -> bool:
        """Whether there is any annotation file."""
        return any(isinstance(one, TreeFile) and self.is_annotation(one.key) for one in self._tree.files())

    def walk(self) -> None:
        """Sorts all files."""
        for file in self._tree.files():
            if isinstance(file, Failure):
                self.unread.append(file)
            elif (reason := self.add(file)) is not None:
                self.unread.append(skipped(file.key, reason))

    def add(self, file: TreeFile) -> str | None:
        """Puts a file where it belongs, or returns why it is skipped."""
        if not is_image_name(file.key):
            return NO_ANNOTATIONS_FILE
        is_usual = file.path == f"{self._root}/{file.key}"
        self._images[file.key] = ("" if is_usual else file.path, file.size, file.version)
        self._by_stem.setdefault(stem_of(file.key), file.key)
        return None

    def image_keys(self) -> list[str]:
        """The keys of all images, in order."""
        return sorted(self._images)

    def find(self, named: str, folders: Sequence[str], stem: str) -> TreeFile:
        """The image of an annotation: by its path, else by its stem, else the only image with its name.

        Args:
            named: path in the annotation; may be empty.
            folders: keys to look below, each empty or ending in `/`.
            stem: path without extension that the image has unless it is as `named`.

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
        if found := self._below(named, folders, stem):
            return found
        names = (named, *(f"{stem}.{extension}" for extension in _USUAL_EXTENSIONS))
        for name in filter(None, names if self._image_roots else ()):
            try:
                if found := self._located(name, self._image_roots):
                    return found
            except BadInput as fault:
                if fault.reason == OUTSIDE:
                    raise
        raise BadInput("annotations", NO_IMAGE, f"{named or stem}; where it lies, --image_root may tell")

    def _below(self, named: str, folders: Sequence[str], stem: str) -> TreeFile | None:
        stems = [stem_of(named), stem] if named else [stem]
        keys: list[str | None] = [folder + named for folder in folders] if named else []
        keys += [self._by_stem.get(folder + one) for one in stems for folder in folders]
        found = next((key for key in keys if key in self._images), None)
        if found is None and named:
            found = self._only(named.rpartition("/")[2])
        return None if found is None else self._image(found)

    def _only(self, name: str) -> str | None:
        """The key of the only image with a file name."""
        if self._by_name is None:
            self._by_name = {}
            for key in self._images:
                last = key.rpartition("/")[2]
                self._by_name[last] = None if last in self._by_name else key
        return self._by_name.get(name)

    def _led_to(self, named: str, folders: Sequence[str]) -> TreeFile | None:
        """The image at a path that may lead out of the input."""
        if not named.startswith("/") and not scheme_of(named):
            for folder in folders:
                if found := self._image(posixpath.normpath(folder + named)):
                    return found
        bases = [f"{self._root}/{folder}".rstrip("/") for folder in folders]
        return self._located(named, [*bases, *self._image_roots])

    def _located(self, named: str, bases: Sequence[str]) -> TreeFile | None:
        try:
            found = self._confinement.find(named, bases)
        except BadInput as fault:
            if fault.reason == "not found":
                return None
            raise BadInput("annotations", fault.reason, fault.detail) from fault
        if not is_image_name(found.key):
            return None
        is_below = found.path == f"{self._root}/{found.key}"
        known = self._image(found.key) if is_below else None
        return known or TreeFile(found.key, found.path, found.size, found.version)

    def _image(self, key: str) -> TreeFile | None:
        if key not in self._images:
            return None
        path, size, version = self._images[key]
        return TreeFile(key, path or f"{self._root}/{key}", size, version)

    def record(
        self, image: TreeFile, file: TreeFile, split: str | None, annotations: Annotations
    ) -> ImageRecord | Failure:
        """The record of an image, if it is selected. Raises BadInput if it has another annotation file."""
        self._claim(image, file)
        return self.selection.item(
            image.key, lambda: ImageRecord(image.key, image.ref, split, annotations, file.key, image.size)
        )

    def _claim(self, image: TreeFile, file: TreeFile) -> None:
        other = self._claims.setdefault(image.key, file.key)
        if other != file.key:
            raise BadInput("annotations", "image has another annotation", f"{image.key} is that of {other}")

    def key_of_unread(self, file: TreeFile, folders: Sequence[str], stem: str) -> str:
        """The key under which an annotation file that is not read is reported: its image's, or its own."""
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
    """The parsed content of a file. Raises BadInput with the file in its detail."""
    try:
        if isinstance(data, BadInput):
            raise data
        return parse(data)
    except BadInput as fault:
        raise BadInput(fault.stage, fault.reason, f"{file.key}: {fault.detail}") from fault


def split_folders(*choices: Iterable[str]) -> tuple[str, ...]:
    """The first folders below any wrapper, if all are named like splits; of the first choice with such."""
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
    """The split of a key by the first of its folders that `split_folders` returned."""
    return next((normal_split(part) for part in key.split("/")[:-1] if part in folders), None)


def box_around(polygons: Polygons) -> Box:
    """The box around polygons."""
    xs = [x for polygon in polygons for x in polygon[::2]]
    ys = [y for polygon in polygons for y in polygon[1::2]]
    return Box(min(xs), min(ys), max(xs), max(ys))
