"""The sources there are, and telling which one an input is. A new source is a file, and a line here."""

from __future__ import annotations

import collections
import dataclasses

from recordmill.transforms.sources.archives import ArchiveSource, check_all_read
from recordmill.transforms.sources.class_folders import (
    OR_FOLDER,
    below_input,
    check_class_folders,
    commands,
    folders_of_splits,
    plain_folder,
)
from recordmill.transforms.sources.coco import CocoSource
from recordmill.transforms.sources.csv_manifest import CsvSource
from recordmill.transforms.sources.detection import Detected, Search
from recordmill.transforms.sources.folder import FolderSource
from recordmill.transforms.sources.frames import FramesSource
from recordmill.transforms.sources.idx import IdxSource
from recordmill.transforms.sources.imagenet import ImagenetSource
from recordmill.transforms.sources.jsonl_manifest import JsonlSource
from recordmill.transforms.sources.labelme import LabelmeSource
from recordmill.transforms.sources.masks import MasksSource
from recordmill.transforms.sources.names import extension_of
from recordmill.transforms.sources.numpy_arrays import NumpySource
from recordmill.transforms.sources.openimages import OpenImagesSource
from recordmill.transforms.sources.outline import Outline, left_out
from recordmill.transforms.sources.parquet import ParquetSource
from recordmill.transforms.sources.sequence import SequenceSource
from recordmill.transforms.sources.source import Source, SourceConfig, check_input_exists, readable
from recordmill.transforms.sources.tfrecord import TfrecordSource
from recordmill.transforms.sources.unread import check_unread
from recordmill.transforms.sources.voc import VocSource
from recordmill.transforms.sources.webdataset import WebdatasetSource
from recordmill.transforms.sources.yolo import YoloSource
from recordmill.transforms.storage.listing import glance
from recordmill.transforms.storage.places import files_below, is_folder

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

_OF_ROWS = ("csv", "jsonl", "sequence")  # these sources read a file
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


def detect(config: SourceConfig) -> Detected:
    """The source, detected or given with `--source`, and the folder that it reads.

    Raises:
        ValueError: no source fits, there are several datasets, or annotations would not be read. The message
            names what was found, and what to give instead.
    """
    if config.kind != "auto":
        source_of(config)
    with glance():
        return _detected(config)


def _detected(config: SourceConfig) -> Detected:
    check_input_exists(config)
    if config.kind in _OF_ROWS and not config.annotations:
        source_of(config).check(config)  # raises for a folder, which they do not read
    is_sought = not config.annotations and config.kind not in _OF_ROWS
    if is_sought and (is_folder(config.input) or config.kind == "auto"):
        found = _sought(config) if is_folder(config.input) else _sniffed(config)
    else:
        found = _sniffed(config) if config.kind == "auto" else Detected(config.kind, "", config.input)
    if found is None:
        raise _nothing_found(config)
    if config.kind != "auto":
        found = found._replace(why="as --source says")
    elif found.kind == "archive":
        with readable("--input", config.input):
            check_all_read(dataclasses.replace(config, input=found.input))
    if found.input != config.input:
        place = found.input[len(config.input) :].strip("/")
        found = found._replace(why=f"{found.why}; found in {place!r}, below --input")
    return found


def _sniffed(config: SourceConfig) -> Detected | None:
    """The first source that fits the input itself."""
    for source in SOURCES.values():
        if (why := source.sniff(config)) is not None:
            return Detected(source.name, why, config.input)
    return None


def _sought(config: SourceConfig) -> Detected | None:
    """The dataset in a folder.

    Raises:
        ValueError: there are several, or there are images outside it.
    """
    is_auto = config.kind == "auto"
    particular = [source for source in SOURCES.values() if source.name != "folder"]
    sources = particular if is_auto else [source for source in particular if source.name == config.kind]
    with readable("--input", config.input):
        search = Search(config, sources)
        found = search.datasets()
        if len(found) > 1:
            raise ValueError(
                f"--input is {config.input!r}, which holds several datasets; give one of them: "
                f"{commands((one.input, one.kind) for one in found)}{OR_FOLDER if is_auto else ''}"
            )
        if found:
            outside = search.images_outside(found[0]) if is_auto else []
            if outside:
                raise _images_outside(config, found[0], outside)
            return found[0]
        if config.kind in ("auto", "folder"):
            return _plain(config, search.outline, search.is_cut)
    return Detected(config.kind, "", config.input)


def _images_outside(config: SourceConfig, found: Detected, outside: list[str]) -> ValueError:
    others = ((below_input(config, key), "") for key in outside if key)
    return ValueError(
        f"--input is {config.input!r}, where {found.input!r} is a dataset ({found.why}), and images lie "
        f"outside it too; give one of them: {commands([(found.input, found.kind), *others])}{OR_FOLDER}"
    )


def _plain(config: SourceConfig, outline: Outline, is_cut: bool) -> Detected | None:
    """Images in folders, with or without folders around them.

    Raises:
        ValueError: several folders have splits, annotations would not be read, or a folder is not a class.
    """
    key = plain_folder(outline)
    plain = dataclasses.replace(config, input=below_input(config, key))
    if config.kind == "folder":
        return Detected("folder", "", plain.input)
    several, example = folders_of_splits(outline) if plain.input == config.input else ([], "")
    if several:
        check_unread(config, outline)
        listed = commands((below_input(config, name), "") for name in several)
        raise ValueError(
            f"--input is {config.input!r}, where several folders have splits of their own, such as "
            f"{example!r}; give one of them: {listed}{OR_FOLDER}"
        )
    why = SOURCES["folder"].sniff(plain)
    if why is None:
        return None
    check_unread(config, outline)
    check_class_folders(plain, outline, key, is_cut)
    return Detected("folder", why, plain.input)


def _nothing_found(config: SourceConfig) -> ValueError:
    remedy = f"--source may be {', '.join(SOURCES)}"
    if config.annotations:
        return ValueError(
            f"--annotations is {', '.join(config.annotations)!r}; manifests are called .csv, .tsv or .jsonl; "
            f"otherwise say what they are: {remedy}"
        )
    with readable("--input", config.input):
        if links := left_out(config):
            return ValueError(f"--input is {config.input!r}, which holds no input that is known{links}")
        found = _found(config.input)
    return ValueError(f"--input is {config.input!r}, which holds no input that is known: {found}; {remedy}")


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
