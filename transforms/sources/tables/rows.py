"""Rows of a manifest as records: columns by their names, paths, labels, splits. Shared by csv and jsonl."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import (
    clipped,
    is_hidden,
    is_image_name,
    is_split_name,
    normal_split,
    printable,
    split_of_folders,
    splits_in,
)
from recordmill.transforms.sources.outline import links_outside
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
)
from recordmill.transforms.sources.selection import EXCLUDED, Selection, label_pattern
from recordmill.transforms.sources.tables.manifests import Manifest, flag_of, input_root
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement, LocatedFile, not_local
from recordmill.transforms.storage.file_system import file_system, scheme_of
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import below, is_absolute, real_path

IMAGE_COLUMNS = ("image", "image_path", "filename", "file_name", "path", "uri", "filepath")
LABEL_COLUMNS = ("label", "class", "category", "labels", "class_name")
SPLIT_COLUMNS = ("split", "subset", "set", "ml_use")
_ALWAYS_SPLITS = ("split", "ml_use")  # the other names are as often those of something else

_LISTED = 10_000  # names that are listed to find folders of images, where calls wait for a service
_LOOKED_AT = 1_000  # names without an extension that are checked for folders
_HINTS = 100  # failed rows whose images are looked for in other folders
_SHOWN_ROOTS = 3  # folders that a message suggests for --image_root
_TRIED = 1_000  # columns whose values are looked for as images
_EXTENSIONS = (".jpg", ".png", ".jpeg")  # of images that are named without

VERTEX_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "test": "test",
    "unassigned": None,
    "": None,
}
"""Vertex AI's ml_use, in lower case, and the split it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """Which column is what.

    Attributes:
        image: of the image's path, or None where records are features alone.
        labels: of labels.
        split: of the split.
    """

    image: str | None
    labels: tuple[str, ...]
    split: str | None


class Row(NamedTuple):  # a third of the time of a frozen dataclass, a million times
    """One row, read but not looked up.

    Attributes:
        image: path or URI as the manifest has it; None where records are features alone.
        labels: as the manifest has them.
        split: the source's own.
        features: every further column.
        objects: with their boxes.
        size: (height, width) of the image, as the manifest declares it.
        relative: boxes are shares of width and height.
        fault: why the image that the row is about cannot be in the dataset.
    """

    image: str | None
    labels: tuple[str | int, ...]
    split: str | None
    features: Mapping[str, FeatureValue]
    objects: tuple[AnnotatedObject, ...] = ()
    size: tuple[int, int] | None = None
    relative: bool = False
    fault: BadInput | None = None


def describe(columns: Columns) -> str:
    """What was found in a manifest, for people."""
    image = "features alone, no image" if columns.image is None else f"images: {columns.image}"
    labels = ", ".join(columns.labels) or "none"
    return f"{image}; labels: {labels}; splits: {columns.split or 'none'}"


def pick_columns(
    names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig, manifest: Manifest
) -> Columns:
    """Finds the columns by the flags, or else by their usual names, whatever their case.

    Without an image column, only `label_column` makes a label; else that is a feature like any other.

    Args:
        names: of the columns.
        first: the first rows, by column.
        config: of the source.
        manifest: that the rows are from.

    Raises:
        ValueError: a flag names a column that is not there, or images are meant and no column has them.
    """
    image = _named(config.image_column, "--image_column", names, manifest) or usual_name(IMAGE_COLUMNS, names)
    if image is None:
        _check_no_stems(names, first, config, manifest)
    if image is None and (config.annotations or config.image_roots):
        raise ValueError(
            f"{flag_of(config)} is {manifest.path!r}, where no column is named like one of image paths "
            f"({', '.join(IMAGE_COLUMNS)}); name it with --image_column: {_listed(names)}"
        )
    if image is None:
        _check_no_images(names, first, config, manifest)
    labels = _label_columns(names, config, manifest, image)
    others = [name for name in names if name != image and name not in labels]
    return Columns(image, labels, usual_name(split_columns(others, first), others))


def split_columns(names: Iterable[str], first: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Which of SPLIT_COLUMNS tell the split: `split` and `ml_use`, and others where they name splits."""
    meant = {name.lower() for name in names if _names_splits(name, first)}
    return tuple(usual for usual in SPLIT_COLUMNS if usual in _ALWAYS_SPLITS or usual in meant)


def _names_splits(name: str, first: Sequence[Mapping[str, object]]) -> bool:
    """Whether what the first rows have in a column are names of splits."""
    if name.lower() not in SPLIT_COLUMNS:
        return False
    values = [text for row in first if (text := str(row.get(name, "")).strip())]
    return bool(values) and all(map(is_split_name, values))


def _check_no_images(
    names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig, manifest: Manifest
) -> None:
    """Raises ValueError where a column of what would be features alone has mostly names of images."""
    for name in names:
        values = [value.strip() for row in first if isinstance(value := row.get(name), str) and value.strip()]
        images = [value for value in values if is_image_name(value)]
        if 2 * len(images) > len(values):
            raise ValueError(
                f"{flag_of(config)} is {manifest.path!r}, where no column is named like one of image paths, "
                f"and the column {name!r} has images by name, such as {images[0][:100]!r}; "
                f"give {flag_with('--image_column', name)}"
            )


def _check_no_stems(
    names: Sequence[str], first: Sequence[Mapping[str, object]], config: SourceConfig, manifest: Manifest
) -> None:
    """Raises ValueError if every value of a column names an image, with or without its extension."""
    rows = RowRecords(config, manifest)
    for name in names[:_TRIED]:
        images = [str(value) for row in first if not is_missing(value := row.get(name))]
        if not images or not rows.is_anywhere(images[0]):
            continue
        folder = rows.find_folder(images) if len(images) == len(first) else None
        if folder is not None or (len(images) == len(first) > 0 and rows.finds(images)):
            where = "" if folder is None else f" {flag_with('--image_root', folder)}"
            raise ValueError(
                f"{flag_of(config)} is {manifest.path!r}, where no column is named like one of image paths, "
                f"and the column {name!r} names images, such as {images[0][:100]!r}; "
                f"give {flag_with('--image_column', name)}{where}"
            )


def _label_columns(
    names: Sequence[str], config: SourceConfig, manifest: Manifest, image: str | None
) -> tuple[str, ...]:
    asked = config.label_column
    if asked is None:
        if image is None or config.label_pattern is not None:
            return ()
        usual = usual_name(LABEL_COLUMNS, [name for name in names if name != image])
        return () if usual is None else (usual,)
    parts = (asked,) if asked in names else tuple(part.strip() for part in asked.split(","))
    found = tuple(str(_named(part, "--label_column", names, manifest)) for part in parts)
    if image in found:
        raise ValueError(f"--label_column is {asked!r}, which is the column of the image paths")
    return found


def _named(asked: str | None, flag: str, names: Sequence[str], manifest: Manifest) -> str | None:
    if asked is None or asked in names:
        return asked
    found = usual_name((asked.lower(),), names)
    if found is None:
        raise ValueError(f"{flag} is {asked!r}; {manifest.path!r} has the columns {_listed(names)}")
    return found


def usual_name(usual: Iterable[str], names: Sequence[str]) -> str | None:
    """The name, as it is written, that is the first of `usual` there is; case does not count."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in usual if name in by_lower), None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(clipped(name, 100) for name in names[:30]) + (
        f", … ({len(names)})" if len(names) > 30 else ""
    )


def whole(value: Any) -> Any:
    """A float without a fraction as the integer; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_missing(value: object) -> bool:
    """Whether a typed cell has no value: null, NaN or an empty text."""
    return value is None or value == "" or value != value


def labels_in(value: object, column: str = "") -> tuple[str | int, ...]:
    """The labels of a typed cell: none, one, or a list of them.

    Args:
        value: of the cell.
        column: named in messages.

    Raises:
        BadInput: stage `manifest`: a label is neither text nor a whole number.
    """
    if is_missing(value):
        return ()
    labels = tuple(map(whole, value if isinstance(value, list) else [value]))
    if any(isinstance(label, bool) or not isinstance(label, str | int) for label in labels):
        shown = json.dumps(value, ensure_ascii=False)[:100]
        raise BadInput(
            "manifest", "label is not text or an integer", f"{column} is {shown}" if column else shown
        )
    return labels


def split_name(value: str, column: str | None) -> str | None:
    """The normalised split that a cell names. In `ml_use`, cells have Vertex AI's names.

    It may be no name for a split at all: whether that matters is known where `--splits` is.
    """
    if column is not None and column.lower() == "ml_use" and value.lower() in VERTEX_SPLITS:
        return VERTEX_SPLITS[value.lower()]
    return normal_split(value) or None


def image_folders(place: str) -> list[str]:
    """The only folder in a folder, or else those with names such as `images` or of splits."""
    try:
        listed = sorted(names_in(place, _LISTED))
    except PermissionError:  # files in it may be readable
        return []
    names = (name for name in listed if "." not in name and not is_hidden(name))
    folders = [name for name in itertools.islice(names, _LOOKED_AT) if is_folder(f"{place}/{name}")]
    likely = [name for name in folders if splits_in(name) or not IMAGE_FOLDERS.isdisjoint(_words(name))]
    return [f"{place}/{name}" for name in (folders if len(folders) == 1 else likely)]


def _words(name: str) -> list[str]:
    return re.split(r"[-_ ]", name.lower())


class RowRecords:
    """Makes the rows of one manifest into records: finds images, reads labels from keys, selects.

    Args:
        config: of the source.
        manifest: that the rows are from.
        split: of the rows that name none.
        by_folder: a row without a split has that of a folder in the path of its image.
    """

    def __init__(
        self, config: SourceConfig, manifest: Manifest, split: str | None = None, by_folder: bool = False
    ) -> None:
        self.manifest = manifest
        self._config = config
        self._split = split
        self._by_folder = by_folder
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)
        manifest_folder = os.path.dirname(real_path(manifest.path))
        root = real_path(input_root(config))
        image_roots = tuple(map(real_path, config.image_roots))
        self._copies = tuple(folder for folder in image_roots if not file_system(folder).has_latency)
        self._bases = tuple(dict.fromkeys((manifest_folder, root, *image_roots)))
        self._confinement = Confinement((root, *image_roots, manifest_folder))
        inside = below(root, manifest_folder) or ""
        above = (os.path.join(root, *inside.split("/")[:at]) for at in range(len(inside.split("/")), 0, -1))
        self._places = (manifest_folder, *(above if inside else ()), root, *image_roots)
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        self._folders: tuple[str, ...] | None = None
        self._hints = _HINTS

    def find_folder(self, images: Sequence[str]) -> str | None:
        """Finds the folder near the manifest that holds the images, if none lies at its path.

        From then on, images are also looked for in that folder.

        Args:
            images: paths in the first rows.

        Returns:
            The only folder that holds all of them; None if no folder does, or several do.
        """
        if not images or any(map(self._finds, images)):
            return None
        bases, fitting = self._bases, []
        for folder in self._image_folders():
            self._bases = (folder,)
            if all(map(self._finds, images)):
                fitting.append(folder)
        self._bases = (*bases, *fitting) if len(fitting) == 1 else bases
        return fitting[0] if len(fitting) == 1 else None

    def is_anywhere(self, image: str) -> bool:
        """Whether an image exists at its path, or in one of the folders near the manifest."""
        return self._finds(image) or any(self._is_in(folder, image) for folder in self._image_folders())

    def finds(self, images: Iterable[str]) -> bool:
        """Whether all images exist."""
        return all(map(self._finds, images))

    def _finds(self, image: str) -> bool:
        try:
            self._locate(image)
        except BadInput:
            return False
        return True

    def _image_folders(self) -> tuple[str, ...]:
        """Folders that may hold the images: next to or above the manifest, and in image roots."""
        if self._folders is None:
            found = (folder for place in dict.fromkeys(self._places) for folder in image_folders(place))
            self._folders = tuple(folder for folder in found if real_path(folder) not in self._skip_dirs)
        return self._folders

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a row that starts at `line`, or why there is none."""
        try:
            located = None if row.image is None else self._located(row.image)
            key = self.manifest.row_key(line) if located is None else located.key
            if not self._selection.takes(key):
                return Failure(key, "list", EXCLUDED, self.manifest.origin(line), skipped=True)
            if row.fault is not None:
                raise row.fault
            labels = row.labels
            if self._label_pattern is not None:
                labels = (self._label_pattern.label(key),)
        except BadInput as fault:
            return self.failure(line, fault)
        annotations = Annotations(
            labels, row.features, row.objects, size=row.size, relative=row.relative and bool(row.objects)
        )
        split = self.split_of(row, key)
        origin = self.manifest.origin(line)
        if located is None:
            return ImageRecord(key, None, split, annotations, origin)
        image = ImageRef(located.path, version=located.version)
        return ImageRecord(key, image, split, annotations, origin, located.size)

    def split_of(self, row: Row, key: str) -> str | None:
        """The split of a row with the key of its record."""
        split = row.split or self._split
        return split_of_folders(key) if split is None and self._by_folder and row.image is not None else split

    def failure(self, line: int, fault: BadInput) -> Failure:
        """The failed record of a row that starts at `line`."""
        key = self.manifest.row_key(line)
        return Failure(key, fault.stage, fault.reason, printable(fault.detail))

    def _located(self, image: str) -> LocatedFile:
        """Like `_locate`. The first faults suggest the folder that holds the image."""
        try:
            return self._locate(image)
        except BadInput as fault:
            if fault.reason != "not found" or not self._hints:
                raise
            self._hints -= 1
            found = [folder for folder in self._image_folders() if self._is_in(folder, image)]
            if not found:
                raise BadInput(fault.stage, fault.reason, fault.detail + self._links_outside) from fault
            flags = " or ".join(flag_with("--image_root", folder) for folder in found[:_SHOWN_ROOTS])
            raise BadInput(fault.stage, fault.reason, f"{fault.detail}; {flags} finds it") from fault

    def _is_in(self, folder: str, image: str) -> bool:
        """Whether a folder has an image."""
        bases, self._bases = self._bases, (folder,)
        try:
            return self._finds(image)
        finally:
            self._bases = bases

    @functools.cached_property
    def _links_outside(self) -> str:
        return links_outside(self._config)

    def _locate(self, image: str) -> LocatedFile:
        if not image or image.isspace():
            raise BadInput("manifest", "no image path")
        if "://" in image and (scheme := scheme_of(image)):
            return self._locate_uri(image, scheme)
        try:
            return self._confinement.find(image, self._bases)
        except BadInput as fault:
            if fault.reason != "not found":
                raise
            if image != image.strip():
                return self._confinement.find(image.strip(), self._bases)
            found = self._with_extension(image)
            if found is None:
                raise
            return found

    def _with_extension(self, image: str) -> LocatedFile | None:
        """The file that an id names without its extension, as tables of ids do."""
        for extension in () if is_image_name(image) else _EXTENSIONS:
            try:
                return self._confinement.find(image + extension, self._bases)
            except BadInput as fault:
                if fault.reason != "not found":
                    raise
        return None

    def _locate_uri(self, uri: str, scheme: str) -> LocatedFile:
        """An object in one of the roots; or a copy of a remote image, by its bucket and path, or its path."""
        path = uri.partition("://")[2]
        if scheme == "file" and path.startswith("/"):
            return self._confinement.find(unquote(path), self._bases)
        fault = not_local(uri, "manifest")
        if is_absolute(read_uri := f"{scheme}://{path}"):
            try:
                return self._confinement.find(read_uri, ())
            except BadInput as known:
                if known.reason != OUTSIDE:
                    raise
                fault = known
        for copied in (path, path.partition("/")[2]):
            try:
                if copied and self._copies:
                    return self._confinement.find(copied.lstrip("/"), self._copies)
            except BadInput as known:
                if known.reason != "not found":
                    raise
        raise fault
