"""The CSV files of an Open Images folder: which is what, by its name and its header."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Literal

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.names import split_named
from recordmill.transforms.sources.outline import Look, joined
from recordmill.transforms.sources.tables.manifest_sources import read_rows
from recordmill.transforms.sources.tables.manifests import Manifest

Kind = Literal["boxes", "labels", "machine", "masks", "images", "classes"]

_NAMES: tuple[tuple[str, Kind], ...] = (
    (r".*annotations-bbox.*", "boxes"),
    (r".*annotations-human-imagelabels.*", "labels"),
    (r".*annotations-machine-imagelabels.*", "machine"),
    (r".*annotations-object-segmentation.*", "masks"),
    (r".*class-descriptions.*", "classes"),
    (r".*image_ids_and_rotation.*|.*images(-.+)?-with-rotation.*|.*images-boxable.*", "images"),
)
_REQUIRED: dict[Kind, tuple[str, ...]] = {
    "boxes": ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"),
    "labels": ("ImageID", "LabelName", "Confidence"),
    "masks": ("MaskPath", "ImageID", "LabelName", "BoxXMin", "BoxXMax", "BoxYMin", "BoxYMax"),
    "images": ("ImageID",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class CsvFile:
    """One of the CSV files; `split` is the part of its name that names one."""

    manifest: Manifest
    kind: Kind
    split: str | None

    def header(self) -> tuple[str, ...]:
        """The names of its columns. Raises ValueError where a required one is missing."""
        first = next(read_rows(self.manifest), None)
        header = () if first is None or isinstance(first[1], BadInput) else tuple(map(str.strip, first[1]))
        missing = [name for name in _REQUIRED.get(self.kind, ()) if name not in header]
        if missing:
            raise ValueError(f"{self.manifest.name} has no column {missing[0]}, as Open Images has there")
        return header

    def rows(self) -> Iterator[tuple[int, list[str] | BadInput]]:
        """The rows below the header: the line of each, and its cells or what is wrong with it."""
        return itertools.islice(read_rows(self.manifest), 1, None)

    def classes(self) -> Iterator[tuple[str, str]]:
        """The id and the name of each class, of a file with a header or without."""
        for _, cells in read_rows(self.manifest):
            if not isinstance(cells, BadInput) and len(cells) > 1 and cells[0].strip() != "LabelName":
                yield cells[0].strip(), cells[1].strip()


def csv_files(look: Look) -> list[CsvFile]:
    """The CSV files in the input and `annotations`, in the order of their paths; those of few classes first.

    Raises:
        OSError: one is a link that leads outside the input, or to nothing.
    """
    found = []
    folders = ("", *folders_called("annotations", look))
    for key in [joined(folder, name) for folder in folders for name in look.names(folder)]:
        name, path = key.rpartition("/")[2], look.path(key)
        for pattern, kind in _NAMES if name.endswith(".csv") else ():
            if re.fullmatch(pattern, name):
                split = next(filter(None, map(split_named, re.split(r"[-_.]", name))), None)
                found.append(CsvFile(Manifest(path, key, look.confinement.leads_to(path)), kind, split))
                break
    return sorted(found, key=lambda file: ("boxable" not in file.manifest.name, file.manifest.name))


def folders_called(wanted: str, look: Look) -> list[str]:
    """The folders in an input that are called `wanted`, in any case."""
    return [name[:-1] for name in look.names() if name.lower() == f"{wanted}/"]
