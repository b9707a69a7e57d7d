"""Source `labelme`: the JSON of LabelMe, and the XML of the older web tool of that name."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    ClassNames,
    Failure,
    ImageRecord,
    JobError,
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
from recordmill.transforms.sources.labelme.labelme_json import LabelmeAnnotation, decoded, read_labelme_json
from recordmill.transforms.sources.labelme.tree import (
    LabelmeTree,
    holds_annotations,
    walk,
    web_folders,
)
from recordmill.transforms.sources.labelme.web_xml import (
    WebAnnotation,
    WebObject,
    read_labelme_xml,
)
from recordmill.transforms.sources.names import extension_of, folder_of, is_image_name, normal_split, stem_of
from recordmill.transforms.sources.outline import left_out
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
    limited,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.voc.classes import read_classes
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.spool import Spool

_UNUSED = ("annotations", "image_column", "label_column", "label_pattern", "input_features", "mask_pattern")
_MAX_BYTES = 256 << 20  # of a file, with its image in it
_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp"}


class LabelmeSource(Source):
    """Lists the images of a LabelMe tree."""

    name = "labelme"
    description = Description(
        reads="LabelMe's `.json`, with the image beside or in it; the web tool's XML in `Annotations/`, "
        "without the objects deleted there",
        label="`label` of each shape; the flags of an image that are set",
        split="folders, when all that hold annotations are named like a split",
        key="path of the image below the input",
        example="photos/\n  1.jpg\n  1.json\n  2.jpg\n  2.json",
        annotations=("masks",),
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, *_UNUSED)
        check_selection(config)
        with readable("--input", config.input):
            if not is_folder(config.input):
                raise ValueError(f"--input is {config.input!r}, a file; --source labelme reads a folder")
            if not holds_annotations(config):
                links = left_out(config)
                raise ValueError(f"--input is {config.input!r}: there is no .json and no .xml in it{links}")

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            return tuple(sorted(set(map(normal_split, walk(config).splits()))))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("detection",)

    def read(self, config: SourceConfig, scratch: str, part: Any = None) -> Iterator[Item]:
        tree = walk(config)
        # around the limit: what is spooled has to be put in its place there too
        told = repr(dataclasses.replace(config, skip_dirs=()))  # other flags spool other images
        with Spool(scratch, told, tree.version) as spool:
            yield from limited(_Listing(config, tree, spool).items(), config.limit)


class _Listing:
    """What a tree holds, listed."""

    def __init__(self, config: SourceConfig, tree: LabelmeTree, spool: Spool) -> None:
        self._selection = Selection(config)
        self._tree = tree
        self._images = tree.images
        self._spool = spool
        self._with_masks = "masks" in config.include_annotations
        self._splits = tree.splits()
        self._used_masks: set[str] = set()

    def items(self) -> Items:
        """Records, and what is none."""
        if (classes := self._classes()) is not None:
            yield classes
        yield from self._tree.unread
        for file, data in read_files(((file, file) for file in self._tree.annotations), _MAX_BYTES):
            yield from self._file_items(file, data)
        for key in self._images.unclaimed():
            excluded = not self._selection.takes(key)
            yield Failure(key, "list", EXCLUDED if excluded else "image without annotations", skipped=True)
        reason = "mask of no object" if self._with_masks else "masks are not asked for"
        for key in sorted(self._tree.masks.keys() - self._used_masks):
            yield Failure(key, "list", reason, skipped=True)

    def _classes(self) -> ClassNames | None:
        files = self._tree.class_files
        told = [read_classes(file.path, file.key).names for file in files]
        for file, names in zip(files[1:], told[1:], strict=True):
            if names != told[0]:
                raise JobError(
                    f"{files[0].key!r} and {file.key!r} tell different classes; convert their folders apart"
                )
        return told[0] if told else None

    def _file_items(self, file: TreeFile, data: bytes | BadInput) -> Iterator[Item]:
        try:
            if isinstance(data, BadInput):
                raise data
            is_json = extension_of(file.key) == "json"
            known = read_labelme_json(data, self._with_masks) if is_json else read_labelme_xml(data)
        except BadInput as fault:
            yield self._unread(file, fault)
            return
        try:
            if isinstance(known, WebAnnotation):
                yield self._web_record(file, known)
                return
            record = self._record(file, known)
        except BadInput as fault:
            yield fault.failure(fault.key or file.key)
            return
        yield record
        if isinstance(record, ImageRecord):
            for number, reason, detail in known.left:
                yield Failure(f"{file.key}:shape {number}", "annotations", reason, detail, skipped=True)

    def _unread(self, file: TreeFile, fault: BadInput) -> Failure:
        """Of annotations that cannot be read: that of their image, where it is there."""
        above, below = web_folders(file.key)
        folders = (folder_of(file.key), f"{above}Images/{below}")
        key = file.key
        with contextlib.suppress(BadInput):
            image = self._images.find("", folders, _stem(file))
            self._images.claim(image, file.key)
            key = image.key
        if not self._selection.takes(key):
            return Failure(key, "list", EXCLUDED, skipped=True)
        return Failure(key, fault.stage, fault.reason, f"{file.key}: {fault.detail}")

    def _record(self, file: TreeFile, known: LabelmeAnnotation) -> ImageRecord | Failure:
        annotations = Annotations(known.labels, objects=known.objects, size=known.size, upright=True)
        try:
            image = self._images.find(known.image_path, (folder_of(file.key),), _stem(file))
        except BadInput as fault:
            if known.image_data is None:
                raise fault
            return self._embedded(file, known, annotations)
        return self._of_image(file, image, annotations)

    def _embedded(
        self, file: TreeFile, known: LabelmeAnnotation, annotations: Annotations
    ) -> ImageRecord | Failure:
        data = decoded(known.image_data or "")
        named = extension_of(known.image_path.replace("\\", "/"))
        told = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "png")
        key = f"{stem_of(file.key)}.{named if is_image_name(f'x.{named}') else told}"
        if not data:
            raise BadInput("annotations", NO_IMAGE, "its imageData is empty", key)
        if not self._selection.takes(key):
            return Failure(key, "list", EXCLUDED, skipped=True)
        ref = self._spool.add(data)
        return ImageRecord(key, ref, self._split(file), annotations, file.key, len(data))

    def _web_record(self, file: TreeFile, known: WebAnnotation) -> ImageRecord | Failure:
        above, below = web_folders(file.key)
        inner = known.folder.replace("\\", "/").strip("/")
        safe = f"{inner}/" if inner and ".." not in inner.split("/") else ""
        folders = [f"{above}Images/{below}", f"{above}Images/{safe}", folder_of(file.key)]
        image = self._images.find(known.filename, folders, _stem(file))
        masks = f"{above}Masks/{below}"
        objects = tuple(self._web_object(one, masks) for one in known.objects)
        return self._of_image(file, image, Annotations(objects=objects, size=known.size))

    def _web_object(self, one: WebObject, folder: str) -> AnnotatedObject:
        if not self._with_masks:
            return msgspec.structs.replace(one.shape, mask=None)
        if one.shape.mask is not None:
            return msgspec.structs.replace(one.shape, box=None)
        mask = self._tree.masks.get(folder + one.mask_file)
        if mask is None:
            raise BadInput("annotations", "mask not found", f"{folder}{one.mask_file}")
        self._used_masks.add(mask.key)
        return msgspec.structs.replace(one.shape, mask=mask.ref)

    def _of_image(self, file: TreeFile, image: TreeFile, annotations: Annotations) -> ImageRecord | Failure:
        self._images.claim(image, file.key)
        if not self._selection.takes(image.key):
            return Failure(image.key, "list", EXCLUDED, skipped=True)
        split = self._split(file)
        return ImageRecord(image.key, image.ref, split, annotations, file.key, image.size)

    def _split(self, file: TreeFile) -> str | None:
        return next((normal_split(part) for part in file.key.split("/")[:-1] if part in self._splits), None)


def _stem(file: TreeFile) -> str:
    return stem_of(file.key.rpartition("/")[2])
