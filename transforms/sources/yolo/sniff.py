"""Telling a YOLO dataset from others, by a few names and the start of a few files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.nearby_images import NearbyImages
from recordmill.transforms.sources.names import extension_of, is_split_name, stem_of
from recordmill.transforms.sources.pairs import (
    root_of,
)
from recordmill.transforms.sources.small_files import head_of
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.yolo.dataset import CLASS_FILES, USUAL_NAMES, read_yaml
from recordmill.transforms.sources.yolo.lines import is_label_text
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, is_folder, names_in
from recordmill.transforms.storage.paths import real_path

LABEL_FOLDERS = frozenset(("labels", "label", "annotations", "annotation"))
"""Names, in lower case, of folders of label files."""

_NAMES = 10_000  # of a folder, where calls wait for a service
_LISTED = 500  # texts that are listed of a folder of labels
_TRIED = 50  # label files that are looked into
_START = 1 << 12


def why_yolo(config: SourceConfig) -> str | None:
    """What makes the input look like YOLO, or None where nothing does."""
    root = root_of(config)
    if not is_folder(real_path(config.input)):
        return _yaml_says(config.input, Confinement((real_path(config.input),)))
    names, within = names_in(root, _NAMES), Confinement((root, *config.image_roots))
    for name in sorted(name for name in names if extension_of(name) in ("yaml", "yml")):
        if why := _yaml_says(f"{root}/{name}", within):
            return why
    if "obj.data" in names or "obj.names" in names:
        return f"it has darknet's {'obj.data' if 'obj.data' in names else 'obj.names'!r}"
    nearby = NearbyImages(config)
    for folder in _label_folders(nearby):
        if label := _label_with_image(folder, config, nearby):
            return f"{label!r} is a label file of YOLO"
    return None


def _yaml_says(path: str, within: Confinement) -> str | None:
    name = path.rpartition("/")[2]
    if extension_of(path) not in ("yaml", "yml") or not is_file(path):
        return None
    if not within.holds(path):  # `check` refuses it
        return f"it has {name!r}" if name in USUAL_NAMES else None
    try:
        found = read_yaml(within.leads_to(path))
    except ValueError:
        return None
    sets = [found[name] for name in ("train", "val", "test") if found.get(name)]
    if not sets or not found.get("names") or any(isinstance(one, dict) for one in sets):
        return None
    if isinstance(found["names"], str):
        return None
    return f"{name!r} names classes and splits as Ultralytics' data.yaml does"


def _label_folders(nearby: NearbyImages) -> Iterator[str]:
    """Keys of folders that may hold labels: `labels` and its like, and folders with images."""
    yield ""
    for name in nearby.folders(nearby.root):
        if name.lower() in LABEL_FOLDERS:
            yield name
        elif is_split_name(name):
            yield name
            inner = nearby.folders(f"{nearby.root}/{name}")
            yield from (f"{name}/{one}" for one in inner if one.lower() in LABEL_FOLDERS)


def _label_with_image(folder: str, config: SourceConfig, nearby: NearbyImages) -> str | None:
    """The key of a label file that belongs to an image, if the first texts are all label files."""
    texts = list(itertools.islice(_texts(folder, config, nearby), _LISTED))
    is_named = folder.rpartition("/")[2].lower() in ("labels", "label")
    wanted = [key for key in texts if _has_image(folder, key, nearby)][:_TRIED]
    found = None
    # The images may lie deeper than their labels: then the contents of the labels decide.
    for key in wanted or (texts[:_TRIED] if is_named else []):
        text = head_of(nearby.file(key), _START).decode("utf-8", "replace")
        if text.strip() and not is_label_text(text):
            return None
        found = found or (key if text.strip() else None)
    return found or (wanted[0] if wanted and is_named else None)  # all are empty: no image has objects


def _texts(folder: str, config: SourceConfig, nearby: NearbyImages) -> Iterator[str]:
    """Keys of the texts in a folder, and also below it if it has a name such as `labels`."""
    if folder.rpartition("/")[2].lower() in LABEL_FOLDERS:
        files = Tree(nearby.root, config.image_roots, config.skip_dirs).files(f"{folder}/")
        keys = (item.key for item in files if isinstance(item, TreeFile))
    else:
        place = f"{nearby.root}/{folder}".rstrip("/")
        keys = (f"{folder}/{name}".lstrip("/") for name in sorted(names_in(place, _NAMES)))
    for key in keys:
        name = key.rpartition("/")[2]
        if extension_of(name) == "txt" and name not in CLASS_FILES:
            yield key


def _has_image(folder: str, key: str, nearby: NearbyImages) -> bool:
    """Whether an image has the name of a text: next to it, or in the folder of images that belongs to it."""
    stem = stem_of(key)
    around, _, last = folder.rpartition("/")
    paths = [stem]
    if last.lower() in LABEL_FOLDERS:
        paths.append(f"{around}/{stem[len(folder) + 1 :]}".lstrip("/"))
    return any(nearby.has_image(path, (path.rpartition("/")[2],)) for path in paths)
