"""Finds the dataset in an input folder, and the source that reads it.

If no source fits the input itself, the sources are tried on the folders below it. One dataset is read from
its own folder; several are refused with a list of them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recordmill.transforms.sources.archives.archive import check_all_read
from recordmill.transforms.sources.config import SourceConfig, check_input_exists, readable
from recordmill.transforms.sources.detection.class_folders import (
    OR_FOLDER,
    below_input,
    check_class_folders,
    commands,
    folders_of_splits,
    plain_folder,
)
from recordmill.transforms.sources.detection.unread import check_unread
from recordmill.transforms.sources.imagenet.layout import SYNSET
from recordmill.transforms.sources.masks.match import ENDINGS, mask_path
from recordmill.transforms.sources.names import extension_of, is_split_name
from recordmill.transforms.sources.outline import Look, joined, left_out
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
)
from recordmill.transforms.sources.registry import ROWS, source_of
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.storage.paths import real_path

_WRAPPERS = 6  # folders above a dataset
_SNIFFED, _SNIFFED_REMOTE = 60, 10  # folders on which the sources are tried
_STEMS = 1_000  # names of a folder that are checked for masks
_PART = re.compile(r"voc\d{4}|imagesets|panoptic.*|obj_.*data|annotations.*|.*(?:19|20)\d\d")
_LISTED = 10_000  # entries of a folder that an error message looks at
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
        sources: names of the sources to try, in order.
    """

    def __init__(self, config: SourceConfig, sources: Iterable[str]) -> None:
        self._config = config
        self._whole: dict[str, bool] = {}
        self._sources = list(sources)
        self._sniffs = _SNIFFED_REMOTE if file_system(config.input).has_latency else _SNIFFED
        self._is_cut = False
        self.look = Look(config)

    @property
    def is_cut(self) -> bool:
        """Whether folders were left out, because there are too many or they lie too deep."""
        return self._is_cut or self.look.is_cut

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
            level = self.look.level(around)
            outside += [around] if level.images else []
            others = (joined(around, name) for name in level.folders if name != part)
            outside += [key for key in others if self.look.holds_images(key) and not self._is_ours(key)]
        place = real_path(found.input)
        return [key for key in outside if not f"{real_path(self.look.path(key))}/".startswith(f"{place}/")]

    def key(self, found: Detected) -> str:
        """The path of a dataset below the input; empty where it is the input."""
        return found.input[len(self._config.input) :].strip("/")

    def _at(self, key: str, depth: int, own: Detected | None) -> list[Detected]:
        """The datasets at and below a folder, `depth` levels below the input; `own` is the folder's own."""
        is_deepest = depth == _WRAPPERS
        self._is_cut = self._is_cut or (is_deepest and bool(self.look.level(key).folders))
        below = [] if is_deepest else self._below(key, depth, own)
        if own is None or not below:
            return below if own is None else [own]
        is_alike = {one.kind for one in below} == {own.kind}
        if is_alike and not ROWS[own.kind].is_inner:
            return [own]
        apart = (*self._config.skip_dirs, *(real_path(one.input) for one in below))
        rest = dataclasses.replace(self._config, input=own.input, skip_dirs=apart)
        is_more = why(own.kind, Look(rest)) is not None
        if is_alike and own.kind != "coco" and (is_more or len(below) > 1):
            return [own]  # a tree with several folders of annotations
        return [own, *below] if is_more else below

    def _below(self, key: str, depth: int, own: Detected | None) -> list[Detected]:
        """The datasets below a folder, without the parts of the dataset `own`."""
        folders: dict[str, str] = {}
        for name in self.look.level(key).folders:
            inner = joined(key, name)
            if not (own is not None and _is_part(name) or self._is_ours(inner) or self._is_plain(inner)):
                place = real_path(self.look.path(inner))
                if place not in folders or place == self.look.path(inner):  # prefer the folder to links to it
                    folders[place] = inner
        likely = sorted(folders.values(), key=lambda one: not self.look.holds_images(one))
        found = [(inner, self._sniffed(inner)) for inner in likely]
        datasets = [one for inner, its_own in found for one in self._at(inner, depth + 1, its_own)]
        return datasets if own is None else list(filter(self._is_whole, datasets))

    def _sniffed(self, key: str) -> Detected | None:
        """The first source that fits a folder."""
        if not self._sniffs:
            self._is_cut = True
            return None
        self._sniffs -= 1
        here = dataclasses.replace(self._config, input=below_input(self._config, key))
        return _fitting(self._sources, Look(here) if key else self.look)

    def _is_plain(self, key: str) -> bool:
        """Whether a folder and those below it hold images alone, as those of classes do, or nothing."""
        levels = [level for _, level in self.look.walk(key)]
        return all(
            not level.others
            and not _has_mask_names(level.images[:_STEMS])
            and not any(_is_special(name) for name in level.folders)
            for level in levels
        )

    def _is_whole(self, found: Detected) -> bool:
        """Whether the images of a dataset are there."""
        if found.input not in self._whole:
            is_apart = not ROWS[found.kind].needs_images or bool(self._config.image_roots)
            self._whole[found.input] = is_apart or self.look.holds_images(self.key(found))
        return self._whole[found.input]

    def _is_ours(self, key: str) -> bool:
        """Whether a folder is a dataset that this program wrote: an output next to its input."""
        return self._config.kind == "auto" and MANIFEST in self.look.level(key).others


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


def detect(config: SourceConfig) -> Detected:
    """The source, detected or given with `--source`, and the folder that it reads.

    Raises:
        ValueError: no source fits, there are several datasets, or annotations would not be read. The message
            names what was found, and what to give instead.
    """
    if config.kind != "auto":
        source_of(config)
    with cached_listings():
        return _detected(config)


def _detected(config: SourceConfig) -> Detected:
    check_input_exists(config)
    reads_rows = config.kind != "auto" and ROWS[config.kind].reads == "rows"
    found: Detected | None = Detected(config.kind, "", config.input)
    if reads_rows and not config.annotations:
        source_of(config).check(config)  # raises for a folder, which they do not read
    elif not config.annotations and is_folder(config.input):
        found = _sought(config)
    elif config.kind == "auto":
        found = _fitting(ROWS, Look(config))
    if found is None:
        raise _nothing_found(config)
    if config.kind != "auto":
        found = found._replace(why="as --source says")
    elif found.kind == "archive":
        with readable("--input", config.input):
            check_all_read(dataclasses.replace(config, input=found.input))
    if found.input != config.input:
        place = found.input[len(config.input) :].strip("/")
        found = found._replace(why=f"{found.why}; found in {place!r}, below --input")
    return found


def why(source: str, look: Look) -> str | None:
    """Why an input looks like a source, or None.

    Raises:
        ValueError: it cannot be looked at.
    """
    if look.config.annotations and ROWS[source].reads == "input":
        return None
    with readable("--input", look.config.input):
        return ROWS[source].rule(look)


def _fitting(sources: Iterable[str], look: Look) -> Detected | None:
    """The first source that fits an input."""
    reasons = ((source, why(source, look)) for source in sources)
    found = (Detected(source, said, look.config.input) for source, said in reasons if said is not None)
    return next(found, None)


def _sought(config: SourceConfig) -> Detected | None:
    """The dataset in a folder.

    Raises:
        ValueError: there are several, or there are images outside it.
    """
    is_auto = config.kind == "auto"
    sources = [name for name in ROWS if name != "folder" and config.kind in ("auto", name)]
    with readable("--input", config.input):
        search = Search(config, sources)
        found = search.datasets()
        if len(found) > 1:
            raise ValueError(
                f"--input is {config.input!r}, which holds several datasets; give one of them: "
                f"{commands((one.input, one.kind) for one in found)}{OR_FOLDER if is_auto else ''}"
            )
        if found:
            outside = search.images_outside(found[0]) if is_auto else []
            if outside:
                raise _images_outside(config, found[0], outside)
            return found[0]
        if config.kind in ("auto", "folder"):
            return _plain(config, search.look, search.is_cut)
    return Detected(config.kind, "", config.input)


def _images_outside(config: SourceConfig, found: Detected, outside: list[str]) -> ValueError:
    others = ((below_input(config, key), "") for key in outside if key)
    return ValueError(
        f"--input is {config.input!r}, where {found.input!r} is a dataset ({found.why}), and images lie "
        f"outside it too; give one of them: {commands([(found.input, found.kind), *others])}{OR_FOLDER}"
    )


def _plain(config: SourceConfig, look: Look, is_cut: bool) -> Detected | None:
    """Images in folders, with or without folders around them.

    Raises:
        ValueError: several folders have splits, annotations would not be read, or a folder is not a class.
    """
    key = plain_folder(look)
    plain = dataclasses.replace(config, input=below_input(config, key))
    if config.kind == "folder":
        return Detected("folder", "", plain.input)
    several, example = folders_of_splits(look) if plain.input == config.input else ([], "")
    if several:
        check_unread(config, look)
        listed = commands((below_input(config, name), "") for name in several)
        raise ValueError(
            f"--input is {config.input!r}, where several folders have splits of their own, such as "
            f"{example!r}; give one of them: {listed}{OR_FOLDER}"
        )
    found = _fitting(["folder"], Look(plain))
    if found is None:
        return None
    check_unread(config, look)
    check_class_folders(plain, look, key, is_cut)
    return found


def _nothing_found(config: SourceConfig) -> ValueError:
    remedy = f"--source may be {', '.join(ROWS)}"
    if config.annotations:
        return ValueError(
            f"--annotations is {', '.join(config.annotations)!r}; manifests are called .csv, .tsv or .jsonl; "
            f"otherwise say what they are: {remedy}"
        )
    with readable("--input", config.input):
        if links := left_out(config):
            return ValueError(f"--input is {config.input!r}, which holds no input that is known{links}")
        found = _found(config.input)
    return ValueError(f"--input is {config.input!r}, which holds no input that is known: {found}; {remedy}")


def _found(path: str) -> str:
    """What is at a path, by extension."""
    if not is_folder(path):
        return f"it is a file with the extension .{extension_of(path)}"
    files = itertools.islice(file_system(path).list_below(path), _LISTED)
    found = collections.Counter(
        extension_of(file.name) for file in files if not f"/{file.name}".endswith("/")
    )
    if not found:
        return "it is an empty folder"
    kinds = (
        f"{count} {f'.{extension}' if extension else 'without extension'}"
        for extension, count in found.most_common(6)
    )
    return f"it has {', '.join(kinds)}"
