"""The files of a VOC tree, by what they are: the years of a VOCdevkit each have a root of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.image_index import (
    IMAGE_FOLDERS,
    ImageIndex,
    split_folders,
)
from recordmill.transforms.sources.names import extension_of, folder_of, is_image_name, stem_of
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.sources.voc.lists import split_lists

NO_ANNOTATIONS_FILE = "neither image nor annotations by name"
_XML_FOLDERS = ("annotations", "annotation", "xmls", "xml", "labels")
_IMAGE_FOLDERS = frozenset(map(str.lower, IMAGE_FOLDERS))
_CLASS_FOLDER = "segmentationclass"
_INSTANCE_FOLDER = "segmentationobject"
_CLASS_FILES = ("labelmap.txt", "class_names.txt")


@dataclasses.dataclass(slots=True)
class VocRoot:
    """A folder such as VOC2012/. Files go by their path below their own folder, without extension.

    Attributes:
        prefix: key of the folder; empty, or ending in `/`.
        xmls: of Annotations, or beside the images.
        class_masks: of SegmentationClass.
        instance_masks: of SegmentationObject.
        lists: the files of each folder in ImageSets, by the folder's name in lower case.
        image_spellings: names of folders of images that differ in case from `IMAGE_FOLDERS`.
        xml_folder: key of the folder of the XML.
    """

    prefix: str
    xmls: dict[str, TreeFile] = dataclasses.field(default_factory=dict)
    class_masks: dict[str, TreeFile] = dataclasses.field(default_factory=dict)
    instance_masks: dict[str, TreeFile] = dataclasses.field(default_factory=dict)
    lists: dict[str, list[TreeFile]] = dataclasses.field(default_factory=dict)
    image_spellings: dict[str, None] = dataclasses.field(default_factory=dict)
    xml_folder: str = ""

    def masks(self) -> Iterator[tuple[str, Mapping[str, TreeFile]]]:
        """The masks of each kind."""
        yield "class", self.class_masks
        yield "instance", self.instance_masks

    def image_folders(self, image: str, named: str = "") -> tuple[str, ...]:
        """Where the image of a file may lie.

        Args:
            image: the file, by its path below its folder.
            named: the folder that the annotation names.
        """
        inner = folder_of(image)
        places = [f"{self.prefix}{folder}/" for folder in (*IMAGE_FOLDERS, *self.image_spellings)]
        named = named.replace("\\", "/").strip("/")
        if named and ".." not in named.split("/"):
            places.insert(0, f"{self.prefix}{named}/")
        places += [self.xml_folder, self.prefix]
        return tuple(dict.fromkeys(one for place in places for one in (place + inner, place)))

    def split_files(self, for_masks: bool) -> list[TreeFile]:
        """The lists to go by: those of Main, or of Segmentation where only masks are wanted."""
        order = ("segmentation", "main") if for_masks else ("main", "segmentation")
        found = (self.lists.get(folder, []) for folder in (*order, "layout", "action", ""))
        return next((files for files in found if split_lists(files)), [])


@dataclasses.dataclass(slots=True)
class VocTree:
    """A whole input.

    Attributes:
        roots: in the order of their keys.
        images: all, wherever they lie.
        class_files: lists of the classes, by the key of their folder.
        unread: what else there is, and what cannot be looked at.
    """

    roots: dict[str, VocRoot]
    images: ImageIndex
    class_files: dict[str, TreeFile]
    unread: list[Failure]

    @property
    def has_xml(self) -> bool:
        """Whether there is any XML."""
        return any(root.xmls for root in self.roots.values())

    @property
    def has_class_masks(self) -> bool:
        """Whether there is any mask of classes."""
        return any(root.class_masks for root in self.roots.values())

    def folder_splits(self) -> tuple[str, ...]:
        """The splits that the folders of the annotations are named as, in the input or in Annotations."""
        files = [(root, image) for root in self.roots.values() for image in root.xmls or root.class_masks]
        return split_folders(root.prefix for root, _ in files) or split_folders(
            folder_of(image) for _, image in files
        )


def walk(config: SourceConfig) -> VocTree:
    """Lists all files of an input."""
    tree = VocTree({}, ImageIndex(config), {}, [])
    for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
        if isinstance(file, Failure):
            tree.unread.append(file)
        elif not _placed(tree, file):
            tree.unread.append(Failure(file.key, "list", NO_ANNOTATIONS_FILE, skipped=True))
    tree.roots = dict(sorted(tree.roots.items()))
    return tree


def holds_annotations(config: SourceConfig) -> bool:
    """Whether there is any file of annotations; stops at the first."""
    found = VocTree({}, ImageIndex(config), {}, [])
    for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
        if isinstance(file, Failure) or extension_of(file.key) not in ("xml", "png"):
            continue
        _placed(found, file)
        if any(root.xmls or root.class_masks or root.instance_masks for root in found.roots.values()):
            return True
    return False


def _placed(tree: VocTree, file: TreeFile) -> bool:
    """Puts a file where it belongs; whether it belongs anywhere."""
    *folders, name = file.key.split("/")
    extension, lower = extension_of(name), [folder.lower() for folder in folders]
    if extension == "txt" and "imagesets" in lower:
        at = lower.index("imagesets")
        root = _root(tree, folders[:at])
        root.lists.setdefault("/".join(lower[at + 1 :]), []).append(file)
    elif name.lower() in _CLASS_FILES:
        tree.class_files.setdefault(folder_of(file.key), file)
    elif extension == "xml":
        inner = [at for at, folder in enumerate(lower) if folder in _XML_FOLDERS]
        at = inner[-1] if inner else len(folders)
        root = _root(tree, folders[:at])
        root.xml_folder = "".join(f"{folder}/" for folder in folders[: at + 1])
        root.xmls[_below(file.key, at + 1 if inner else at)] = file
    elif is_class_mask(file.key):
        at = lower.index(_CLASS_FOLDER)
        _root(tree, folders[:at]).class_masks[_below(file.key, at + 1)] = file
    elif extension == "png" and _INSTANCE_FOLDER in lower:
        at = lower.index(_INSTANCE_FOLDER)
        _root(tree, folders[:at]).instance_masks[_below(file.key, at + 1)] = file
    elif is_image_name(name):
        tree.images.add(file)
        at = next((at for at, folder in enumerate(lower) if folder in _IMAGE_FOLDERS), len(folders))
        if at < len(folders) and folders[at] not in IMAGE_FOLDERS:
            _root(tree, folders[:at]).image_spellings[folders[at]] = None
    else:
        return False
    return True


def is_class_mask(key: str) -> bool:
    """Whether a file is a mask of classes by its folder and extension."""
    return extension_of(key) == "png" and _CLASS_FOLDER in key.lower().split("/")[:-1]


def _root(tree: VocTree, folders: list[str]) -> VocRoot:
    prefix = "".join(f"{folder}/" for folder in folders)
    return tree.roots.setdefault(prefix, VocRoot(prefix))


def _below(key: str, folders: int) -> str:
    return stem_of("/".join(key.split("/")[folders:]))
