"""Annotations of known formats that are not read: an input with them is refused, not read without them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from transforms.sources.formats.voc_xml import what_else
from transforms.sources.formats.xml_files import head_of
from transforms.sources.source import SourceConfig
from transforms.sources.tree import Tree, TreeFile

_LOOKED_AT = 2_000
_OPENED = 3  # XML files
_BY_NAME = (
    (
        re.compile(r"(?:.*/)?(?:list_(?:attr|bbox|landmarks)_celeba|identity_CelebA)\.(?:txt|csv)"),
        "CelebA's lists",
        "make a CSV of them, with a column of file names",
    ),
    (
        re.compile(r".*\.arrow"),
        "Arrow files of Hugging Face",
        "save the dataset with to_parquet, and give that",
    ),
    (
        re.compile(r"(?:.*/)?(?:digitStruct|imagelabels|setid|cars_annos)\.mat|.*_anno(?:s|tations)?\.mat"),
        "annotations of MATLAB",
        "make a CSV of them, with a column of file names",
    ),
)
_CVAT = ("annotations in CVAT's own XML", "export the task as COCO, PASCAL VOC or YOLO")


def check_unread(config: SourceConfig) -> None:
    """Looks at the names of the first files, and at XML files, for annotations that nothing reads.

    Raises:
        ValueError: says what they are, and the remedy.
        OSError: the input cannot be looked at.
    """
    opened = 0
    for file in itertools.islice(_files(config), _LOOKED_AT):
        told = _by_name(file.key)
        if told is None and opened < _OPENED and file.key.endswith(".xml"):
            opened += 1
            told = _CVAT if what_else(head_of(file.path)) is not None else None
        if told is not None:
            what, remedy = told
            raise ValueError(
                f"--input is {config.input!r}, where {file.key!r} holds {what}, which are not read: "
                f"{remedy}; for the images without them give --source folder"
            )


def _by_name(key: str) -> tuple[str, str] | None:
    """What annotations a file holds by its name, and what to do instead; None for all others."""
    found = (told for pattern, *told in _BY_NAME if pattern.fullmatch(key))
    what, remedy = next(found, ("", ""))
    return (what, remedy) if what else None


def _files(config: SourceConfig) -> Iterator[TreeFile]:
    found = Tree(config.input, config.image_roots, config.skip_dirs).files()
    return (file for file in found if isinstance(file, TreeFile))
