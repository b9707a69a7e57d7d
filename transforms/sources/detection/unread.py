"""Refuses a folder of images with annotations that source `folder` would not read."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from recordmill.transforms.flags import flag_with
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.masks.classes import is_mask_of
from recordmill.transforms.sources.masks.match import ENDINGS, LOSSLESS, MASK_FOLDERS
from recordmill.transforms.sources.names import extension_of, is_image_name, is_split_name, name_stem
from recordmill.transforms.sources.outline import Level, Look, joined
from recordmill.transforms.sources.tables.columns import IMAGE_COLUMNS, usual_name
from recordmill.transforms.sources.tables.parquet import ParquetSource
from recordmill.transforms.sources.tfrecord.files import is_tfrecord_name, looks_framed
from recordmill.transforms.sources.voc.xml import what_else
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.layout import MANIFEST

_OPENED = 8  # files of each kind that are opened
_START = 1 << 16
_ROWS = 50
_LONGEST = 200  # characters of a column's name that a message suggests
_FOLDERS = 3  # folders in a message
_COMPARED, _COMPARED_REMOTE = 8, 3  # folders of images that are compared as images and masks
_STEMS = 1_000  # names of each compared folder
_PAIRS = 3  # pairs of image and mask that are opened
_BY_NAME = (
    (
        re.compile(r"(?:.*/)?(?:list_(?:attr|bbox|landmarks)_celeba|identity_CelebA)\.(?:txt|csv)"),
        "CelebA's lists",
        "make a CSV of them, with a column of file names",
    ),
    (
        re.compile(r"(?:.*/)?data\.ya?ml"),
        "the classes of a YOLO dataset",
        "add its label files, and give --source yolo",
    ),
    (
        re.compile(r".*\.arrow"),
        "Arrow files of Hugging Face",
        "save the dataset with to_parquet, and give that",
    ),
    (
        re.compile(r"(?:.*/)?(?:digitStruct|imagelabels|setid|cars_annos)\.mat|.*_anno(?:s|tations)?\.mat"),
        "annotations of MATLAB",
        "make a CSV of them, with a column of file names",
    ),
)
_CVAT = ("annotations in CVAT's own XML", "export the task as COCO, PASCAL VOC or YOLO")
_OF_AN_IMAGE = ("json", "xml", "mat", "npy", "txt", "csv")  # extensions of files that annotate one image
_ALSO_NOTES = ("txt", "csv")  # a single one may be a note
_TABLES = ("csv", "tsv", "jsonl", "ndjson", "jsonlines")
_CONVERT = "convert them to COCO, PASCAL VOC or YOLO, or make a CSV of them, with a column of file names"
_MAY_BE_CLASSES = frozenset(("mask", "label", "seg", "gt"))  # such as photographs of masks

_Finding = tuple[str, str, str]  # the key of a file or folder, what it holds, and the remedy


def check_unread(config: SourceConfig, outline: Look) -> None:
    """Checks the names in the first folders, and opens a few files, for annotations that are not read.

    Raises:
        ValueError: says what they are, and the remedy.
        OSError: the input cannot be looked at.
    """
    names = _Names.of(outline)
    looks: tuple[Callable[[SourceConfig, Look, _Names], _Finding | None], ...] = (
        _known_format,
        _tfrecords,
        _links_outside,
        _of_single_images,
        _tables,
        _lists,
        _masks_by_name,
        _masks_by_content,
    )
    for look in looks:
        if (found := look(config, outline, names)) is not None:
            key, what, remedy = found
            raise ValueError(
                f"--input is {config.input!r}, where {key!r} holds {what}, which are not read: "
                f"{remedy}; for the images without them give --source folder"
            )


@dataclasses.dataclass(slots=True)
class _Names:
    """The names in the first folders of an input.

    Attributes:
        levels: folders with images, by key.
        others: keys of files that are not images by name.
    """

    levels: dict[str, Level]
    others: list[str]
    _stems: frozenset[str] | None = None

    @classmethod
    def of(cls, outline: Look) -> _Names:
        levels, others = {}, []
        for key, level in outline.walk():
            if level.images:
                levels[key] = level
            others += [joined(key, name) for name in level.others]
        return cls(levels, others)

    @property
    def images(self) -> Iterator[str]:
        """File names of the images."""
        return itertools.chain.from_iterable(level.images for level in self.levels.values())

    @property
    def stems(self) -> frozenset[str]:
        """File names of the images, without extensions."""
        if self._stems is None:
            self._stems = frozenset(map(name_stem, self.images))
        return self._stems

    def of_kind(self, *extensions: str) -> list[str]:
        """Keys of the first other files with one of the extensions."""
        found = (key for key in self.others if extension_of(key) in extensions)
        return list(itertools.islice(found, _OPENED))


def _known_format(_: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    for key in names.others:
        for pattern, what, remedy in _BY_NAME:
            if pattern.fullmatch(key):
                return key, what, remedy
    for key in names.of_kind("xml"):
        if what_else(outline.head(key)) is not None:
            return (key, *_CVAT)
    return None


def _tfrecords(config: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    """TFRecords, except in datasets that this program wrote."""
    found = (key for key in names.others if is_tfrecord_name(key.rpartition("/")[2]))
    for key in itertools.islice(found, _OPENED):
        is_ours = MANIFEST in outline.level(key.rpartition("/")[0]).others
        try:
            is_framed = not is_ours and looks_framed(outline.file(key))
        except OSError:
            continue
        if is_framed:
            return key, "TFRecords", f"give {flag_with('--input', config.input)} --source tfrecord"
    return None


def _links_outside(_: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    """Links out of the input with a name such as `masks`."""
    for link, leads_to in outline.outside.items():
        if os.path.basename(link).lower() in MASK_FOLDERS and is_folder(leads_to):
            key = link.removeprefix(outline.path("")).strip("/")
            what = f"a link to the annotations in {leads_to!r}, outside the input"
            return key, what, f"give {flag_with('--image_root', leads_to)}"
    return None


def _of_single_images(_: SourceConfig, __: Look, names: _Names) -> _Finding | None:
    """Files with the names of images, which annotate one image each."""
    found: dict[str, list[str]] = {}
    for key in names.others:
        if (extension := extension_of(key)) in _OF_AN_IMAGE and name_stem(key) in names.stems:
            found.setdefault(extension, []).append(key)
    for extension, keys in found.items():
        if extension not in _ALSO_NOTES or len(keys) > 1 or len(names.stems) <= 2:
            return keys[0], f".{extension} files with the names of images", _CONVERT
    return None


def _tables(config: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    """Tables whose rows name images."""
    found = [key for key in names.of_kind(*_TABLES) if _names_images(_rows(outline, key), names)]
    if found:
        alike = [key for key in found if extension_of(key) == extension_of(found[0])]
        files = " ".join(flag_with("--annotations", outline.path(key)) for key in alike)
        folders = (*config.image_roots, *map(outline.path, _apart(alike, names)))
        roots = "".join(f" {flag_with('--image_root', folder)}" for folder in dict.fromkeys(folders))
        column = _image_column(found[0], outline, names)
        remedy = f"give {flag_with('--input', config.input)} {files}{roots}{column}"
        return found[0], "rows that name images", remedy
    for key in names.of_kind("json", "xml"):
        if any(_is_named(image, row) for row in _rows(outline, key) for image in _some_images(names)):
            return key, "names of images", _CONVERT
    for key in names.of_kind("parquet", "pq")[:1]:
        path = outline.path(key)
        try:
            ParquetSource().check(SourceConfig("parquet", path, image_roots=(config.input,)))
        except (ValueError, OSError):
            continue
        return key, "rows of images", f"give {flag_with('--input', path)} --source parquet"
    return None


def _image_column(key: str, outline: Look, names: _Names) -> str:
    """The flag for the column of a CSV that names images; empty if the column is found without it."""
    rows = _rows(outline, key) if extension_of(key) in ("csv", "tsv") else []
    marks = max(",;\t|", key=rows[0].count) if rows else ","
    header, *first = csv.reader(rows, delimiter=marks) if rows else [[]]
    if usual_name(IMAGE_COLUMNS, [name.strip() for name in header]) is not None:
        return ""
    for at, name in enumerate(header):
        images = [row[at].strip().rpartition("/")[2] for row in first if at < len(row)]
        if 2 * _known(images, names) > len(images) > 0 and not is_image_name(name) and len(name) <= _LONGEST:
            return f" {flag_with('--image_column', name)}"
    return ""


def _apart(tables: list[str], names: _Names) -> list[str]:
    """The folders of images without a table; empty if they are many."""
    around = {"", *(key.rpartition("/")[0] for key in tables)}
    apart = [key for key in names.levels if key not in around]
    return apart if len(apart) <= _FOLDERS else []


def _lists(_: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    """Texts that list images, with labels, or in a file named like a split. A number may come first."""
    for key in names.of_kind("txt", "lst"):
        rows = [re.split(r"[\s,;|]+", row) for row in _rows(outline, key)]
        is_list = is_split_name(name_stem(key)) or (len(rows) > 1 and all(len(row) > 1 for row in rows))
        images = [
            [cell.replace("\\", "/").rpartition("/")[2] for cell in row[: 1 + row[0].isdigit()]]
            for row in rows
        ]
        if rows and is_list and 2 * sum(_known(cells, names) > 0 for cells in images) >= len(rows):
            return key, "a list of images", "make a CSV of it, with a column of file names"
    return None


def _masks_by_name(_: SourceConfig, __: Look, names: _Names) -> _Finding | None:
    """Folders with a name such as `masks`, most of whose files have the names of images in other folders."""
    if names.levels and all(map(_of_masks, names.levels)):
        return (
            next(iter(names.levels)),
            "masks, and their images are elsewhere",
            "give the folder around both",
        )
    for key, level in names.levels.items():
        if not _of_masks(key):
            continue
        stems = frozenset(
            name_stem(image)
            for other, images in names.levels.items()
            if not _of_masks(other)
            for image in images.images[:_STEMS]
        )
        first = [name_stem(name) for name in level.images[:_ROWS]]
        matched = sum(any(stem.removesuffix(ending) in stems for ending in ENDINGS) for stem in first)
        if 2 * matched > len(first):
            remedy = "--source masks reads PNG, GIF, BMP or TIFF; --mask_pattern says where they lie"
            return key, "masks, judging by the names", remedy
    return None


def _masks_by_content(config: SourceConfig, outline: Look, names: _Names) -> _Finding | None:
    """Grey or palette images with the names and sizes of colour images."""
    most = _COMPARED_REMOTE if file_system(config.input).has_latency else _COMPARED
    folders = [(key, level.images[:_STEMS]) for key, level in itertools.islice(names.levels.items(), most)]
    for key, files in folders:
        masks = {name_stem(name): joined(key, name) for name in files if extension_of(name) in LOSSLESS}
        for other, images in folders if masks and not _is_class(key, masks, folders) else ():
            pairs = (
                (mask, joined(other, name))
                for name in images
                if (mask := masks.get(name_stem(name))) is not None
            )
            first = list(itertools.islice((pair for pair in pairs if pair[0] != pair[1]), _PAIRS))
            if len(first) > 1 and all(is_mask_of(*map(outline.file, pair)) for pair in first):
                remedy = "--source masks reads folders images and masks; --mask_pattern says where they lie"
                return key or "./", "masks of images of the same names", remedy
    return None


def _is_class(key: str, stems: Collection[str], folders: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Whether two or more folders next to one have images of the same names, as numbered classes do."""
    parent = key.rpartition("/")[0]
    alike = [
        other
        for other, images in folders
        if other != key
        and other.rpartition("/")[0] == parent
        and sum(name_stem(one) in stems for one in images) > 1
    ]
    return len(alike) > 1


def _of_masks(key: str) -> bool:
    return any(part in MASK_FOLDERS and part not in _MAY_BE_CLASSES for part in key.lower().split("/"))


def _rows(look: Look, key: str) -> list[str]:
    """The first lines of a text that are not blank; the last may be incomplete. Empty for a binary file."""
    head = look.head(key, _START)
    if b"\0" in head:
        return []
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    return list(itertools.islice(filter(None, lines), _ROWS))


def _names_images(rows: list[str], names: _Names) -> bool:
    """Whether one of the first rows names an image file, or most name an image without its extension."""
    cells = [re.split(r'[,;|\t"\'{}\[\]]', row) for row in rows]
    last = [[cell.strip().rpartition("/")[2] for cell in row] for row in cells]
    files = frozenset(names.images) if rows else frozenset()
    if any(cell in files for row in last for cell in row if is_image_name(cell)):
        return True
    return 2 * sum(any(cell in names.stems for cell in row if cell) for row in last) > len(rows) > 0


def _some_images(names: _Names) -> Iterator[str]:
    return itertools.islice(names.images, _ROWS)


def _is_named(image: str, row: str) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(image)}(?![\w.-])", row))


def _known(images: list[str], names: _Names) -> int:
    """The number of names that are images of the input, with or without extension."""
    return sum(image in names.stems or name_stem(image) in names.stems for image in images)
