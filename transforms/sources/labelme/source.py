"""Source `labelme`: the JSON of LabelMe, and the XML of the older web tool."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.annotated_tree import (
    AnnotatedTree,
    FileAnnotations,
    check_has,
    parsed,
    split_folders,
    split_in,
)
from recordmill.transforms.sources.class_tables import same_classes
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.labelme.annotation_files import (
    decoded,
    read_labelme_json,
    read_labelme_xml,
)
from recordmill.transforms.sources.names import (
    extension_of,
    folder_of,
    is_image_name,
    name_stem,
    normal_split,
    stem_of,
)
from recordmill.transforms.sources.pairs import ORPHAN
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.spool import Spool

_MAX_BYTES = 256 << 20  # of a file, including its image
_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp"}
_CLASS_FILES = ("labels.txt", "class_names.txt")
_ANNOTATIONS = "Annotations"


class LabelmeSource(Source):
    """Lists the images of a LabelMe tree."""

    name = "labelme"
    description = Description(
        reads="LabelMe's `.json`, with the image next to it or in it; the web tool's XML in `Annotations/`, "
        "without the objects deleted there",
        label="`label` of each shape; the flags of an image that are set",
        split="folders, when all that hold annotations are named like a split",
        key="path of the image below the input",
        example="photos/\n  1.jpg\n  1.json\n  2.jpg\n  2.json",
        annotations=("masks",),
    )
    searches_roots = True
    needs_folder = True

    def check_input(self, config: SourceConfig) -> None:
        check_has(config, _is_annotation, ".json and no .xml in it")

    def splits(self, config: SourceConfig) -> Iterable[str]:
        return map(normal_split, _LabelmeTree(config).splits)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("detection",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        tree = _LabelmeTree(config)
        name = repr(dataclasses.replace(config, skip_dirs=()))  # other flags spool other images
        with Spool(scratch, name, tree.version()) as spool:
            yield from tree.items(spool)


class _LabelmeTree(AnnotatedTree):
    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self._with_masks = "masks" in config.include_annotations
        self._annotations: list[TreeFile] = []
        self._masks: dict[str, TreeFile] = {}  # of the web tool
        self._used_masks: set[str] = set()
        self.walk()
        keys = [file.key for file in self._annotations]
        # folders of splits in the input, or in Annotations/
        self.splits = split_folders(keys, (key.rpartition(f"{_ANNOTATIONS}/")[2] for key in keys))

    def add(self, file: TreeFile) -> str | None:
        *folders, name = file.key.split("/")
        is_png = extension_of(name) == "png"
        if _is_annotation(name):
            self._annotations.append(file)
        elif name in _CLASS_FILES:
            self.class_files[file.key] = file
        elif is_png and "Scribbles" in folders:
            return "scribbles are not read"
        elif is_png and "Masks" in folders:
            self._masks[file.key] = file
        else:
            return super().add(file)
        return None

    def version(self) -> int:
        """A number that changes with the annotations, and with the names of the images."""
        digest = hashlib.sha256()
        annotations = ((file.key, file.size, file.version) for file in self._annotations)
        for one in itertools.chain(annotations, self.image_keys()):
            digest.update(repr(one).encode())
        return int.from_bytes(digest.digest()[:7], "big")

    def items(self, spool: Spool) -> Items:
        if (classes := same_classes([*self.class_files.values()])) is not None:
            yield ClassNames(classes.names)
        yield from self.unread
        for file, data in read_files(((file, file) for file in self._annotations), _MAX_BYTES):
            yield from self._file_items(file, data, spool)
        yield from self.unclaimed("image without annotations")
        reason = "mask of no object" if self._with_masks else "masks are not asked for"
        for key in sorted(self._masks.keys() - self._used_masks):
            yield Failure(key, "list", reason, skipped=True)

    def _file_items(self, file: TreeFile, data: bytes | BadInput, spool: Spool) -> Items:
        is_json = extension_of(file.key) == "json"
        read_json = functools.partial(read_labelme_json, with_masks=self._with_masks)
        try:
            found = parsed(file, data, read_json if is_json else read_labelme_xml)
        except BadInput as fault:
            above, below = _web_folders(file.key)
            folders = (folder_of(file.key), f"{above}Images/{below}")
            key = self.key_of_unread(file, folders, name_stem(file.key))
            yield self.selection.item(key, functools.partial(fault.failure, key))
            return
        try:
            item = self._item(file, found, is_json, spool)
        except BadInput as fault:
            yield fault.failure(fault.key or file.key)
            return
        yield item
        if isinstance(item, ImageRecord):
            for number, reason, detail in found.left:
                yield Failure(f"{file.key}:shape {number}", "annotations", reason, detail, skipped=True)

    def _item(
        self, file: TreeFile, found: FileAnnotations, is_json: bool, spool: Spool
    ) -> ImageRecord | Failure:
        above, below = _web_folders(file.key)
        folders = [folder_of(file.key)]
        if not is_json:
            folders = [f"{above}Images/{below}", f"{above}Images/{found.image_folder}", *folders]
        image = None
        try:
            image = self.find(found.filename, folders, name_stem(file.key))
        except BadInput:
            if found.image_data is None:
                raise
        objects = tuple(self._stored(one, f"{above}Masks/{below}") for one in found.objects)
        annotations = Annotations(found.labels, objects=objects, size=found.size, upright=is_json)
        split = split_in(file.key, self.splits)
        if image is not None:
            return self.record(image, file, split, annotations)
        data = decoded(found.image_data or "")
        extension = extension_of(found.filename.replace("\\", "/"))
        if not is_image_name(f"x.{extension}"):
            extension = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "png")
        key = f"{stem_of(file.key)}.{extension}"
        if not data:
            raise BadInput("annotations", ORPHAN, "its imageData is empty", key)
        return self.selection.item(
            key, lambda: ImageRecord(key, spool.add(data), split, annotations, file.key, len(data))
        )

    def _stored(self, one: AnnotatedObject, folder: str) -> AnnotatedObject:
        """The object with its mask if masks are included, or else with its box."""
        if not self._with_masks:
            return msgspec.structs.replace(one, mask=None)
        if not isinstance(one.mask, ImageRef):
            return msgspec.structs.replace(one, box=None)
        key = folder + one.mask.uri
        if key not in self._masks:
            raise BadInput("annotations", "mask not found", key)
        self._used_masks.add(key)
        return msgspec.structs.replace(one, mask=self._masks[key].ref)


def _is_annotation(key: str) -> bool:
    return extension_of(key) in ("json", "xml")


def _web_folders(key: str) -> tuple[str, str]:
    """For an XML file: the folder that contains Annotations/, and the file's folder below that."""
    above, found, below = f"/{folder_of(key)}".partition(f"/{_ANNOTATIONS}/")
    return (f"{above}/".lstrip("/"), below) if found else (folder_of(key), "")
