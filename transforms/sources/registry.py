"""The sources. A new source is a file, and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.source import Source

# Module and class of each source, by what `--source` calls it.
_CLASSES = {
    "idx": ("arrays.idx", "IdxSource"),
    "numpy": ("arrays.numpy_arrays", "NumpySource"),
    "tfrecord": ("tfrecord.source", "TfrecordSource"),
    "parquet": ("tables.parquet", "ParquetSource"),
    "webdataset": ("archives.webdataset", "WebdatasetSource"),
    "archive": ("archives.archive", "ArchiveSource"),
    "coco": ("coco.source", "CocoSource"),
    "imagenet": ("imagenet.source", "ImagenetSource"),
    "yolo": ("yolo.source", "YoloSource"),
    "voc": ("voc.source", "VocSource"),
    "labelme": ("labelme.source", "LabelmeSource"),
    "openimages": ("openimages.source", "OpenImagesSource"),
    "masks": ("masks.source", "MasksSource"),
    "frames": ("frames", "FramesSource"),
    "csv": ("tables.csv_manifest", "CsvSource"),
    "sequence": ("tables.sequence", "SequenceSource"),
    "jsonl": ("tables.jsonl_manifest", "JsonlSource"),
    "folder": ("folder", "FolderSource"),
}


class _Sources(Mapping[str, Source]):
    """Each source by its name, imported when it is first used."""

    def __init__(self) -> None:
        self._made: dict[str, Source] = {}

    def __getitem__(self, name: str) -> Source:
        if name not in self._made:
            module, source = _CLASSES[name]
            self._made[name] = getattr(importlib.import_module(f"{__package__}.{module}"), source)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


SOURCES: Mapping[str, Source] = _Sources()
"""By what `--source` calls them. The first that an input looks like is detected: particular ones first."""


def source_of(config: SourceConfig) -> Source:
    """The source that `config.kind` names.

    Raises:
        ValueError: there is none of that name.
    """
    if config.kind not in SOURCES:
        hint = "; detect() tells which one fits" if config.kind == "auto" else ""
        raise ValueError(f"SourceConfig.kind is {config.kind!r}; it may be {', '.join(SOURCES)}{hint}")
    return SOURCES[config.kind]
