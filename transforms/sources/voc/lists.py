"""The lists of VOC's ImageSets: which image is in which split."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Sequence

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.image_index import (
    IMAGE_FOLDERS,
)
from recordmill.transforms.sources.names import is_image_name, is_split_name, normal_split, stem_of
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.tree import TreeFile

NO_SPLIT = "default"
"""What CVAT and Datumaro call the list of a task that has no splits."""

BOTH = "trainval"
_SECOND_COLUMN = re.compile(r"(.*\S)\s+[+-]?[0-9]+")
_IN_FOLDER = re.compile(rf"(?:.*/)?(?:{'|'.join(IMAGE_FOLDERS)}|Annotations)/(.*)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class ImageLists:
    """What the lists say.

    Attributes:
        splits: of each image that is listed, by its name without extension.
        several: images that are in the lists of several splits, and those splits.
        listed: the list in which each image is first, by its key.
    """

    splits: dict[str, str]
    several: dict[str, tuple[str, ...]]
    listed: dict[str, str]


def split_lists(files: Sequence[TreeFile]) -> list[tuple[str, TreeFile]]:
    """The lists of splits, with their names, among the files of a folder: not those of one class each.

    `cow_train.txt` is the list of a class, beside `train.txt` or in its stead.
    """
    named = {stem_of(file.key.rpartition("/")[2]): file for file in files}
    usual = {name for name in named if is_split_name(name)} | {BOTH, "train", "val", "test"}

    def is_of_class(name: str) -> bool:
        _, _, end = name.rpartition("_")
        return end != name and (end in named or end in usual)

    return sorted((name, file) for name, file in named.items() if not is_of_class(name))


def read_lists(files: Sequence[TreeFile], known: Container[str]) -> ImageLists:
    """Reads the lists of splits.

    A list named as splits are comes before others, and before `trainval`, which holds two of them.

    Args:
        files: of one folder of ImageSets.
        known: names of images that there are, without extension.

    Raises:
        BadInput: a list cannot be read.
    """
    splits: dict[str, str] = {}
    several: dict[str, tuple[str, ...]] = {}
    listed: dict[str, str] = {}
    named = sorted(split_lists(files), key=lambda one: (_rank(one[0]), one[0]))
    for (name, file), data in read_files(((name, file), file) for name, file in named):
        split = normal_split(name)
        if isinstance(data, BadInput):
            if not file.size:
                continue
            raise BadInput("list", data.reason, data.detail, file.key)
        try:
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise BadInput("list", "list is not UTF-8", str(error), file.key) from error
        for image in _images(lines, known):
            listed.setdefault(image, file.key)
            first = splits.setdefault(image, split)
            if first != split and is_split_name(split):
                several[image] = (*several.get(image, (first,)), split)
    return ImageLists(splits, several, listed)


def _rank(split: str) -> int:
    return 2 if split == BOTH else 0 if is_split_name(split) else 1


def _images(lines: Iterable[str], known: Container[str]) -> Iterable[str]:
    """The images in a list, which may have a second column."""
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line not in known and (match := _SECOND_COLUMN.fullmatch(line)):
            line = match[1]
        line = line.strip('"')
        if line not in known and is_image_name(line):
            line = stem_of(line)
        if line not in known and (match := _IN_FOLDER.fullmatch(line)):
            line = match[1]
        yield line
