"""What an ImageNet tree holds, listed: images by the files that list them, and by their folders."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.imagenet.classes import class_files, read_classes, read_words
from recordmill.transforms.sources.imagenet.labels import (
    NO_IMAGE,
    ImageList,
    ListedRow,
    Solutions,
    Truth,
    find_lists,
)
from recordmill.transforms.sources.imagenet.layout import (
    ILSVRC_NAME,
    SYNSET,
    Layout,
    find_layout,
    split_of,
)
from recordmill.transforms.sources.names import extension_of, failed, is_image_name, printable
from recordmill.transforms.sources.selection import EXCLUDED, Selection, label_pattern
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.voc.xml import read_voc_xml
from recordmill.transforms.storage.confinement import Confinement, LocatedFile
from recordmill.transforms.storage.paths import real_path

_NOT_READ = "neither image nor annotations by name"
_ELSEWHERE = "XML in no folder of annotations"
_EXTENSIONS = ("JPEG", "jpg", "jpeg", "png")
_TRAIN_NAME = re.compile(r"(n[0-9]{8})_[0-9]+(?:_n[0-9]{8})?\.")


@dataclasses.dataclass(frozen=True, slots=True)
class Truths:
    """What the files of a tree tell.

    Attributes:
        lists: of images, with numbers or synsets.
        truth: of the flat validation set.
        solutions: Kaggle's.
        listed_classes: in the order of their list; none where there is none.
        classes: the same, or else all that folders and files name, sorted.
        words: by synset.
    """

    lists: list[ImageList]
    truth: Truth
    solutions: Solutions
    listed_classes: tuple[str, ...]
    classes: tuple[str, ...]
    words: dict[str, str]


def read_truths(layout: Layout, lists: list[ImageList]) -> Truths:
    """Reads the files of a tree, all but the XML.

    Raises:
        ValueError: one cannot be used.
        OSError: one cannot be read.
    """
    truth, solutions = Truth(layout), Solutions(layout)
    listed = read_classes(layout)
    in_lists = {label for one in lists for label in _labels(one, listed)}
    named = {*layout.synsets, *truth.synsets, *solutions.synsets(), *in_lists}
    classes = listed or tuple(sorted(named))
    return Truths(lists, truth, solutions, listed, classes, read_words(layout, classes))


def _labels(one: ImageList, classes: tuple[str, ...]) -> set[str]:
    """The synsets in a list. Raises ValueError where its numbers begin with 1."""
    synsets: set[str] = set()
    numbers: set[int] = set()
    for row in one.rows():
        synsets.update(label for label in row.labels if isinstance(label, str))
        numbers.update(label for label in row.labels if isinstance(label, int))
    if classes and numbers and 0 not in numbers and max(numbers) == len(classes):
        raise ValueError(
            f"{one.key!r} has the class numbers {min(numbers)} to {max(numbers)}, and there are "
            f"{len(classes)} classes; the first one is 0: take 1 from each"
        )
    return synsets


class _Found(NamedTuple):
    """An image that is to be a record: where it is, what lists say of it, and its XML."""

    file: TreeFile
    row: ListedRow | None
    split: str | None
    xml: TreeFile | None
    origin: str


class _Xmls:
    """The XML files of a tree, by the image they are of: that of their name and, of several, their folder."""

    def __init__(self, layout: Layout, tree: Tree) -> None:
        self._by_stem: dict[str, list[TreeFile]] = {}
        self.keys: set[str] = set()
        for prefix in layout.annotations:
            for file in tree.files(prefix):
                if isinstance(file, TreeFile) and extension_of(file.key) == "xml":
                    self._by_stem.setdefault(_stem(file.key), []).append(file)
                    self.keys.add(file.key)

    def take(self, image: str) -> TreeFile | None:
        """The file of an image, which no other image gets."""
        found = self._by_stem.get(_stem(image), [])
        folder = os.path.basename(os.path.dirname(image))
        beside = [file for file in found if os.path.basename(os.path.dirname(file.key)) == folder]
        if not beside and len(found) != 1:
            return None
        taken = (beside or found)[0]
        found.remove(taken)
        return taken

    def left(self) -> Iterator[TreeFile]:
        """The files of no image."""
        return (file for stem in sorted(self._by_stem) for file in self._by_stem[stem])


class ImagenetListing:
    """Lists a tree. Holds the names of the XML files, and of the images that are in lists.

    Args:
        config: of the source.

    Raises:
        ValueError: a file that tells labels cannot be used.
        OSError: one cannot be read.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._layout = find_layout(config)
        self._truths = read_truths(self._layout, find_lists(self._layout))
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        self._tree = Tree(config.input, config.image_roots, config.skip_dirs)
        self._xmls = _Xmls(self._layout, self._tree)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._confinement = Confinement((self._layout.root, *config.image_roots))
        self._listed: dict[str, tuple[tuple[str | int, ...], str | None]] = {}
        truths = self._truths
        told = [truths.truth.key, *truths.solutions.keys, *(one.key for one in truths.lists)]
        self._read = {*told, *class_files(self._layout)}

    def items(self) -> Iterator[Item]:
        """The classes, the records, and what is none."""
        classes = self._truths.classes
        if classes:
            names = dict(enumerate(classes))
            yield ClassNames(names, self._truths.words, optional=self._label_pattern is not None)
        found = itertools.chain(*map(self._rows, self._truths.lists), self._walked())
        yield from self._records(found)
        for file in self._xmls.left():
            yield Failure(file.key, "annotations", NO_IMAGE)
        yield from self._truths.truth.left()
        yield from self._truths.solutions.left()

    def _rows(self, one: ImageList) -> Iterator[_Found | Failure]:
        """What a list has, in its order."""
        folder = self._layout.path(one.key.rpartition("/")[0])
        root = self._layout.root
        in_splits = self._layout.splits.get(one.split or "", [])
        splits = [self._layout.path(key) for key in in_splits]
        bases = (folder, root, f"{folder}/images", f"{root}/images", *splits, *self._image_roots)
        for row in one.rows():
            origin = f"{one.key}, line {row.line}"
            try:
                located = self._locate(row.path, tuple(dict.fromkeys(bases)))
                key = printable(located.key)
                split = one.split or split_of(key)
                if (known := self._listed.get(key)) is not None:
                    same = known == (row.labels, split)
                    yield Failure(key, "annotations", "image listed twice", origin, skipped=same)
                    continue
                self._listed[key] = (row.labels, split)
                file = TreeFile(key, located.path, located.size, located.version)
                yield _Found(file, row, split, self._xmls.take(key), origin)
            except BadInput as fault:
                name = printable(f"{one.key}:{row.line}")
                yield Failure(name, "annotations", fault.reason, printable(fault.detail))

    def _locate(self, path: str, bases: tuple[str, ...]) -> LocatedFile:
        if is_image_name(path):
            return self._confinement.find(path, bases)
        for extension in _EXTENSIONS:
            try:
                return self._confinement.find(f"{path}.{extension}", bases)
            except BadInput as fault:
                if fault.reason != "not found":
                    raise
        raise BadInput("annotations", "not found", f"{path!r}, with the extensions {', '.join(_EXTENSIONS)}")

    def _walked(self) -> Iterator[_Found | Failure]:
        """The images that are in no list, and other files."""
        for file in self._tree.files():
            if isinstance(file, Failure):
                yield file
            elif is_image_name(file.key):
                if file.key not in self._listed:
                    yield _Found(file, None, split_of(file.key), self._xmls.take(file.key), "")
            elif file.key not in self._read and file.key not in self._xmls.keys:
                is_xml = extension_of(file.key) == "xml"
                yield Failure(file.key, "list", _ELSEWHERE if is_xml else _NOT_READ, skipped=True)

    def _records(self, found: Iterable[_Found | Failure]) -> Iterator[Item]:
        wanted = ((one, None if isinstance(one, Failure) else one.xml) for one in found)
        for one, data in read_files(wanted):
            if isinstance(one, Failure):
                yield one
                continue
            try:
                yield self._record(one, data)
            except BadInput as fault:
                yield failed(one.file.key, fault)

    def _record(self, found: _Found, xml: bytes | BadInput) -> ImageRecord | Failure:
        key = found.file.key
        labels = self._labels_of(found)
        solved = self._truths.solutions.find(_stem(key))
        if not self._selection.takes(key):
            return Failure(key, "list", EXCLUDED, skipped=True)
        objects, size = _boxes(found, xml, labels)
        if found.xml is None:
            objects = solved or _tiny_box(found.row)
        labels = labels or tuple({one.label for one in objects} if _same(objects) else ())
        if not labels and not objects and found.split is None:
            return Failure(key, "list", "image without annotations", skipped=True)
        if self._label_pattern is not None:
            labels = (self._label_pattern.label(key),)
        annotations = Annotations(labels, objects=objects, size=size)
        image = ImageRef(found.file.path, version=found.file.version)
        return ImageRecord(key, image, found.split, annotations, found.origin, found.file.size)

    def _labels_of(self, found: _Found) -> tuple[str | int, ...]:
        """What folder, list, ground truth or name tell of an image; the first of them counts."""
        *folders, name = found.file.key.split("/")
        true = self._truths.truth.label(name)
        synset = next(filter(SYNSET.fullmatch, reversed(folders)), None)
        if synset is not None:
            return (synset,)
        if found.row is not None and found.row.labels:
            return tuple(map(self._class_of, found.row.labels))
        if true is not None:
            return (true,)
        match = ILSVRC_NAME.match(name)
        if match is not None and match[3]:
            return (match[3],)
        match = _TRAIN_NAME.match(name)
        return () if match is None else (match[1],)

    def _class_of(self, label: str | int) -> str | int:
        classes = self._truths.listed_classes
        if isinstance(label, str) or not classes:
            return label
        if label >= len(classes):
            detail = f"{label}; there are {len(classes)} classes, the first one is 0"
            raise BadInput("annotations", "number of no class", detail)
        return classes[label]


def _boxes(
    found: _Found, xml: bytes | BadInput, labels: tuple[str | int, ...]
) -> tuple[tuple[AnnotatedObject, ...], tuple[int, int] | None]:
    """The objects in an XML file, and the size it declares."""
    if found.xml is None:
        return (), None
    try:
        if isinstance(xml, BadInput):
            raise xml
        known = read_voc_xml(xml)
    except BadInput as fault:
        raise BadInput("annotations", fault.reason, f"{found.xml.key}: {fault.detail}") from fault
    return tuple(_of_synset(one, labels) for one in known.objects), known.size


def _tiny_box(row: ListedRow | None) -> tuple[AnnotatedObject, ...]:
    return () if row is None or row.box is None else (AnnotatedObject(row.labels[0], row.box),)


def _of_synset(one: AnnotatedObject, labels: tuple[str | int, ...]) -> AnnotatedObject:
    """An object whose name is its synset: some files have the word, and then the image's synset is meant."""
    if len(labels) == 1 and SYNSET.fullmatch(str(labels[0])) and not SYNSET.fullmatch(str(one.label)):
        return msgspec.structs.replace(one, label=labels[0])
    return one


def _same(objects: Iterable[AnnotatedObject]) -> bool:
    return len({one.label for one in objects}) == 1


def _stem(key: str) -> str:
    name = key.rpartition("/")[2]
    return name[: -len(extension_of(name)) - 1] if extension_of(name) else name
