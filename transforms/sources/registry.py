"""The sources there are, and telling which one an input is. A new source is a file, and a line here."""

from __future__ import annotations

import collections

from transforms.sources.archives import ArchiveSource
from transforms.sources.coco import CocoSource
from transforms.sources.csv_manifest import CsvSource
from transforms.sources.folder import FolderSource
from transforms.sources.frames import FramesSource
from transforms.sources.idx import IdxSource
from transforms.sources.imagenet import ImagenetSource
from transforms.sources.jsonl_manifest import JsonlSource
from transforms.sources.labelme import LabelmeSource
from transforms.sources.masks import MasksSource
from transforms.sources.names import extension_of
from transforms.sources.numpy_arrays import NumpySource
from transforms.sources.openimages import OpenImagesSource
from transforms.sources.parquet import ParquetSource
from transforms.sources.sequence import SequenceSource
from transforms.sources.source import Source, SourceConfig, check_input_exists, readable
from transforms.sources.tfrecord import TfrecordSource
from transforms.sources.voc import VocSource
from transforms.sources.webdataset import WebdatasetSource
from transforms.sources.yolo import YoloSource
from transforms.storage.places import files_below, is_folder

_SOURCES: tuple[Source, ...] = (
    IdxSource(),
    NumpySource(),
    TfrecordSource(),
    ParquetSource(),
    WebdatasetSource(),
    ArchiveSource(),
    CocoSource(),
    ImagenetSource(),
    YoloSource(),
    VocSource(),
    LabelmeSource(),
    OpenImagesSource(),
    MasksSource(),
    FramesSource(),
    CsvSource(),
    SequenceSource(),
    JsonlSource(),
    FolderSource(),
)
SOURCES: dict[str, Source] = {source.name: source for source in _SOURCES}
"""By what `--source` calls them. The first that an input looks like is detected: particular ones first."""

_LISTED = 10_000  # entries of a folder that an error message looks at


def source_of(config: SourceConfig) -> Source:
    """The source that `config.kind` names.

    Raises:
        ValueError: there is none of that name.
    """
    if config.kind not in SOURCES:
        hint = "; detect() tells which one fits" if config.kind == "auto" else ""
        raise ValueError(f"SourceConfig.kind is {config.kind!r}; it may be {', '.join(SOURCES)}{hint}")
    return SOURCES[config.kind]


def detect(config: SourceConfig) -> tuple[str, str]:
    """The source of `--source auto`.

    Returns:
        Its name, and a sentence that says why.

    Raises:
        ValueError: nothing fits; says what was found, and what --source may be.
    """
    check_input_exists(config)
    for source in SOURCES.values():
        if (why := source.sniff(config)) is not None:
            return source.name, why
    where = (
        f"--annotations is {', '.join(config.annotations)!r}"
        if config.annotations
        else f"--input is {config.input!r}"
    )
    remedy = f"--source may be {', '.join(SOURCES)}"
    if config.annotations:
        raise ValueError(
            f"{where}; manifests are called .csv, .tsv or .jsonl; otherwise say what they are: {remedy}"
        )
    with readable("--input", config.input):
        found = _found(config.input)
    raise ValueError(f"{where}, which holds no input that is known: {found}; {remedy}")


def _found(path: str) -> str:
    """What is at a path, by extension."""
    if not is_folder(path):
        return f"it is a file with the extension .{extension_of(path)}"
    found = collections.Counter(map(extension_of, files_below(path, _LISTED)))
    if not found:
        return "it is an empty folder"
    kinds = (
        f"{count} {f'.{extension}' if extension else 'without extension'}"
        for extension, count in found.most_common(6)
    )
    return f"it has {', '.join(kinds)}"
