"""The files of a VOC tree by kind, and the lists of its splits. Each year of a VOCdevkit has its own root."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.annotated_tree import IMAGE_FOLDERS, AnnotatedTree, split_folders
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    extension_of,
    folder_of,
    is_image_name,
    is_split_name,
    name_stem,
    normal_split,
    stem_of,
)
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.tree import TreeFile

NO_SPLIT = "default"
"""CVAT's and Datumaro's name of the list of a task without splits."""

BOTH = "trainval"

_XML_FOLDERS = ("annotations", "annotation", "xmls", "xml", "labels")
_IMAGE_FOLDERS = frozenset(map(str.lower, IMAGE_FOLDERS))
_MASK_FOLDERS = {"segmentationclass": "class", "segmentationobject": "instance"}
_CLASS_FILES = ("labelmap.txt", "class_names.txt")
_SECOND_COLUMN = re.compile(r"(.*\S)\s+[+-]?[0-9]+")
_IN_FOLDER = re.compile(rf"(?:.*/)?(?:{'|'.join(IMAGE_FOLDERS)}|Annotations)/(.*)", re.IGNORECASE)


@dataclasses.dataclass(slots=True)
class VocRoot:
    """A folder such as VOC2012/. Files go by their path below their own folder, without extension."""

    prefix: str  # its key: empty, or ending in `/`
    xmls: dict[str, TreeFile] = dataclasses.field(default_factory=dict)
    masks: dict[str, dict[str, TreeFile]] = dataclasses.field(
        default_factory=lambda: {kind: {} for kind in _MASK_FOLDERS.values()}
    )
    lists: dict[str, list[TreeFile]] = dataclasses.field(default_factory=dict)  # by folder in ImageSets
    image_spellings: dict[str, None] = dataclasses.field(default_factory=dict)  # of `IMAGE_FOLDERS`
    xml_folder: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.xmls or any(name in files for files in self.masks.values())

    def file(self, name: str) -> TreeFile:
        """The XML of an image, or else one of its masks."""
        return next(files[name] for files in (self.xmls, *self.masks.values()) if name in files)

    def names(self, masked_only: bool) -> list[str]:
        """The names of the images to convert: those with XML, or else with a mask."""
        if self.xmls and not masked_only:
            return sorted(self.xmls)
        masks = self.masks
        return sorted(masks["class"].keys() | (() if masked_only else masks["instance"].keys()))

    def image_folders(self, name: str, folder: str = "") -> tuple[str, ...]:
        """The folders in which the image of a name may lie; `folder` is the one in its XML."""
        found = [f"{self.prefix}{one}/" for one in (*IMAGE_FOLDERS, *self.image_spellings)]
        folder = folder.replace("\\", "/").strip("/")
        if folder and ".." not in folder.split("/"):
            found.insert(0, f"{self.prefix}{folder}/")
        found += [self.xml_folder, self.prefix]
        return tuple(dict.fromkeys(one for start in found for one in (start + folder_of(name), start)))

    def read_lists(self, masked_only: bool) -> ImageLists | None:
        """Reads the lists in Main, or in Segmentation for masks. Raises BadInput if one cannot be read."""
        order = ("segmentation", "main") if masked_only or not self.xmls else ("main", "segmentation")
        found = (_split_lists(self.lists.get(one, [])) for one in (*order, "layout", "action", ""))
        names = {*self.xmls, *self.masks["class"], *self.masks["instance"]}
        lists = _read_lists(next(filter(None, found), {}), names)
        return lists if lists.listed else None


class ImageLists(NamedTuple):
    """The content of the lists, by the names of images without extension."""

    splits: dict[str, str]
    several: dict[str, tuple[str, ...]]  # images in the lists of several splits
    listed: dict[str, str]  # the key of the first list


class VocTree(AnnotatedTree):
    """The files of an input."""

    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._roots: dict[str, VocRoot] = {}

    @property
    def roots(self) -> list[VocRoot]:
        """The folders such as VOC2012/, in the order of their keys."""
        return [self._roots[prefix] for prefix in sorted(self._roots)]

    @property
    def has_xml(self) -> bool:
        """Whether there is any XML."""
        return any(root.xmls for root in self._roots.values())

    @property
    def has_class_masks(self) -> bool:
        """Whether there is any mask of classes."""
        return any(root.masks["class"] for root in self._roots.values())

    def folder_splits(self) -> tuple[str, ...]:
        """The split folders of the annotations, in the input or in Annotations."""
        files = [(root.prefix, name) for root in self.roots for name in root.xmls or root.masks["class"]]
        return split_folders((prefix for prefix, _ in files), (name for _, name in files))

    def is_annotation(self, key: str) -> bool:
        return extension_of(key) == "xml" or _mask_folder(key) is not None

    def put(self, file: TreeFile) -> str | None:
        *folders, name = file.key.split("/")
        extension, lower = extension_of(name), [folder.lower() for folder in folders]
        if extension == "txt" and "imagesets" in lower:
            at = lower.index("imagesets")
            self._root_at(folders[:at]).lists.setdefault("/".join(lower[at + 1 :]), []).append(file)
        elif name.lower() in _CLASS_FILES:
            self.class_files.setdefault(folder_of(file.key), file)
        elif extension == "xml":
            inner = [at for at, folder in enumerate(lower) if folder in _XML_FOLDERS]
            at = inner[-1] if inner else len(folders)
            root = self._root_at(folders[:at])
            root.xml_folder = "".join(f"{folder}/" for folder in folders[: at + 1])
            root.xmls[_below(file.key, at + bool(inner))] = file
        elif (folder := _mask_folder(file.key)) is not None:
            at = lower.index(folder)
            self._root_at(folders[:at]).masks[_MASK_FOLDERS[folder]][_below(file.key, at + 1)] = file
        else:
            at = next((at for at, folder in enumerate(lower) if folder in _IMAGE_FOLDERS), len(folders))
            if at < len(folders) and folders[at] not in IMAGE_FOLDERS and is_image_name(name):
                self._root_at(folders[:at]).image_spellings[folders[at]] = None
            return super().put(file)
        return None

    def _root_at(self, folders: list[str]) -> VocRoot:
        prefix = "".join(f"{folder}/" for folder in folders)
        return self._roots.setdefault(prefix, VocRoot(prefix))


def is_class_mask(key: str) -> bool:
    """Whether a file is a mask of classes by its folder and extension."""
    return _mask_folder(key) == "segmentationclass"


def _mask_folder(key: str) -> str | None:
    folders = key.lower().split("/")[:-1] if extension_of(key) == "png" else ()
    return next((folder for folder in _MASK_FOLDERS if folder in folders), None)


def _below(key: str, folders: int) -> str:
    return stem_of("/".join(key.split("/")[folders:]))


def _split_lists(files: Sequence[TreeFile]) -> dict[str, TreeFile]:
    """The lists of splits by name; not those of one class each, such as `cow_train.txt`."""
    named = {name_stem(file.key): file for file in files}
    ends = named.keys() | {BOTH, "train", "val", "test"}
    return {
        name: file for name, file in named.items() if "_" not in name or name.rpartition("_")[2] not in ends
    }


def _read_lists(files: dict[str, TreeFile], known: Container[str]) -> ImageLists:
    """Reads lists: those named like splits, then others, then `trainval`, which holds two splits."""
    lists = ImageLists({}, {}, {})
    ranked = sorted(files, key=lambda name: (2 if name == BOTH else 0 if is_split_name(name) else 1, name))
    for name, data in read_files((name, files[name]) for name in ranked if files[name].size):
        key, split = files[name].key, normal_split(name)
        try:
            if isinstance(data, BadInput):
                raise BadInput("list", data.reason, data.detail, key)
            lines = data.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise BadInput("list", "list is not UTF-8", str(error), key) from error
        for image in _images(lines, known):
            lists.listed.setdefault(image, key)
            first = lists.splits.setdefault(image, split)
            if first != split and is_split_name(split):
                lists.several[image] = (*lists.several.get(image, (first,)), split)
    return lists


def _images(lines: Iterable[str], known: Container[str]) -> Iterator[str]:
    """The images in a list, which may have a second column."""
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line not in known and (match := _SECOND_COLUMN.fullmatch(line)):
            line = match[1]
        line = line.strip('"')
        if line not in known and is_image_name(line):
            line = stem_of(line)
        if line not in known and (match := _IN_FOLDER.fullmatch(line)):
            line = match[1]
        yield line
