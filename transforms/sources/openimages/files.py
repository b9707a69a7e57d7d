"""The CSV files of an Open Images folder: which is what, by its name and its header.

https://storage.googleapis.com/openimages/web/download_v7.html
"""

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
from recordmill.transforms.sources.tables.csv_manifest import read_rows
from recordmill.transforms.sources.tables.manifests import Manifest
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import real_path

Kind = Literal["boxes", "labels", "machine", "masks", "images", "classes"]

ANNOTATIONS = "annotations"
"""The folder of the CSV files; they may also lie beside it."""

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
    """One of the CSV files.

    Attributes:
        manifest: where it is; its name is the path below the input.
        kind: what its rows are.
        split: the part of its name that is one.
    """

    manifest: Manifest
    kind: Kind
    split: str | None

    def header(self) -> tuple[str, ...]:
        """The names of its columns; raises ValueError where one that is needed is not there."""
        first = next(read_rows(self.manifest), None)
        header = () if first is None or isinstance(first[1], BadInput) else tuple(map(str.strip, first[1]))
        missing = [name for name in _REQUIRED.get(self.kind, ()) if name not in header]
        if missing:
            raise ValueError(f"{self.manifest.name} has no column {missing[0]}, as Open Images has there")
        return header

    def rows(self) -> Iterator[tuple[int, list[str] | BadInput]]:
        """The rows below the header: the line of each, and its cells or what is wrong with it."""
        self.header()
        return itertools.islice(read_rows(self.manifest), 1, None)

    def classes(self) -> Iterator[tuple[str, str]]:
        """The id and the name of each class, of a file with a header or without."""
        for _, cells in read_rows(self.manifest):
            if isinstance(cells, BadInput) or len(cells) < 2 or cells[0].strip() == "LabelName":
                continue
            yield cells[0].strip(), cells[1].strip()


def csv_files(config: SourceConfig, names: Sequence[str] | None = None) -> list[CsvFile]:
    """The files with known names, in the order of their paths; those of few classes come first.

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
    listed = {"": names} | {
        f"{folder}/": names_in(f"{root}/{folder}") for folder in folders_called(ANNOTATIONS, root, names)
    }
    found = [
        CsvFile(_manifest(root, folder + name, confinement), kind, _split_of(name))
        for folder, inner in listed.items()
        for name in inner
        if (kind := kind_of(name)) is not None
    ]
    return sorted(found, key=lambda file: ("boxable" not in file.manifest.name, file.manifest.name))


def _manifest(root: str, key: str, confinement: Confinement) -> Manifest:
    path = os.path.join(root, key)
    return Manifest(path, key, confinement.leads_to(path))


def folders_called(wanted: str, root: str, names: Iterable[str]) -> list[str]:
    """The folders among the names in an input that are called `wanted`, in any case."""
    return [name for name in names if name.lower() == wanted and is_folder(os.path.join(root, name))]


def kind_of(name: str) -> Kind | None:
    """What a file is, by its name."""
    if not name.endswith(".csv"):
        return None
    return next((kind for pattern, kind in _NAMES if re.fullmatch(pattern, name)), None)


def _split_of(name: str) -> str | None:
    return next(filter(None, map(split_named, re.split(r"[-_.]", name))), None)
