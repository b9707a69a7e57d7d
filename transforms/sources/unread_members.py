"""Annotations in an archive, of which only images and folders are read: such an archive is refused."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from transforms.sources.formats.masks_match import MASK_FOLDERS
from transforms.sources.formats.masks_pairs import name_stem
from transforms.sources.names import extension_of, is_image_name, is_split_name

_OF_MANY = frozenset(
    ("csv", "tsv", "json", "jsonl", "ndjson", "parquet", "arrow", "yaml", "yml", "mat", "xml")
)
_NAMES = ("obj.data", "obj.names")  # of darknet
_LISTS = ("list_", "identity_")  # of CelebA
_OF_ONE = frozenset(("xml", "json", "txt", "csv", "mat", "npy"))
_MAY_BE_CLASSES = frozenset(("mask", "label", "seg", "gt"))


def check_members_read(path: str, members: Iterable[str]) -> None:
    """Looks at names alone for annotations of the images.

    Args:
        path: of the archive.
        members: names of its first members.

    Raises:
        ValueError: there are some; says which, and the two ways on.
    """
    found = unread_member(tuple(members))
    if found is not None:
        raise ValueError(
            f"{path!r} holds {found!r}, and annotations in archives are not read: unpack it and give --input "
            f"the folder; for its images and folders only give --input {shlex.quote(path)} --source archive"
        )


def unread_member(members: tuple[str, ...]) -> str | None:
    """The first member that looks like annotations or masks of the images; None where there is none."""
    images = [name for name in members if is_image_name(name)]
    stems = {name_stem(name) for name in images if not _is_mask(name)}
    for name in members:
        if is_image_name(name):
            if _is_mask(name) and name_stem(name) in stems:
                return name
        elif _is_of_many(name) or (extension_of(name) in _OF_ONE and name_stem(name) in stems):
            return name
    return None


def _is_of_many(name: str) -> bool:
    """Whether a file is named like the annotations of many images."""
    extension, base = extension_of(name), name.rpartition("/")[2]
    is_list = extension == "txt" and (is_split_name(name_stem(name)) or base.startswith(_LISTS))
    return extension in _OF_MANY or base in _NAMES or is_list


def _is_mask(name: str) -> bool:
    folders = name.lower().split("/")[:-1]
    return any(part in MASK_FOLDERS and part not in _MAY_BE_CLASSES for part in folders)
