"""Source `tfrecord`: Examples and SequenceExamples, in any schema of ours or a foreign one.

Images of uncompressed files are ranges of them. `recordmill.transforms.framing` describes how a file is
framed, tensorflow/core/example/{example,feature}.proto what a record is.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from recordmill.transforms.framing import HEAD_BYTES, DamagedRecordError, Frame, read_frames
from recordmill.transforms.records import BadInput, Failure, ImageRecord, ImageRef
from recordmill.transforms.sources.config import (
    ANNOTATIONS,
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import printable
from recordmill.transforms.sources.outline import check_roots_used, left_out
from recordmill.transforms.sources.selection import (
    EXCLUDED,
    Selection,
    check_selection,
    label_pattern,
)
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
    limited,
)
from recordmill.transforms.sources.tfrecord.classes import Classes
from recordmill.transforms.sources.tfrecord.features import IMAGE_KEYS, MASK_KEYS, SYNSET
from recordmill.transforms.sources.tfrecord.files import (
    Inputs,
    inputs,
    opened_input,
    split_of,
)
from recordmill.transforms.sources.tfrecord.images import Pixels
from recordmill.transforms.sources.tfrecord.labels import (
    MANIFEST,
    Manifest,
    is_metadata_name,
    manifests,
    names_beside,
)
from recordmill.transforms.sources.tfrecord.objects import BOX_KEYS
from recordmill.transforms.sources.tfrecord.records import Found, Place, RecordReader
from recordmill.transforms.sources.tfrecord.wire import Feature, Span
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.files import is_folder, status_of
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST

_LOOKED_AT = 16  # files whose first records tell what features there are
_NOT_TFRECORDS = "not a TFRecord file by name"
_NOT_LISTED = "not listed in manifest.json"


class TfrecordSource(Source):
    """Lists the records of TFRecord files."""

    name = "tfrecord"
    description = Description(
        reads="TFRecord files of Examples or SequenceExamples, plain, gzip or zlib, in our schemas or others",
        label="`image/class/label` or `label`; names from manifest.json, label_map.pbtxt or *.labels.txt",
        split="the file's name or its folder, where called like a split; in a dataset of ours its manifest",
        key="`train.tfrecord/00000042`; in a dataset of ours `image/filename`",
        example="shards/\n  label_map.pbtxt\n  train-00000-of-00002.tfrecord\n"
        "  train-00001-of-00002.tfrecord\n  val-00000-of-00001.tfrecord",
        annotations=ANNOTATIONS,
    )

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        check_unused(config, self.name, "annotations", "image_column", "label_column", "mask_pattern")
        check_roots_used(config, self.name)
        check_selection(config)
        with readable("--input", config.input):
            found = inputs(config)
            if not found.files:
                raise ValueError(
                    f"--input is {config.input!r}: no file is called like TFRecords, such as "
                    f"train.tfrecord or train-00000-of-00010{left_out(config)}"
                )
            _check_features(config, _first_features(found, ()))

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            found = inputs(config)
            ours = manifests(found.beside)
        splits = {_split(file, ours) for file in found.files if not _unlisted(file, ours)}
        return tuple(sorted(split for split in splits if split is not None))

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        features, lists = _first_features(inputs(config), config.input_features) or ({}, {})
        if lists:
            return ("sequence",)
        has_boxes = not features.keys().isdisjoint(BOX_KEYS)
        if has_boxes and SYNSET in features:
            return ("imagenet",)
        has_masks = not features.keys().isdisjoint(MASK_KEYS)
        found = ("detection",) * has_boxes + ("segmentation",) * has_masks
        has_image = any(len(features[key].spans) == 1 for key in IMAGE_KEYS if key in features)
        return found or ("classification",) * has_image

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _Reading(config, scratch).items()

    def read(self, config: SourceConfig, scratch: str, part: Any = None) -> Iterator[Item]:
        # `items` ends after `--limit` records, and with the classes among them.
        return (
            super().read(config, scratch, part)
            if part is not None
            else limited(self.items(config, scratch), None)
        )

    def parts(self, config: SourceConfig, most: int) -> Iterator[Item | FilePart]:
        yield from _parts(config)

    def part_items(self, config: SourceConfig, scratch: str, part: Item | FilePart) -> Items:
        if isinstance(part, FilePart):
            yield from _Reading(config, scratch).file(part)
        else:
            yield part


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """One file of TFRecords.

    Attributes:
        file: where it is.
        split: that its name, a folder's or a manifest tells.
        ours: whether a manifest of ours lists it.
        defined: whether names of classes lie beside the files.
    """

    file: TreeFile
    split: str | None
    ours: bool
    defined: bool


def _parts(config: SourceConfig) -> Iterator[Item | FilePart]:
    """The files of an input, and what is told without reading them."""
    found = inputs(config)
    yield from found.failures
    ours = manifests(found.beside)
    defined = names_beside(found.beside, ours)
    if defined is not None:
        # labels from keys are others than those of the records, unless they are among them
        yield dataclasses.replace(defined, optional=config.label_pattern is not None)
    if is_folder(config.input):
        yield from _others(found, ours)
    for file in found.files:
        if _unlisted(file, ours):
            yield Failure(file.key, "list", _NOT_LISTED, skipped=True)
        else:
            yield FilePart(file, _split(file, ours), _is_ours(file, ours), defined is not None)


_Features = tuple[dict[str, Feature], dict[str, list[Feature]]]


class _Reading:
    """One reading of an input; stops by itself after `--limit` records, so that what it unpacked is kept."""

    def __init__(self, config: SourceConfig, scratch: str) -> None:
        self._config = config
        self._scratch = scratch
        self._selection = Selection(config)
        self._pattern = label_pattern(config)
        self._reader = RecordReader(config.include_annotations, config.input_features)
        self._left = config.limit

    def items(self) -> Items:
        """The whole input."""
        classes: Classes | None = None
        for part in _parts(self._config):
            if self._left == 0:
                break
            if isinstance(part, FilePart):
                classes = classes or Classes(part.defined)
                yield from self._file(part, classes)
            else:
                yield part
        if classes is not None and (seen := classes.found()) is not None:
            yield seen

    def file(self, part: FilePart) -> Items:
        """One file."""
        classes = Classes(part.defined)
        yield from self._file(part, classes)
        if (seen := classes.found()) is not None:
            yield seen

    def _file(self, part: FilePart, classes: Classes) -> Items:
        with Spool(self._scratch, part.file.path, part.file.version) as spool:
            for item in limited(self._file_items(part, classes, spool), self._left):
                yield item
                if self._left is not None and isinstance(item, ImageRecord):
                    self._left -= 1

    def _file_items(self, part: FilePart, classes: Classes, spool: Spool) -> Items:
        file, number = part.file, -1
        try:
            generation = status_of(file.path).generation  # before its bytes are read
            with opened_input(file.path) as (stream, packed):
                for number, frame in enumerate(read_frames(stream, LARGEST)):
                    place = Place(f"{file.key}/{number:08}", part.split, part.ours)
                    refer = _refer(file.path, generation, frame, spool if packed else None)
                    yield self._item(frame.payload, place, refer, classes)
        except (DamagedRecordError, EOFError, zlib.error) as error:
            detail = f"{error}; {_rest(file, error)}"
            yield Failure(f"{file.key}/{number + 1:08}", "manifest", "damaged TFRecord", detail)
        except OSError as error:
            yield os_fault(error, "list").failure(file.key)

    def _item(
        self, payload: bytes, place: Place, refer: Callable[[Span, Pixels | None], ImageRef], classes: Classes
    ) -> ImageRecord | Failure:
        try:
            found = self._reader.read(payload, place, refer)
            key = found.record.key
            if not self._selection.takes(key):
                return Failure(key, "list", EXCLUDED, skipped=True)
            if self._pattern is not None:
                return _labelled(found, self._pattern.label(key))
        except BadInput as fault:
            return Failure(fault.key or place.key, fault.stage, fault.reason, printable(fault.detail))
        classes.add(found.names, found.texts)
        return found.record


def _refer(
    path: str, generation: int, frame: Frame, spool: Spool | None
) -> Callable[[Span, Pixels | None], ImageRef]:
    """What makes references of ranges of a record: into its file, or into what is unpacked of it."""

    def refer(span: Span, pixels: Pixels | None) -> ImageRef:
        start, stop = span
        if spool is not None:
            return spool.add(frame.payload[start:stop], pixels)
        return ImageRef(path, frame.offset + HEAD_BYTES + start, stop - start, pixels, generation)

    return refer


def _rest(file: TreeFile, error: Exception) -> str:
    if isinstance(error, DamagedRecordError) and error.offset < file.size:
        with opened_input(file.path) as (_, packed):
            if not packed:
                return f"the {file.size - error.offset} bytes from there on are not read"
    return "what follows is not read"


def _labelled(found: Found, label: str) -> ImageRecord:
    annotations = msgspec.structs.replace(found.record.annotations, labels=(label,))
    return msgspec.structs.replace(found.record, annotations=annotations)


def _first_features(found: Inputs, renames: tuple[tuple[str, str], ...]) -> _Features | None:
    """The features, and the feature lists, of the first record of some files; None where no file has any.

    Raises:
        OSError: a file cannot be read.
    """
    reader = RecordReader((), renames)
    features: dict[str, Feature] = {}
    lists: dict[str, list[Feature]] = {}
    for file in found.files[:_LOOKED_AT]:
        try:
            with opened_input(file.path) as (stream, _):
                first = next(read_frames(stream, LARGEST), None)
                mine = reader.features(first.payload) if first is not None else ({}, {})
        except (BadInput, DamagedRecordError, EOFError, zlib.error):
            continue
        features = {**mine[0], **features}
        lists = {**mine[1], **lists}
    return (features, lists) if features or lists else None


def _check_features(config: SourceConfig, first: _Features | None) -> None:
    if first is None:
        raise ValueError(
            f"--input is {config.input!r}: none of its first files begins with a record of features; "
            "TFRecord files of tf.train.Example or SequenceExample are read"
        )
    names = {*first[0], *first[1]}
    news = [new for _, new in config.input_features]
    for old, new in config.input_features:
        given = f"--input_features is {old}={new}"
        if old not in names:
            raise ValueError(f"{given}: the first records have no feature {old!r}; {_listed(names)}")
        if news.count(new) > 1:
            raise ValueError(f"{given}, and {new!r} is given to another feature too")
        if new in names and new not in dict(config.input_features):
            raise ValueError(f"{given}: there is a feature {new!r}; rename that too, as {new}=other")


def _listed(names: set[str]) -> str:
    return f"they have {', '.join(sorted(names))}"


def _is_ours(file: TreeFile, ours: list[Manifest]) -> bool:
    return any(file.key in manifest.splits for manifest in ours)


def _unlisted(file: TreeFile, ours: list[Manifest]) -> bool:
    """Whether a file lies where a manifest of ours does, which does not list it."""
    folder = file.key.rpartition("/")[0]
    beside = (manifest for manifest in ours if manifest.folder.rstrip("/") == folder)
    return not _is_ours(file, ours) and any(True for _ in beside)


def _split(file: TreeFile, ours: list[Manifest]) -> str | None:
    for manifest in ours:
        if file.key in manifest.splits:
            return manifest.splits[file.key]
    return split_of(file.key)


def _others(found: Inputs, ours: list[Manifest]) -> Iterator[Failure]:
    """Files that are neither TFRecords nor about them, and shards that a manifest lists in vain."""
    for key in sorted(found.beside):
        if not is_metadata_name(key.rpartition("/")[2]):
            yield Failure(key, "list", _NOT_TFRECORDS, skipped=True)
    keys = {file.key for file in found.files}
    for manifest in ours:
        for key in sorted(manifest.splits.keys() - keys):
            yield Failure(key, "manifest", "not found", f"{manifest.folder}{MANIFEST} lists it")
