"""Telling a YOLO dataset from others, by a few names and the start of a few files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from transforms.sources.formats.masks_pairs import IMAGE_FOLDERS, root_of, stem_of
from transforms.sources.formats.yolo_dataset import CLASS_FILES, read_yaml
from transforms.sources.formats.yolo_lines import is_label_text
from transforms.sources.names import extension_of, is_image_name, is_split_name
from transforms.sources.source import SourceConfig
from transforms.storage.paths import real_path
from transforms.storage.places import is_file, is_folder, names_in, open_file

_LABEL_FOLDERS = ("labels", "label", "annotations", "annotation")
_NAMES = 10_000  # of a folder in a bucket
_TRIED = 5  # label files that are looked into
_START = 1 << 12


def why_yolo(config: SourceConfig) -> str | None:
    """What makes the input look like YOLO, or None where nothing does."""
    root = root_of(config)
    if not is_folder(real_path(config.input)):
        return _yaml_says(config.input)
    names = names_in(root, _NAMES)
    for name in sorted(name for name in names if extension_of(name) in ("yaml", "yml")):
        if why := _yaml_says(f"{root}/{name}"):
            return why
    if "obj.data" in names or "obj.names" in names:
        return f"it has darknet's {'obj.data' if 'obj.data' in names else 'obj.names'!r}"
    for folder, images in _label_folders(root, names, config):
        if label := _labels_beside(folder, images):
            return f"{label!r} has boxes or polygons as YOLO has them, beside an image of that name"
    return None


def _yaml_says(path: str) -> str | None:
    if extension_of(path) not in ("yaml", "yml") or not is_file(path):
        return None
    try:
        found = read_yaml(path)
    except ValueError:
        return None
    sets = [found[name] for name in ("train", "val", "test") if found.get(name)]
    if not sets or not found.get("names") or any(isinstance(one, dict) for one in sets):
        return None
    if isinstance(found["names"], str):
        return None
    return f"{path.rpartition('/')[2]!r} names classes and splits as Ultralytics' data.yaml does"


def _label_folders(root: str, names: list[str], config: SourceConfig) -> Iterator[tuple[str, list[str]]]:
    """Folders that may hold labels, each with those that would hold the images."""
    roots = [real_path(one) for one in config.image_roots]
    yield root, [root, *roots]
    folders = sorted(name for name in names if "." not in name)
    labels = [name for name in folders if name.lower() in _LABEL_FOLDERS]
    images = [name for name in folders if name.lower() in IMAGE_FOLDERS]
    for name in labels:
        yield f"{root}/{name}", [root, *(f"{root}/{one}" for one in images), *roots]
        for split in filter(is_split_name, _names(f"{root}/{name}")):
            beside = [f"{root}/{split}", *(f"{root}/{one}/{split}" for one in images), *roots]
            yield f"{root}/{name}/{split}", beside
    for split in filter(is_split_name, folders):
        inner = _names(f"{root}/{split}")
        yield f"{root}/{split}", [f"{root}/{split}"]
        beside = [f"{root}/{split}/{name}" for name in inner if name.lower() in IMAGE_FOLDERS]
        for name in inner:
            if name.lower() in _LABEL_FOLDERS:
                yield f"{root}/{split}/{name}", [f"{root}/{split}", *beside]


def _names(folder: str) -> list[str]:
    return sorted(names_in(folder, _NAMES)) if is_folder(folder) else []


def _labels_beside(folder: str, image_folders: list[str]) -> str | None:
    """The name of a label file with an image of its name, if the first ones are all label files."""
    texts = (name for name in _names(folder) if extension_of(name) == "txt" and name not in CLASS_FILES)
    wanted = list(itertools.islice(texts, 100))
    if not wanted:
        return None
    stems = {stem_of(name) for place in image_folders for name in _names(place) if is_image_name(name)}
    found = None
    for name in [name for name in wanted if stem_of(name) in stems][:_TRIED]:
        with open_file(f"{folder}/{name}") as stream:
            text = stream.read(_START).decode("utf-8", "replace")
        if text.strip() and not is_label_text(text):
            return None
        found = found or (name if text.strip() else None)
    return found
