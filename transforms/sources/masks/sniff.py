"""Telling pairs of images and masks from other datasets, by the names of a few of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.nearby_images import NearbyImages
from recordmill.transforms.sources.masks.match import ENDINGS, LOSSLESS, mask_path
from recordmill.transforms.sources.masks.pattern import MaskPattern
from recordmill.transforms.sources.names import extension_of, is_hidden, is_image_name, is_split_name, stem_of
from recordmill.transforms.sources.pairs import (
    root_of,
)
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import real_path

_NAMES = 10_000  # of a folder, where calls wait for a service
_TRIED = 50  # masks
_WALKED = 500  # files of a folder of masks


def why_masks(config: SourceConfig) -> str | None:
    """What makes the input look like pairs of images and masks, or None where nothing does."""
    root = root_of(config)
    if not is_folder(real_path(config.input)):
        return None
    if config.mask_pattern is not None:
        MaskPattern(config.mask_pattern)
        return f"--mask_pattern {config.mask_pattern!r} is given"
    tree = Tree(root, config.image_roots, config.skip_dirs)
    nearby = NearbyImages(config)
    for folder in _mask_folders(root, nearby):
        items = itertools.islice(tree.files(f"{folder}/"), _WALKED)
        found = [item.key for item in items if isinstance(item, TreeFile)]
        if any(extension_of(key) in ("xml", "json") and not key.endswith("_polygons.json") for key in found):
            continue
        masks = [key for key in found if extension_of(key) in LOSSLESS][:_TRIED]
        matched = [mask for mask in masks if _has_image(mask, nearby)]
        if masks and 2 * len(matched) >= len(masks):
            return f"{folder!r} has masks such as {matched[0]!r}, which are called like images"
    for folder in (root, *(f"{root}/{name}" for name in filter(is_split_name, nearby.folders(root)))):
        if mask := _mask_beside(folder):
            return f"{mask!r} is called like the mask of an image beside it, and most images have one"
    return None


def _mask_beside(folder: str) -> str | None:
    """A mask among the images of a folder, if half of them have one or more; a short ending is none."""
    images = sorted(name for name in names_in(folder, _NAMES) if is_image_name(name) and not is_hidden(name))
    stems = set(map(stem_of, images))
    endings = tuple(ending for ending in ENDINGS if len(ending) > 2)
    masks = [
        name
        for name in images
        if extension_of(name) in LOSSLESS
        and any(stem_of(name).endswith(end) and stem_of(name).removesuffix(end) in stems for end in endings)
    ]
    return masks[0] if masks and 3 * len(masks) >= len(images) else None


def _mask_folders(root: str, nearby: NearbyImages) -> Iterator[str]:
    """Folders at the first level, or in one of a split, that are called like those of masks."""
    names = nearby.folders(root)
    if any(name.lower() == "annotations" and _has_xml(f"{root}/{name}") for name in names):
        return
    yield from (name for name in names if mask_path(f"{name}/1.png") is not None)
    for split in filter(is_split_name, names):
        for name in nearby.folders(f"{root}/{split}"):
            if mask_path(f"{name}/1.png") is not None:
                yield f"{split}/{name}"


def _has_xml(folder: str) -> bool:
    return any(extension_of(name) == "xml" for name in names_in(folder, _NAMES))


def _has_image(mask: str, nearby: NearbyImages) -> bool:
    """Whether an image is called like a mask, in one of the folders where it would be."""
    path = mask_path(mask) or ""
    name = path.rpartition("/")[2]
    return nearby.has_image(path, {name.removesuffix(end) for end in ENDINGS if name.endswith(end)})
