"""The sources. A new source is a file, and a row here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection import rules
from recordmill.transforms.sources.source import Source


class Row(NamedTuple):
    """A source, and how its inputs are detected."""

    source: str  # module and class
    rule: rules.Rule  # why an input looks like this source, or None
    reads: str = "input"  # `input`; `annotations` for --annotations too; `rows` for files of rows, no folders
    needs_images: bool = True  # a dataset without files that are images by name is incomplete
    is_inner: bool = False  # its rule also fits a folder above the dataset, but the dataset's own is better


ROWS = {
    "idx": Row("arrays.IdxSource", rules.idx, needs_images=False),
    "numpy": Row("arrays.NumpySource", rules.numpy, needs_images=False),
    "tfrecord": Row("tfrecord.source.TfrecordSource", rules.tfrecord, needs_images=False),
    "parquet": Row("tables.parquet.ParquetSource", rules.parquet, needs_images=False),
    "webdataset": Row("archives.webdataset.WebdatasetSource", rules.webdataset, needs_images=False),
    "archive": Row("archives.archive.ArchiveSource", rules.archive, needs_images=False),
    "coco": Row("coco.source.CocoSource", rules.coco, "annotations", is_inner=True),
    "imagenet": Row("imagenet.source.ImagenetSource", rules.imagenet),
    "yolo": Row("yolo.source.YoloSource", rules.yolo),
    "voc": Row("voc.source.VocSource", rules.voc, is_inner=True),
    "labelme": Row("labelme.LabelmeSource", rules.labelme, needs_images=False, is_inner=True),
    "openimages": Row("openimages.OpenImagesSource", rules.openimages),
    "masks": Row("masks.source.MasksSource", rules.masks),
    "frames": Row("frames.FramesSource", rules.frames),
    "csv": Row("tables.manifest_sources.CsvSource", rules.csv, "rows"),
    "sequence": Row("tables.manifest_sources.SequenceSource", rules.sequence, "rows"),
    "jsonl": Row("tables.manifest_sources.JsonlSource", rules.jsonl, "rows"),
    "folder": Row("folder.FolderSource", rules.folder),
}
"""By their value of `--source`. Detection takes the first whose rule fits: specific formats come first."""


class _Sources(Mapping[str, Source]):
    def __getitem__(self, name: str) -> Source:
        return _source(ROWS[name].source)

    def __iter__(self) -> Iterator[str]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)


@functools.cache
def _source(path: str) -> Source:
    module, _, name = path.rpartition(".")
    source: Source = getattr(importlib.import_module(f"{__package__}.{module}"), name)()
    return source


SOURCES: Mapping[str, Source] = _Sources()
"""The sources by name, in the order of the rows. Each is imported when it is first used."""


def source_of(config: SourceConfig) -> Source:
    """The source that `config.kind` names. Raises ValueError if no source has this name."""
    if config.kind not in SOURCES:
        hint = "; detect() finds the one that fits" if config.kind == "auto" else ""
        raise ValueError(f"SourceConfig.kind is {config.kind!r}; it may be {', '.join(SOURCES)}{hint}")
    return SOURCES[config.kind]
