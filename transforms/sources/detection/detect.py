"""Finds the dataset in an input folder, and the source that reads it.

If no source fits the input itself, the sources are tried on the folders below it. A single dataset is read
from its own folder; for several, the error lists them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from os.path import basename
from typing import NamedTuple

from recordmill.transforms.sources.config import SourceConfig, check_input_exists, readable
from recordmill.transforms.sources.detection.refusals import (
    OR_FOLDER,
    check_archives_read,
    check_class_folders,
    check_unread,
    commands,
)
from recordmill.transforms.sources.detection.rules import by_extension
from recordmill.transforms.sources.imagenet.layout import SYNSET
from recordmill.transforms.sources.look import Look, joined, left_out
from recordmill.transforms.sources.masks.match import ENDINGS, is_mask_folder
from recordmill.transforms.sources.names import extension_of, is_split_name
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.registry import ROWS, source_of
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.listing import cached_listings
from recordmill.transforms.storage.paths import real_path

_WRAPPERS = 6  # levels of folders above a dataset
_SNIFFED, _SNIFFED_REMOTE = 60, 10  # folders on which the sources are tried
_WRAPPED = 50  # levels of folders above splits or classes
_COMPARED = 16  # folders that are searched for splits
_STEMS = 1_000  # names of a folder that are checked for masks
_PART = re.compile(r"voc\d{4}|imagesets|panoptic.*|obj_.*data|annotations.*|.*(?:19|20)\d\d")
_MASK_NAME = re.compile(rf"(?:{'|'.join(re.escape(ending) for ending in ENDINGS if len(ending) > 2)})\.")


class Detected(NamedTuple):
    """A dataset."""

    kind: str  # name of the source that reads it
    why: str  # in a sentence
    input: str  # path of the folder or file to read: the input, or a folder below it

    def key(self, config: SourceConfig) -> str:
        """The path below the input."""
        return self.input[len(config.input) :].strip("/")


def detect(config: SourceConfig) -> Detected:
    """Detects the source, unless `config.kind` names it, and the folder that it reads.

    Raises:
        ValueError: no source fits, there are several datasets, or annotations would be ignored. The message
            lists the findings and the remedy.
    """
    row = None if config.kind == "auto" else ROWS[source_of(config).name]
    found: Detected | None = Detected(config.kind, "", config.input)
    with cached_listings():
        check_input_exists(config)
        if row is not None and row.reads == "rows" and not config.annotations:
            source_of(config).check(config)  # raises for a folder
        elif not config.annotations and is_folder(config.input):
            found = _sought(config)
        elif row is None:
            found = _fitting(ROWS, Look(config))
        if found is None:
            raise _nothing_found(config)
        if row is not None:
            found = found._replace(why="set by --source")
        elif found.kind == "archive":
            with readable("--input", config.input):
                check_archives_read(Look(dataclasses.replace(config, input=found.input)))
    if key := found.key(config):
        found = found._replace(why=f"{found.why}; found in {key!r}, below --input")
    return found


def why(source: str, look: Look) -> str | None:
    """Why an input looks like a source, or None. Raises ValueError if the input cannot be listed."""
    if look.config.annotations and ROWS[source].reads == "input":
        return None
    with readable("--input", look.config.input):
        return ROWS[source].rule(look)


def _fitting(sources: Iterable[str], look: Look) -> Detected | None:
    reasons = ((source, why(source, look)) for source in sources)
    found = (Detected(source, reason, look.config.input) for source, reason in reasons if reason is not None)
    return next(found, None)


def _sought(config: SourceConfig) -> Detected | None:
    """The only dataset in a folder. Raises ValueError if there are more, or images outside it."""
    is_auto = config.kind == "auto"
    with readable("--input", config.input):
        search = _Search(config)
        found = search.datasets()
        if config.kind == "frames" and (len(found) > 1 or (found and search.images_outside(found[0]))):
            return Detected(config.kind, "", config.input)  # the other clips have no file of times
        if len(found) > 1:
            raise _ambiguous(config, "which holds several datasets", [(one.input, one.kind) for one in found])
        if found:
            kind, reason, path = found[0]
            if is_auto and (outside := search.images_outside(found[0])):
                what = f"where {path!r} is a dataset ({reason}), and images lie outside it too"
                others = ((search.look.given(key), "") for key in outside if key)
                raise _ambiguous(config, what, [(path, kind), *others])
            return found[0]
        if is_auto or config.kind == "folder":
            return _plain(search.look)
    return Detected(config.kind, "", config.input)


def _ambiguous(config: SourceConfig, what: str, found: Sequence[tuple[str, str]]) -> ValueError:
    or_folder = OR_FOLDER if config.kind == "auto" else ""
    return ValueError(f"--input is {config.input!r}, {what}; give one of them: {commands(found)}{or_folder}")


class _Search:
    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._sources = [name for name in ROWS if name != "folder" and config.kind in ("auto", name)]
        self.look = Look(config)
        self._left = _SNIFFED_REMOTE if self.look.has_latency else _SNIFFED

    def datasets(self) -> list[Detected]:
        """The datasets at and below the input. Those without images count only if none has any."""
        found = self._at("", 0, self._fitting(""))
        return list(filter(self._is_complete, found)) or found

    def images_outside(self, found: Detected) -> list[str]:
        """Keys of folders with images outside a dataset; for folders above it, images directly in them."""
        outside: list[str] = []
        around = ""
        for part in filter(None, found.key(self._config).split("/")):
            level = self.look.level(around)
            outside += [around] if level.images else []
            others = (joined(around, name) for name in level.folders if name != part)
            outside += [key for key in others if self.look.holds_images(key) and not self._is_our_output(key)]
            around = joined(around, part)
        path = f"{real_path(found.input)}/"
        return [key for key in outside if not f"{real_path(self.look.path(key))}/".startswith(path)]

    def _at(self, key: str, depth: int, own: Detected | None) -> list[Detected]:
        """The datasets at and below a folder, `depth` levels below the input; `own` is in it directly."""
        if depth == _WRAPPERS:
            self.look.is_cut = self.look.is_cut or bool(self.look.level(key).folders)
            return [] if own is None else [own]
        below = self._below(key, depth, own)
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
        """The datasets below a folder that are no parts of the dataset `own`."""
        folders: dict[str, str] = {}
        for name in self.look.level(key).folders:
            inner = joined(key, name)
            is_part = own is not None and _is_named_like_part(name)
            if is_part or self._is_our_output(inner) or self._is_plain(inner):
                continue
            path = real_path(self.look.path(inner))
            if path not in folders or path == self.look.path(inner):  # prefer the folder to links to it
                folders[path] = inner
        likely = sorted(folders.values(), key=lambda one: not self.look.holds_images(one))
        found = [(inner, self._fitting(inner)) for inner in likely]
        datasets = [one for inner, its_own in found for one in self._at(inner, depth + 1, its_own)]
        return datasets if own is None else list(filter(self._is_complete, datasets))

    def _fitting(self, key: str) -> Detected | None:
        if not self._left:
            self.look.is_cut = True
            return None
        self._left -= 1
        inner = dataclasses.replace(self._config, input=self.look.given(key))
        return _fitting(self._sources, Look(inner) if key else self.look)

    def _is_plain(self, key: str) -> bool:
        """Whether a folder and those below it contain nothing but images, as folders of classes do."""
        return not any(
            level.others
            or any(map(_MASK_NAME.search, level.images[:_STEMS]))
            or any(is_mask_folder(name) or SYNSET.fullmatch(name) for name in level.folders)
            for _, level in list(self.look.walk(key))
        )

    def _is_complete(self, found: Detected) -> bool:
        is_apart = not ROWS[found.kind].needs_images or bool(self._config.image_roots)
        return is_apart or self.look.holds_images(found.key(self._config))

    def _is_our_output(self, key: str) -> bool:
        return self._config.kind == "auto" and MANIFEST in self.look.level(key).others


def _is_named_like_part(name: str) -> bool:
    is_usual = name.lower() in IMAGE_FOLDERS or is_mask_folder(name) or is_split_name(name)
    return is_usual or bool(_PART.fullmatch(name.lower()))


def _plain(look: Look) -> Detected | None:
    """Images in folders. Raises ValueError if several folders have splits, or as the checks of `refusals`."""
    is_cut = look.is_cut  # in the search
    key = _plain_folder(look)
    if look.config.kind == "folder":
        return Detected("folder", "", look.given(key))
    several, example = ([], "") if key else _folders_of_splits(look)
    if several:
        check_unread(look)
        what = f"where several folders have splits of their own, such as {example!r}"
        raise _ambiguous(look.config, what, [(look.given(name), "") for name in several])
    plain = Look(dataclasses.replace(look.config, input=look.given(key)))
    found = _fitting(["folder"], plain)
    if found is not None:
        check_unread(look)
        check_class_folders(plain, is_cut)
    return found


def _plain_folder(look: Look, key: str = "") -> str:
    """The key of the folder, at or below `key`, that contains the folders of splits or classes.

    The folders above it are wrappers: each contains a single folder and no image.
    """
    top = key
    for _ in range(_WRAPPED):
        inner = [] if look.level(key).images else list(itertools.islice(look.folders_with_images(key), 2))
        if len(inner) != 1 or is_split_name(basename(inner[0])):
            break
        key = inner[0]
    while key != top and not _has_folders(look, key):
        key = key.rpartition("/")[0]
    return key


def _has_folders(look: Look, key: str) -> bool:
    """Whether a folder is called `images`, or has splits or several classes."""
    if basename(key).lower() in IMAGE_FOLDERS or _split_folders(look, key):
        return True
    level = look.level(key)
    has_classes = not level.images or len(level.images) < len(level.folders)
    return has_classes and len(list(itertools.islice(look.folders_with_images(key), 2))) == 2


def _folders_of_splits(look: Look) -> tuple[list[str], str]:
    """The folders of the input with images, and the key of a split; empty if none has several splits."""
    names = look.level("").folders[:_COMPARED]
    for name in [] if all(map(is_split_name, names)) else names:
        splits = [] if is_split_name(name) else _split_folders(look, _plain_folder(look, name))
        if len(splits) > 1:
            return list(filter(look.holds_images, names)), splits[0]
    return [], ""


def _split_folders(look: Look, key: str) -> list[str]:
    """The folders named like splits with images; empty if another folder has images too."""
    inner = list(look.folders_with_images(key)) if any(map(is_split_name, look.level(key).folders)) else []
    return inner if all(is_split_name(basename(one)) for one in inner) else []


def _nothing_found(config: SourceConfig) -> ValueError:
    remedy = f"--source may be {', '.join(ROWS)}"
    if config.annotations:
        return ValueError(
            f"--annotations is {', '.join(config.annotations)!r}; manifests are called .csv, .tsv or .jsonl; "
            f"for others, {remedy}"
        )
    with readable("--input", config.input):
        found = left_out(config) or f": {_content(Look(config))}; {remedy}"
    return ValueError(f"--input is {config.input!r}, which holds no input of a supported kind{found}")


def _content(look: Look) -> str:
    """The numbers of files in the input by extension."""
    if look.file_name:
        extension = extension_of(look.file_name)
        return f"it is a file with{f' the extension .{extension}' if extension else 'out an extension'}"
    names = (name for _, level in look.walk() for name in (*level.images, *level.others))
    found = collections.Counter(map(extension_of, names))
    return f"it has {by_extension(found, 6)}" if found else "it is an empty folder"
