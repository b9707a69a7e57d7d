"""Source `imagenet`: folders of synsets, the flat validation set with its ground truth, boxes in XML.

It reads the layouts of ILSVRC's archives and of Kaggle (https://www.image-net.org/download.php), and Caffe's
lists of images with class numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

import msgspec

from recordmill.transforms.records import (
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.annotated_tree import NO_ANNOTATIONS_FILE, FileAnnotations, parsed
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.imagenet.layout import (
    ILSVRC_NAME,
    SYNSET,
    Labels,
    Layout,
    split_of,
)
from recordmill.transforms.sources.look import Look
from recordmill.transforms.sources.names import (
    extension_of,
    failed,
    is_image_name,
    name_stem,
    printable,
    skipped,
)
from recordmill.transforms.sources.pairs import ORPHAN
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
_Found = tuple[ImageRecord | Failure, TreeFile | None]  # an image, and its XML


class ImagenetSource(Source):
    """Lists the images of an ImageNet tree."""

    name = "imagenet"
    description = Description(
        reads="folders named by synset (`n01440764`); ILSVRC's flat validation set with its ground truth, "
        "Kaggle's `LOC_val_solution.csv`, or lists (`val.txt`: image and class number from 0); boxes in "
        "`Annotations/` or `bbox/`; synsets and words in `synsets.txt`, `LOC_synset_mapping.txt`, …",
        label="the synset that is the name of the folder; otherwise from the list or ground truth",
        split="folders named like splits; otherwise the name of the list",
        key="path below the input",
        example="imagenet/\n  ILSVRC2012_validation_ground_truth.txt\n  meta.mat\n  bbox/\n    n01440764/\n"
        "      n01440764_10040.xml\n  synset_words.txt\n  train/\n    n01440764/\n"
        "      n01440764_10040.JPEG\n  val/\n    ILSVRC2012_val_00000001.JPEG",
    )
    searches_roots = True
    flags = ("label_pattern",)
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        layout = Layout(Look(config))
        lists = layout.lists()
        if not (layout.synsets or layout.named or lists):
            raise ValueError(
                f"--input is {config.input!r}: there is no folder named by a synset (n01440764), no image "
                "named as ILSVRC's (ILSVRC2012_val_00000001.JPEG), and no train.txt or val.txt of images and "
                "class numbers; for other folders of classes see --source folder"
            )
        Labels(layout, lists)

    def splits(self, config: SourceConfig) -> Iterable[str | None]:
        layout = Layout(Look(config))
        return (*layout.splits, *layout.named_splits, *layout.lists().values())

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("imagenet",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Listing(config).items()


class _Listing:
    """Lists a tree; holds the names of the XML files, and of the images in lists."""

    def __init__(self, config: SourceConfig) -> None:
        self._layout = Layout(Look(config))
        self._lists = self._layout.lists()
        self._labels = Labels(self._layout, self._lists)
        self._selection = Selection(config)
        self._has_pattern = config.label_pattern is not None
        self._tree = Tree.of(config)
        self._image_roots = tuple(map(real_path, config.image_roots))
        self._listed: dict[str, tuple[_Labels, str | None]] = {}
        self._xmls: dict[str, list[TreeFile]] = {}  # by stem, until their image is found
        for prefix in self._layout.annotations:
            for file in self._tree.files(prefix):
                if isinstance(file, TreeFile) and extension_of(file.key) == "xml":
                    self._xmls.setdefault(name_stem(file.key), []).append(file)
        self._read = self._labels.files | {file.key for files in self._xmls.values() for file in files}

    def items(self) -> Items:
        """The classes, the records and the failures."""
        labels = self._labels
        if labels.classes:
            yield ClassNames(dict(enumerate(labels.classes)), labels.words, optional=self._has_pattern)
        found = itertools.chain(*map(self._rows, self._lists), self._walked())
        for (one, xml), data in read_files((pair, pair[1]) for pair in found):
            yield one if isinstance(one, Failure) else self._item(one, xml, data)
        for file in itertools.chain.from_iterable(self._xmls[stem] for stem in sorted(self._xmls)):
            yield Failure(file.key, "annotations", ORPHAN)
        yield from labels.unused()

    def _rows(self, listed: str) -> Iterator[_Found]:
        """The images of a list, in its order."""
        layout, split = self._layout, self._lists[listed]
        roots = [layout.path(listed.rpartition("/")[0]), layout.root]
        roots += [f"{root}/images" for root in roots]
        splits = map(layout.path, layout.splits.get(split or "", []))
        bases = tuple(dict.fromkeys((*roots, *splits, *self._image_roots)))
        for row in layout.rows(listed):
            origin = f"{listed}, line {row.line}"
            try:
                path, key, size, version = self._locate(row.path, bases)
            except BadInput as fault:
                fault.stage = "annotations"
                yield failed(f"{listed}:{row.line}", fault), None
                continue
            key = printable(key)
            label = (row.labels, split or split_of(key))
            first = self._listed.setdefault(key, label)
            if first is not label:
                yield Failure(key, "annotations", "image listed twice", origin, skipped=first == label), None
                continue
            annotations = Annotations(row.labels, objects=row.objects)
            image = ImageRef(path, version=version)
            yield ImageRecord(key, image, label[1], annotations, origin, size), self._take_xml(key)

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

    def _walked(self) -> Iterator[_Found]:
        """The images that are not in a list, and other files."""
        for file in self._tree.files():
            if isinstance(file, Failure):
                yield file, None
            elif is_image_name(file.key):
                if file.key not in self._listed:
                    one = ImageRecord(file.key, file.ref, split_of(file.key), size=file.size)
                    yield one, self._take_xml(file.key)
            elif file.key not in self._read:
                is_xml = extension_of(file.key) == "xml"
                yield skipped(file.key, _ELSEWHERE if is_xml else NO_ANNOTATIONS_FILE), None

    def _take_xml(self, image: str) -> TreeFile | None:
        """The XML with the name of an image; of several, the one in a folder of the same name."""
        found = self._xmls.get(name_stem(image), [])
        folder = image.split("/")[-2:-1]
        near = [file for file in found if file.key.split("/")[-2:-1] == folder]
        if not near and len(found) != 1:
            return None
        taken = (near or found)[0]
        found.remove(taken)
        return taken

    def _item(self, one: ImageRecord, xml: TreeFile | None, data: bytes | BadInput) -> Item:
        key = one.key
        try:
            labels, solved = self._labels_of(one), self._labels.solved(name_stem(key))
        except BadInput as fault:
            return failed(key, fault)

        def record() -> ImageRecord | Failure:
            found = FileAnnotations(objects=solved or one.annotations.objects)
            if xml is not None:
                found = _with_synset(parsed(xml, data, read_voc_xml), labels)
            objects = found.objects
            boxed = tuple({one.label for one in objects})
            taken = labels or (boxed if len(boxed) == 1 else ())
            if not taken and not objects and one.split is None:
                return skipped(key, "image without annotations")
            annotations = Annotations(self._selection.labels(key, taken), objects=objects, size=found.size)
            return msgspec.structs.replace(one, annotations=annotations)

        return self._selection.item(key, record)

    def _labels_of(self, one: ImageRecord) -> _Labels:
        """The labels from the folder, else the list, the ground truth, or the name."""
        *folders, name = one.key.split("/")
        label = next(filter(SYNSET.fullmatch, reversed(folders)), None)
        true = self._labels.true_label(name)
        if label is None and one.annotations.labels:
            return tuple(map(self._labels.class_of, one.annotations.labels))
        label = label or true
        if label is None and (match := ILSVRC_NAME.match(name)):
            label = match[3]
        if label is None and (match := _TRAIN_NAME.match(name)):
            label = match[1]
        return () if label is None else (label,)


def _with_synset(found: FileAnnotations, labels: _Labels) -> FileAnnotations:
    """Annotations whose objects have synsets; some files have a word instead, for the image's synset."""
    if len(labels) != 1 or not SYNSET.fullmatch(str(labels[0])):
        return found
    objects = (
        one if SYNSET.fullmatch(str(one.label)) else msgspec.structs.replace(one, label=labels[0])
        for one in found.objects
    )
    return dataclasses.replace(found, objects=tuple(objects))
