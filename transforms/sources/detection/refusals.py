"""Checks for annotations that no source would read, and for folders that are not classes.

Source `folder` makes each folder a class. That is wrong for parts of a dataset: splits next to another
folder, splits below classes, or `images` next to `masks`.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from os.path import basename

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import Failure
from recordmill.transforms.sources.archives.archive import NOT_AN_ARCHIVE, Archive, archives, first_names
from recordmill.transforms.sources.archives.members import is_gzip
from recordmill.transforms.sources.class_tables import is_mask_of
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import Look, joined
from recordmill.transforms.sources.masks.match import (
    LOSSLESS,
    MASK_FOLDERS,
    image_path,
    mask_path,
    match_masks,
    without_ending,
)
from recordmill.transforms.sources.names import (
    extension_of,
    is_image_name,
    is_split_name,
    name_stem,
    normal_split,
    splits_in,
)
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.tables.columns import IMAGE_COLUMNS, usual_name
from recordmill.transforms.sources.tables.parquet import ParquetSource
from recordmill.transforms.sources.tfrecord.files import is_tfrecord_name, looks_framed
from recordmill.transforms.sources.voc.xml import what_else
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.layout import MANIFEST

OR_FOLDER = "; or --source folder, which reads images and folders only"
_CLASSES = 16  # folders of classes that are compared
_LISTED = 20  # datasets that a message lists
_STRUCTURAL = IMAGE_FOLDERS | MASK_FOLDERS | {"scribbles"}
_OPENED = 8  # files of each kind that are opened
_START = 1 << 16
_ROWS = 50
_LONGEST = 200  # characters of a column's name that a message suggests
_FOLDERS = 3  # folders in a message
_COMPARED, _COMPARED_REMOTE = 8, 3  # folders of images that are compared as images and masks
_STEMS = 1_000  # names of each compared folder
_PAIRS = 3  # pairs of image and mask that are opened
_MASKS = 50  # masks whose images are looked up by name
_FILES, _ARCHIVES = 1_000, 8  # that are checked for annotations
_IN_ZIP, _IN_TAR, _UNPACKED = 20_000, 2_000, 200  # names that are listed of an archive
_OF_AN_IMAGE = ("json", "xml", "mat", "npy", "txt", "csv")  # extensions of files that annotate one image
_ALSO_NOTES = ("txt", "csv")  # a single file may be a note
_MAY_BE_CLASSES = frozenset(("mask", "label", "seg", "gt"))  # `mask` may be photographs of masks
_AS_CSV = "make a CSV of them, with a column of file names"
_CONVERT = f"convert them to COCO, PASCAL VOC or YOLO, or {_AS_CSV}"
_BY_NAME = (  # pattern of a file's name, its content, and the remedy
    (r"(list_(attr|bbox|landmarks)_celeba|identity_CelebA)\.(txt|csv)", "CelebA's lists", _AS_CSV),
    (r"data\.ya?ml", "the classes of a YOLO dataset", "add its label files, and give --source yolo"),
    (r".*\.arrow", "Arrow files of Hugging Face", "save the dataset with to_parquet, and give that"),
    (r"(digitStruct|imagelabels|setid|.*_anno(s|tations)?)\.mat", "annotations of MATLAB", _AS_CSV),
)

_Finding = tuple[str, str, str]  # the key of a file or folder, its content, and the remedy


def check_unread(look: Look) -> None:
    """Raises ValueError if names in the first folders, or heads of a few files, show annotations."""
    names = _Names(look)
    finders = (_by_name, _by_content, _masks_by_name, _masks_by_content)
    for key, what, remedy in itertools.chain.from_iterable(find(names) for find in finders):
        raise ValueError(
            f"--input is {look.config.input!r}, where {key!r} holds {what}, which are not read: "
            f"{remedy}; for the images without them give --source folder"
        )


class _Names:
    def __init__(self, look: Look) -> None:
        self.look = look
        levels = list(look.walk())
        self.levels = {key: level for key, level in levels if level.images}
        self.others = [joined(key, name) for key, level in levels for name in level.others]  # not images
        self.images = [image for level in self.levels.values() for image in level.images]
        self.stems = frozenset(map(name_stem, self.images))

    def of_kind(self, *extensions: str) -> Iterator[str]:
        """Keys of the first files with one of the extensions."""
        return itertools.islice((key for key in self.others if extension_of(key) in extensions), _OPENED)

    def count(self, images: Iterable[str]) -> int:
        """The number of names, with or without extension, that are images of the input."""
        return sum(image in self.stems or name_stem(image) in self.stems for image in images)

    def rows(self, key: str) -> list[str]:
        """The first non-blank lines of a text, the last perhaps cut off; none for a binary file."""
        head = self.look.head(key, _START)
        lines = [] if b"\0" in head else head.decode("utf-8", "replace").splitlines()
        return list(itertools.islice(filter(None, map(str.strip, lines)), _ROWS))


def _by_name(names: _Names) -> Iterator[_Finding]:
    for key in names.others:
        for pattern, what, remedy in _BY_NAME:
            if re.fullmatch(pattern, basename(key)):
                yield key, what, remedy
    for link, leads_to in names.look.outside.items():
        if basename(link).lower() in MASK_FOLDERS and is_folder(leads_to):
            key = link.removeprefix(names.look.root).strip("/")
            what = f"a link to the annotations in {leads_to!r}, outside the input"
            yield key, what, f"give {flag_with('--image_root', leads_to)}"
    if (found := _first_named_like_image(names.others, names.stems)) is not None:
        yield found, f".{extension_of(found)} files with the names of images", _CONVERT


def _first_named_like_image(others: Iterable[str], stems: Collection[str]) -> str | None:
    found: dict[str, list[str]] = {}
    for name in others:
        if (extension := extension_of(name)) in _OF_AN_IMAGE and name_stem(name) in stems:
            found.setdefault(extension, []).append(name)
    for extension, alike in found.items():
        if extension not in _ALSO_NOTES or len(alike) > 1 or len(stems) <= 2:
            return alike[0]
    return None


def _by_content(names: _Names) -> Iterator[_Finding]:
    """Files that begin with annotations, or with names of images."""
    look = names.look
    given = flag_with("--input", look.config.input)
    for key in names.of_kind("xml"):
        if what_else(look.head(key)) is not None:
            yield key, "annotations in CVAT's own XML", "export the task as COCO, PASCAL VOC or YOLO"
    for key in itertools.islice((key for key in names.others if is_tfrecord_name(basename(key))), _OPENED):
        is_our_output = MANIFEST in look.level(key.rpartition("/")[0]).others
        with contextlib.suppress(OSError):
            if not is_our_output and looks_framed(look.file(key)):
                yield key, "TFRecords", f"give {given} --source tfrecord"
    texts = names.of_kind("csv", "tsv", "jsonl", "ndjson", "jsonlines")
    if tables := [key for key in texts if _names_rows(names, key)]:
        yield tables[0], "rows that name images", f"give {given} {_table_flags(names, tables)}"
    for key in names.of_kind("json", "xml"):
        images = (rf"(?<![\w.-]){re.escape(image)}(?![\w.-])" for image in names.images[:_ROWS])
        if any(re.search(image, row) for image in images for row in names.rows(key)):
            yield key, "names of images", _CONVERT
    for key in itertools.islice(names.of_kind("parquet", "pq"), 1):
        path = look.path(key)
        with contextlib.suppress(ValueError, OSError):
            ParquetSource().check(SourceConfig("parquet", path, image_roots=(look.config.input,)))
            yield key, "rows of images", f"give {flag_with('--input', path)} --source parquet"
    for key in names.of_kind("txt", "lst"):
        if _is_list(names, key):
            yield key, "a list of images", "make a CSV of it, with a column of file names"


def _names_rows(names: _Names, key: str) -> bool:
    """Whether a first row names an image file, or most name an image without its extension."""
    cells = (re.split(r'[,;|\t"\'{}\[\]]', row) for row in names.rows(key))
    rows = [{basename(cell.strip()) for cell in row} - {""} for row in cells]
    images = frozenset(filter(is_image_name, itertools.chain.from_iterable(rows)))
    if images and not images.isdisjoint(names.images):
        return True
    return 2 * sum(not row.isdisjoint(names.stems) for row in rows) > len(rows) > 0


def _table_flags(names: _Names, found: list[str]) -> str:
    """The flags that read the tables with the extension of the first, and the images in other folders."""
    look = names.look
    alike = [key for key in found if extension_of(key) == extension_of(found[0])]
    around = {"", *(key.rpartition("/")[0] for key in alike)}
    apart = [key for key in names.levels if key not in around]
    folders = (*look.config.image_roots, *map(look.path, apart if len(apart) <= _FOLDERS else ()))
    flags = [flag_with("--annotations", look.path(key)) for key in alike]
    flags += [flag_with("--image_root", folder) for folder in dict.fromkeys(folders)]
    return " ".join((*flags, *_image_column(names, found[0])))


def _image_column(names: _Names, key: str) -> Iterator[str]:
    """The flag for the column of a CSV that names images, if it is needed to find the column."""
    if extension_of(key) not in ("csv", "tsv"):
        return
    rows = names.rows(key)
    header, *first = csv.reader(rows, delimiter=max(",;\t|", key=rows[0].count))
    if usual_name(IMAGE_COLUMNS, [name.strip() for name in header]) is not None:
        return
    for at, name in enumerate(header):
        images = [basename(row[at].strip()) for row in first if at < len(row)]
        if 2 * names.count(images) > len(images) > 0 and not is_image_name(name) and len(name) <= _LONGEST:
            yield flag_with("--image_column", name)
            return


def _is_list(names: _Names, key: str) -> bool:
    """Whether a text lists images, perhaps after a number, and has labels or is named like a split."""
    rows = [re.split(r"[\s,;|]+", row) for row in names.rows(key)]
    is_list = is_split_name(name_stem(key)) or (len(rows) > 1 and all(len(row) > 1 for row in rows))
    first = ([basename(cell.replace("\\", "/")) for cell in row[: 1 + row[0].isdigit()]] for row in rows)
    return bool(rows) and is_list and 2 * sum(names.count(cells) > 0 for cells in first) >= len(rows)


def _masks_by_name(names: _Names) -> Iterator[_Finding]:
    """Folders such as `masks` where most files have the names of images in other folders."""
    if names.levels and all(map(_is_of_masks, names.levels)):
        yield next(iter(names.levels)), "masks, and their images are elsewhere", "give the folder around both"
    stems = {key: list(map(name_stem, level.images[:_STEMS])) for key, level in names.levels.items()}
    photos = {stem for key, found in stems.items() if not _is_of_masks(key) for stem in found}
    for key in filter(_is_of_masks, stems):
        first = stems[key][:_MASKS]
        named = [stem for stem in first if any(base in photos for _, base in without_ending(stem))]
        if 2 * len(named) > len(first):
            remedy = "--source masks reads PNG, GIF, BMP or TIFF; give --mask_pattern their path"
            yield key, "masks, judging by the names", remedy


def _is_of_masks(key: str) -> bool:
    return any(part in MASK_FOLDERS and part not in _MAY_BE_CLASSES for part in key.lower().split("/"))


def _first_mask(images: Sequence[str]) -> str | None:
    """The first file in a folder such as `masks`, if most files in such folders have names of images."""
    masks = {name: path for name in images if (path := mask_path(name)) is not None}
    if not masks:
        matched = match_masks({key: key for key in images}, None)
        is_most = 2 * len(matched.masks) > len(matched.images)
        return next(iter(matched.masks.values()))[0] if is_most else None
    photos = [name for name in images if name not in masks]
    paths, stems = set(map(image_path, photos)), set(map(name_stem, photos))

    def is_mask(name: str, path: str) -> bool:
        if any(base in paths for _, base in without_ending(path)):
            return True
        is_class = not _MAY_BE_CLASSES.isdisjoint(name.lower().split("/")[:-1])
        return not is_class and any(base in stems for _, base in without_ending(name_stem(name)))

    first = list(masks.items())[:_MASKS]
    found = [name for name, path in first if is_mask(name, path)]
    return found[0] if 2 * len(found) > len(first) else None


def _masks_by_content(names: _Names) -> Iterator[_Finding]:
    """Grey or palette images with the names and sizes of colour images."""
    look = names.look
    most = _COMPARED_REMOTE if look.has_latency else _COMPARED
    folders = [(key, level.images[:_STEMS]) for key, level in itertools.islice(names.levels.items(), most)]
    for key, files in folders:
        masks = {name_stem(name): joined(key, name) for name in files if extension_of(name) in LOSSLESS}
        alike = (
            other != key
            and other.rpartition("/")[0] == key.rpartition("/")[0]
            and sum(name_stem(one) in masks for one in images) > 1
            for other, images in folders
        )
        if not masks or sum(alike) > 1:  # several folders with the same names: numbered images of classes
            continue
        for other, images in folders:
            pairs = ((masks.get(name_stem(name), ""), joined(other, name)) for name in images)
            first = list(itertools.islice((pair for pair in pairs if pair[0] not in ("", pair[1])), _PAIRS))
            if len(first) > 1 and all(is_mask_of(*map(look.file, pair)) for pair in first):
                remedy = "--source masks reads folders images and masks; or give --mask_pattern their path"
                yield key or "./", "masks of images of the same names", remedy


_TABLES = frozenset(("csv", "tsv", "jsonl", "ndjson", "parquet", "arrow", "mat"))
_MAY_BE_NOTES = frozenset(("json", "xml", "yaml", "yml", "txt"))
_OF_YOLO = re.compile(r"(?:data|dataset)\.ya?ml|obj\.(?:data|names)|_darknet\.labels")
_WORD = re.compile(
    r"annotations?|annos?|labels?|captions?|bbox(?:es)?|boxes|instances|keypoints|panoptic|coco\d*|regions?|lists?"
)  # in the name of a file that annotates several images
_NOTES_FOLDERS = frozenset(("annotations", "annotation", "imagesets", "xmls"))


def check_archives_read(look: Look) -> None:
    """Raises ValueError if a name in the first archives, or next to them, is that of annotations."""
    found = list(itertools.islice(archives(look.config), _FILES))
    others = [item.key for item in found if isinstance(item, Failure) and item.reason == NOT_AN_ARCHIVE]
    names = {key: f"{key!r} lies next to archives" for key in others}
    for item in [item for item in found if isinstance(item, Archive)][:_ARCHIVES]:
        # lists more names if that does not read the bytes of members
        is_unpacked = is_gzip(item.path) or look.has_latency
        most = _IN_ZIP if item.path.lower().endswith(".zip") else _UNPACKED if is_unpacked else _IN_TAR
        for name in first_names(item, most):
            names.setdefault(item.prefix + name, f"the archive {item.path!r} holds {name!r}")
    if (unread := unread_member(list(names))) is not None:
        raise ValueError(
            f"--input is {look.config.input!r}: {names[unread]}, and annotations of archives are not read: "
            "unpack it and give the folder; or give --source archive, which reads images and folders only"
        )


def unread_member(names: Sequence[str]) -> str | None:
    """The first file in archives that is, by its name, an annotation or a mask of the images."""
    images = [name for name in names if is_image_name(name)]
    others = [name for name in names if not is_image_name(name)]
    of_all = next(filter(_is_of_all, others), None)
    return of_all or _first_named_like_image(others, set(map(name_stem, images))) or _first_mask(images)


def _is_of_all(name: str) -> bool:
    """Whether a file's name suggests annotations of several images."""
    *folders, base = name.lower().split("/")
    extension = extension_of(base)
    if extension in _TABLES or _OF_YOLO.fullmatch(base):
        return True
    if extension not in _MAY_BE_NOTES:
        return False
    words = re.split(r"[-_. ]", base.removesuffix(f".{extension}"))
    is_named = any(_WORD.fullmatch(word) or is_split_name(word) for word in words)
    return is_named or (not _NOTES_FOLDERS.isdisjoint(folders) and "readme" not in words)


def commands(found: Iterable[tuple[str, str]]) -> str:
    """The arguments to read each (path, kind); without `--source` for an empty kind."""
    listed = [flag_with("--input", path) + (f" --source {kind}" if kind else "") for path, kind in found]
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return "; ".join(listed[:_LISTED]) + more


def check_class_folders(look: Look, is_cut: bool) -> None:
    """Raises ValueError if folders that would become splits or classes look like parts of a dataset.

    With `is_cut`, the search for datasets left out folders: then a single class is an error, too.
    """
    for finding in _findings(look, is_cut):
        raise ValueError(f"--input is {look.config.input!r}, where {finding}{OR_FOLDER}")


def _findings(look: Look, is_cut: bool) -> Iterator[str]:
    """The faults of the folders, each with its remedy."""
    names = list(look.folders_with_images())
    splits = list(filter(is_split_name, names))
    yield from _mixed_splits(look, names, splits)
    if splits and len(splits) == len(names):
        names = sorted({name for split in splits for name in look.folders_with_images(split)})
    yield from _split_words(look, names)
    yield from _splits_below(look, names)
    if look.config.label_pattern is None:
        yield from _structural(look, names)
        yield from _depths(look, names)
        if is_cut and not splits and len(names) < 2:
            folders = {key.partition("/")[0] for key, level in look.walk() if level.images}
            if len(folders) <= 1 and "" not in folders:
                yield (
                    "all images are in one first-level folder, and there are too many folders to search "
                    "for a dataset: give the dataset's own folder"
                )


def _give(look: Look, *keys: str) -> str:
    listed = commands((look.given(key), "") for key in keys)
    return f"give {'one of them: ' if len(keys) > 1 else ''}{listed}"


def _two(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names[:2]))


def _mixed_splits(look: Look, names: list[str], splits: list[str]) -> Iterator[str]:
    """Splits next to another folder, or next to an image."""
    others = [name for name in names if name not in splits]
    if others and len(set(map(normal_split, splits))) > 1:
        instead = f"move it elsewhere; {_give(look, *splits, *others)}"
        yield f"{_two(splits)} are named like splits, and {others[0]!r} is not: {instead}"
    strays = list(filter(Selection(look.config).takes, look.level("").images))
    if splits and not others and strays:
        one = f"leave it out with {flag_with('--exclude', strays[0])}; " if len(strays) == 1 else ""
        instead = f"{one}{_give(look, *splits)}"
        yield f"{splits[0]!r} is named like a split, and {strays[0]!r} is in none: {instead}"


def _split_words(look: Look, names: list[str]) -> Iterator[str]:
    """Classes that are mostly named after different splits: `seg_train`, `seg_test`."""
    found = {name: words for name in names if (words := _splits_named(basename(name)))}
    if 2 * len(found) >= len(names) and len(set().union(*found.values())) > 1:
        yield f"{_two(list(found))} are named after splits, and are no classes: {_give(look, *names)}"


def _splits_named(name: str) -> set[str]:
    """The splits in the words of a folder's name, which may have a number: `test1`, `seg_train`."""
    return splits_in(re.sub(r"[ _-]+", "_", re.sub(r"(?<=[a-z])\d{1,2}(?=_|$)", "", name.lower())))


def _splits_below(look: Look, names: list[str]) -> Iterator[str]:
    """Splits below a class: `cat/train`, `cat/test`."""
    for name in names[:_CLASSES]:
        splits = [inner for inner in look.folders_with_images(name) if is_split_name(basename(inner))]
        if len(set(map(normal_split, map(basename, splits)))) > 1:
            what = f"{_two(splits)} are named like splits and lie below a class, where splits are not read"
            yield f"{what}: put the splits above the classes; {_give(look, name)}"


def _structural(look: Look, names: list[str]) -> Iterator[str]:
    """Classes that all have the names of parts of a dataset: `images`, `masks`, `train_images`."""
    if len(names) == 1:  # it may contain further wrappers
        while not look.level(names[0]).images and len(inner := list(look.folders_with_images(names[0]))) == 1:
            names = inner
    if names and all(one.lower() in _STRUCTURAL or _splits_named(one) for one in map(basename, names)):
        one = "is named like a part of a dataset, and no class"
        several = "are named like parts of a dataset, and no classes"
        yield f"{_two(names)} {one if len(names) == 1 else several}: {_give(look, *names)}"


def _depths(look: Look, names: list[str]) -> Iterator[str]:
    """One folder of classes next to folders with a few images, such as documents."""
    inner = {name: len(list(look.folders_with_images(name))) for name in names[: _CLASSES + 1]}
    nested = [name for name, count in inner.items() if count > 1]
    others = [name for name in names if name not in nested]
    if len(nested) != 1 or not others or len(names) > _CLASSES:
        return
    levels = (level for name in others for _, level in look.walk(name))
    most = inner[nested[0]]
    outside = itertools.islice(itertools.chain.from_iterable(level.images for level in levels), most)
    if len(look.level(nested[0]).images) < most and len(list(outside)) < most:
        what = f"{nested[0]!r} has folders of classes, and the images of {others[0]!r} lie outside it"
        yield f"{what}: {_give(look, nested[0], *others)}"
