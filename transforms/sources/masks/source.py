"""Source `masks`: images, and an image of class ids or colours for each.

Sibling folders (`images` and `masks`, `JPEGImages` and `SegmentationClass`, CamVid's `train` and
`trainannot`, Cityscapes' `leftImg8bit` and `gtFine`), names next to each other (`1.jpg`, `1_mask.png`), or
`--mask_pattern`.
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import posixpath
import re
from collections.abc import Mapping

from recordmill.transforms.records import (
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    JobError,
    MaskImage,
)
from recordmill.transforms.sources.class_tables import COLOR_FILES, NAME_FILES, ClassTable, mask_classes
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import links_outside
from recordmill.transforms.sources.masks.match import LOSSLESS, OUTSIDE_INPUT, MaskPattern, match_masks
from recordmill.transforms.sources.names import (
    NOT_AN_IMAGE,
    extension_of,
    is_image_name,
    normal_split,
    skipped,
    stem_of,
)
from recordmill.transforms.sources.pairs import (
    ORPHAN,
    ROOT_NAMES,
    ImageSet,
    Listed,
    folder_split,
    images_of_splits,
    input_files,
    is_split_list,
    repeated_key,
    root_of,
)
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement
from recordmill.transforms.storage.files import names_in
from recordmill.transforms.storage.paths import real_path

_LOOKED_AT = 8  # masks that show the kind of values in all


class MasksSource(Source):
    """Lists pairs of an image and its mask."""

    name = "masks"
    description = Description(
        reads="pairs of an image and a mask: of class ids (grey, palette), or of colours with "
        "label_colors.txt",
        label="the pixels of the mask; names from classes.txt or the table of colours",
        split="folders named like splits, or lists such as train.txt",
        key="path of the image below the input",
        example="roads/\n  images/\n    1.jpg\n  masks/\n    1.png\n  classes.txt",
        annotations=("masks",),
    )
    flags = ("mask_pattern",)
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        if not _Masks(config).masks:
            remedy = links_outside(config) or _remedy(config)
            raise ValueError(f"--input is {config.input!r}: no image has a mask{remedy}")

    def splits(self, config: SourceConfig) -> set[str | None]:
        listed = set[str | None](_split_lists(root_of(config)).values())
        if listed:
            return listed
        found = _Masks(config)
        return set(map(found.split_of, found.masks))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("segmentation",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        try:
            found = _Masks(config)
        except ValueError as error:
            raise JobError(str(error)) from error
        if found.classes.names:
            yield ClassNames(found.classes.names)
        yield from found.failures
        selection = Selection(config)
        taken = (masks for image, masks in found.masks.items() if selection.takes(image))
        images_of = collections.Counter(mask for masks in taken for mask in masks)
        for item in images_of_splits(found.images, found.sets, found.find, found.split_of):
            if isinstance(item, Failure):
                yield item
            else:
                yield selection.item(item.key, functools.partial(found.record, item, images_of))
        yield from (skipped(place, reason) for place, reason in found.others.items())
        yield from (Failure(place, "annotations", ORPHAN, "no image has its name") for place in found.orphans)


class _Masks:
    """The files of an input, paired, and its classes.

    Raises ValueError if a table of classes or a list is damaged, or is outside the input.
    """

    def __init__(self, config: SourceConfig) -> None:
        root = root_of(config)
        lists = _split_lists(root)
        self.failures: list[Failure] = []
        self.files: dict[str, TreeFile] = {}  # by location, relative to the input
        others = self._list(config, root)
        self.images: dict[str, TreeFile] = {}  # by key
        self.masks: dict[str, list[str]] = {}  # locations of the masks of an image, by its key
        self.has_pattern = config.mask_pattern is not None
        self._pair(None if config.mask_pattern is None else MaskPattern(config.mask_pattern))
        described = {*NAME_FILES, *COLOR_FILES, *lists}
        if outside := next((one for one in self.failures if one.key in described), None):
            raise ValueError(f"--input is {config.input!r}: {outside.key} is {outside.reason}")
        confinement = Confinement((root, *config.image_roots))
        leads_to = confinement.leads_to
        self.sets = [ImageSet(split, name, name, leads_to(f"{root}/{name}")) for name, split in lists.items()]
        places = {item.key: place for place, item in self.files.items()}
        self._listed_images = _by_listed_name({key: key for key in self.images} if lists else {})
        self._listed_files = _by_listed_name(places if lists else {})
        self.classes = ClassTable({})
        if self.masks:
            masks = itertools.chain.from_iterable(self.masks.values())
            first = [self.files[mask].path for mask in heapq.nsmallest(_LOOKED_AT, masks)]
            try:
                self.classes = mask_classes(root, [place for place, _ in others], confinement, first)
            except ValueError as error:
                raise ValueError(f"--input is {config.input!r}: {error}") from error
        for place, key in others:
            if place != self.classes.file and not is_split_list(place):
                self.failures.append(skipped(key, NOT_AN_IMAGE))

    def _list(self, config: SourceConfig, root: str) -> list[tuple[str, str]]:
        """Lists the images and masks; returns the locations and keys of other files."""
        roots = map(real_path, config.image_roots)
        starts = {folder: f"{posixpath.relpath(folder, root)}/" for folder in roots}
        starts[root] = ""
        others: list[tuple[str, str]] = []
        for folder, item in input_files(config, unique=False):
            if isinstance(item, Failure):
                self.failures.append(item)
            elif is_image_name(item.key):
                self.files[starts[folder] + item.key] = item
            else:
                others.append((starts[folder] + item.key, item.key))
        return others

    def _pair(self, pattern: MaskPattern | None) -> None:
        """Finds the masks of the images."""
        keys = {place: item.key for place, item in self.files.items()}
        images, masks, self.orphans, self.others = match_masks(keys, pattern)
        for place in images:
            key = keys[place]
            if key in self.images:
                self.failures.append(repeated_key(self.files[place]))
                continue
            self.images[key] = self.files[place]
            if place in masks:
                self.masks[key] = masks[place]

    def split_of(self, key: str) -> str | None:
        """The split in the name of a folder. With a pattern, images may be in a folder of any name."""
        split = folder_split(key)
        return folder_split(key.partition("/")[2]) if split is None and self.has_pattern else split

    def find(self, line: str, listed: ImageSet) -> tuple[str, str | None]:
        """The key of the image and the location of the mask, if any, in a line of a list. Raises BadInput."""
        if ".." in re.split(r"[/\s]", line):
            raise BadInput("annotations", OUTSIDE)
        if key := _look_up(line, self._listed_images):
            return key, None
        first, _, mask = re.sub(r"[\s,]+", "\n", line, count=1).partition("\n")
        if (key := _look_up(first, self._listed_images)) is None:
            raise BadInput("annotations", "not found")
        if "/" not in mask:
            return key, None
        if (found := _look_up(mask, self._listed_files)) is None:
            raise BadInput("annotations", "mask not found")
        return key, found

    def record(self, item: Listed, images_of: Mapping[str, int]) -> ImageRecord | Failure:
        """The record of an image. Raises BadInput if it has several masks, or shares its mask."""
        masks = [item.annotation] if item.annotation else self.masks.get(item.key, [])
        if not masks:
            return Failure(item.key, "annotations", "image without a mask", skipped=True)
        mask = masks[0]
        if not item.annotation and any(images_of[one] > 1 for one in masks):
            detail = f"{mask} may belong to each; --exclude all but one"
            raise BadInput("annotations", "several images of one name", detail)
        if len(masks) > 1:
            detail = f"{mask} and {masks[1]} both have the name of this image"
            raise BadInput("annotations", "several annotations of one name", detail)
        if extension_of(mask) not in LOSSLESS:
            detail = f"{mask}: JPEG and its like change the ids; masks are PNG, GIF, BMP or TIFF"
            raise BadInput("annotations", "mask is not lossless", detail)
        image = self.images[item.key]
        annotations = Annotations(masks={"class": MaskImage(self.files[mask].ref, self.classes.colors)})
        return ImageRecord(item.key, image.ref, item.split, annotations, item.origin, image.size)


def _remedy(config: SourceConfig) -> str:
    """The end of the message that no image has a mask: the remedy."""
    if config.mask_pattern is not None:
        pattern = MaskPattern(config.mask_pattern)
        images = (item.key for _, item in input_files(config, unique=False) if isinstance(item, TreeFile))
        image = next(filter(is_image_name, images), "")
        if image and (mask := pattern.mask_of(image)) is not None:
            remedy = "outside of it; give --image_root the folder of the masks, or one above it"
            lies = remedy if mask.startswith(OUTSIDE_INPUT) else "which is not there; correct --mask_pattern"
            return f"; the mask of {image!r} would be {mask!r}, {lies}"
    return "; put them in images/ and masks/ under the same names, or give --mask_pattern their path"


def _split_lists(root: str) -> dict[str, str]:
    """The splits of the lists of images in a folder, by file name."""
    names = sorted(filter(is_split_list, names_in(root, ROOT_NAMES)))
    return {name: normal_split(stem_of(name)) for name in names}


def _by_listed_name(files: Mapping[str, str]) -> dict[str, str | None]:
    """Files, given by their keys, by their possible names in lists; None for a name of several files.

    Names are the key, its last two parts, or the file name; with or without extension.
    """
    found: dict[str, str | None] = {}
    for key, file in files.items():
        parts = key.split("/")
        names = {key, "/".join(parts[-2:]), parts[-1]}
        for one in names | set(map(stem_of, names)):
            found[one] = file if found.get(one, file) == file else None
        found[key] = file
    return found


def _look_up(path: str, names: Mapping[str, str | None]) -> str | None:
    path = path.strip().lstrip("/").removeprefix("./")
    return names.get(path) or names.get("/".join(path.split("/")[-2:]))
