"""Finds masks and their images: by folders, by endings of names, or by a pattern."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.sources.names import extension_of, is_split_name, name_stem, stem_of
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS, without_folder

_MASK_FOLDERS = """
    masks mask labels label annotations annotation annot annots segmentationclass segmentationclasspng
    segmentationclassraw segmentation segmentations segmentation_masks semantic semantic_masks seg gt gtfine
    gtcoarse groundtruth ground_truth
"""
MASK_FOLDERS = frozenset(_MASK_FOLDERS.split())
"""Names, in lower case, of folders of masks."""

LOSSLESS = frozenset(("png", "gif", "bmp", "dib", "tif", "tiff"))
"""Extensions of formats for masks, which keep all values."""

_ENDINGS = """
    _gtFine_labelIds _gtCoarse_labelIds _labelIds _mask -mask _masks _label _labels _gt _GT _L _P _seg
    _segmentation _annotation _annotations _labelTrainIds _gtFine_labelTrainIds
"""
ENDINGS = ("", *_ENDINGS.split())
"""Endings of a mask's name after the name of its image. A mask with an earlier one is preferred."""

_ONLY_SET = "default"  # in CVAT and Datumaro, the set of a task without splits
OTHER_ENDINGS = ("_color", "_instanceIds", "_instanceTrainIds")
"""Endings of other images of Cityscapes, next to its masks of classes."""

_IMAGE_ENDING = "_leftImg8bit"
_NEXT_TO = re.compile(r"(.+?)[-_ ]?(annots?|annotations?|masks?|labels?|gt)", re.IGNORECASE)

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("stem", "name", "folder", "parent", "subfolder")
_TOKEN = re.compile(r"(\{[^{}]*\})")
_TOKENS = {"{stem}": "[^/]+", "{name}": "[^/]+", "{parent}": "[^/]+", "{folder}": ".*", "{subfolder}": ".*"}
_FOLDERS = ("{folder}", "{subfolder}")  # fields of any number of folders, or none

OUTSIDE_INPUT = "../"
"""Start of the location of a file in an image root, relative to the input."""


class Matched(NamedTuple):
    """Locations of images and masks, relative to the input."""

    images: list[str]
    masks: dict[str, list[str]]  # by image; several if they match equally well
    orphans: list[str]  # masks without an image
    others: dict[str, str]  # the reasons why other masks are skipped


def mask_path(key: str) -> str | None:
    """The path of a mask without its folder of masks; None if it is in no such folder.

    It is `train/1` for `masks/train/1.png` and for `trainannot/1.png`.
    """
    stem = stem_of(key)
    if (shorter := without_folder(stem, MASK_FOLDERS)) != stem:
        return shorter
    *folders, name = stem.split("/")
    for at in range(len(folders) - 1, -1, -1):
        if (match := _NEXT_TO.fullmatch(folders[at])) is None:
            continue
        is_split = is_split_name(match[1]) or match[1].lower() == _ONLY_SET
        if is_split or match[1].lower() in IMAGE_FOLDERS:
            folders[at : at + 1] = [match[1]] if is_split else []
            return "/".join((*folders, name))
    return None


def is_mask_folder(name: str) -> bool:
    """Whether a folder is named like a folder of masks."""
    return mask_path(f"{name}/1.png") is not None


def image_path(key: str) -> str:
    """The path of an image without its folder of images."""
    return without_folder(stem_of(key), IMAGE_FOLDERS).removesuffix(_IMAGE_ENDING)


class MaskPattern:
    """A path relative to the input, with fields of the image.

    Fields: `{stem}`, `{name}`, `{folder}`, `{parent}` (the last folder), `{subfolder}` (all but the first).
    `..` leads to the folder above.

    Raises ValueError, about `--mask_pattern`, if it is not valid.
    """

    def __init__(self, pattern: str) -> None:
        given = f"--mask_pattern is {pattern!r}"
        fields = set(_FIELD.findall(pattern))
        shown = ", ".join(f"{{{one}}}" for one in _FIELDS)
        if unknown := sorted(fields.difference(_FIELDS)):
            raise ValueError(f"{given}, which has {{{unknown[0]}}}; it may have {shown}")
        if "{" in (rest := _FIELD.sub("", pattern)) or "}" in rest:
            raise ValueError(f"{given}, which has a brace without the other")
        if not fields:
            raise ValueError(f"{given}, which is the same for all images; put {{stem}} or {{name}} in it")
        if pattern.startswith("/") or "://" in pattern:
            raise ValueError(f"{given}; it is a path below --input, such as masks/{{stem}}.png")
        self._pattern = pattern
        self._regex = _regex(pattern)

    def mask_of(self, key: str) -> str | None:
        """The location of the mask of an image, by its key; None if the image has no folder to name it.

        It begins with `OUTSIDE_INPUT` if it is not below the input.
        """
        folder, _, name = key.rpartition("/")
        if not folder and "{parent}" in self._pattern:
            return None
        values = {
            "stem": name_stem(key),
            "name": name,
            "folder": folder,
            "parent": folder.rpartition("/")[2],
            "subfolder": folder.partition("/")[2],
        }
        path = _FIELD.sub(lambda match: values[match[1]], self._pattern).lstrip("/")
        return posixpath.normpath(path)

    def may_be_mask(self, key: str) -> bool:
        """Whether the key of a file below the input matches the pattern."""
        return self._regex is not None and bool(self._regex.fullmatch(key))


def _regex(pattern: str) -> re.Pattern[str] | None:
    """Matches the keys of masks below the input; None if the pattern always leads outside."""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part != "..":
            parts += [part] if part not in ("", ".") else []
        elif not parts:
            return None
        elif any(field in parts[-1] for field in _FOLDERS):
            parts[-1] = _FOLDERS[0]  # without one of its folders, it still matches any number
        else:
            parts.pop()
    *folders, name = parts or [""]
    texts = ["(?:.*/)?" if one in _FOLDERS else f"{_part_regex(one)}/" for one in folders]
    return re.compile("".join((*texts, _part_regex(name))))


def _part_regex(part: str) -> str:
    return "".join(_TOKENS.get(token) or re.escape(token) for token in _TOKEN.split(part))


def match_masks(keys: Mapping[str, str], pattern: MaskPattern | None) -> Matched:
    """Divides files into images and masks, and pairs these.

    `keys` are the paths of files below their roots, by their locations.
    """
    inner = {place: key for place, key in keys.items() if not place.startswith(OUTSIDE_INPUT)}
    if pattern is not None:
        return _by_pattern(keys, inner, pattern)
    paths = {place: path for place, key in inner.items() if (path := mask_path(key)) is not None}
    if not paths and len(inner) < len(keys):
        paths = {place: stem_of(key) for place, key in inner.items()}
    if not paths:  # masks next to their images: `1_mask.png` and `1.jpg`
        stems = set(map(stem_of, keys))
        lossless = ((key, stem_of(key)) for key in keys if extension_of(key) in LOSSLESS)
        paths = {
            key: stem
            for key, stem in lossless
            if any(base in stems for rank, base in without_ending(stem) if rank)
        }
    images = {place: key for place, key in keys.items() if place not in paths}
    matched = _by_paths({place: image_path(key) for place, key in images.items()}, paths)
    if not matched.masks and paths:
        by_name = {place: name_stem(key).removesuffix(_IMAGE_ENDING) for place, key in images.items()}
        matched = _by_paths(by_name, {place: name_stem(place) for place in paths})
    return matched


def without_ending(path: str) -> Iterator[tuple[int, str]]:
    """A path without each of its `ENDINGS`, and the rank of the ending."""
    return ((rank, path.removesuffix(end)) for rank, end in enumerate(ENDINGS) if path.endswith(end))


def _by_paths(images: Mapping[str, str], masks: Mapping[str, str]) -> Matched:
    """Pairs images and masks by their shortened paths; masks may have an ending."""
    of_images = set(images.values())
    ranked: dict[str, list[tuple[int, str]]] = {}
    orphans, others = [], {}
    for key, path in masks.items():
        rank, base = next((one for one in without_ending(path) if one[1] in of_images), (-1, ""))
        if rank >= 0:
            ranked.setdefault(base, []).append((rank, key))
        elif path.endswith(OTHER_ENDINGS):
            others[key] = "not a mask of classes"
        else:
            orphans.append(key)
    for base, found in ranked.items():
        best = min(found)[0]
        others.update((key, "another mask of the same image") for rank, key in found if rank > best)
        ranked[base] = [one for one in found if one[0] == best]
    chosen = {key: [mask for _, mask in ranked[path]] for key, path in images.items() if path in ranked}
    return Matched(list(images), chosen, orphans, others)


def _by_pattern(keys: Mapping[str, str], inner: Iterable[str], pattern: MaskPattern) -> Matched:
    named = {place: mask for place, key in keys.items() if (mask := pattern.mask_of(key)) is not None}
    masks = set(filter(pattern.may_be_mask, inner))
    masks.update(mask for mask in named.values() if mask.startswith(OUTSIDE_INPUT) and mask in keys)
    images = [place for place in keys if place not in masks]
    found = {place: [named[place]] for place in images if named.get(place) in masks}
    orphans = masks.difference(*found.values())
    return Matched(images, found, [place for place in keys if place in orphans], {})
