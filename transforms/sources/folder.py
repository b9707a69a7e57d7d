"""Source `folder`: image files in folders that are splits and labels.

`<label>/…`, `<split>/<label>/…`, `<split>/…` or no folders; the first-level folders are splits if all of
them that hold images are named like a split. Images may lie at any depth below the label's folder.
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord, ImageRef
from recordmill.transforms.sources import names
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import links_outside
from recordmill.transforms.sources.names import NOT_AN_IMAGE, is_image_name, split_named
from recordmill.transforms.sources.selection import EXCLUDED, NO_LABEL, Selection
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import is_file, is_folder
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.name_parts import EVERYTHING, KeyRange, name_parts
from recordmill.transforms.storage.paths import real_path

_SNIFFED_REMOTE = 10_000  # remote files that are checked for an image; local files have no limit
_SEARCHED = 10  # folders next to splits that are searched for an image; if there are more, all are labels


class FolderPart(NamedTuple):
    """Some of the files below a folder."""

    keys: KeyRange = EVERYTHING
    has_splits: bool | None = None  # the first-level folders of the input are splits; None to detect it


class FolderSource(Source):
    """Lists image files below a folder."""

    name = "folder"
    description = Description(
        reads="image files at any depth, or one image file",
        label="the folder below the input, or below the split",
        split="the first-level folders, if all of those with images are named like splits",
        key="path below the input",
        example="photos/\n  train/\n    cat/\n      1.jpg\n    dog/\n      2.png\n  "
        "test/\n    cat/\n      3.jpg",
    )
    flags = ("label_pattern", "include_annotations")  # the latter has no effect here

    def check_input(self, config: SourceConfig) -> None:
        if is_file(config.input) and not is_image_name(config.input):
            raise ValueError(f"--input is {config.input!r}, a file that is not an image by its name")
        reasons: collections.Counter[str] = collections.Counter()
        examples: dict[str, str] = {}
        for item in self.items(config, ""):
            if isinstance(item, ImageRecord):
                return
            assert isinstance(item, Failure)
            reasons[item.reason] += 1
            examples.setdefault(item.reason, item.key)
            if file_system(config.input).has_latency and reasons.total() >= _SNIFFED_REMOTE:
                return  # the job reports it
        raise ValueError(_why_nothing(config, reasons, examples))

    def splits(self, config: SourceConfig) -> set[str]:
        return first_level_splits(config)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from self.part_items(config, scratch, FolderPart())

    def parts(self, config: SourceConfig, most: int) -> Iterator[FolderPart]:
        path = real_path(config.input)
        system = file_system(path)
        is_divided = system.has_latency and not is_file(path)
        ranges = name_parts(path, most, Tree.of(config).enters) if is_divided else [EVERYTHING]
        if len(ranges) == 1:
            yield FolderPart()
            return
        has_splits = _names_split(path) and bool(first_level_splits(config, system.list(path)))
        yield from (FolderPart(keys, has_splits) for keys in ranges)

    def part_items(self, config: SourceConfig, scratch: str, part: FolderPart) -> Items:
        # in code-point order of the keys; holds one folder's names a level
        selection = Selection(config)
        takes_all = not (config.include or config.exclude)
        has_splits = bool(part.has_splits)

        def passes_over(key: str) -> str | None:
            return _not_an_image(key) or (None if takes_all or selection.takes(key) else EXCLUDED)

        def find_splits(found: list[Entry]) -> None:
            nonlocal has_splits
            has_splits = bool(first_level_splits(config, found))

        path = real_path(config.input)
        files: Iterable[TreeFile | Failure]
        if is_file(path):
            folder, name = os.path.split(path)
            files = (Tree(folder, config.image_roots, config.skip_dirs, passes_over).file(name),)
        else:
            on_listed = find_splits if part.has_splits is None else None
            files = Tree.of(config, passes_over).files(on_listed=on_listed, keys=part.keys)
        last, split, annotations = "", None, Annotations()  # of the files in one folder
        for file in files:
            if isinstance(file, Failure):
                yield file
                continue
            key, location, size, version = file
            if (parent := key.rpartition("/")[0]) != last:
                last, folders = parent, parent.split("/") if parent else []
                split = split_named(folders[0]) if has_splits and folders else None
                annotations = Annotations(tuple(folders[split is not None :][:1]))
            if config.label_pattern is not None:
                try:
                    annotations = Annotations(selection.labels(key, ()))
                except BadInput as fault:
                    yield names.failed(key, fault)
                    continue
            yield ImageRecord(key, ImageRef(location, version=version), split, annotations, size=size)


def _why_nothing(config: SourceConfig, reasons: collections.Counter[str], examples: Mapping[str, str]) -> str:
    """The message that no image is left: a flag and a key that it excludes, or all reasons."""
    if count := reasons[NO_LABEL]:
        flag = f"--label_pattern is {config.label_pattern!r}"
        return f"{flag}, which matches none of {count} keys, such as {examples[NO_LABEL]!r}"
    if count := reasons[EXCLUDED]:
        globs = {"--include": config.include, "--exclude": config.exclude}
        given = [f"{flag} is {', '.join(map(repr, values))}" for flag, values in globs.items() if values]
        example = examples[EXCLUDED]
        return f"{' and '.join(given)}, which leaves out all {count} images, such as {example!r}"
    found = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "it is empty"
    links = links_outside(config)
    return f"--input is {config.input!r}: there is no image to convert ({found}){links}"


def first_level_splits(config: SourceConfig, found: Iterable[Entry] | None = None) -> set[str]:
    """The splits that first-level folders are named like; none if another folder holds an image.

    `found` are the entries of the input, if it is listed already. Raises OSError.
    """
    if found is None:
        found = entries(real_path(config.input)) if is_folder(config.input) else ()
    tree = Tree.of(config, _not_an_image)
    folders = [entry.basename for entry in found if entry.name.endswith("/")]
    folders = [name for name in folders if not tree.leaves_out(name)]
    splits = {split for split in map(split_named, folders) if split is not None}
    others = [name for name in folders if split_named(name) is None]
    if not splits or len(others) > _SEARCHED:
        return set()
    for item in itertools.chain.from_iterable(tree.files(f"{name}/") for name in others):
        if isinstance(item, TreeFile) or (is_image_name(item.key) and item.reason != names.HIDDEN):
            return set()
    return splits


def _not_an_image(key: str) -> str | None:
    return None if is_image_name(key) else NOT_AN_IMAGE


def _names_split(folder: str) -> bool:
    """Whether a subfolder is named like a split; lists only names that start like one."""
    system = file_system(folder)
    spelled = [""]
    while spelled:
        asked = sorted(f"{one}{char}" for one in spelled for char in names.next_in_split_name(one))
        found = system.each(lambda prefix: bool(system.list_page(folder, prefix, most=1)[0]), asked)
        spelled = [prefix for prefix, is_there in zip(asked, found, strict=True) if is_there]
        if any(prefix.endswith("/") for prefix in spelled):
            return True
    return False
