"""Source `tfrecord`: Examples and SequenceExamples, in any schema of ours or a foreign one.

Images of uncompressed files are referenced as ranges of these files. Sources of the format:
`transforms.examples.framing`; tensorflow/core/example/{example,feature}.proto for the contents of records.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import msgspec

from recordmill.transforms.examples.framing import HEAD_BYTES, DamagedRecordError, Frame, RecordFile
from recordmill.transforms.examples.record_view import BOX_KEYS, IMAGE_KEYS, SYNSET, Pixels, Refer, read_view
from recordmill.transforms.examples.wire import Feature, Span
from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRef, add_classes
from recordmill.transforms.sources.config import ANNOTATIONS, SourceConfig
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import failed, folder_of, skipped
from recordmill.transforms.sources.selection import EXCLUDED, Selection
from recordmill.transforms.sources.source import Description, Item, Items, Source
from recordmill.transforms.sources.tfrecord import files as shard_files
from recordmill.transforms.sources.tfrecord import records
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.faults import os_fault
from recordmill.transforms.storage.files import is_folder, open_file, status_of
from recordmill.transforms.storage.layout import MANIFEST
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import LARGEST

_LOOKED_AT = 16  # files whose first records determine the features


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """A TFRecord file; `is_ours` if a manifest lists it, `is_defined` if its classes have names by id."""

    file: TreeFile
    split: str | None
    is_ours: bool
    is_defined: bool


class TfrecordSource(Source):
    """Lists the records of TFRecord files."""

    name = "tfrecord"
    description = Description(
        reads="TFRecord files with Examples or SequenceExamples of any program; plain, gzip or zlib",
        label="`image/class/label` or `label`; names from manifest.json, label_map.pbtxt or *.labels.txt",
        split="the name of the file or its folder; in a dataset of Recordmill, its manifest",
        key="`train.tfrecord/00000042`; in a dataset of Recordmill, `image/filename`",
        example="shards/\n  label_map.pbtxt\n  train-00000-of-00002.tfrecord\n"
        "  train-00001-of-00002.tfrecord\n  val-00000-of-00001.tfrecord",
        annotations=ANNOTATIONS,
    )
    flags = ("label_pattern", "input_features")

    def check_input(self, config: SourceConfig) -> None:
        found = shard_files.inputs(config)
        if not found.files:
            raise ValueError(
                f"--input is {config.input!r}: no file is named like a TFRecord file, such as "
                f"train.tfrecord or train-00000-of-00010{left_out(config)}"
            )
        features, lists = _first_features(found, {})
        if not features and not lists:
            raise ValueError(
                f"--input is {config.input!r}: none of its first files begins with a record of features; "
                "TFRecord files of tf.train.Example or SequenceExample are read"
            )
        _check_renames(config, {*features, *lists})

    def splits(self, config: SourceConfig) -> set[str | None]:
        found = shard_files.inputs(config)
        parts = _files(found, shard_files.read_manifests(found.others), False)
        return {part.split for part in parts if isinstance(part, FilePart)}

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        features, lists = _first_features(shard_files.inputs(config), dict(config.input_features))
        if lists:
            return ("sequence",)
        has_boxes, has_masks = (
            not features.keys().isdisjoint(names) for names in (BOX_KEYS, records.MASK_KEYS)
        )
        if has_boxes and SYNSET in features:
            return ("imagenet",)
        found = ("detection",) * has_boxes + ("segmentation",) * has_masks
        has_image = any(len(features[key].spans) == 1 for key in IMAGE_KEYS if key in features)
        return found or ("classification",) * has_image

    def parts(self, config: SourceConfig, most: int) -> Iterator[Item | FilePart]:
        found = shard_files.inputs(config)
        yield from found.failures
        manifests = shard_files.read_manifests(found.others)
        defined = shard_files.defined_classes(found.others, manifests)
        if defined is not None:
            # labels from keys may be other classes than those of the records
            yield dataclasses.replace(defined, optional=config.label_pattern is not None)
        if is_folder(config.input):
            yield from _other_files(found, manifests)
        yield from _files(found, manifests, defined is not None)

    def part_items(self, config: SourceConfig, scratch: str, part: Item | FilePart) -> Items:
        if not isinstance(part, FilePart):
            yield part
            return
        with Spool(scratch, part.file.path, part.file.version) as spool:
            yield from _records(config, part, spool)


def _records(config: SourceConfig, part: FilePart, spool: Spool) -> Items:
    """The records of a file, and the names of the classes in them."""
    file, number, packed = part.file, -1, False
    selection, renames = Selection(config), dict(config.input_features)
    names: dict[int, str] = {}
    texts: dict[str, str] = {}
    try:
        generation = status_of(file.path).generation  # before its bytes are read
        with open_file(file.path) as stored:
            stream = RecordFile(stored)
            packed = bool(stream.compression)
            for number, frame in enumerate(stream.frames(LARGEST)):
                origin = f"{file.key}/{number:08}"
                refer = _refer(file.path, generation, frame, spool if packed else None)
                try:
                    fields = read_view(frame.payload, renames, refer)
                    include = config.include_annotations
                    record, classes = records.read_record(fields, origin, part.split, part.is_ours, include)
                    if not selection.takes(record.key):
                        yield skipped(record.key, EXCLUDED)
                        continue
                    if config.label_pattern is not None:
                        found = selection.labels(record.key, ())
                        annotations = msgspec.structs.replace(record.annotations, labels=found)
                        yield msgspec.structs.replace(record, annotations=annotations)
                        continue
                except BadInput as fault:
                    yield failed(fault.key or origin, fault)
                    continue
                if part.is_defined:
                    classes = ClassNames({}, classes.texts, optional=True)
                if not (classes.names.items() <= names.items() and classes.texts.items() <= texts.items()):
                    add_classes(names, texts, classes, repr(file.path))
                    if config.limit is not None:
                        yield classes  # the listing may end with this record
                yield record
    except DamagedRecordError as error:
        left = 0 if packed else file.size - error.offset
        rest = f"the {left} bytes from there on are" if left > 0 else "what follows is"
        detail = f"{error}; {rest} not read"
        yield Failure(f"{file.key}/{number + 1:08}", "manifest", "damaged TFRecord", detail)
    except OSError as error:
        yield os_fault(error, "list").failure(file.key)
    if config.limit is None and (names or texts):
        yield ClassNames(names, texts, optional=True)


def _refer(path: str, generation: int, frame: Frame, spool: Spool | None) -> Refer:
    def refer(span: Span, pixels: Pixels | None) -> ImageRef:
        start, stop = span
        if spool is not None:
            return spool.add(frame.payload[start:stop], pixels)
        return ImageRef(path, frame.offset + HEAD_BYTES + start, stop - start, pixels, generation)

    return refer


def _files(
    found: shard_files.Inputs, manifests: list[shard_files.Manifest], is_defined: bool
) -> Iterator[Failure | FilePart]:
    """The files to read; those in a folder of ours that are not in its manifest are skipped."""
    splits = {key: split for manifest in reversed(manifests) for key, split in manifest.splits.items()}
    folders = {manifest.folder for manifest in manifests}
    for file in found.files:
        if file.key in splits:
            yield FilePart(file, splits[file.key], True, is_defined)
        elif folder_of(file.key) in folders:
            yield Failure(file.key, "list", f"not listed in {MANIFEST}", skipped=True)
        else:
            yield FilePart(file, shard_files.split_of(file.key), False, is_defined)


def _other_files(found: shard_files.Inputs, manifests: list[shard_files.Manifest]) -> Iterator[Failure]:
    """Files that are neither TFRecords nor their metadata, and missing files of manifests."""
    for key in sorted(found.others):
        if not shard_files.is_metadata_name(key.rpartition("/")[2]):
            yield Failure(key, "list", "not a TFRecord file by name", skipped=True)
    keys = {file.key for file in found.files}
    for manifest in manifests:
        for key in sorted(manifest.splits.keys() - keys):
            yield Failure(key, "manifest", "not found", f"{manifest.folder}{MANIFEST} lists it")


def _first_features(
    found: shard_files.Inputs, renames: dict[str, str]
) -> tuple[dict[str, Feature], dict[str, list[Feature]]]:
    """The features, and the feature lists, of the first records of some files."""
    features: dict[str, Feature] = {}
    lists: dict[str, list[Feature]] = {}
    for file in found.files[:_LOOKED_AT]:
        try:
            with open_file(file.path) as stored:
                for frame in itertools.islice(RecordFile(stored).frames(LARGEST), 1):
                    first = read_view(frame.payload, renames)
                    features = {**first.features, **features}
                    lists = {**first.lists, **lists}
        except (BadInput, DamagedRecordError):
            continue
    return features, lists


def _check_renames(config: SourceConfig, names: set[str]) -> None:
    news = [new for _, new in config.input_features]
    for old, new in config.input_features:
        given = f"--input_features is {old}={new}"
        if old not in names:
            shown = ", ".join(sorted(names))
            raise ValueError(f"{given}: the first records have no feature {old!r}; they have {shown}")
        if news.count(new) > 1:
            raise ValueError(f"{given}, and {new!r} is given to another feature too")
        if new in names and new not in dict(config.input_features):
            raise ValueError(f"{given}: there is a feature {new!r}; rename that too, as {new}=other")
