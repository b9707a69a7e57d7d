"""Which of the files are masks, and of which images: by folders, by endings of names, or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from recordmill.transforms.sources.masks.pattern import MaskPattern
from recordmill.transforms.sources.names import extension_of, is_split_name, name_stem, stem_of
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
    without_folder,
)

MASK_FOLDERS = frozenset(
    (
        "masks",
        "mask",
        "labels",
        "label",
        "annotations",
        "annotation",
        "annot",
        "annots",
        "segmentationclass",
        "segmentationclasspng",
        "segmentationclassraw",
        "segmentation",
        "segmentations",
        "segmentation_masks",
        "semantic",
        "semantic_masks",
        "seg",
        "gt",
        "gtfine",
        "gtcoarse",
        "groundtruth",
        "ground_truth",
    )
)
"""Names, in lower case, of folders of masks."""

LOSSLESS = frozenset(("png", "gif", "bmp", "dib", "tif", "tiff"))
"""Extensions of files that masks can be in: their values survive."""

ENDINGS = (
    "",
    "_gtFine_labelIds",
    "_gtCoarse_labelIds",
    "_labelIds",
    "_mask",
    "-mask",
    "_masks",
    "_label",
    "_labels",
    "_gt",
    "_GT",
    "_L",
    "_P",
    "_seg",
    "_segmentation",
    "_annotation",
    "_annotations",
    "_labelTrainIds",
    "_gtFine_labelTrainIds",
)
"""What follows the name of the image in that of its mask; the first there is counts."""

_ONLY_SET = "default"  # what CVAT and Datumaro call the images where there are no splits
_OTHER = ("_color", "_instanceIds", "_instanceTrainIds")  # Cityscapes' other pictures of the same
_IMAGE_ENDING = "_leftImg8bit"
_BESIDE = re.compile(r"(.+?)[-_ ]?(annots?|annotations?|masks?|labels?|gt)", re.IGNORECASE)


class Matched(NamedTuple):
    """Files by what they are.

    Attributes:
        images: keys of files that may be images, in order.
        masks: the keys of the masks of each image that has any; several where they cannot be told apart.
        orphans: keys of masks without an image.
        others: keys of masks that are not used, and why.
    """

    images: list[str]
    masks: dict[str, list[str]]
    orphans: list[str]
    others: dict[str, str]


def mask_path(key: str) -> str | None:
    """The path that an image of this mask would have, without its folder; None where it lies in none.

    `masks/train/1.png` is `train/1`, as is `trainannot/1.png`.
    """
    stem = stem_of(key)
    if (shorter := without_folder(stem, MASK_FOLDERS)) != stem:
        return shorter
    *folders, name = stem.split("/")
    for at in range(len(folders) - 1, -1, -1):
        match = _BESIDE.fullmatch(folders[at])
        if match and (is_split_name(match[1]) or match[1].lower() == _ONLY_SET):
            return "/".join((*folders[:at], match[1], *folders[at + 1 :], name))
        if match and match[1].lower() in IMAGE_FOLDERS:
            return "/".join((*folders[:at], *folders[at + 1 :], name))
    return None


def image_path(key: str) -> str:
    """The path of an image without the folder that says it is one."""
    return without_folder(stem_of(key), IMAGE_FOLDERS).removesuffix(_IMAGE_ENDING)


def match_masks(keys: Iterable[str], apart: Collection[str], pattern: MaskPattern | None) -> Matched:
    """Tells images from masks, and pairs them.

    Args:
        keys: of image files.
        apart: those of them that come from an image root.
        pattern: of `--mask_pattern`.
    """
    every = list(keys)
    if pattern is not None:
        return _by_pattern(every, apart, pattern)
    paths = {key: path for key in every if key not in apart and (path := mask_path(key)) is not None}
    if not paths and apart:
        paths = {key: stem_of(key) for key in every if key not in apart}
    if not paths:
        paths = _by_endings(every)
    images = [key for key in every if key not in paths]
    matched = _by_paths({key: image_path(key) for key in images}, paths)
    if not matched.masks and paths:
        by_name = {key: name_stem(key).removesuffix(_IMAGE_ENDING) for key in images}
        matched = _by_paths(by_name, {key: name_stem(key) for key in paths})
    return matched


def _by_endings(keys: list[str]) -> dict[str, str]:
    """The masks that lie beside their images: `1_mask.png` where there is `1.jpg`."""
    stems = {stem_of(key) for key in keys}
    return {
        key: stem
        for key in keys
        if extension_of(key) in LOSSLESS
        and any(
            stem.removesuffix(ending) in stems
            for ending in ENDINGS[1:]
            if (stem := stem_of(key)).endswith(ending)
        )
    }


def _by_paths(images: Mapping[str, str], masks: Mapping[str, str]) -> Matched:
    """Pairs by paths without folders and extensions; those of masks may have an ending."""
    known = set(images.values())
    found: dict[str, list[tuple[int, str]]] = {}
    orphans, others = [], {}
    for key, path in masks.items():
        ranked = ((rank, path.removesuffix(end)) for rank, end in enumerate(ENDINGS) if path.endswith(end))
        best = next(((rank, one) for rank, one in ranked if one in known), None)
        if best is not None:
            found.setdefault(best[1], []).append((best[0], key))
        elif path.endswith(_OTHER):
            others[key] = "not a mask of classes"
        else:
            orphans.append(key)
    chosen = {}
    for path, ranked_keys in found.items():
        first = min(rank for rank, _ in ranked_keys)
        chosen[path] = [key for rank, key in ranked_keys if rank == first]
        others.update({key: "another mask of the same image" for rank, key in ranked_keys if rank > first})
    return Matched(
        list(images), {key: chosen[path] for key, path in images.items() if path in chosen}, orphans, others
    )


def _by_pattern(keys: list[str], apart: Collection[str], pattern: MaskPattern) -> Matched:
    known = set(keys)
    masks = {key for key in keys if key not in apart and pattern.may_be_mask(key)}
    images = [key for key in keys if key not in masks]
    found = {key: [mask] for key in images if (mask := pattern.mask_of(key)) in known and mask in masks}
    used = {mask for (mask,) in found.values()}
    return Matched(images, found, [key for key in keys if key in masks - used], {})
