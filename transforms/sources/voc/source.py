"""Source `voc`: PASCAL VOC's trees, and others with its XML: boxes, and masks of classes and objects."""

from __future__ import annotations

import msgspec

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Failure,
    JobError,
    MaskImage,
    Polygons,
)
from recordmill.transforms.sources.annotated_tree import NO_IMAGE, box_around, parsed, split_in
from recordmill.transforms.sources.class_tables import Colors, same_classes, voc_classes, voc_colors
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import is_split_name, name_stem, skipped, split_of_folders
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import EXCLUDED
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.voc.tree import BOTH, NO_SPLIT, ImageLists, VocRoot, VocTree
from recordmill.transforms.sources.voc.xml import read_voc_xml
from recordmill.transforms.storage.files import open_file

_PNG = b"\x89PNG\r\n\x1a\n"


class VocSource(Source):
    """Lists the images of a VOC tree."""

    name = "voc"
    description = Description(
        reads="VOC's XML in `Annotations/`, or beside the images; PNGs in `SegmentationClass/` and "
        "`SegmentationObject/`; `labelmap.txt`, `class_names.txt`",
        label="`name` of each object; the masks",
        split="the lists in `ImageSets/Main/`, else folders named like a split",
        key="path of the image below the input",
        example="VOC2012/\n  Annotations/\n    2007_000027.xml\n  ImageSets/\n    Main/\n      train.txt\n"
        "  JPEGImages/\n    2007_000027.jpg\n  SegmentationClass/\n    2007_000027.png",
        annotations=("masks",),
    )
    flags = ()
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        if not VocTree(config).holds_annotations():
            raise ValueError(
                f"--input is {config.input!r}: there is no XML in it, and no PNG in SegmentationClass/"
                f"{left_out(config)}"
            )

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            try:
                return _Listing(config).split_names()
            except BadInput as fault:
                raise ValueError(f"--input is {config.input!r}: {fault}") from fault

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        tree = VocTree(config)
        tree.walk()
        found = (("detection", tree.has_xml), ("segmentation", tree.has_class_masks))
        return tuple(name for name, is_there in found if is_there)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Listing(config).items()


class _Listing:
    """Lists a tree."""

    def __init__(self, config: SourceConfig) -> None:
        self._tree = VocTree(config)
        self._tree.walk()
        self._with_masks = "masks" in config.include_annotations
        self._masked_only = self._with_masks and self._tree.has_class_masks
        self._folder_splits = self._tree.folder_splits()

    def split_names(self) -> tuple[str, ...]:
        """The splits of the images to convert. Raises BadInput if a list cannot be read."""
        found = set()
        for root in self._tree.roots:
            lists = root.read_lists(self._masked_only)
            for name in root.names(self._masked_only):
                found.add(self._folder_split(root, name) if lists is None else lists.splits.get(name))
        return tuple(sorted(filter(None, found - {NO_SPLIT})))

    def items(self) -> Items:
        """The classes, the records, and what is not converted."""
        classes = same_classes([*self._tree.class_files.values()]) or voc_classes(self._tree.has_class_masks)
        yield classes.names
        yield from self._tree.unread
        for root in self._tree.roots:
            yield from self._root_items(root, classes.colors)
        yield from self._tree.unclaimed(
            "image without a mask" if self._masked_only else "image without annotations"
        )

    def _root_items(self, root: VocRoot, class_colors: Colors) -> Items:
        try:
            lists = root.read_lists(self._masked_only)
        except BadInput as fault:
            raise JobError(str(fault)) from fault
        if lists is None:
            self._refuse_misplaced_list(root)
        for name, key in sorted(lists.listed.items()) if lists is not None else ():
            if name not in root and self._image(root, name) is None:
                yield Failure(f"{key}: {name}", "list", "listed and not there", f"{name!r} of {key}")
        colors = {
            kind: class_colors if kind == "class" else voc_colors()
            for kind, files in root.masks.items()
            if files and _is_rgb_png(files[min(files)].path)
        }
        names = root.names(self._masked_only)
        used = set(names)
        read = used if lists is None else lists.splits.keys() - lists.several.keys()
        wanted = ((name, root.xmls.get(name) if name in read else None) for name in names)
        for name, data in read_files(wanted):
            masks = {
                kind: MaskImage(files[name].ref, colors.get(kind, ()))
                for kind, files in root.masks.items()
                if name in files
            }
            yield self._item(root, name, data, lists, masks)
        for files in (root.xmls, *root.masks.values()):
            for name, file in sorted(files.items()):
                if name not in used and self._image(root, name) is None:
                    yield Failure(file.key, "annotations", NO_IMAGE)

    def _refuse_misplaced_list(self, root: VocRoot) -> None:
        for one in self._tree.unread:
            stem = name_stem(one.key)
            is_list = one.skipped and one.key.endswith(".txt") and (stem == BOTH or is_split_name(stem))
            if is_list and one.key.startswith(root.prefix) and self._tree.selection.takes(one.key):
                raise JobError(
                    f"{one.key!r} is named like the list of a split, and lists are read from "
                    "ImageSets/Main/: move it there, with a name of an image a line, or leave it out with "
                    f"{flag_with('--exclude', one.key)}"
                )

    def _item(
        self,
        root: VocRoot,
        name: str,
        data: bytes | BadInput,
        lists: ImageLists | None,
        masks: dict[str, MaskImage],
    ) -> Item:
        file = root.file(name)
        split = self._folder_split(root, name) if lists is None else lists.splits.get(name)
        found = None
        try:
            if lists is not None and name in lists.several:
                detail = f"{', '.join(lists.several[name])}; delete all but one"
                raise BadInput("annotations", "in several lists of ImageSets", detail)
            if lists is not None and split is None:
                raise BadInput("list", "in no list of ImageSets")
            if name in root.xmls:
                found = parsed(file, data, read_voc_xml)
        except BadInput as fault:
            key = self._tree.key_of_unread(file, root.image_folders(name), name)
            if key != file.key and not self._tree.selection.takes(key):
                return skipped(key, EXCLUDED)
            return Failure(key, fault.stage, fault.reason, fault.detail, skipped=fault.stage == "list")
        annotations = Annotations(masks=masks)
        filename, folder = "", ""
        if found is not None:
            filename, folder = found.filename, found.folder
            objects = found.objects if self._with_masks else tuple(map(_boxed, found.objects))
            annotations = Annotations(objects=objects, masks=masks, size=found.size)
        try:
            image = self._tree.find(filename, root.image_folders(name, folder), name)
            if name_stem(image.key) != name.rpartition("/")[2]:  # copied XML has the `filename` of another
                image = self._image(root, name) or image
            if lists is None:
                split = split or split_of_folders(image.key)
            return self._tree.record(image, file, None if split == NO_SPLIT else split, annotations)
        except BadInput as fault:
            return fault.failure(file.key)

    def _image(self, root: VocRoot, name: str) -> TreeFile | None:
        try:
            return self._tree.find("", root.image_folders(name), name)
        except BadInput:
            return None

    def _folder_split(self, root: VocRoot, name: str) -> str | None:
        return split_in(root.prefix + name, self._folder_splits)


def _boxed(one: AnnotatedObject) -> AnnotatedObject:
    """An object without its mask."""
    if not one.mask:
        return one
    polygons: Polygons = one.mask if isinstance(one.mask, tuple) else ()
    return msgspec.structs.replace(one, box=one.box or box_around(polygons), mask=None)


def _is_rgb_png(path: str) -> bool:
    """Whether a PNG has colours, not ids; one that cannot be read has none."""
    with open_file(path) as stream:
        head = stream.read(33)
    return len(head) == 33 and head.startswith(_PNG) and head[25] in (2, 6)
