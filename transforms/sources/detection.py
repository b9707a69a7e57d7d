"""Finds the dataset in an input folder, and the source that reads it.

If no source fits the input itself, the sources are tried on the folders below it. One dataset is read from
its own folder; several are refused with a list of them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recordmill.transforms.sources.class_folders import below_input
from recordmill.transforms.sources.formats.imagenet_layout import SYNSET
from recordmill.transforms.sources.formats.masks_match import ENDINGS, mask_path
from recordmill.transforms.sources.formats.masks_pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.names import is_split_name
from recordmill.transforms.sources.outline import Outline, joined
from recordmill.transforms.sources.source import Source, SourceConfig
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.paths import is_remote, real_path

_WRAPPERS = 6  # folders above a dataset
_SNIFFED, _SNIFFED_REMOTE = 60, 10  # folders on which the sources are tried
_STEMS = 1_000  # names of a folder that are checked for masks
_OF_FILES = ("idx", "numpy", "tfrecord", "parquet", "webdataset", "archive", "labelme")  # need no image files
_IN_ONE_FOLDER = ("coco", "voc", "labelme")  # fit above a dataset too, but read it better from its own folder
_PART = re.compile(r"voc\d{4}|imagesets|panoptic.*|obj_.*data|annotations.*|.*(?:19|20)\d\d")
_LONG_ENDINGS = tuple(ending for ending in ENDINGS if len(ending) > 2)


class Detected(NamedTuple):
    """A dataset.

    Attributes:
        kind: name of the source that reads it.
        why: a sentence that says why.
        input: path of the folder or file to read: the input, or a folder below it.
    """

    kind: str
    why: str
    input: str


class Search:
    """The search for datasets at and below an input.

    Args:
        config: of a call whose input is a folder.
        sources: the sources to try, in order.
    """

    def __init__(self, config: SourceConfig, sources: Iterable[Source]) -> None:
        self._config = config
        self._whole: dict[str, bool] = {}
        self._sources = {source.name: source for source in sources}
        self._sniffs = _SNIFFED_REMOTE if is_remote(config.input) else _SNIFFED
        self._is_cut = False
        self.outline = Outline(config)

    @property
    def is_cut(self) -> bool:
        """Whether folders were left out, because there are too many or they lie too deep."""
        return self._is_cut or self.outline.is_cut

    def datasets(self) -> list[Detected]:
        """The datasets that the sources read. Those without images count only if no dataset has any."""
        found = self._at("", 0, self._sniffed(""))
        return list(filter(self._is_whole, found)) or found

    def images_outside(self, found: Detected) -> list[str]:
        """Keys of folders whose images do not belong to the dataset found.

        The key of a folder around the dataset means the images directly in it.
        """
        parts = list(filter(None, self.key(found).split("/")))
        outside: list[str] = []
        for at, part in enumerate(parts):
            around = "/".join(parts[:at])
            level = self.outline.level(around)
            outside += [around] if level.images else []
            others = (joined(around, name) for name in level.folders if name != part)
            outside += [key for key in others if self.outline.holds_images(key) and not self._is_ours(key)]
        place = real_path(found.input)
        return [key for key in outside if not f"{real_path(self.outline.path(key))}/".startswith(f"{place}/")]

    def key(self, found: Detected) -> str:
        """The path of a dataset below the input; empty where it is the input."""
        return found.input[len(self._config.input) :].strip("/")

    def _at(self, key: str, depth: int, own: Detected | None) -> list[Detected]:
        """The datasets at and below a folder, `depth` levels below the input; `own` is the folder's own."""
        is_deepest = depth == _WRAPPERS
        self._is_cut = self._is_cut or (is_deepest and bool(self.outline.level(key).folders))
        below = [] if is_deepest else self._below(key, depth, own)
        if own is None or not below:
            return below if own is None else [own]
        is_alike = {one.kind for one in below} == {own.kind}
        if is_alike and own.kind not in _IN_ONE_FOLDER:
            return [own]
        apart = (*self._config.skip_dirs, *(real_path(one.input) for one in below))
        rest = dataclasses.replace(self._config, input=own.input, skip_dirs=apart)
        is_more = self._sources[own.kind].sniff(rest) is not None
        if is_alike and own.kind != "coco" and (is_more or len(below) > 1):
            return [own]  # a tree with several folders of annotations
        return [own, *below] if is_more else below

    def _below(self, key: str, depth: int, own: Detected | None) -> list[Detected]:
        """The datasets below a folder, without the parts of the dataset `own`."""
        folders: dict[str, str] = {}
        for name in self.outline.level(key).folders:
            inner = joined(key, name)
            if not (own is not None and _is_part(name) or self._is_ours(inner) or self._is_plain(inner)):
                place = real_path(self.outline.path(inner))
                if place not in folders or place == self.outline.path(
                    inner
                ):  # prefer the folder to links to it
                    folders[place] = inner
        likely = sorted(folders.values(), key=lambda one: not self.outline.holds_images(one))
        found = [(inner, self._sniffed(inner)) for inner in likely]
        datasets = [one for inner, its_own in found for one in self._at(inner, depth + 1, its_own)]
        return datasets if own is None else list(filter(self._is_whole, datasets))

    def _sniffed(self, key: str) -> Detected | None:
        """The first source that fits a folder."""
        if not self._sniffs:
            self._is_cut = True
            return None
        self._sniffs -= 1
        config = dataclasses.replace(self._config, input=below_input(self._config, key))
        for source in self._sources.values():
            if (why := source.sniff(config)) is not None:
                return Detected(source.name, why, config.input)
        return None

    def _is_plain(self, key: str) -> bool:
        """Whether a folder and those below it hold images alone, as those of classes do, or nothing."""
        levels = [level for _, level in self.outline.walk(key)]
        return all(
            not level.others
            and not _has_mask_names(level.images[:_STEMS])
            and not any(_is_special(name) for name in level.folders)
            for level in levels
        )

    def _is_whole(self, found: Detected) -> bool:
        """Whether the images of a dataset are there."""
        if found.input not in self._whole:
            is_apart = found.kind in _OF_FILES or bool(self._config.image_roots)
            self._whole[found.input] = is_apart or self.outline.holds_images(self.key(found))
        return self._whole[found.input]

    def _is_ours(self, key: str) -> bool:
        """Whether a folder is a dataset that this program wrote: an output next to its input."""
        return self._config.kind == "auto" and MANIFEST in self.outline.level(key).others


def _has_mask_names(names: Sequence[str]) -> bool:
    """Whether a file is called as a mask next to its image is: `1_mask.png`."""
    joined_names = "\n".join(names)
    return any(f"{ending}." in joined_names for ending in _LONG_ENDINGS)


def _is_special(name: str) -> bool:
    """Whether a source recognises a folder by this name."""
    return mask_path(f"{name}/1.png") is not None or SYNSET.fullmatch(name) is not None


def _is_part(name: str) -> bool:
    """Whether a folder is named like a part of a dataset."""
    lower = name.lower()
    is_known = lower in IMAGE_FOLDERS or mask_path(f"{name}/1.png") is not None or is_split_name(name)
    return is_known or bool(_PART.fullmatch(lower))
