"""Finds the folder of splits and classes in an input, and refuses folders that are not classes.

Source `folder` makes a class of each folder. Detection refuses folders that look like parts of a dataset:
splits next to another folder, splits below classes, `images` next to `masks`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

from recordmill.transforms.flags import flag_with
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.masks.match import MASK_FOLDERS
from recordmill.transforms.sources.names import is_split_name, normal_split, splits_in
from recordmill.transforms.sources.outline import Level, Look, joined
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
)
from recordmill.transforms.sources.selection import Selection

_DEEPEST = 50  # wrappers around folders of splits or classes
_COMPARED = 16  # folders of images that are compared with each other
_LISTED = 20  # datasets that a message lists
_STRUCTURAL = IMAGE_FOLDERS | MASK_FOLDERS | {"scribbles"}
OR_FOLDER = "; or --source folder, which reads images and folders only"
"""The last alternative in a message."""


def below_input(config: SourceConfig, key: str) -> str:
    """The path of a folder of the input, as the call spells the input."""
    return f"{config.input.rstrip('/')}/{key}" if key else config.input


def plain_folder(outline: Look, key: str = "") -> str:
    """The key of the folder, at or below `key`, that holds the folders of splits or classes.

    The folders above it are wrappers: each holds a single folder and no image.
    """
    top = key
    for _ in range(_DEEPEST):
        inner = _only_folder_of_images(outline, key)
        if inner is None or is_split_name(inner.rpartition("/")[2]):
            break
        key = inner
    return _nearest_with_folders(outline, key, top)


def _nearest_with_folders(outline: Look, key: str, top: str) -> str:
    """The lowest folder from `key` up to `top` that is called `images`, or has splits or several classes."""
    while key != top:
        level = outline.level(key)
        if (
            key.rpartition("/")[2].lower() in IMAGE_FOLDERS
            or _split_folders(outline, key)
            or (_are_stray(level) and _has_images_in_two(outline, key))
        ):
            return key
        key = key.rpartition("/")[0]
    return key


def folders_of_splits(outline: Look) -> tuple[list[str], str]:
    """Folders of the input that hold images, if one of them has several splits of its own.

    Returns:
        Their names, and the key of the first split as an example; both empty if no folder has splits.
    """
    names = outline.level("").folders[:_COMPARED]
    if names and all(map(is_split_name, names)):
        return [], ""
    for name in names:
        splits = [] if is_split_name(name) else _split_folders(outline, plain_folder(outline, name))
        if len(splits) > 1:
            return [one for one in names if outline.holds_images(one)], splits[0]
    return [], ""


def _only_folder_of_images(outline: Look, key: str) -> str | None:
    level = outline.level(key)
    if level.images:
        return None
    found = list(_folders_of_images(outline, key, level, 2))
    return found[0] if len(found) == 1 else None


def _are_stray(level: Level) -> bool:
    """Whether a folder has no images, or fewer than folders."""
    return not level.images or len(level.images) < len(level.folders)


def _has_images_in_two(outline: Look, key: str) -> bool:
    return len(list(_folders_of_images(outline, key, outline.level(key), 2))) == 2


def _folders_of_images(outline: Look, key: str, level: Level, most: int) -> Iterator[str]:
    for name in level.folders:
        if outline.holds_images(joined(key, name)):
            yield joined(key, name)
            most -= 1
            if not most:
                return


def _split_folders(outline: Look, key: str) -> list[str]:
    """The folders named like splits that hold images; empty if another folder holds images too."""
    inner = [joined(key, name) for name in outline.level(key).folders]
    splits = [one for one in inner if is_split_name(one.rpartition("/")[2])]
    if not splits or any(outline.holds_images(one) for one in inner if one not in splits):
        return []
    return list(filter(outline.holds_images, splits))


def commands(found: Iterable[tuple[str, str]]) -> str:
    """The arguments that read each (path, kind). An empty kind leaves out `--source`."""
    listed = [flag_with("--input", path) + (f" --source {kind}" if kind else "") for path, kind in found]
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return "; ".join(listed[:_LISTED]) + more


@dataclasses.dataclass(frozen=True)
class _Classes:
    """Folders that source `folder` reads as classes or splits.

    Attributes:
        config: of the call, whose input is the folder around them.
        outline: of the folders.
        key: of the folder around them.
    """

    config: SourceConfig
    outline: Look
    key: str

    def level(self, name: str = "") -> Level:
        """The contents of one of the folders, or of the folder around them."""
        return self.outline.level(self._key(name))

    def folders(self, name: str = "") -> list[str]:
        """The folders with images in one of the folders, or in the folder around them."""
        inner = self.level(name).folders
        return [one for one in inner if self.outline.holds_images(self._key(joined(name, one)))]

    def count(self, name: str, most: int) -> int:
        """The number of images in and below one of the folders, counted up to `most`."""
        levels = (level for _, level in self.outline.walk(self._key(name)))
        images = itertools.chain.from_iterable(level.images for level in levels)
        return sum(1 for _ in itertools.islice(images, most))

    def strays(self) -> list[str]:
        """The selected images that lie directly in the folder around them."""
        return list(filter(Selection(self.config).takes, self.level().images))

    def _key(self, name: str) -> str:
        return joined(self.key, name) if name else self.key

    def refused(self, what: str, *ways: str) -> ValueError:
        """The error that names what was found, and what to do instead."""
        return ValueError(f"--input is {self.config.input!r}, where {what}: {'; '.join(ways)}{OR_FOLDER}")

    def command(self, *names: str) -> str:
        """The instruction to give one of some folders."""
        listed = commands((below_input(self.config, name), "") for name in names)
        return f"give {'one of them: ' if len(names) > 1 else ''}{listed}"


def check_class_folders(config: SourceConfig, outline: Look, key: str, is_cut: bool) -> None:
    """Checks the folders that would be read as splits or classes.

    Args:
        config: of the call, whose input is the folder around them.
        outline: of the input.
        key: of the folder around them.
        is_cut: whether folders were left out of the search for a dataset.

    Raises:
        ValueError: some look like parts of a dataset; or only one is there, and the search was incomplete.
    """
    classes = _Classes(config, outline, key)
    names = classes.folders()
    splits = list(filter(is_split_name, names))
    _check_splits(classes, names, splits)
    if splits and len(splits) == len(names):
        names = sorted({joined(split, name) for split in splits for name in classes.folders(split)})
    _check_split_words(classes, names)
    _check_splits_below(classes, names)
    if config.label_pattern is None:
        _check_structural(classes, names)
        _check_depths(classes, names)
        if is_cut and not splits and len(names) < 2 and _is_single(config):
            raise ValueError(
                f"--input is {config.input!r}, where all images are in one first-level folder, and there "
                f"are too many folders to search for a dataset: give the dataset's own folder"
                f"{OR_FOLDER}"
            )


def _check_splits(classes: _Classes, names: list[str], splits: list[str]) -> None:
    """Refuses splits next to a folder that is no split, or next to an image."""
    others = [name for name in names if name not in splits]
    if others and len(set(map(normal_split, splits))) > 1:
        shown = " and ".join(map(repr, splits[:2]))
        what = f"{shown} are named like splits, and {others[0]!r} is not"
        raise classes.refused(what, "move it elsewhere", classes.command(*splits, *others))
    if splits and not others and (strays := classes.strays()):
        ways = [f"leave it out with {flag_with('--exclude', strays[0])}"] if len(strays) == 1 else []
        ways.append(classes.command(*splits))
        raise classes.refused(f"{splits[0]!r} is named like a split, and {strays[0]!r} is in none", *ways)


def _check_split_words(classes: _Classes, names: list[str]) -> None:
    """Refuses classes if most are named after different splits: `seg_train`, `seg_test`."""
    found = {name: _split_words(name.rpartition("/")[2]) for name in names}
    alike = [name for name, words in found.items() if words]
    if 2 * len(alike) >= len(names) and len(set().union(*found.values())) > 1:
        shown = " and ".join(map(repr, alike[:2]))
        raise classes.refused(f"{shown} are named after splits, and are no classes", classes.command(*names))


def _check_structural(classes: _Classes, names: list[str]) -> None:
    """Refuses classes that are all named like parts of a dataset: `images`, `masks`, `train_images`."""
    if len(names) == 1:
        names = [_lowest(classes, names[0])]
    lasts = [name.rpartition("/")[2] for name in names]
    if lasts and all(last.lower() in _STRUCTURAL or _split_words(last) for last in lasts):
        shown = " and ".join(map(repr, names[:2]))
        is_one = len(names) == 1
        what = (
            f"{shown} {'is' if is_one else 'are'} named like {'a part' if is_one else 'parts'} of a dataset"
        )
        raise classes.refused(f"{what}, and no class{'' if is_one else 'es'}", classes.command(*names))


def _lowest(classes: _Classes, name: str) -> str:
    """The folder reached by descending while a folder holds no image and a single folder."""
    while not classes.level(name).images and len(inner := classes.folders(name)) == 1:
        name = joined(name, inner[0])
    return name


def _check_splits_below(classes: _Classes, names: list[str]) -> None:
    """Refuses splits in the folders of classes: `cat/train`, `cat/test`."""
    for name in names[:_COMPARED]:
        splits = list(filter(is_split_name, classes.folders(name)))
        if len(set(map(normal_split, splits))) > 1:
            shown = " and ".join(repr(joined(name, split)) for split in splits[:2])
            raise classes.refused(
                f"{shown} are named like splits and lie below a class, where splits are not read",
                "put the splits above the classes",
                classes.command(name),
            )


def _check_depths(classes: _Classes, names: list[str]) -> None:
    """Refuses one folder of classes next to folders of fewer images, such as those of documents."""
    if not 1 < len(names) <= _COMPARED:
        return
    inner = {name: classes.folders(name) for name in names}
    nested = [name for name, folders in inner.items() if len(folders) > 1]
    if len(nested) != 1:
        return
    others = [name for name in names if name not in nested]
    few = len(inner[nested[0]])
    others_hold = sum(classes.count(name, few) for name in others)
    if len(classes.level(nested[0]).images) < few and others_hold < few:
        raise classes.refused(
            f"{nested[0]!r} has folders of classes, and the images of {others[0]!r} lie outside it",
            classes.command(nested[0], *others),
        )


def _split_words(name: str) -> set[str]:
    """The splits named by words of a folder's name, with or without a number: `test1`, `seg_train`."""
    return splits_in(re.sub(r"[ _-]+", "_", re.sub(r"(?<=[a-z])\d{1,2}(?=_|$)", "", name.lower())))


def _is_single(config: SourceConfig) -> bool:
    """Whether all images lie in one first-level folder, as far as an outline shows."""
    found: set[str] = set()
    for key, level in Look(config).walk():
        if level.images:
            if not key:
                return False
            found.add(key.partition("/")[0])
            if len(found) > 1:
                return False
    return True
