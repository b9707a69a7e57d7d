"""Finds annotations among the names in archives, from which only images and folders are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from recordmill.transforms.sources.masks.match import ENDINGS, image_path, mask_path, match_masks
from recordmill.transforms.sources.names import extension_of, is_image_name, is_split_name, name_stem

_TABLES = frozenset(("csv", "tsv", "jsonl", "ndjson", "parquet", "arrow", "mat"))
_MAY_BE_NOTES = frozenset(("json", "xml", "yaml", "yml", "txt"))
_WORD = re.compile(
    r"annotations?|annos?|labels?|captions?|bbox(?:es)?|boxes|instances|keypoints|panoptic|coco\d*|regions?|lists?"
)
"""A word in the name of a file that annotates several images."""
_FOLDERS = frozenset(("annotations", "annotation", "imagesets", "xmls"))
_OF_YOLO = re.compile(r"(?:data|dataset)\.ya?ml|obj\.(?:data|names)|_darknet\.labels")
_OF_AN_IMAGE = frozenset(("xml", "json", "mat", "npy", "txt", "csv"))
_ALSO_NOTES = frozenset(("txt", "csv"))  # a single one may be a note
_MAY_BE_CLASSES = frozenset(("mask", "label", "seg", "gt"))
_COMPARED = 50


def unread_member(names: Sequence[str]) -> str | None:
    """The first file that looks like annotations or a mask of the images, if any.

    Args:
        names: paths of files: images and others.
    """
    images = [name for name in names if is_image_name(name)]
    others = [name for name in names if not is_image_name(name)]
    of_all = next(filter(_is_of_all, others), None)
    return of_all or _of_single_images(others, images) or _mask(images)


def _is_of_all(name: str) -> bool:
    """Whether a file's name suggests annotations of several images."""
    *folders, base = name.lower().split("/")
    extension = extension_of(base)
    if extension in _TABLES or _OF_YOLO.fullmatch(base):
        return True
    if extension not in _MAY_BE_NOTES:
        return False
    words = re.split(r"[-_. ]", base.removesuffix(f".{extension}"))
    is_named = any(_WORD.fullmatch(word) or is_split_name(word) for word in words)
    return is_named or (not _FOLDERS.isdisjoint(folders) and "readme" not in words)


def _of_single_images(others: Iterable[str], images: Sequence[str]) -> str | None:
    """The first file with the name of an image, apart from the extension."""
    stems = frozenset(map(name_stem, images))
    found: dict[str, list[str]] = {}
    for name in others:
        if (extension := extension_of(name)) in _OF_AN_IMAGE and name_stem(name) in stems:
            found.setdefault(extension, []).append(name)
    for extension, alike in found.items():
        if extension not in _ALSO_NOTES or len(alike) > 1 or len(stems) <= 2:
            return alike[0]
    return None


def _mask(images: Sequence[str]) -> str | None:
    """The first file in a folder such as `masks`, if most files there have the names of images."""
    masks = {name: path for name in images if (path := mask_path(name)) is not None}
    if not masks:
        matched = match_masks(images, (), None)
        is_most = 2 * len(matched.masks) > len(matched.images)
        return next(iter(matched.masks.values()))[0] if is_most else None
    photos = [name for name in images if name not in masks]
    paths, stems = set(map(image_path, photos)), set(map(name_stem, photos))
    first = list(masks.items())[:_COMPARED]
    found = [
        name
        for name, path in first
        if _is_in(path, paths) or (not _may_be_of_class(name) and _is_in(name_stem(name), stems))
    ]
    return found[0] if 2 * len(found) > len(first) else None


def _is_in(path: str, images: set[str]) -> bool:
    return any(path.endswith(ending) and path.removesuffix(ending) in images for ending in ENDINGS)


def _may_be_of_class(name: str) -> bool:
    """Whether the folder of a mask may be a class instead, such as photographs of masks."""
    return not _MAY_BE_CLASSES.isdisjoint(name.lower().split("/")[:-1])
