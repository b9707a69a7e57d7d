"""The CSV files of an Open Images folder: which is what, by its name and its header."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import split_named
from recordmill.transforms.sources.tables.manifests import Manifest
from recordmill.transforms.sources.tables.text_rows import read_rows
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import real_path

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
        first = next(read_rows(self.manifest.file), None)
        header = () if first is None or isinstance(first[1], BadInput) else tuple(map(str.strip, first[1]))
        missing = [name for name in _REQUIRED.get(self.kind, ()) if name not in header]
        if missing:
            raise ValueError(f"{self.manifest.name} has no column {missing[0]}, as Open Images has there")
        return header

    def rows(self) -> Iterator[tuple[int, list[str] | BadInput]]:
        """The rows below the header: the line of each, and its cells or what is wrong with it."""
        return itertools.islice(read_rows(self.manifest.file), 1, None)

    def classes(self) -> Iterator[tuple[str, str]]:
        """The id and the name of each class, of a file with a header or without."""
        for _, cells in read_rows(self.manifest.file):
            if not isinstance(cells, BadInput) and len(cells) > 1 and cells[0].strip() != "LabelName":
                yield cells[0].strip(), cells[1].strip()


def csv_files(config: SourceConfig, names: Sequence[str] | None = None) -> list[CsvFile]:
    """The CSV files in the input and `annotations`, in the order of their paths; those of few classes first.

    Args:
        config: of the input.
        names: in the input, if they have been listed already.

    Raises:
        OSError: one is a link that leads outside the input, or to nothing.
    """
    root = real_path(config.input)
    confinement = Confinement((root, *config.image_roots))
    if names is None:
        names = names_in(root) if is_folder(root) else ()
    inner = folders_called("annotations", root, names)
    found = []
    for key in (*names, *(f"{folder}/{name}" for folder in inner for name in names_in(f"{root}/{folder}"))):
        name, path = key.rpartition("/")[2], os.path.join(root, key)
        for pattern, kind in _NAMES if name.endswith(".csv") else ():
            if re.fullmatch(pattern, name):
                split = next(filter(None, map(split_named, re.split(r"[-_.]", name))), None)
                found.append(CsvFile(Manifest(path, key, confinement.leads_to(path)), kind, split))
                break
    return sorted(found, key=lambda file: ("boxable" not in file.manifest.name, file.manifest.name))


def folders_called(wanted: str, root: str, names: Iterable[str]) -> list[str]:
    """The folders among the names in an input that are called `wanted`, in any case."""
    return [name for name in names if name.lower() == wanted and is_folder(os.path.join(root, name))]
