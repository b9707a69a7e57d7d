"""Finds the folder of splits and classes in an input, and refuses folders that are not classes.

Source `folder` makes a class of each folder. Detection refuses folders that look like parts of a dataset:
splits next to another folder, splits below classes, `images` next to `masks`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

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

_Finding = tuple[str, list[str]]  # what is wrong, and what to do instead


def plain_folder(look: Look, key: str = "") -> str:
    """The key of the folder, at or below `key`, that holds the folders of splits or classes.

    The folders above it are wrappers: each holds a single folder and no image.
    """
    top = key
    for _ in range(_DEEPEST):
        inner = [] if look.level(key).images else list(itertools.islice(_with_images(look, key), 2))
        if len(inner) != 1 or is_split_name(_name(inner[0])):
            break
        key = inner[0]
    while key != top and not _has_folders(look, key):
        key = key.rpartition("/")[0]
    return key


def _has_folders(look: Look, key: str) -> bool:
    """Whether a folder is called `images`, or has splits or several classes."""
    if _name(key).lower() in IMAGE_FOLDERS or _split_folders(look, key):
        return True
    level = look.level(key)
    has_classes = not level.images or len(level.images) < len(level.folders)
    return has_classes and len(list(itertools.islice(_with_images(look, key), 2))) == 2


def folders_of_splits(look: Look) -> tuple[list[str], str]:
    """Folders of the input that hold images, if one of them has several splits of its own.

    Returns:
        Their names, and the key of the first split as an example; both empty if no folder has splits.
    """
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
    inner = [joined(key, name) for name in look.level(key).folders]
    splits = [one for one in inner if is_split_name(_name(one))]
    if not splits or any(look.holds_images(one) for one in inner if one not in splits):
        return []
    return list(filter(look.holds_images, splits))


def _name(key: str) -> str:
    return key.rpartition("/")[2]


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
    names = list(_with_images(look))
    splits = list(filter(is_split_name, names))
    findings = [_mixed_splits(look, names, splits)]
    if splits and len(splits) == len(names):
        names = sorted({name for split in splits for name in _with_images(look, split)})
    findings += [_split_words(look, names), _splits_below(look, names)]
    if look.config.label_pattern is None:
        findings += [_structural(look, names), _depths(look, names)]
        if is_cut and not splits and len(names) < 2:
            findings.append(_single(look))
    for what, ways in itertools.chain.from_iterable(findings):
        raise ValueError(f"--input is {look.config.input!r}, where {what}: {'; '.join(ways)}{OR_FOLDER}")


def _give(look: Look, *keys: str) -> str:
    """The instruction to give one of some folders."""
    listed = commands((look.given(key), "") for key in keys)
    return f"give {'one of them: ' if len(keys) > 1 else ''}{listed}"


def _mixed_splits(look: Look, names: list[str], splits: list[str]) -> Iterator[_Finding]:
    """Splits next to a folder that is no split, or next to an image."""
    others = [name for name in names if name not in splits]
    if others and len(set(map(normal_split, splits))) > 1:
        shown = " and ".join(map(repr, splits[:2]))
        ways = ["move it elsewhere", _give(look, *splits, *others)]
        yield f"{shown} are named like splits, and {others[0]!r} is not", ways
    strays = list(filter(Selection(look.config).takes, look.level("").images))
    if splits and not others and strays:
        ways = [f"leave it out with {flag_with('--exclude', strays[0])}"] if len(strays) == 1 else []
        found = f"{splits[0]!r} is named like a split, and {strays[0]!r} is in none"
        yield found, [*ways, _give(look, *splits)]


def _split_words(look: Look, names: list[str]) -> Iterator[_Finding]:
    """Classes most of which are named after different splits: `seg_train`, `seg_test`."""
    found = {name: _splits_named(_name(name)) for name in names}
    alike = [name for name, words in found.items() if words]
    if 2 * len(alike) >= len(names) and len(set().union(*found.values())) > 1:
        shown = " and ".join(map(repr, alike[:2]))
        yield f"{shown} are named after splits, and are no classes", [_give(look, *names)]


def _splits_named(name: str) -> set[str]:
    """The splits named by words of a folder's name, with or without a number: `test1`, `seg_train`."""
    return splits_in(re.sub(r"[ _-]+", "_", re.sub(r"(?<=[a-z])\d{1,2}(?=_|$)", "", name.lower())))


def _splits_below(look: Look, names: list[str]) -> Iterator[_Finding]:
    """Splits in the folders of classes: `cat/train`, `cat/test`."""
    for name in names[:_COMPARED]:
        splits = [inner for inner in _with_images(look, name) if is_split_name(_name(inner))]
        if len({normal_split(_name(split)) for split in splits}) > 1:
            shown = " and ".join(map(repr, splits[:2]))
            what = f"{shown} are named like splits and lie below a class, where splits are not read"
            yield what, ["put the splits above the classes", _give(look, name)]


def _structural(look: Look, names: list[str]) -> Iterator[_Finding]:
    """Classes that are all named like parts of a dataset: `images`, `masks`, `train_images`."""
    if len(names) == 1:  # the folders in it may be wrappers, too
        while not look.level(names[0]).images and len(inner := list(_with_images(look, names[0]))) == 1:
            names = inner
    if names and all(_name(one).lower() in _STRUCTURAL or _splits_named(_name(one)) for one in names):
        are, parts, es = ("is", "a part", "") if len(names) == 1 else ("are", "parts", "es")
        shown = " and ".join(map(repr, names[:2]))
        yield f"{shown} {are} named like {parts} of a dataset, and no class{es}", [_give(look, *names)]


def _depths(look: Look, names: list[str]) -> Iterator[_Finding]:
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
        yield what, [_give(look, nested[0], *others)]


def _single(look: Look) -> Iterator[_Finding]:
    """All images in one first-level folder, where the search for a dataset was incomplete."""
    folders = {key.partition("/")[0] for key, level in look.walk() if level.images}
    if len(folders) <= 1 and "" not in folders:
        what = (
            "all images are in one first-level folder, and there are too many folders to search for a dataset"
        )
        yield what, ["give the dataset's own folder"]
