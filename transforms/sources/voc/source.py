"""Source `voc`: PASCAL VOC's trees, and others with its XML: boxes, and masks of classes and objects."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Container, Iterable, Iterator

import msgspec

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    JobError,
    MaskImage,
)
from recordmill.transforms.sources.annotated_tree import (
    IMAGE_FOLDERS,
    AnnotatedTree,
    FileAnnotations,
    box_around,
    check_has,
    parsed,
    split_folders,
    split_in,
)
from recordmill.transforms.sources.class_tables import Colors, same_classes, voc_classes, voc_colors
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    extension_of,
    folder_of,
    is_image_name,
    is_split_name,
    name_stem,
    normal_split,
    skipped,
    split_of_folders,
    stem_of,
)
from recordmill.transforms.sources.pairs import ORPHAN
from recordmill.transforms.sources.selection import EXCLUDED
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.voc.xml import read_voc_xml
from recordmill.transforms.storage.files import open_file

_PNG = b"\x89PNG\r\n\x1a\n"
_NO_SPLIT = "default"  # the list in a task without splits, as CVAT and Datumaro name it
_BOTH = "trainval"
_XML_FOLDERS = ("annotations", "annotation", "xmls", "xml", "labels")
_IMAGE_FOLDERS = frozenset(map(str.lower, IMAGE_FOLDERS))
_MASK_FOLDERS = {"segmentationclass": "class", "segmentationobject": "instance"}
_CLASS_FILES = ("labelmap.txt", "class_names.txt")
_SECOND_COLUMN = re.compile(r"(.*\S)\s+[+-]?[0-9]+")
_IN_FOLDER = re.compile(rf"(?:.*/)?(?:{'|'.join(IMAGE_FOLDERS)}|Annotations)/(.*)", re.IGNORECASE)


class VocSource(Source):
    """Lists the images of a VOC tree."""

    name = "voc"
    description = Description(
        reads="VOC's XML in `Annotations/`, or next to the images; PNGs in `SegmentationClass/` and "
        "`SegmentationObject/`; `labelmap.txt`, `class_names.txt`",
        label="`name` of each object; the masks",
        split="the lists in `ImageSets/Main/`; otherwise folders named like splits",
        key="path of the image below the input",
        example="VOC2012/\n  Annotations/\n    2007_000027.xml\n  ImageSets/\n    Main/\n      train.txt\n"
        "  JPEGImages/\n    2007_000027.jpg\n  SegmentationClass/\n    2007_000027.png",
        annotations=("masks",),
    )
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        check_has(config, _is_annotation, "XML in it, and no PNG in SegmentationClass/")

    def splits(self, config: SourceConfig) -> Iterable[str | None]:
        return _VocTree(config).splits()

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        tree = _VocTree(config)
        has_xml = any(root.xmls for root in tree.roots)
        return ("detection",) * has_xml + ("segmentation",) * tree.has_class_masks

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _VocTree(config).items()


@dataclasses.dataclass(slots=True)
class _Root:
    """A folder such as VOC2012/. Names of files are paths in Annotations/ and so on, without extension."""

    prefix: str  # key of the folder: empty, or ending in `/`
    xmls: dict[str, TreeFile] = dataclasses.field(default_factory=dict)
    masks: dict[str, dict[str, TreeFile]] = dataclasses.field(
        default_factory=lambda: {kind: {} for kind in _MASK_FOLDERS.values()}
    )
    lists: dict[str, list[TreeFile]] = dataclasses.field(default_factory=dict)  # by folder in ImageSets
    image_spellings: dict[str, None] = dataclasses.field(default_factory=dict)  # of `IMAGE_FOLDERS`
    xml_folder: str = ""
    # by image in the lists: the first split and its list; all splits, if there are several
    listed: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    several: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def files(self, name: str) -> list[TreeFile]:
        """The XML and the masks of an image."""
        return [files[name] for files in (self.xmls, *self.masks.values()) if name in files]

    def names(self, masked_only: bool) -> list[str]:
        """The names of the images to convert: those with XML, or else with a mask."""
        if self.xmls and not masked_only:
            return sorted(self.xmls)
        return sorted(self.masks["class"].keys() | (() if masked_only else self.masks["instance"].keys()))

    def image_folders(self, name: str, folder: str = "") -> tuple[str, ...]:
        """The folders in which an image may lie; `folder` is the one in its XML."""
        found = [f"{self.prefix}{one}/" for one in (*IMAGE_FOLDERS, *self.image_spellings)]
        if folder:
            found.insert(0, self.prefix + folder)
        found += [self.xml_folder, self.prefix]
        return tuple(dict.fromkeys(one for start in found for one in (start + folder_of(name), start)))

    def read_lists(self, masked_only: bool) -> None:
        """Reads the lists in Main, or in Segmentation for masks. Raises JobError if one cannot be read."""
        order = ("segmentation", "main") if masked_only or not self.xmls else ("main", "segmentation")
        found = (_of_splits(self.lists.get(one, [])) for one in (*order, "layout", "action", ""))
        lists = next(filter(None, found), {})
        # trainval, which holds two splits, comes last
        ranked = sorted(lists, key=lambda name: (name == _BOTH, not is_split_name(name), name))
        names = {*self.xmls, *self.masks["class"], *self.masks["instance"]}
        for name, data in read_files((name, lists[name]) for name in ranked if lists[name].size):
            key, split = lists[name].key, normal_split(name)
            try:
                if isinstance(data, BadInput):
                    raise JobError(f"{key!r} cannot be read: {data.reason} ({data.detail})")
                lines = data.decode("utf-8-sig").splitlines()
            except UnicodeDecodeError as error:
                raise JobError(f"{key!r} is not UTF-8: {error}") from error
            for image in _images(lines, names):
                first, _ = self.listed.setdefault(image, (split, key))
                if first != split and is_split_name(split):
                    self.several[image] = (*self.several.get(image, (first,)), split)

    def list_fault(self, name: str) -> BadInput | None:
        if name in self.several:
            detail = f"{', '.join(self.several[name])}; delete all but one"
            return BadInput("annotations", "in several lists of ImageSets", detail)
        if self.listed and name not in self.listed:
            return BadInput("list", "in no list of ImageSets")
        return None


class _VocTree(AnnotatedTree):
    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._roots: dict[str, _Root] = {}
        self.walk(config)
        self.roots = [self._roots[prefix] for prefix in sorted(self._roots)]
        self.has_class_masks = any(root.masks["class"] for root in self.roots)
        self._with_masks = "masks" in config.include_annotations
        self._masked_only = self._with_masks and self.has_class_masks
        files = [(root.prefix, name) for root in self.roots for name in root.xmls or root.masks["class"]]
        self._folder_splits = split_folders((prefix for prefix, _ in files), (name for _, name in files))

    def add(self, file: TreeFile) -> str | None:
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
            return super().add(file)
        return None

    def _root_at(self, folders: list[str]) -> _Root:
        prefix = "".join(f"{folder}/" for folder in folders)
        return self._roots.setdefault(prefix, _Root(prefix))

    def splits(self) -> Iterator[str | None]:
        """The splits of the images. Raises JobError if a list cannot be read."""
        for root in self.roots:
            root.read_lists(self._masked_only)
            splits = (self._split(root, name) for name in root.names(self._masked_only))
            yield from (split for split in splits if split != _NO_SPLIT)

    def items(self) -> Items:
        table = same_classes([*self.class_files.values()])
        classes = table or voc_classes(self.has_class_masks)
        yield ClassNames(classes.names, optional=table is None)
        yield from self.unread
        for root in self.roots:
            yield from self._root_items(root, classes.colors)
        wanted = "a mask" if self._masked_only else "annotations"
        yield from self.unclaimed(f"image without {wanted}")

    def _root_items(self, root: _Root, class_colors: Colors) -> Items:
        root.read_lists(self._masked_only)
        if not root.listed:
            self._refuse_misplaced_list(root)
        for name, (_, key) in sorted(root.listed.items()):
            if not root.files(name) and self._image_of(root, name) is None:
                yield Failure(f"{key}: {name}", "list", "listed and not there", f"{name!r} of {key}")
        colors = {
            kind: class_colors if kind == "class" else voc_colors()
            for kind, files in root.masks.items()
            if files and _is_rgb_png(files[min(files)].path)
        }
        names = root.names(self._masked_only)
        wanted = ((name, None if root.list_fault(name) else root.xmls.get(name)) for name in names)
        for name, data in read_files(wanted):
            masks = {
                kind: MaskImage(files[name].ref, colors.get(kind, ()))
                for kind, files in root.masks.items()
                if name in files
            }
            yield self._item(root, name, data, masks)
        used = set(names)
        for files in (root.xmls, *root.masks.values()):
            for name, file in sorted(files.items()):
                if name not in used and self._image_of(root, name) is None:
                    yield Failure(file.key, "annotations", ORPHAN)

    def _refuse_misplaced_list(self, root: _Root) -> None:
        for one in self.unread:
            stem = name_stem(one.key)
            is_list = one.skipped and one.key.endswith(".txt") and (stem == _BOTH or is_split_name(stem))
            if is_list and one.key.startswith(root.prefix) and self.selection.takes(one.key):
                raise JobError(
                    f"{one.key!r} is named like the list of a split, but lists are read from "
                    "ImageSets/Main/: move it there, with one image name per line, or exclude it with "
                    f"{flag_with('--exclude', one.key)}"
                )

    def _item(self, root: _Root, name: str, data: bytes | BadInput, masks: dict[str, MaskImage]) -> Item:
        file, found = root.files(name)[0], FileAnnotations()
        try:
            if fault := root.list_fault(name):
                raise fault
            if name in root.xmls:
                found = parsed(file, data, read_voc_xml)
        except BadInput as fault:
            key = self.key_of_unread(file, root.image_folders(name), name)
            if key != file.key and not self.selection.takes(key):
                return skipped(key, EXCLUDED)
            return Failure(key, fault.stage, fault.reason, fault.detail, skipped=fault.stage == "list")
        objects = found.objects if self._with_masks else tuple(map(_boxed, found.objects))
        annotations = Annotations(objects=objects, masks=masks, size=found.size)
        try:
            image = self.find(found.filename, root.image_folders(name, found.image_folder), name)
            if name_stem(image.key) != name.rpartition("/")[2]:  # copied XML has the `filename` of another
                image = self._image_of(root, name) or image
            split = self._split(root, name) or split_of_folders(image.key)
            return self.record(image, file, None if split == _NO_SPLIT else split, annotations)
        except BadInput as fault:
            return fault.failure(file.key)

    def _image_of(self, root: _Root, name: str) -> TreeFile | None:
        with contextlib.suppress(BadInput):
            return self.find("", root.image_folders(name), name)
        return None

    def _split(self, root: _Root, name: str) -> str | None:
        """The split of an image in the lists; without lists, in the folders of its annotations."""
        if root.listed:
            return root.listed[name][0] if name in root.listed else None
        return split_in(root.prefix + name, self._folder_splits)


def is_class_mask(key: str) -> bool:
    """Whether a file is a mask of classes, by its folder and extension."""
    return _mask_folder(key) == "segmentationclass"


def _is_annotation(key: str) -> bool:
    return extension_of(key) == "xml" or _mask_folder(key) is not None


def _mask_folder(key: str) -> str | None:
    folders = key.lower().split("/")[:-1] if extension_of(key) == "png" else ()
    return next((folder for folder in _MASK_FOLDERS if folder in folders), None)


def _below(key: str, folders: int) -> str:
    return stem_of("/".join(key.split("/")[folders:]))


def _of_splits(files: Iterable[TreeFile]) -> dict[str, TreeFile]:
    """The lists of splits by name, without lists of one class such as `cow_train.txt`."""
    named = {name_stem(file.key): file for file in files}
    ends = named.keys() | {_BOTH, "train", "val", "test"}
    return {
        name: file for name, file in named.items() if "_" not in name or name.rpartition("_")[2] not in ends
    }


def _images(lines: Iterable[str], names: Container[str]) -> Iterator[str]:
    """The names of the images in a list, which may have a second column."""
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line not in names and (match := _SECOND_COLUMN.fullmatch(line)):
            line = match[1]
        line = line.strip('"')
        if line not in names and is_image_name(line):
            line = stem_of(line)
        if line not in names and (match := _IN_FOLDER.fullmatch(line)):
            line = match[1]
        yield line


def _boxed(one: AnnotatedObject) -> AnnotatedObject:
    """The object with a box instead of its mask."""
    if not isinstance(one.mask, tuple):  # polygons
        return one
    return msgspec.structs.replace(one, box=one.box or box_around(one.mask), mask=None)


def _is_rgb_png(path: str) -> bool:
    """Whether a PNG has colours and not ids; False if it is broken."""
    with open_file(path) as stream:
        head = stream.read(33)
    return len(head) == 33 and head.startswith(_PNG) and head[25] in (2, 6)
