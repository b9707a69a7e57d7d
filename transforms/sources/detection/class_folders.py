"""Finds the folder of splits and classes in an input, and refuses folders that are not classes.

Source `folder` makes a class of each folder. Detection refuses folders that look like parts of a dataset:
splits next to another folder, splits below classes, `images` next to `masks`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from os.path import basename

from recordmill.transforms.flags import flag_with
from recordmill.transforms.sources.masks.match import MASK_FOLDERS
from recordmill.transforms.sources.names import is_split_name, normal_split, splits_in
from recordmill.transforms.sources.outline import Look, joined
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.selection import Selection

_DEEPEST = 50  # wrappers around folders of splits or classes
_COMPARED = 16  # folders of images that are compared with each other
_LISTED = 20  # datasets that a message lists
_STRUCTURAL = IMAGE_FOLDERS | MASK_FOLDERS | {"scribbles"}
OR_FOLDER = "; or --source folder, which reads images and folders only"
"""The last alternative in a message."""


def plain_folder(look: Look, key: str = "") -> str:
    """The key of the folder, at or below `key`, that holds the folders of splits or classes.

    The folders above it are wrappers: each holds a single folder and no image.
    """
    top = key
    for _ in range(_DEEPEST):
        inner = [] if look.level(key).images else list(itertools.islice(_with_images(look, key), 2))
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
    return has_classes and len(list(itertools.islice(_with_images(look, key), 2))) == 2


def folders_of_splits(look: Look) -> tuple[list[str], str]:
    """The folders of the input with images, and the key of a split, if one of them has several splits."""
    names = look.level("").folders[:_COMPARED]
    for name in [] if all(map(is_split_name, names)) else names:
        splits = [] if is_split_name(name) else _split_folders(look, plain_folder(look, name))
        if len(splits) > 1:
            return list(filter(look.holds_images, names)), splits[0]
    return [], ""


def _with_images(look: Look, key: str = "") -> Iterator[str]:
    """Keys of the folders in a folder that hold images."""
    return filter(look.holds_images, (joined(key, name) for name in look.level(key).folders))


def _split_folders(look: Look, key: str) -> list[str]:
    """The folders named like splits that hold images; empty if another folder holds images too."""
    inner = list(_with_images(look, key)) if any(map(is_split_name, look.level(key).folders)) else []
    return inner if all(is_split_name(basename(one)) for one in inner) else []


def commands(found: Iterable[tuple[str, str]]) -> str:
    """The arguments that read each (path, kind). An empty kind leaves out `--source`."""
    listed = [flag_with("--input", path) + (f" --source {kind}" if kind else "") for path, kind in found]
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return "; ".join(listed[:_LISTED]) + more


def check_class_folders(look: Look, is_cut: bool) -> None:
    """Checks the folders in an input that would be read as splits or classes.

    Args:
        look: at the folder around them.
        is_cut: whether folders were left out of the search for a dataset.

    Raises:
        ValueError: some look like parts of a dataset; or only one is there, and the search was incomplete.
    """
    for finding in _findings(look, is_cut):
        raise ValueError(f"--input is {look.config.input!r}, where {finding}{OR_FOLDER}")


def _findings(look: Look, is_cut: bool) -> Iterator[str]:
    """What is wrong with the folders, and what to do instead."""
    names = list(_with_images(look))
    splits = list(filter(is_split_name, names))
    yield from _mixed_splits(look, names, splits)
    if splits and len(splits) == len(names):
        names = sorted({name for split in splits for name in _with_images(look, split)})
    yield from _split_words(look, names)
    yield from _splits_below(look, names)
    if look.config.label_pattern is None:
        yield from _structural(look, names)
        yield from _depths(look, names)
        if is_cut and not splits and len(names) < 2:
            folders = {key.partition("/")[0] for key, level in look.walk() if level.images}
            if len(folders) <= 1 and "" not in folders:
                yield (
                    "all images are in one first-level folder, and there are too many folders to search "
                    "for a dataset: give the dataset's own folder"
                )


def _give(look: Look, *keys: str) -> str:
    """The instruction to give one of some folders."""
    listed = commands((look.given(key), "") for key in keys)
    return f"give {'one of them: ' if len(keys) > 1 else ''}{listed}"


def _two(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names[:2]))


def _mixed_splits(look: Look, names: list[str], splits: list[str]) -> Iterator[str]:
    """Splits next to a folder that is no split, or next to an image."""
    others = [name for name in names if name not in splits]
    if others and len(set(map(normal_split, splits))) > 1:
        instead = f"move it elsewhere; {_give(look, *splits, *others)}"
        yield f"{_two(splits)} are named like splits, and {others[0]!r} is not: {instead}"
    strays = list(filter(Selection(look.config).takes, look.level("").images))
    if splits and not others and strays:
        one = f"leave it out with {flag_with('--exclude', strays[0])}; " if len(strays) == 1 else ""
        instead = f"{one}{_give(look, *splits)}"
        yield f"{splits[0]!r} is named like a split, and {strays[0]!r} is in none: {instead}"


def _split_words(look: Look, names: list[str]) -> Iterator[str]:
    """Classes most of which are named after different splits: `seg_train`, `seg_test`."""
    found = {name: words for name in names if (words := _splits_named(basename(name)))}
    if 2 * len(found) >= len(names) and len(set().union(*found.values())) > 1:
        yield f"{_two(list(found))} are named after splits, and are no classes: {_give(look, *names)}"


def _splits_named(name: str) -> set[str]:
    """The splits named by words of a folder's name, with or without a number: `test1`, `seg_train`."""
    return splits_in(re.sub(r"[ _-]+", "_", re.sub(r"(?<=[a-z])\d{1,2}(?=_|$)", "", name.lower())))


def _splits_below(look: Look, names: list[str]) -> Iterator[str]:
    """Splits in the folders of classes: `cat/train`, `cat/test`."""
    for name in names[:_COMPARED]:
        splits = [inner for inner in _with_images(look, name) if is_split_name(basename(inner))]
        if len(set(map(normal_split, map(basename, splits)))) > 1:
            what = f"{_two(splits)} are named like splits and lie below a class, where splits are not read"
            yield f"{what}: put the splits above the classes; {_give(look, name)}"


def _structural(look: Look, names: list[str]) -> Iterator[str]:
    """Classes that are all named like parts of a dataset: `images`, `masks`, `train_images`."""
    if len(names) == 1:  # the folders in it may be wrappers, too
        while not look.level(names[0]).images and len(inner := list(_with_images(look, names[0]))) == 1:
            names = inner
    if names and all(one.lower() in _STRUCTURAL or _splits_named(one) for one in map(basename, names)):
        one = "is named like a part of a dataset, and no class"
        several = "are named like parts of a dataset, and no classes"
        yield f"{_two(names)} {one if len(names) == 1 else several}: {_give(look, *names)}"


def _depths(look: Look, names: list[str]) -> Iterator[str]:
    """One folder of classes next to folders of fewer images, such as those of documents."""
    inner = {name: len(list(_with_images(look, name))) for name in names[: _COMPARED + 1]}
    nested = [name for name, count in inner.items() if count > 1]
    others = [name for name in names if name not in nested]
    if len(nested) != 1 or not others or len(names) > _COMPARED:
        return
    levels = (level for name in others for _, level in look.walk(name))
    most = inner[nested[0]]
    outside = itertools.islice(itertools.chain.from_iterable(level.images for level in levels), most)
    if len(look.level(nested[0]).images) < most and len(list(outside)) < most:
        what = f"{nested[0]!r} has folders of classes, and the images of {others[0]!r} lie outside it"
        yield f"{what}: {_give(look, nested[0], *others)}"
