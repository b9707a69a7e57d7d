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
    """A source, and how an input of it is recognised."""

    source: str  # module and class
    rule: rules.Rule  # why an input looks like this source, or None
    reads: str = "input"  # an `input`, `annotations` of one too, or only `rows`: a file, no folder
    needs_images: bool = True  # a dataset without a file that is an image by name is incomplete
    is_inner: bool = False  # it recognises the folder above a dataset, but should be given the dataset's own


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
    "labelme": Row("labelme.source.LabelmeSource", rules.labelme, needs_images=False, is_inner=True),
    "openimages": Row("openimages.OpenImagesSource", rules.openimages),
    "masks": Row("masks.source.MasksSource", rules.masks),
    "frames": Row("frames.FramesSource", rules.frames),
    "csv": Row("tables.manifest_sources.CsvSource", rules.csv, "rows"),
    "sequence": Row("tables.manifest_sources.SequenceSource", rules.sequence, "rows"),
    "jsonl": Row("tables.manifest_sources.JsonlSource", rules.jsonl, "rows"),
    "folder": Row("folder.FolderSource", rules.folder),
}
"""By their value of `--source`. The first whose rule fits is detected: particular ones first."""


class _Sources(Mapping[str, Source]):
    """Each source by its name, imported when it is first used."""

    def __getitem__(self, name: str) -> Source:
        return _made(ROWS[name].source)

    def __iter__(self) -> Iterator[str]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)


@functools.cache
def _made(path: str) -> Source:
    module, _, source = path.rpartition(".")
    made: Source = getattr(importlib.import_module(f"{__package__}.{module}"), source)()
    return made


SOURCES: Mapping[str, Source] = _Sources()
"""By name, in the order of the rows; each is imported when it is first used."""


def source_of(config: SourceConfig) -> Source:
    """The source that `config.kind` names. Raises ValueError if there is none of that name."""
    if config.kind not in SOURCES:
        hint = "; detect() finds the one that fits" if config.kind == "auto" else ""
        raise ValueError(f"SourceConfig.kind is {config.kind!r}; it may be {', '.join(SOURCES)}{hint}")
    return SOURCES[config.kind]
