"""Source `imagenet`: folders of synsets, the flat validation set with its ground truth, boxes in XML.

The layouts are those of ILSVRC's archives and of Kaggle's (https://www.image-net.org/download.php), and lists
of images and the numbers of their classes, as Caffe has them.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    JobError,
)
from recordmill.transforms.sources.annotated_tree import NO_ANNOTATIONS_FILE, NO_IMAGE, parsed
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.imagenet.layout import (
    ILSVRC_NAME,
    SYNSET,
    ImageList,
    Labels,
    Layout,
    ListedRow,
    find_lists,
    split_of,
)
from recordmill.transforms.sources.names import (
    extension_of,
    failed,
    is_image_name,
    name_stem,
    printable,
    skipped,
)
from recordmill.transforms.sources.outline import Look
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.voc.xml import read_voc_xml
from recordmill.transforms.storage.confinement import LocatedFile
from recordmill.transforms.storage.paths import real_path

_ELSEWHERE = "XML in no folder of annotations"
_EXTENSIONS = ("JPEG", "jpg", "jpeg", "png")
_TRAIN_NAME = re.compile(r"(n[0-9]{8})_[0-9]+(?:_n[0-9]{8})?\.")

_Labels = tuple[str | int, ...]


class ImagenetSource(Source):
    """Lists the images of an ImageNet tree."""

    name = "imagenet"
    description = Description(
        reads="folders named by synset (`n01440764`); ILSVRC's flat validation set with its ground truth, "
        "Kaggle's `LOC_val_solution.csv`, or lists (`val.txt`: image and class number from 0); boxes in "
        "`Annotations/` or `bbox/`; synsets and words in `synsets.txt`, `LOC_synset_mapping.txt`, …",
        label="the synset: of the folder, or else of the list or ground truth",
        split="folders named like a split, else the list's name",
        key="path below the input",
        example="imagenet/\n  ILSVRC2012_validation_ground_truth.txt\n  meta.mat\n  bbox/\n    n01440764/\n"
        "      n01440764_10040.xml\n  synset_words.txt\n  train/\n    n01440764/\n"
        "      n01440764_10040.JPEG\n  val/\n    ILSVRC2012_val_00000001.JPEG",
    )
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        layout = Layout(Look(config))
        lists = find_lists(layout)
        if not (layout.synsets or layout.named or lists):
            raise ValueError(
                f"--input is {config.input!r}: there is no folder named by a synset (n01440764), no image "
                "named as ILSVRC's (ILSVRC2012_val_00000001.JPEG), and no train.txt or val.txt of images and "
                "class numbers; for other folders of classes see --source folder"
            )
        try:
            Labels(layout, lists)
        except ValueError as error:
            raise ValueError(f"--input is {config.input!r}: {error}") from error

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            layout = Layout(Look(config))
            listed = {one.split for one in find_lists(layout) if one.split is not None}
        return tuple(sorted({*layout.splits, *layout.named_splits, *listed}))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("imagenet",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        try:
            listing = _Listing(config)
        except ValueError as error:
            raise JobError(f"{config.input!r}: {error}") from error
        yield from listing.items()


class _Found(NamedTuple):
    """An image to convert: its row in a list, and its XML."""

    file: TreeFile
    row: ListedRow | None
    split: str | None
    xml: TreeFile | None
    origin: str


class _Listing:
    """Lists a tree; holds the names of the XML files, and of the images in lists."""

    def __init__(self, config: SourceConfig) -> None:
        self._layout = Layout(Look(config))
        self._lists = find_lists(self._layout)
        self._labels = Labels(self._layout, self._lists)
        self._selection = Selection(config)
        self._has_pattern = config.label_pattern is not None
        self._tree = Tree(config.input, config.image_roots, config.skip_dirs)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._listed: dict[str, tuple[tuple[str | int, ...], str | None]] = {}
        self._xmls: dict[str, list[TreeFile]] = {}  # by stem, until their image is found
        for prefix in self._layout.annotations:
            for file in self._tree.files(prefix):
                if isinstance(file, TreeFile) and extension_of(file.key) == "xml":
                    self._xmls.setdefault(name_stem(file.key), []).append(file)
        self._read = self._labels.files | {file.key for files in self._xmls.values() for file in files}

    def items(self) -> Items:
        """The classes, the records, and what is not converted."""
        labels = self._labels
        if labels.classes:
            yield ClassNames(dict(enumerate(labels.classes)), labels.words, optional=self._has_pattern)
        found = itertools.chain(*map(self._rows, self._lists), self._walked())
        for one, data in read_files((one, one.xml if isinstance(one, _Found) else None) for one in found):
            yield one if isinstance(one, Failure) else self._item(one, data)
        for _, files in sorted(self._xmls.items()):
            for file in files:
                yield Failure(file.key, "annotations", NO_IMAGE)
        yield from labels.unused()

    def _rows(self, one: ImageList) -> Iterator[_Found | Failure]:
        """The images of a list, in its order."""
        layout = self._layout
        roots = [layout.path(one.key.rpartition("/")[0]), layout.root]
        splits = map(layout.path, layout.splits.get(one.split or "", []))
        bases = tuple(
            dict.fromkeys((*roots, *(f"{root}/images" for root in roots), *splits, *self._image_roots))
        )
        for row in one.rows():
            origin = f"{one.key}, line {row.line}"
            try:
                located = self._locate(row.path, bases)
            except BadInput as fault:
                yield failed(f"{one.key}:{row.line}", BadInput("annotations", fault.reason, fault.detail))
                continue
            key = printable(located.key)
            label = (row.labels, one.split or split_of(key))
            first = self._listed.setdefault(key, label)
            if first is not label:
                yield Failure(key, "annotations", "image listed twice", origin, skipped=first == label)
                continue
            file = TreeFile(key, located.path, located.size, located.version)
            yield _Found(file, row, label[1], self._take_xml(key), origin)

    def _locate(self, path: str, bases: tuple[str, ...]) -> LocatedFile:
        if is_image_name(path):
            return self._layout.confinement.find(path, bases)
        for extension in _EXTENSIONS:
            try:
                return self._layout.confinement.find(f"{path}.{extension}", bases)
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
                    yield _Found(file, None, split_of(file.key), self._take_xml(file.key), "")
            elif file.key not in self._read:
                yield skipped(
                    file.key, _ELSEWHERE if extension_of(file.key) == "xml" else NO_ANNOTATIONS_FILE
                )

    def _take_xml(self, image: str) -> TreeFile | None:
        """The XML with the name of an image, and of several the one in a folder of the same name."""
        if not (found := self._xmls.get(name_stem(image))):
            return None
        folder = os.path.basename(os.path.dirname(image))
        near = [file for file in found if os.path.basename(os.path.dirname(file.key)) == folder]
        if not near and len(found) != 1:
            return None
        taken = (near or found)[0]
        found.remove(taken)
        return taken

    def _item(self, found: _Found, data: bytes | BadInput) -> Item:
        key = found.file.key
        try:
            labels, solved = self._labels_of(found), self._labels.solved(name_stem(key))
        except BadInput as fault:
            return failed(key, fault)
        return self._selection.item(key, lambda: self._record(found, data, labels, solved))

    def _record(
        self, found: _Found, data: bytes | BadInput, labels: _Labels, objects: tuple[AnnotatedObject, ...]
    ) -> ImageRecord | Failure:
        key, row, size = found.file.key, found.row, None
        if found.xml is not None:
            xml = parsed(found.xml, data, read_voc_xml)
            objects, size = tuple(_of_synset(one, labels) for one in xml.objects), xml.size
        elif not objects and row is not None and row.box is not None:
            objects = (AnnotatedObject(row.labels[0], row.box),)
        boxed = {one.label for one in objects}
        if not labels and len(boxed) == 1:
            labels = tuple(boxed)
        if not labels and not objects and found.split is None:
            return skipped(key, "image without annotations")
        annotations = Annotations(self._selection.labels(key, labels), objects=objects, size=size)
        return ImageRecord(key, found.file.ref, found.split, annotations, found.origin, found.file.size)

    def _labels_of(self, found: _Found) -> _Labels:
        """The labels from the folder, else the list, the ground truth, or the name."""
        *folders, name = found.file.key.split("/")
        true = self._labels.true_label(name)
        synset = next(filter(SYNSET.fullmatch, reversed(folders)), None)
        if synset is not None:
            return (synset,)
        if found.row is not None and found.row.labels:
            return tuple(map(self._labels.class_of, found.row.labels))
        if true is not None:
            return (true,)
        if (match := ILSVRC_NAME.match(name)) is not None and match[3]:
            return (match[3],)
        return () if (match := _TRAIN_NAME.match(name)) is None else (match[1],)


def _of_synset(one: AnnotatedObject, labels: _Labels) -> AnnotatedObject:
    """An object named by its synset; some files have the word instead, which means the image's synset."""
    if len(labels) == 1 and SYNSET.fullmatch(str(labels[0])) and not SYNSET.fullmatch(str(one.label)):
        return msgspec.structs.replace(one, label=labels[0])
    return one
