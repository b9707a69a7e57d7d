"""Source `voc`: PASCAL VOC's trees, and others with its XML: boxes, and masks of classes and objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Failure,
    ImageRecord,
    JobError,
    MaskImage,
    Polygons,
)
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.image_index import (
    NO_IMAGE,
)
from recordmill.transforms.sources.names import (
    is_split_name,
    name_stem,
    normal_split,
    split_of_folders,
    stem_of,
)
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.voc.classes import (
    Colors,
    VocClasses,
    is_rgb_png,
    read_classes,
    voc_classes,
)
from recordmill.transforms.sources.voc.lists import BOTH, NO_SPLIT, ImageLists, read_lists
from recordmill.transforms.sources.voc.tree import (
    VocRoot,
    VocTree,
    holds_annotations,
    walk,
)
from recordmill.transforms.sources.voc.xml import VocAnnotation, box_around, read_voc_xml
from recordmill.transforms.storage.files import is_folder

_UNUSED = ("annotations", "image_column", "label_column", "label_pattern", "input_features", "mask_pattern")
_NOT_LISTED = "in no list of ImageSets"


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

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, *_UNUSED)
        check_selection(config)
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source voc reads a folder")
            is_any = holds_annotations(config)
        if not is_any:
            raise ValueError(
                f"--input is {config.input!r}: there is no XML in it, and no PNG in SegmentationClass/"
                f"{left_out(config)}"
            )

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            listing = _Listing(config)
            try:
                return tuple(sorted({split for root in listing.roots() for split in listing.splits(root)}))
            except BadInput as fault:
                raise ValueError(f"--input is {config.input!r}: {fault}") from fault

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        tree = walk(config)
        found = [("detection", tree.has_xml), ("segmentation", tree.has_class_masks)]
        return tuple(name for name, is_there in found if is_there)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Listing(config).items()


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """An image that is to be read.

    Attributes:
        name: path of its annotation below its folder, without extension.
        xml: or None where there is none.
        split: of the image.
        is_listed: there are lists of the splits.
        refusal: why it is not read: reason, detail, and whether that is on purpose.
    """

    name: str
    xml: TreeFile | None
    split: str | None
    is_listed: bool
    refusal: tuple[str, str, bool] | None


class _Listing:
    """What a tree holds, listed."""

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._tree: VocTree = walk(config)
        self._images = self._tree.images
        self._with_masks = "masks" in config.include_annotations
        self._masked_only = self._with_masks and self._tree.has_class_masks
        self._folder_splits = self._tree.folder_splits()

    def roots(self) -> list[VocRoot]:
        """The roots that have anything."""
        return list(self._tree.roots.values())

    def items(self) -> Iterator[Item]:
        """Walks the tree."""
        classes = self._classes()
        yield classes.names
        yield from self._tree.unread
        for root in self.roots():
            yield from _RootListing(self, root, classes.colors).items()
        reason = "image without a mask" if self._masked_only else "image without annotations"
        for key in self._images.unclaimed():
            excluded = not self._selection.takes(key)
            yield Failure(key, "list", EXCLUDED if excluded else reason, skipped=True)

    def _classes(self) -> VocClasses:
        """The classes that the files tell, the same in all folders; else VOC's."""
        files = sorted(self._tree.class_files.values())
        told = [read_classes(file.path, file.key) for file in files]
        for file, classes in zip(files[1:], told[1:], strict=True):
            if classes != told[0]:
                raise JobError(
                    f"{files[0].key!r} and {file.key!r} tell different classes; convert their folders apart"
                )
        return told[0] if told else voc_classes(self._tree.has_class_masks)

    def names(self, root: VocRoot) -> Iterator[tuple[str, TreeFile | None]]:
        """What becomes a record where its image is there: all with XML, or else with a mask."""
        if root.xmls and not self._masked_only:
            return iter(sorted(root.xmls.items()))
        masked = root.class_masks.keys() | (() if self._masked_only else root.instance_masks.keys())
        return ((name, root.xmls.get(name)) for name in sorted(masked))

    def lists(self, root: VocRoot) -> ImageLists | None:
        """The lists of the root, or None where there are none."""
        files = root.split_files(self._masked_only or not root.xmls)
        known = {*root.xmls, *root.class_masks, *root.instance_masks}
        lists = read_lists(files, known)
        return lists if lists.listed else None

    def splits(self, root: VocRoot) -> Iterator[str]:
        """The splits of what becomes a record."""
        lists = self.lists(root)
        for name, _ in self.names(root):
            split = self.split_of(root, name) if lists is None else lists.splits.get(name)
            if split not in (None, NO_SPLIT):
                yield split

    def split_of(self, root: VocRoot, name: str) -> str | None:
        """The split that the folders tell."""
        parts = (root.prefix + name).split("/")[:-1]
        return next((normal_split(part) for part in parts if part in self._folder_splits), None)

    def unread_list(self, root: VocRoot) -> str | None:
        """The key of a text file that is named like a split, and lies where no list is read."""
        inside = (one.key for one in self._tree.unread if one.skipped and one.key.startswith(root.prefix))
        texts = (key for key in inside if key.endswith(".txt") and self._selection.takes(key))
        return next((key for key in texts if name_stem(key) == BOTH or is_split_name(name_stem(key))), None)

    def masks_of(self, root: VocRoot, name: str, colors: dict[str, Colors]) -> dict[str, MaskImage]:
        """The masks of an image."""
        return {
            kind: MaskImage(files[name].ref, colors.get(kind, ()))
            for kind, files in root.masks()
            if name in files
        }

    def annotations(self, known: VocAnnotation | None, masks: dict[str, MaskImage]) -> Annotations:
        """What is known of an image."""
        if known is None:
            return Annotations(masks=masks)
        objects = known.objects if self._with_masks else tuple(map(_boxed, known.objects))
        return Annotations(objects=objects, masks=masks, size=known.size)

    def takes(self, key: str) -> bool:
        """Whether a record with this key is wanted."""
        return self._selection.takes(key)

    @property
    def tree(self) -> VocTree:
        """All files."""
        return self._tree


class _RootListing:
    """What one root holds."""

    def __init__(self, listing: _Listing, root: VocRoot, colors: Colors) -> None:
        self._listing = listing
        self._root = root
        self._images = listing.tree.images
        firsts = ((kind, files[min(files)].path) for kind, files in root.masks() if files)
        self._colors = {kind: _mask_colors(kind, colors) for kind, path in firsts if is_rgb_png(path)}

    def items(self) -> Iterator[Item]:
        """Records, and what is none."""
        try:
            lists = self._listing.lists(self._root)
        except BadInput as fault:
            raise JobError(str(fault)) from fault
        if lists is not None:
            yield from self._listed_in_vain(lists)
        elif (key := self._listing.unread_list(self._root)) is not None:
            raise JobError(
                f"{key!r} is named like the list of a split, and lists are read from ImageSets/Main/: move "
                "it there, with a name of an image a line, or leave it out with "
                f"{flag_with('--exclude', key)}"
            )
        yield from self._records(lists)
        yield from self._left()

    def _listed_in_vain(self, lists: ImageLists) -> Iterator[Failure]:
        """Of each entry of a list for which there is neither XML nor mask nor image."""
        root = self._root
        for name, key in sorted(lists.listed.items()):
            if name in root.xmls or name in root.class_masks or name in root.instance_masks:
                continue
            if self._image_by_stem(name) is None:
                yield Failure(f"{key}: {name}", "list", "listed and not there", f"{name!r} of {key}")

    def _left(self) -> Iterator[Failure]:
        """Of files of annotations that are of no image that is a record."""
        names = {name for name, _ in self._listing.names(self._root)}
        for name, xml in sorted(self._root.xmls.items()):
            if name not in names and self._image_by_stem(name) is None:
                yield Failure(xml.key, "annotations", NO_IMAGE)
        for _, masks in self._root.masks():
            for name, mask in sorted(masks.items()):
                if name not in names and self._image_by_stem(name) is None:
                    yield Failure(mask.key, "annotations", NO_IMAGE)

    def _image_by_stem(self, name: str) -> TreeFile | None:
        try:
            return self._images.find("", self._root.image_folders(name), name)
        except BadInput:
            return None

    def _image(self, name: str, named: TreeFile) -> TreeFile:
        """The image of an annotation: that of the same name, if any; `filename` is stale in copied XML."""
        stem = name.rpartition("/")[2]
        if stem_of(named.key.rpartition("/")[2]) == stem:
            return named
        return self._image_by_stem(name) or named

    def _unread(self, name: str, reason: str, detail: str = "", skipped: bool = False) -> Failure:
        """Of an image whose annotations are not read, or cannot be."""
        image, file = self._image_by_stem(name), self._file(name)
        key = file.key
        if image is not None:
            try:
                self._images.claim(image, file.key)
                key = image.key
            except BadInput:
                pass
        if key != file.key and not self._listing.takes(key):
            return Failure(key, "list", EXCLUDED, skipped=True)
        return Failure(key, "list" if skipped else "annotations", reason, detail, skipped)

    def _file(self, name: str) -> TreeFile:
        files = (self._root.xmls, self._root.class_masks, self._root.instance_masks)
        return next(some[name] for some in files if name in some)

    def _found(self, lists: ImageLists | None) -> Iterator[_Found]:
        for name, xml in self._listing.names(self._root):
            split, refusal = None, None
            if lists is None:
                split = self._listing.split_of(self._root, name)
            elif name in lists.several:
                detail = f"{', '.join(lists.several[name])}; delete all but one"
                refusal = ("in several lists of ImageSets", detail, False)
            elif (split := lists.splits.get(name)) is None:
                refusal = (_NOT_LISTED, "", True)
            elif split == NO_SPLIT:
                split = None
            yield _Found(name, xml if refusal is None else None, split, lists is not None, refusal)

    def _records(self, lists: ImageLists | None) -> Iterator[Item]:
        for found, data in read_files((found, found.xml) for found in self._found(lists)):
            if found.refusal is not None:
                yield self._unread(found.name, *found.refusal)
                continue
            try:
                if isinstance(data, BadInput):
                    raise data
                known = None if found.xml is None else read_voc_xml(data)
            except BadInput as fault:
                yield self._unread(found.name, fault.reason, f"{self._file(found.name).key}: {fault.detail}")
                continue
            yield self._record(found, known)

    def _record(self, found: _Found, known: VocAnnotation | None) -> Item:
        file = self._file(found.name)
        filename, folder = ("", "") if known is None else (known.filename, known.folder)
        places = self._root.image_folders(found.name, folder)
        try:
            image = self._image(found.name, self._images.find(filename, places, found.name))
            self._images.claim(image, file.key)
        except BadInput as fault:
            return fault.failure(file.key)
        if not self._listing.takes(image.key):
            return Failure(image.key, "list", EXCLUDED, skipped=True)
        masks = self._listing.masks_of(self._root, found.name, self._colors)
        annotations = self._listing.annotations(known, masks)
        split = found.split if found.is_listed else found.split or split_of_folders(image.key)
        return ImageRecord(image.key, image.ref, split, annotations, file.key, image.size)


def _mask_colors(kind: str, colors: Colors) -> Colors:
    return colors if kind == "class" else voc_classes(has_masks=True).colors


def _boxed(one: AnnotatedObject) -> AnnotatedObject:
    """An object without its mask, which is not asked for."""
    if not one.mask:
        return one
    polygons: Polygons = one.mask if isinstance(one.mask, tuple) else ()
    return msgspec.structs.replace(one, box=one.box or box_around(polygons), mask=None)
