"""The folders of an ImageNet tree, and its files with classes and labels."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from recordmill.transforms.records import AnnotatedObject, BadInput, Box, Failure, JobError
from recordmill.transforms.sources.imagenet.meta_mat import MatClass, read_meta_mat
from recordmill.transforms.sources.look import Look
from recordmill.transforms.sources.names import (
    extension_of,
    is_image_name,
    is_split_name,
    split_named,
    split_of_folders,
    splits_in,
)
from recordmill.transforms.sources.pairs import ORPHAN
from recordmill.transforms.sources.tables.text_rows import read_cells
from recordmill.transforms.storage.files import open_file

SYNSET = re.compile(r"n[0-9]{8}")
"""A WordNet id: ImageNet's name of a class."""

ILSVRC_NAME = re.compile(r"ILSVRC20[0-9]{2}_(train|val|test)_([0-9]{8})(?:_(n[0-9]{8}))?(?:\.|$)")
"""The name of an image: split, number and, in Hugging Face's copy, synset."""

_ANNOTATION_FOLDERS = ("annotations", "annotation", "bbox", "bboxes", "bounding_boxes", "xml", "xmls")
_IMAGE_SETS = "imagesets"  # the numbers in its lists count images; they are not classes
_FOLDERS = 200
_DEPTH = 6
_CLASS_LISTS = """
    imagenet_lsvrc_2015_synsets.txt synsets.txt imagenet_synsets.txt loc_synset_mapping.txt synset_words.txt
    wnids.txt
"""
_WORDS = ("loc_synset_mapping.txt", "synset_words.txt", "imagenet_metadata.txt", "words.txt")
_ILSVRC_ORDER = "map_clsloc.txt"
_META = "meta.mat"
_TRUTH = re.compile(
    r"ilsvrc20[0-9]{2}_(?:clsloc_)?validation_ground_truth\.txt|imagenet_2012_validation_synset_labels\.txt"
)
_SOLUTION = re.compile(r"loc_(?:train|val)_solution\.csv")
_TINY = "val_annotations"
_NUMBER = re.compile(r"[0-9]{1,9}")
_LABEL = re.compile(r"(.*\S)(?:\s*,\s*|\s+)([0-9]{1,9}|n[0-9]{8})")
_LONGEST_META = 16 << 20
_LONGEST_LINE = 1 << 16


class ListedRow(NamedTuple):
    """A row of a list."""

    path: str  # of an image
    labels: tuple[str | int, ...]
    objects: tuple[AnnotatedObject, ...]  # the box of Tiny ImageNet
    line: int


class Layout:
    """The first `most` folders, down to those of synsets; keys of folders are empty or end in `/`."""

    def __init__(self, look: Look, most: int = _FOLDERS) -> None:
        self.root = look.root
        self.confinement = look.confinement
        self.synsets: set[str] = set()  # names of folders
        self.splits: dict[str, list[str]] = {}  # keys of the folders of each split
        self.annotations: list[str] = []  # keys of the folders of XML
        self.files: dict[str, str] = {}  # keys of .txt, .csv and .mat files near the root, by lower-case name
        self.named = ""  # an image with a name of ILSVRC
        self.named_splits: set[str] = set()  # splits that only the names of such images contain
        waiting = [""]
        for prefix in itertools.islice(waiting, most):
            is_in_split = any(map(is_split_name, prefix.split("/")))
            for listed in look.names(prefix[:-1]):
                name = listed.removesuffix("/")
                if name == listed:
                    self._note_file(prefix, name, is_in_split)
                elif name not in look.folders(prefix[:-1]):
                    continue
                elif SYNSET.fullmatch(name):
                    self.synsets.add(name)
                else:
                    key = f"{prefix}{name}/"
                    if (split := split_named(name)) is not None and not is_in_split:
                        self.splits.setdefault(split, []).append(key)
                    if name.lower() in _ANNOTATION_FOLDERS:
                        self.annotations.append(key)
                    elif name.lower() != _IMAGE_SETS and key.count("/") < _DEPTH:
                        waiting.append(key)

    def _note_file(self, prefix: str, name: str, is_in_split: bool) -> None:
        if extension_of(name) in ("txt", "csv", "mat"):
            self.files.setdefault(name.lower(), prefix + name)
        elif (match := ILSVRC_NAME.match(name)) and is_image_name(name):
            self.named = self.named or prefix + name
            if not is_in_split:
                self.named_splits.add(match[1])

    def path(self, key: str) -> str:
        """The path of a file or folder by its key."""
        return f"{self.root}/{key}".rstrip("/")

    def stream(self, key: str) -> BinaryIO:
        """Opens a file by its key. Raises OSError if that is outside the roots."""
        return open_file(self.confinement.leads_to(self.path(key)))

    def lines(self, key: str) -> Iterator[str]:
        """The lines of a text file. Raises JobError if it is not UTF-8 or has a very long line."""
        try:
            with io.TextIOWrapper(self.stream(key), encoding="utf-8-sig") as stream:
                while line := stream.readline(_LONGEST_LINE):
                    if len(line) == _LONGEST_LINE:
                        raise JobError(f"{key!r} has a line of more than {_LONGEST_LINE} characters")
                    yield line
        except UnicodeDecodeError as error:
            raise JobError(f"{key!r} is not UTF-8: {error.reason}") from error

    def rows(self, key: str) -> Iterator[ListedRow]:
        """The rows of a list of images. Raises JobError or OSError."""
        for number, line in enumerate(self.lines(key), 1):
            text, labels = line.strip(), list[str | int]()
            while match := _LABEL.fullmatch(text):  # labels are at the end
                text = match[1]
                labels.insert(0, int(match[2]) if _NUMBER.fullmatch(match[2]) else match[2])
            if not text:
                continue
            objects: tuple[AnnotatedObject, ...] = ()
            synset, *numbers = labels or (0,)
            if isinstance(synset, str) and len(numbers) == 4:
                labels, objects = [synset], (AnnotatedObject(synset, Box(*map(float, numbers))),)
            yield ListedRow(text.strip('"'), tuple(labels), objects, number)

    def lists(self) -> dict[str, str | None]:
        """The lists of images, detected by name and first lines: the split in the name of each, by key."""
        found = {}
        for name, key in sorted(self.files.items()):
            stem = name.removesuffix(".txt")
            is_named = is_split_name(stem) or stem.endswith("_map") or stem == _TINY
            if stem != name and is_named and self._is_list(key):
                splits = splits_in(stem)
                found[key] = splits.pop() if len(splits) == 1 else None
        return found

    def _is_list(self, key: str) -> bool:
        """Whether the first rows have labels, not only a running number, as ILSVRC's ImageSets do."""
        try:
            rows = list(itertools.islice(self.rows(key), 3))
        except JobError:
            return False
        if not rows or not all(row.labels for row in rows):
            return False
        counts = all(row.labels == (row.line,) and not is_image_name(row.path) for row in rows)
        return not (counts and len(rows) > 1) and all(
            is_image_name(row.path) or ILSVRC_NAME.match(row.path) or SYNSET.match(row.path) for row in rows
        )


def split_of(key: str) -> str | None:
    """The split in the folders of an image, or else in its name."""
    found = split_of_folders(key)
    if found is None and (match := ILSVRC_NAME.match(key.rpartition("/")[2])):
        return match[1]
    return found


class _LabelFile:
    """The labels in a file by image, and failures for rows that cannot be read or have no image."""

    def __init__(self, key: str, separator: str, rows: Mapping[Any, str], unread: Iterable[Failure]) -> None:
        self.key = key
        self.rows = rows
        self._separator = separator
        self._unread = unread
        self._unused = set(rows)

    def take(self, image: int | str) -> str | None:
        """The label of an image, if there is one."""
        self._unused.discard(image)
        return self.rows.get(image)

    def unused(self) -> Iterator[Failure]:
        """Reports the rows without a record, or the file if none of its rows has one."""
        yield from self._unread
        if len(self._unused) == len(self.rows):
            yield Failure(self.key, "annotations", "ground truth without its images", skipped=True)
            return
        for image in sorted(self._unused):
            yield Failure(f"{self.key}{self._separator}{image}", "annotations", ORPHAN)


class Labels:
    """The classes and labels in all files except XML. Raises JobError if one cannot be used."""

    def __init__(self, layout: Layout, lists: Collection[str]) -> None:
        self._layout = layout
        files = layout.files
        names = sorted(files)
        class_lists = (*_CLASS_LISTS.split(), *(one for one in names if re.fullmatch(r"synsets.*\.txt", one)))
        class_list = next((files[one] for one in class_lists if one in files), None)
        # in the order of their list; empty without a list
        self.listed_classes = () if class_list is None else self._read_classes(class_list)
        kit = self._read_kit()
        truths = (self._read_truth(files[one], kit) for one in names if _TRUTH.fullmatch(one))
        self._truth = next(truths, None)
        self._solutions = [self._read_solution(files[one]) for one in names if _SOLUTION.fullmatch(one)]
        self._label_files = [one for one in (self._truth, *self._solutions) if one is not None]
        named = {text.partition(" ")[0] for file in self._label_files for text in file.rows.values()} - {""}
        named.update(*map(self._synsets_in, lists))
        # the same, or else all classes in the names of folders and in files, sorted
        self.classes = self.listed_classes or tuple(sorted(layout.synsets | named))
        self.words: dict[str, str] = {}  # display names of classes, from the first file that has them
        texts = [self._synset_lines(files[name]) for name in _WORDS if name in files]
        kit_texts = ((one.synset, one.words) for found in kit.values() for one in found)
        classes = set(self.classes)
        for synset, text in itertools.chain(*texts, kit_texts):
            if synset in classes and text:
                self.words.setdefault(synset, text)
        used = {*map(files.get, (*_WORDS, _ILSVRC_ORDER, _META)), class_list}
        # keys of the files that were read
        self.files = {*used, *(file.key for file in self._label_files), *lists}

    def true_label(self, name: str) -> str | None:
        """The synset of an image of the flat validation set. Raises BadInput if it has no line."""
        match = ILSVRC_NAME.match(name)
        if self._truth is None or match is None or match[1] != "val":
            return None
        found = self._truth.take(int(match[2]))
        if found is None:
            detail = f"{self._truth.key} has {len(self._truth.rows)}"
            raise BadInput("annotations", "no line in the ground truth", detail)
        return found

    def solved(self, stem: str) -> tuple[AnnotatedObject, ...]:
        """The objects of an image in Kaggle's solutions. Raises BadInput if its row cannot be read."""
        if not self._solutions:
            return ()
        texts = [file.take(stem) for file in self._solutions]
        cells = next((text for text in reversed(texts) if text is not None), "").split()
        try:
            boxes = [Box(*map(float, cells[at + 1 : at + 5])) for at in range(0, len(cells), 5)]
        except (TypeError, ValueError) as error:
            detail = "it is a synset, xmin, ymin, xmax and ymax for each box"
            raise BadInput("annotations", "not a prediction string", detail) from error
        return tuple(map(AnnotatedObject, cells[::5], boxes))

    def class_of(self, label: str | int) -> str | int:
        """The class of a label in a list. Raises BadInput for a number above the number of classes."""
        if isinstance(label, str) or not self.listed_classes:
            return label
        if label >= len(self.listed_classes):
            detail = f"{label}; there are {len(self.listed_classes)} classes, the first one is 0"
            raise BadInput("annotations", "number of no class", detail)
        return self.listed_classes[label]

    def unused(self) -> Iterator[Failure]:
        """Reports labels without an image, and rows that cannot be read."""
        return itertools.chain(*(file.unused() for file in self._label_files))

    def _synset_lines(self, key: str) -> Iterator[tuple[str, str]]:
        """The lines of a file: a synset and the text after it, or another name and no text."""
        for line in filter(None, map(str.strip, self._layout.lines(key))):
            first, *rest = line.split(maxsplit=1)
            yield (first, rest[0] if rest else "") if SYNSET.fullmatch(first) else (line, "")

    def _read_classes(self, key: str) -> tuple[str, ...]:
        classes = tuple(synset for synset, _ in self._synset_lines(key))
        if len(set(classes)) < len(classes) or not classes:
            raise JobError(f"{key!r} names {'a class twice' if classes else 'no class'}")
        return classes

    def _read_kit(self) -> dict[str, list[MatClass]]:
        """The ids, synsets and words in `map_clsloc.txt` (`n02119789 1 kit_fox`) and `meta.mat`, by file."""
        kit: dict[str, list[MatClass]] = {}
        if (key := self._layout.files.get(_ILSVRC_ORDER)) is not None:
            kit[key] = []
            for synset, text in self._synset_lines(key):
                number, _, words = text.partition(" ")
                one = MatClass(int(number) if number.isdecimal() else 0, synset, words.replace("_", " "))
                kit[key].append(one)
        if (key := self._layout.files.get(_META)) is not None:
            with self._layout.stream(key) as stream:
                data = stream.read(_LONGEST_META)
            try:
                kit[key] = read_meta_mat(data)
            except ValueError as error:
                raise JobError(f"{key!r}: {error}") from error
        return kit

    def _read_truth(self, key: str, kit: Mapping[str, list[MatClass]]) -> _LabelFile:
        lines = [line.strip() for line in self._layout.lines(key)]
        while lines and not lines[-1]:
            lines.pop()
        if not all(map(SYNSET.fullmatch, lines)):
            order = self._ilsvrc_order(kit)
            for at, line in enumerate(lines):
                if not _NUMBER.fullmatch(line) or not 1 <= int(line) <= len(order):
                    allowed = f"1 to {len(order)}, or all synsets"
                    raise JobError(f"{key!r}, line {at + 1} is {line[:50]!r}; it may be {allowed}")
                lines[at] = order[int(line) - 1]
        return _LabelFile(key, ":", dict(enumerate(lines, 1)), ())

    def _ilsvrc_order(self, kit: Mapping[str, list[MatClass]]) -> Sequence[str]:
        """The synsets in the order of ILSVRC's ids, from 1; it is not alphabetical."""
        for key, found in kit.items():
            if sorted(one.number for one in found) != list(range(1, len(found) + 1)):
                raise JobError(f"{key!r} has not the ids 1 to {len(found)}, each once")
            return [one.synset for one in sorted(found)]
        if list(self.listed_classes) == sorted(self.listed_classes):
            raise JobError(
                "the ground truth has ILSVRC's ids, which are not in alphabetical order; add meta.mat or "
                "map_clsloc.txt of the development kit, or use a ground truth of synsets "
                "(imagenet_2012_validation_synset_labels.txt)"
            )
        return self.listed_classes

    def _read_solution(self, key: str) -> _LabelFile:
        rows = read_cells(self._layout.lines(key))
        if next(rows, (0, None))[1] != ["ImageId", "PredictionString"]:
            raise JobError(f"{key!r}: its first line is not ImageId,PredictionString")
        found: dict[str, str] = {}
        unread = []
        for line, row in rows:
            if isinstance(row, BadInput):
                raise JobError(f"{key!r}, line {line}: {row.detail}")
            if len(row) == 2 and row[0] not in found:
                found[row[0]] = row[1]
            elif row:
                reason = "image listed twice" if len(row) == 2 else "row has not two cells"
                unread.append(Failure(f"{key}:{line}", "annotations", reason, row[0]))
        return _LabelFile(key, ": ", found, unread)

    def _synsets_in(self, key: str) -> set[str]:
        """The synsets in a list. Raises JobError if its class numbers begin with 1."""
        labels = {label for row in self._layout.rows(key) for label in row.labels}
        numbers = {label for label in labels if isinstance(label, int)}
        count = len(self.listed_classes)
        if count and numbers and 0 not in numbers and max(numbers) == count:
            raise JobError(
                f"{key!r} has the class numbers {min(numbers)} to {max(numbers)}, and there are "
                f"{count} classes; the first one is 0: take 1 from each"
            )
        return {label for label in labels if isinstance(label, str)}
