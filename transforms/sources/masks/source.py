"""Source `masks`: images, and an image of class ids or colours for each.

Sibling folders (`images` and `masks`, `JPEGImages` and `SegmentationClass`, CamVid's `train` and
`trainannot`, Cityscapes' `leftImg8bit` and `gtFine`), names beside each other (`1.jpg`, `1_mask.png`), or
`--mask_pattern`.
"""

from __future__ import annotations

import collections
import heapq
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.records import Annotations, ClassNames, Failure, ImageRecord, JobError, MaskImage
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.masks.classes import (
    COLOR_FILES,
    NAME_FILES,
    MaskClasses,
    are_binary,
    binary,
    is_in_colors,
    mask_classes,
)
from recordmill.transforms.sources.masks.lists import is_split_list, listed_pairs, split_lists
from recordmill.transforms.sources.masks.match import LOSSLESS, Matched, match_masks
from recordmill.transforms.sources.masks.pattern import MaskPattern
from recordmill.transforms.sources.names import extension_of, is_image_name
from recordmill.transforms.sources.outline import links_outside
from recordmill.transforms.sources.pairs import (
    ORPHAN,
    folder_split,
    input_files,
    root_of,
)
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_file, is_folder

_LOOKED_AT = 8  # masks that tell what the values of all are


class MasksSource(Source):
    """Lists pairs of an image and its mask."""

    name = "masks"
    description = Description(
        reads="images and masks of class ids (grey, palette), or of colours with label_colors.txt",
        label="in the masks; names from classes.txt, or the table of colours",
        split="folders named like splits, or lists such as train.txt",
        key="path of the image below the input",
        example="roads/\n  images/\n    1.jpg\n  masks/\n    1.png\n  classes.txt",
        annotations=("masks",),
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = ("annotations", "image_column", "label_column", "label_pattern", "input_features")
        check_unused(config, self.name, *unused)
        check_selection(config)
        if others := [one for one in config.include_annotations if one != "masks"]:
            raise ValueError(f"--include_annotations has {others[0]!r}, and --source masks has masks alone")
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}; --source masks wants a folder")
            listing = _listing(config)
            if not listing.matched.masks:
                remedy = links_outside(config) or (
                    "; put them in images/ and masks/ under the same names, or give the masks' path with "
                    "--mask_pattern"
                )
                raise ValueError(f"--input is {config.input!r}: no image has a mask{remedy}")
            _classes(config, listing)

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            if lists := split_lists(root_of(config)):
                return tuple(sorted(set(lists.values())))
            splits = {folder_split(image) for image in _listing(config).matched.masks}
            return tuple(sorted(filter(None, splits)))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("segmentation",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)


class _Listing(NamedTuple):
    """The files of an input."""

    files: Mapping[str, TreeFile]
    matched: Matched
    failures: list[Failure]


def _listing(config: SourceConfig) -> _Listing:
    root = root_of(config)
    files: dict[str, TreeFile] = {}
    apart: set[str] = set()
    others: list[TreeFile] = []
    failures: list[Failure] = []
    for item in input_files(config):
        if isinstance(item, Failure):
            failures.append(item)
        elif is_image_name(item.key):
            files[item.key] = item
            if config.image_roots and _is_apart(root, item):
                apart.add(item.key)
        else:
            others.append(item)
    pattern = None if config.mask_pattern is None else MaskPattern(config.mask_pattern)
    matched = match_masks(files, apart, pattern)
    used = {*NAME_FILES, *COLOR_FILES, *map(os.path.basename, split_lists(root))}
    if outside := [one for one in failures if one.key in used]:
        raise ValueError(f"--input is {config.input!r}: {outside[0].key} is {outside[0].reason}")
    file = _classes(config, _Listing(files, matched, [])).file if matched.masks else ""
    for item in others:
        if item.key != file and not is_split_list(item.key):
            failures.append(Failure(item.key, "list", "not an image by name", skipped=True))
    return _Listing(files, matched, failures)


def _is_apart(root: str, file: TreeFile) -> bool:
    """Whether a file lies below an image root, and not in the input or behind a link in it."""
    path = f"{root}/{file.key}"
    return file.path != path and not (file_system(root).has_links and is_file(path))


def _within(config: SourceConfig) -> Confinement:
    return Confinement((root_of(config), *config.image_roots))


def _classes(config: SourceConfig, listing: _Listing) -> MaskClasses:
    """The classes; the first masks tell whether they are colours, ids, or black and white."""
    every = (mask for masks in listing.matched.masks.values() for mask in masks)
    first = [listing.files[mask].ref for mask in heapq.nsmallest(_LOOKED_AT, every)]
    try:
        classes = mask_classes(root_of(config), _within(config), is_in_colors(first[0]))
    except ValueError as error:
        raise ValueError(f"--input is {config.input!r}: {error}") from error
    return binary(classes) if not classes.colors and are_binary(first) else classes


def _items(config: SourceConfig) -> Iterator[Item]:
    try:
        listing = _listing(config)
        classes = _classes(config, listing) if listing.matched.masks else MaskClasses()
    except ValueError as error:
        raise JobError(str(error)) from error
    if classes.names:
        yield ClassNames(classes.names)
    yield from listing.failures
    matched = listing.matched
    selection = Selection(config)
    sharing = _sharing({image: masks for image, masks in matched.masks.items() if selection.takes(image)})
    for pair in _pairs(config, listing):
        if isinstance(pair, Failure):
            yield pair
        elif not selection.takes(pair.key):
            yield Failure(pair.key, "list", EXCLUDED, skipped=True)
        elif pair.key in sharing and not pair.is_given:
            detail = f"{pair.masks[0]} may belong to each; --exclude all but one"
            yield Failure(pair.key, "annotations", "several images of one name", detail)
        else:
            yield _record(listing.files, pair, classes)
    for key, reason in matched.others.items():
        yield Failure(key, "list", reason, skipped=True)
    for key in matched.orphans:
        yield Failure(key, "annotations", ORPHAN, "no image has its name")


class _Pair(NamedTuple):
    """An image and its masks.

    Attributes:
        key: of the image.
        masks: keys of the masks with the name of the image, or of the mask that a list gives.
        split: of the image.
        origin: the line of a list; empty without a list.
        is_given: whether a list gives the mask.
    """

    key: str
    masks: list[str]
    split: str | None
    origin: str
    is_given: bool = False


def _sharing(masks: Mapping[str, list[str]]) -> frozenset[str]:
    """The images that share a mask with another image."""
    images = collections.Counter(mask for found in masks.values() for mask in found)
    return frozenset(image for image, found in masks.items() if any(images[mask] > 1 for mask in found))


def _pairs(config: SourceConfig, listing: _Listing) -> Iterator[_Pair | Failure]:
    matched = listing.matched
    lists, within = split_lists(root_of(config)), _within(config)
    seen: set[str] = set()
    for path, split in lists.items():
        for found in listed_pairs(path, within, matched.images, listing.files):
            if isinstance(found, Failure):
                yield found
            else:
                seen.add(found.key)
                masks = [found.mask] if found.mask else matched.masks.get(found.key, [])
                yield _Pair(found.key, masks, split, found.origin, bool(found.mask))
    for key in matched.images:
        if not lists:
            yield _Pair(key, matched.masks.get(key, []), folder_split(key), "")
        elif key not in seen:
            yield Failure(key, "list", "image in no split", skipped=True)


def _record(files: Mapping[str, TreeFile], pair: _Pair, classes: MaskClasses) -> ImageRecord | Failure:
    if not pair.masks:
        return Failure(pair.key, "annotations", "image without a mask", skipped=True)
    if len(pair.masks) > 1:
        detail = f"{pair.masks[0]} and {pair.masks[1]} are both called like it"
        return Failure(pair.key, "annotations", "several annotations of one name", detail)
    (mask,) = pair.masks
    if extension_of(mask) not in LOSSLESS:
        detail = f"{mask}: JPEG and its like change the ids; masks are PNG, GIF, BMP or TIFF"
        return Failure(pair.key, "annotations", "mask is not lossless", detail)
    image = files[pair.key]
    annotations = Annotations(masks={"class": MaskImage(files[mask].ref, classes.colors)})
    return ImageRecord(pair.key, image.ref, pair.split, annotations, pair.origin, image.size)
