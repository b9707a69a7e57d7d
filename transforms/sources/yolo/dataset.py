"""What describes a YOLO dataset: Ultralytics' data.yaml, darknet's obj.data, lists of images, class files."""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.transforms.records import JobError
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    clipped,
    extension_of,
    is_hidden,
    is_image_name,
    is_split_name,
    normal_split,
)
from recordmill.transforms.sources.pairs import (
    root_of,
)
from recordmill.transforms.storage.confinement import GIVE_ROOT, Confinement
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_file, is_folder, may_be_there, names_in, open_file
from recordmill.transforms.storage.paths import absolute, below, is_absolute, real_path

USUAL_NAMES = ("data.yaml", "data.yml", "dataset.yaml")
"""What a YAML file that describes a dataset is called."""

LABEL_FOLDERS = frozenset(("labels", "label", "annotations", "annotation"))
"""Names, in lower case, of folders of label files."""

CLASS_FILES = ("obj.names", "classes.txt", "_darknet.labels")
_SPLIT_KEYS = ("train", "val", "test")
_DARKNET_KEYS = ("train", "valid", "val", "test")
_LARGEST = 1 << 22  # bytes of what describes a dataset
_ROOT_NAMES = 10_000
_MOST_YAML = 200_000  # scalars, lists and ends of them
_DEEPEST_YAML = 100
_LARGEST_ID = (1 << 31) - 2  # that still fits an int32 where ids are counted from 1


@dataclasses.dataclass(frozen=True, slots=True)
class ImageSet:
    """Images of one split.

    Attributes:
        split: as the description calls it.
        where: path below a root: of a folder (empty for the root), or of a list of images.
        is_list: it is a list.
        text: what the description has.
    """

    split: str
    where: str
    is_list: bool
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class YoloDataset:
    """What is known of a dataset before its images are looked at.

    Attributes:
        names: of the classes by id; empty where there are none.
        keypoints: (number, values each) of poses.
        sets: that the splits consist of; none where folders tell.
        missing: (split, path) that a description names and that is not there, beside others that are.
        base: the folder that paths in lists begin at, below the root, as the description has it.
        files: paths below the root of the files that all this is from.
    """

    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    keypoints: tuple[int, int] | None = None
    sets: tuple[ImageSet, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    base: str = ""
    files: frozenset[str] = frozenset()

    @property
    def labels(self) -> Mapping[int, str | int]:
        """What objects of each class are labelled with: the names, or ids where two classes share one."""
        unique = len(set(self.names.values())) == len(self.names)
        return {number: name if unique else number for number, name in self.names.items()}


def yolo_dataset(config: SourceConfig) -> YoloDataset:
    """Reads what describes the dataset, in the input's first level alone.

    Raises:
        ValueError: it is not what it should be, names a place outside the input, or one in two splits.
    """
    root = root_of(config)
    is_lone = not is_folder(real_path(config.input))
    names = sorted(names_in(root, _ROOT_NAMES))
    yaml_name = os.path.basename(config.input) if is_lone else yaml_of(root, names, config)
    places = _Places(config, root, yaml_name or "")
    if yaml_name is not None:
        found = _from_yaml(places, yaml_name)
    else:
        data = sorted(name for name in names if extension_of(name) == "data")
        found = _from_darknet(places, data[0]) if data else YoloDataset()
    if not found.names:
        found = _with_class_file(found, places, names)
    if not found.sets and yaml_name is None:
        lists = [name for name in names if _is_image_list(places, name)]
        sets = tuple(ImageSet(normal_split(name.rpartition(".")[0]), name, True, name) for name in lists)
        found = dataclasses.replace(found, sets=sets, files=found.files | frozenset(lists))
    _check_apart(found.sets, config)
    for key in _lists(found.sets):
        places.file(key)
    return found


def yaml_of(root: str, names: list[str], config: SourceConfig) -> str | None:
    """The YAML file of a folder that names classes; `data.yaml` before others.

    Raises:
        ValueError: there are several.
    """
    yamls = [name for name in names if extension_of(name) in ("yaml", "yml") and not name.startswith(".")]
    for usual in USUAL_NAMES:
        if usual in yamls:
            return usual
    inside = Confinement((root, *config.image_roots))
    found = [
        name
        for name in yamls
        if inside.holds(path := f"{root}/{name}") and _names_classes(inside.leads_to(path))
    ]
    if len(found) > 1:
        raise ValueError(
            f"--input is {config.input!r}, where {' and '.join(map(repr, found[:2]))} both name classes; "
            "give the one that is meant as --input"
        )
    return found[0] if found else None


def _names_classes(path: str) -> bool:
    try:
        return "names" in read_yaml(path)
    except ValueError:
        return False


def read_yaml(path: str) -> dict[str, Any]:
    """A mapping in YAML whose scalars are all text, as written: `no` stays a class called `no`.

    Args:
        path: a real one.

    Raises:
        ValueError: it is none.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # makes text, lists and mappings alone
    text = _read_text(path)
    try:
        _check_yaml(path, yaml.parse(text, Loader=loader))  # before C calls itself for what is nested
        found = yaml.load(text, Loader=loader)
    except (yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"{path!r} is not YAML: {said}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{path!r} is not YAML of a mapping")
    return found


def _check_yaml(path: str, events: Iterator[Any]) -> None:
    """Raises ValueError where YAML is too much, or too deep, to describe a dataset."""
    depth = 0
    for number, event in enumerate(events):
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > _DEEPEST_YAML:
            raise ValueError(f"{path!r} is nested more than {_DEEPEST_YAML} deep")
        if number > _MOST_YAML:
            raise ValueError(f"{path!r} has more than {_MOST_YAML} values, too many to describe a dataset")


def _read_text(path: str) -> str:
    with open_file(path) as stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"{path!r} has more than {_LARGEST} bytes, too many to describe a dataset")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} is not UTF-8") from error


class _Places:
    """Finds what a description names, below the input or an image root.

    Args:
        config: of the source.
        root: the folder of the description.
        name: of the description; empty if there is none.
    """

    def __init__(self, config: SourceConfig, root: str, name: str) -> None:
        self.root = root
        self.name = name
        self.input = config.input
        self._listed: dict[str, list[str]] = {}
        self.roots = (root, *map(real_path, config.image_roots))
        # a link that the caller gives as the input may lead anywhere
        self._confinement = Confinement((*self.roots, real_path(config.input)))
        self._written = absolute(config.input) if is_folder(root) else root

    def key(self, path: str) -> str | None:
        """A path as one below the root; None where it leads outside."""
        if is_absolute(path):
            tidy = absolute(path)
            inside = (below(root, f"{tidy}/") for root in (*self.roots, self._written))
            found = next((one for one in inside if one is not None), None)
            path = "." if found == "" else found or ".."
        tidy = posixpath.normpath(path)
        if tidy == ".." or tidy.startswith("../") or "\0" in tidy:
            return None
        return "" if tidy == "." else tidy

    def find(self, base: str, path: str) -> tuple[str, bool] | None:
        """The key of a file or folder, and whether it is a file; None if it is not below the input.

        A path of another computer, or one that differs in case, is found by its last parts.
        """
        whole, path = self._whole(base, path), path.replace("\\", "/")
        for key in dict.fromkeys((self.key(whole), self.key(path))):
            for root in self.roots if key is not None else ():
                place = f"{root}/{key}" if key else root
                if is_folder(place):
                    return key or "", False
                if is_file(place):
                    return key or "", True
        return self._by_tail(whole)

    def file(self, key: str) -> str:
        """The real path of a file that describes the dataset.

        Raises:
            OSError: it is a link that leads outside, and is not the input itself; or leads to nothing.
        """
        paths = (f"{root}/{key}" for root in self.roots)
        path = next(filter(is_file, paths), f"{self.root}/{key}")
        return self._confinement.leads_to(path)

    def leads_outside(self, base: str, path: str) -> bool:
        """Whether a path leads to an existing file or folder outside the input."""
        whole = self._whole(base, path)
        if self.key(whole) is not None:
            return False
        if not is_absolute(whole):
            return may_be_there(f"{self.root}/{whole}")
        return file_system(whole).has_latency or may_be_there(whole)

    def _whole(self, base: str, path: str) -> str:
        path = path.replace("\\", "/")
        return path if is_absolute(path) else posixpath.join(base, path)

    def _by_tail(self, path: str) -> tuple[str, bool] | None:
        """Finds a path by as many of its last parts as possible, in any case.

        The last part alone is enough only for a file, or a folder named like a split: the folder `images` of
        `/data/train/images` may hold every split.
        """
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for at in range(len(parts)):
            for root in self.roots:
                for folder in self._around(root):
                    found = self._in_any_case(f"{root}/{folder}".rstrip("/"), parts[at:])
                    key = f"{folder}/{found}".lstrip("/")
                    if found is not None and is_file(f"{root}/{key}"):
                        return key, True
                    if found is not None and (at + 1 < len(parts) or is_split_name(found)):
                        return key, False
        return None

    def _around(self, root: str) -> list[str]:
        """Keys of the folders in which a path may begin: the root, one named like the YAML, an only one."""
        folders = [name for name in self._names(root) if not is_hidden(name) and is_folder(f"{root}/{name}")]
        likely = [name for name in folders if len(folders) == 1 or name == self.name.rpartition(".")[0]]
        return ["", *(name for name in likely if not name.lower().startswith(("label", "annotation")))]

    def _in_any_case(self, place: str, parts: list[str]) -> str | None:
        """The path below a folder that equals `parts`, apart from case."""
        lower = parts[0].lower()
        alike = [name for name in self._names(place) if name.lower() == lower]
        for name in sorted(alike, key=lambda name: (name != parts[0], name)):
            if len(parts) == 1:
                return name
            if (rest := self._in_any_case(f"{place}/{name}", parts[1:])) is not None:
                return f"{name}/{rest}"
        return None

    def _names(self, folder: str) -> list[str]:
        if folder not in self._listed:
            self._listed[folder] = names_in(folder, _ROOT_NAMES) if is_folder(folder) else []
        return self._listed[folder]


def _from_yaml(places: _Places, name: str) -> YoloDataset:
    path = places.file(name)
    found = read_yaml(path)
    base = found.get("path")
    base = base if isinstance(base, str) else ""
    entries = [(split, text) for split in _SPLIT_KEYS for text in _texts(found.get(split), path, split)]
    names = _yaml_names(found.get("names"), path)
    count = found.get("nc")
    if isinstance(found.get("names"), list) and count is not None and count != str(len(names)):
        raise ValueError(f"{path!r} has {len(names)} names, and nc is {count}")
    shape = _keypoint_shape(found.get("kpt_shape"), path)
    sets, missing = _sets(places, base, entries)
    _check_found(places, base, sets, missing)
    return YoloDataset(names, shape, sets, missing, places.key(base) or "", frozenset((name, *_lists(sets))))


def _texts(value: object, path: str, split: str) -> list[str]:
    """The paths of a split: one, several or none."""
    texts: list[Any] = value if isinstance(value, list) else [value]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError(f"{path!r}: {split} is neither a path nor a list of paths")
    return [text for text in texts if text and text not in ("null", "~")]


def _yaml_names(value: object, path: str) -> dict[int, str]:
    if value is None or value == "":
        return {}
    if not isinstance(value, (dict, list)):
        raise ValueError(f"{path!r}: names is neither a list nor a mapping of ids to names")
    found = {}
    for number, name in value.items() if isinstance(value, dict) else enumerate(value):
        if not (isinstance(number, int) or (isinstance(number, str) and re.fullmatch(r"\d{1,20}", number))):
            raise ValueError(f"{path!r}: names has the id {str(number)[:40]!r}, not a whole number from 0")
        if not isinstance(name, str) or not name:
            raise ValueError(f"{path!r}: the name of class {number} is not text")
        if int(number) > _LARGEST_ID:
            raise ValueError(f"{path!r}: names has the id {number}; the largest is {_LARGEST_ID}")
        found[int(number)] = name
    return found


def _keypoint_shape(value: object, path: str) -> tuple[int, int] | None:
    if value is None:
        return None
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(isinstance(one, str) and one.isdecimal() for one in numbers):
        raise ValueError(f"{path!r}: kpt_shape is not two numbers, such as [17, 3]")
    number, each = map(int, numbers)
    if number < 1 or each not in (2, 3):
        raise ValueError(f"{path!r}: kpt_shape is [{number}, {each}]; each keypoint has 2 or 3 numbers")
    return number, each


def _from_darknet(places: _Places, name: str) -> YoloDataset:
    """obj.data: `key = value` lines. Paths begin at the folder darknet is run in, often `data/`."""
    path = places.file(name)
    found = {}
    for line in _read_text(path).splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found[key.strip()] = value.strip()
    entries = [(split, found[split]) for split in _DARKNET_KEYS if found.get(split)]
    sets, missing = _sets(places, "", entries)
    dataset = YoloDataset({}, None, sets, missing, "", frozenset((name, *_lists(sets))))
    if "names" in found and (located := places.find("", found["names"])) and located[1]:
        names = read_names(places.file(located[0]))
        return dataclasses.replace(dataset, names=names, files=dataset.files | {located[0]})
    return dataset


def _lists(sets: tuple[ImageSet, ...]) -> Iterator[str]:
    return (one.where for one in sets if one.is_list)


def _sets(
    places: _Places, base: str, entries: list[tuple[str, str]]
) -> tuple[tuple[ImageSet, ...], tuple[tuple[str, str], ...]]:
    """The sets that exist, and the (split, path) of those that do not."""
    sets, missing = [], []
    for split, text in entries:
        located = places.find(base, text)
        if located is None:
            missing.append((split, text))
        else:
            sets.append(ImageSet(split, *located, text))
    return tuple(sets), tuple(missing)


def _check_found(
    places: _Places, base: str, sets: tuple[ImageSet, ...], missing: tuple[tuple[str, str], ...]
) -> None:
    """Raises ValueError if a split is missing. A missing `test` is allowed: templates name one."""
    for split, text in missing:
        is_outside, text = places.leads_outside(base, text), clipped(text)
        path = posixpath.join(clipped(base), text)
        if is_outside:
            raise ValueError(
                f"--input is {places.input!r}: {places.name} names {path!r}, outside the input; {GIVE_ROOT}"
            )
        # If none of the named folders exists, image roots may hold the images of all splits together.
        if (split != "test" or not sets) and (sets or len(places.roots) == 1):
            where = " and ".join(map(repr, places.roots))
            raise ValueError(
                f"--input is {places.input!r}: {places.name} has {split}: {text!r}, and neither "
                f"{path!r} nor the end of that path is below {where}; correct or remove {split} in "
                f"{places.name}, or give --image_root the folder that the path begins in"
            )


def _with_class_file(found: YoloDataset, places: _Places, names: list[str]) -> YoloDataset:
    """Names from a class file at the root, or in a folder of labels, as labelImg leaves them."""
    tried = [name for name in CLASS_FILES if name in names]
    tried += [name for name in names if extension_of(name) == "names"]
    tried += [f"{name}/classes.txt" for name in names if name.lower() in ("labels", "annotations")]
    for key in tried:
        if is_file(f"{places.root}/{key}"):
            known = read_names(places.file(key))
            return dataclasses.replace(found, names=known, files=found.files | {key})
    return found


def read_names(path: str) -> dict[int, str]:
    """Names of classes, one a line, from 0.

    Args:
        path: a real one.

    Raises:
        ValueError: a line between others is blank, so that the ids after it are in doubt.
    """
    lines = [line.strip() for line in _read_text(path).rstrip().splitlines()]
    if "" in lines:
        raise ValueError(f"{path!r}, line {lines.index('') + 1} is blank; each line names a class")
    return dict(enumerate(lines))


def _is_image_list(places: _Places, name: str) -> bool:
    """Whether a file is called like a split and has images by name."""
    if extension_of(name) != "txt" or not is_split_name(name.rpartition(".")[0]):
        return False
    with open_file(places.file(name)) as stream:
        start = stream.read(1 << 12)
    return is_image_name(next(iter(start.decode("utf-8", "replace").split("\n")), "").strip())


def _check_apart(sets: tuple[ImageSet, ...], config: SourceConfig) -> None:
    for at, one in enumerate(sets):
        for other in sets[:at]:
            if one.split != other.split and _overlap(one, other):
                raise ValueError(
                    f"--input is {config.input!r}: {other.split} ({other.text}) and {one.split} ({one.text}) "
                    "name the same images; take one of them out, and give --splits to divide them"
                )


def _overlap(one: ImageSet, other: ImageSet) -> bool:
    if one.is_list or other.is_list:
        return one.is_list and other.is_list and one.where == other.where
    first, second = f"{one.where}/".lstrip("/"), f"{other.where}/".lstrip("/")
    return first.startswith(second) or second.startswith(first)


def read_dataset(config: SourceConfig) -> YoloDataset:
    """As `yolo_dataset`, of an input that `check` has passed.

    Raises:
        JobError: it has changed since.
    """
    try:
        return yolo_dataset(config)
    except ValueError as error:
        raise JobError(str(error)) from error
