"""The description of a YOLO dataset: Ultralytics' data.yaml, darknet's obj.data, lists, and class files."""

from __future__ import annotations

import functools
import itertools
import os
import posixpath
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.class_tables import read_names, read_yaml, yaml_files, yaml_names
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    clipped,
    extension_of,
    is_hidden,
    is_image_name,
    is_split_name,
    is_unicode,
    normal_split,
    stem_of,
)
from recordmill.transforms.sources.pairs import ROOT_NAMES, ImageSet, is_split_list, root_of
from recordmill.transforms.sources.small_files import small_text
from recordmill.transforms.storage.confinement import GIVE_ROOT, OUTSIDE, Confinement
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_file, is_folder, may_be_there, names_in, open_file
from recordmill.transforms.storage.paths import absolute, below, is_absolute, real_path

LABEL_FOLDERS = frozenset(("labels", "label", "annotations", "annotation"))  # in lower case
CLASS_FILES = ("obj.names", "classes.txt", "_darknet.labels")
# Characters; Linux opens no longer one.
_LONGEST_PATH = 4096
_SPLITS = ("train", "val", "test")
_DARKNET_SPLITS = ("train", "valid", "val", "test")


class YoloDataset:
    """The description of a dataset, read from the top level of the input only.

    Raises:
        ValueError: it is damaged, or names a path outside the input, or the same images in two splits.
        OSError: one of its files is a link that leads outside the input.
    """

    def __init__(self, config: SourceConfig) -> None:
        self.names: dict[int, str] = {}  # of the classes by id
        self.keypoints: tuple[int, int] | None = None  # (number, values each) of poses
        self.sets: list[ImageSet] = []  # one or more per split; empty if folders define the splits
        self._input = config.input
        self._root = root_of(config)
        self._roots = (self._root, *map(real_path, config.image_roots))
        self._written = (*self._roots, absolute(config.input))
        # if the input is itself a link, it may lead anywhere
        self._confinement = Confinement((*self._roots, real_path(config.input)))
        self._names_in = functools.cache(lambda path: names_in(path, ROOT_NAMES) if is_folder(path) else [])
        self._base = ""  # folder below the root to which paths in lists may be relative
        names = sorted(self._names_in(self._root))
        yaml = self._yaml_in(names) if is_folder(config.input) else os.path.basename(config.input)
        self._description = yaml or next((name for name in names if extension_of(name) == "data"), "")
        self.files = {self._description}  # keys of the files that describe the dataset
        if yaml:
            self._read_yaml(self._file(yaml))
        elif self._description:
            self._read_darknet(self._file(self._description))
        if not self.names:
            self._read_class_file(names)
        if not yaml and all(one.key is None for one in self.sets):
            lists = filter(self._is_image_list, filter(is_split_list, names))
            found = [ImageSet(normal_split(stem_of(name)), name, name, self._file(name)) for name in lists]
            self.sets = [*found, *self.sets]
        self.files.update(one.key or "" for one in self.sets if one.list_path)
        self._check_apart()

    @property
    def labels(self) -> Mapping[int, str | int]:
        """The labels of the classes by id: names, or ids if two classes share a name."""
        is_unique = len(set(self.names.values())) == len(self.names)
        return {number: name if is_unique else number for number, name in self.names.items()}

    def image_of(self, line: str, listed: ImageSet, images: Container[str]) -> tuple[str, None]:
        """The key of an image in a list. Raises BadInput if there is none, or the path leads outside.

        Lists are often written in another folder or on another computer, so the first folders of a path
        may be missing here.
        """
        path = line if "/" in line else line.replace("\\", "/")
        bases = dict.fromkeys((posixpath.dirname(listed.key or ""), self._base, ""))
        inner = self._inner(path, bases)
        tails = ("/".join((base, *parts)).lstrip("/") for parts in _tails(path) for base in bases)
        key = next((key for key in itertools.chain(inner, tails) if key in images), None)
        if key is None or not is_unicode(line):
            raise BadInput("annotations", "not found" if inner or key else OUTSIDE)
        return key, None

    def _inner(self, path: str, bases: Iterable[str] = ("",)) -> list[str]:
        """The possible paths below a root of a path that begins in one of the bases; none if outside."""
        if is_absolute(path):
            path = f"{absolute(path)}/"
            rests = [below(root, path) for root in self._written]
        else:
            rests = [posixpath.join(base, path) for base in bases]
        tidy = [posixpath.normpath(rest) for rest in rests if rest is not None]
        return ["" if one == "." else one for one in tidy if one != ".." and not one.startswith("../")]

    def _file(self, key: str) -> str:
        """The real path of a file. Raises OSError for a link that leads outside, or is broken."""
        paths = (f"{root}/{key}" for root in self._roots)
        return self._confinement.leads_to(next(filter(is_file, paths), f"{self._root}/{key}"))

    def _find(self, *paths: str) -> tuple[str | None, bool]:
        """The key of the file or folder at one of the paths, or None; and whether it is a file.

        A path from another computer, or one that differs in case, is found by as many of its last parts as
        possible. The last part alone is enough only for a file, or a folder named like a split: for
        `/data/train/images`, a folder `images` may contain all splits.
        """
        if "\0" in paths[0]:
            return None, False
        keys = dict.fromkeys(key for path in paths for key in self._inner(path))
        for key, root in itertools.product(keys, self._roots):
            inner = f"{root}/{key}" if key else root
            if (is_there := is_folder(inner)) or is_file(inner):
                return key, not is_there
        for parts, root in itertools.product(_tails(paths[0]), self._roots):
            for folder in self._around(root):
                if found := self._in_any_case(f"{root}/{folder}".rstrip("/"), parts):
                    key = f"{folder}/{found}".lstrip("/")
                    if (is_list := is_file(f"{root}/{key}")) or len(parts) > 1 or is_split_name(found):
                        return key, is_list
        return None, False

    def _around(self, root: str) -> list[str]:
        """Keys of the folders in which a path may begin: the root, one named like the YAML, the only one."""
        names = self._names_in(root)
        folders = [name for name in names if not is_hidden(name) and is_folder(f"{root}/{name}")]
        likely = [name for name in folders if len(folders) == 1 or name == stem_of(self._description)]
        return ["", *(name for name in likely if not name.lower().startswith(("label", "annotation")))]

    def _in_any_case(self, folder: str, parts: Sequence[str]) -> str | None:
        """The path below a folder that equals `parts`, except for case."""
        first, *rest = parts
        alike = [name for name in self._names_in(folder) if name.lower() == first.lower()]
        for name in sorted(alike, key=lambda name: (name != first, name)):
            inner = self._in_any_case(f"{folder}/{name}", rest) if rest else ""
            if inner is not None:
                return f"{name}/{inner}".rstrip("/")
        return None

    def _yaml_in(self, names: list[str]) -> str | None:
        """The YAML file that names classes; `data.yaml` first."""
        found = yaml_files(self._root, names, self._confinement)
        if len(found) > 1:
            raise ValueError(
                f"--input is {self._input!r}, where {' and '.join(map(repr, found[:2]))} both name classes; "
                "give one of them as --input"
            )
        return found[0] if found else None

    def _read_yaml(self, path: str) -> None:
        found = read_yaml(path)
        base = found.get("path")
        base = base if isinstance(base, str) else ""
        self._base = next(iter(self._inner(base)), "")
        self.names = yaml_names(found.get("names"), path)
        count = found.get("nc")
        if isinstance(found.get("names"), list) and count is not None and count != str(len(self.names)):
            raise ValueError(f"{path!r} has {len(self.names)} names, and nc is {count}")
        self.keypoints = _keypoint_shape(found.get("kpt_shape"), path)
        texts = [(split, text) for split in _SPLITS for text in _texts(found.get(split), path, split)]
        self._take_sets(base, texts, may_be_missing=False)

    def _read_darknet(self, path: str) -> None:
        """Reads `key = value` lines of obj.data. Paths begin in the folder where darknet runs."""
        lines = (line.partition("=") for line in small_text(path, path).splitlines())
        found = {key.strip(): value.strip() for key, equals, value in lines if equals}
        texts = [(split, found[split]) for split in _DARKNET_SPLITS if found.get(split)]
        self._take_sets("", texts, may_be_missing=True)
        key, is_list = self._find(found.get("names", ""))
        if key and is_list:
            self._read_names(key)

    def _read_class_file(self, names: list[str]) -> None:
        """Reads names from a class file at the root, or in a folder of labels, where labelImg writes it."""
        tried = [name for name in CLASS_FILES if name in names]
        tried += [name for name in names if extension_of(name) == "names"]
        tried += [f"{name}/classes.txt" for name in names if name.lower() in ("labels", "annotations")]
        if found := next((key for key in tried if is_file(f"{self._root}/{key}")), None):
            self._read_names(found)

    def _read_names(self, key: str) -> None:
        path = self._file(key)
        self.names = dict(enumerate(read_names(path, path)))
        self.files.add(key)

    def _take_sets(self, base: str, texts: list[tuple[str, str]], may_be_missing: bool) -> None:
        missing = []
        for split, text in texts:
            path = text.replace("\\", "/")
            complete = path if is_absolute(path) else posixpath.join(base, path)
            key, is_list = self._find(complete, path)
            if key is None:
                missing.append((ImageSet(split, text, None), complete))
            else:
                self.sets.append(ImageSet(split, text, key, self._file(key) if is_list else ""))
        if not may_be_missing:
            for one, complete in missing:
                self._check_missing(one, base, complete)
        self.sets += [one for one, _ in missing]

    def _check_missing(self, one: ImageSet, base: str, complete: str) -> None:
        """Raises ValueError unless a set may be missing."""
        named = f"--input is {self._input!r}: {self._description}"
        path, text = posixpath.join(clipped(base), clipped(one.text)), clipped(one.text)
        is_there = file_system(complete).has_latency or may_be_there(posixpath.join(self._root, complete))
        if is_there and not self._inner(complete):
            raise ValueError(f"{named} names {path!r}, outside the input; {GIVE_ROOT}")
        # templates name a `test` that may not exist; image roots may hold the images of all splits together
        if not (one.split == "test" if self.sets else len(self._roots) > 1):
            raise ValueError(
                f"{named} has {one.split}: {text!r}, and neither {path!r} nor the end of that path is below "
                f"{' and '.join(map(repr, self._roots))}; correct or remove {one.split} in "
                f"{self._description}, or give --image_root with the folder that contains this path"
            )

    def _is_image_list(self, name: str) -> bool:
        with open_file(self._file(name)) as stream:
            start = stream.read(1 << 12)
        return is_image_name(start.decode("utf-8", "replace").split("\n")[0].strip())

    def _check_apart(self) -> None:
        """Raises ValueError if two splits have the same list, or a folder in the folder of the other."""
        found = [one for one in self.sets if one.key is not None]
        by_path: dict[str, dict[str, ImageSet]] = {}
        for one in found:
            by_path.setdefault(one.list_path or one.key or "", {}).setdefault(one.split, one)
        for one in found:
            paths = [one.list_path] if one.list_path else _folders_of(one.key or "")
            others = [other for path in paths for other in by_path.get(path, {}).values()]
            other = next((other for other in others if other.split != one.split), None)
            if other is not None:
                first, second = sorted((one, other), key=found.index)
                raise ValueError(
                    f"--input is {self._input!r}: {first.split} ({first.text}) and {second.split} "
                    f"({second.text}) name the same images; remove one of them, and give --splits to "
                    "divide them"
                )


def _folders_of(key: str) -> list[str]:
    """The key of a folder, and those of the folders above it."""
    parts = key.split("/") if key else []
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def _tails(path: str) -> Iterator[list[str]]:
    """The parts of a path; then without the first, without the first two, …; none of a very long path."""
    if len(path) > _LONGEST_PATH:
        return iter(())
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return (parts[at:] for at in range(len(parts)))


def _texts(value: object, path: str, split: str) -> list[str]:
    texts: list[Any] = value if isinstance(value, list) else [value]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError(f"{path!r}: {split} is neither a path nor a list of paths")
    return [text for text in texts if text and text not in ("null", "~")]


def _keypoint_shape(value: object, path: str) -> tuple[int, int] | None:
    match value:
        case None:
            return None
        case [str(count), "2" | "3" as each] if count.isdecimal() and int(count):
            return int(count), int(each)
    shown = clipped(str(value).replace("'", ""))
    raise ValueError(f"{path!r}: kpt_shape is {shown}, not as [17, 3]: 17 keypoints of 2 or 3 numbers each")
