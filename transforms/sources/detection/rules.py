"""The detection rules: each returns why an input looks like a source, or None. `registry.ROWS` lists them.

A rule looks at names, and at the first bytes of some files. It imports the code of its format when it is
called, because workers need no rule.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from recordmill.transforms.records import BadInput, Failure, ImageRecord
from recordmill.transforms.sources.config import readable
from recordmill.transforms.sources.look import FIRST, Look, joined
from recordmill.transforms.sources.masks.match import (
    ENDINGS,
    LOSSLESS,
    OTHER_ENDINGS,
    MaskPattern,
    is_mask_folder,
    mask_path,
    without_ending,
)
from recordmill.transforms.sources.names import (
    IDX_NAME,
    IMAGE_EXTENSIONS,
    NOT_AN_IMAGE,
    extension_of,
    is_image_name,
    is_split_name,
    stem_of,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.storage.files import is_file

if TYPE_CHECKING:
    from recordmill.transforms.sources.archives.archive import Archive
    from recordmill.transforms.sources.tables.manifest_sources import ManifestSource

_COCO_DEPTH, _COCO_FILES = 2, 20
_IMAGENET_FOLDERS = 40
_JSON_LINES = ("jsonl", "ndjson", "jsonlines")
_FRAMED = 16  # files that are opened
_TEXTS = 500  # listed in a folder of labels
_TRIED = 50  # label files that are opened; masks whose image is looked up
_MASK_FILES = 500  # listed in a folder of masks
_DESCRIBED = 1_000  # files of a folder
_SEARCHED = 10_000  # files of a bucket before the first image

Rule = Callable[[Look], str | None]


def a_file(pattern: str | re.Pattern[str], why: str = "it holds {!r}") -> Rule:
    """A rule: an input file, or a file in the input folder, has a name that matches."""

    def rule(look: Look) -> str | None:
        names = [look.file_name] if look.file_name else look.names()
        found = filter(re.compile(pattern).fullmatch, names)
        first = min(found, key=lambda name: name.endswith(".gz"), default=None)
        return first and why.format(first)

    return rule


def a_head(kinds: dict[str, Callable[[bytes], str]]) -> Rule:
    """A rule: the function for an extension names the kind of a file with that extension by its head."""

    def rule(look: Look) -> str | None:
        for key in look.first_files(kinds):
            kind_of = kinds.get(key.rpartition(".")[2])
            if kind_of is not None and (kind := kind_of(look.head(key))):
                return f"{key!r} is {kind}"
        return None

    return rule


idx = a_file(IDX_NAME, "{!r} is an IDX file by name")


def numpy(look: Look) -> str | None:
    """Arrays, and no images."""
    from recordmill.transforms.sources.arrays import is_named

    arrays = [key for key in _without_images(look) if extension_of(key) in ("npy", "npz")]
    found = next((key for key in arrays if is_named(key) or len(arrays) == 1), None)
    return found and f"{found!r} has arrays by name"


def tfrecord(look: Look) -> str | None:
    """Files of TFRecords by name and first bytes, and no images."""
    from recordmill.transforms.sources.tfrecord.files import is_tfrecord_name, looks_framed

    files = (
        key for key, path in _without_images(look).items() if path and is_tfrecord_name(os.path.basename(key))
    )
    found = next((key for key in itertools.islice(files, _FRAMED) if looks_framed(look.first[key])), None)
    return found and f"{found!r} is a TFRecord file"


def parquet(look: Look) -> str | None:
    """Parquet files, and no images or .tar files: img2dataset writes a table next to each .tar."""
    files = _without_images(look)
    found = [key for key, path in files.items() if path and extension_of(key) in ("parquet", "pq")]
    if not found or any(extension_of(key) == "tar" for key in files):
        return None
    return f"{os.path.basename(found[0])!r} is a Parquet file by name"


def _without_images(look: Look) -> dict[str, str]:
    """The first files; none if a readable one is an image by name."""
    return {} if any(path and is_image_name(key) for key, path in look.first.items()) else look.first


def webdataset(look: Look) -> str | None:
    """The first tar has an image and a file of the same sample."""
    from recordmill.transforms.sources.archives.archive import first_bytes, first_names
    from recordmill.transforms.sources.archives.webdataset import MASKS, TARS, WITH_IMAGE, sample_name

    if (found := _first_archive(look, TARS)) is None:
        return None
    samples = [(name, *sample_name(name)) for name in first_names(found)]
    images = {sample for name, sample, extension in samples if is_image_name(name) and extension not in MASKS}
    with_image = ((name, end) for name, sample, end in samples if end in WITH_IMAGE and sample in images)
    name, extension = next(with_image, ("", ""))
    if extension == "json" and re.search(rb'"shapes"\s*:\s*\[', first_bytes(found, name)):
        return None  # LabelMe's annotations are read from folders only
    text = f"{os.path.basename(found.path)!r} is a tar with an image and {name!r}, which goes with it"
    return text if name else None


def archive(look: Look) -> str | None:
    """The first archive holds an image."""
    from recordmill.transforms.sources.archives.archive import first_names

    if (found := _first_archive(look)) is None:
        return None
    image = next(filter(is_image_name, first_names(found)), None)
    return image and f"{os.path.basename(found.path)!r} is an archive that holds images such as {image!r}"


def _first_archive(look: Look, kinds: str = ".+") -> Archive | None:
    """The first archive among the first files; None if there are images too."""
    from recordmill.transforms.sources.archives.archive import Archive, archives

    if not _without_images(look):
        return None
    first = itertools.islice(archives(look.config, kinds), FIRST)
    return next((item for item in first if isinstance(item, Archive)), None)


def coco(look: Look) -> str | None:
    """A JSON file has the lists of COCO: one of the call, or one of the first in the folder."""
    from recordmill.transforms.sources.coco.files import kind_of
    from recordmill.transforms.sources.tables.manifests import flag_of, manifests

    if look.config.annotations or not look.is_folder:
        paths = [manifest.file for manifest in manifests(look.config)]
        if not all(extension_of(path) == "json" for path in paths):
            return None
        with readable(flag_of(look.config), paths[0]):
            is_coco = kind_of(paths[0], must_be=False) is not None
        return f"{paths[0]!r} is a COCO annotation file" if is_coco else None
    for key in itertools.islice(look.first_files(("json",), _COCO_FILES, _COCO_DEPTH), _COCO_FILES):
        with contextlib.suppress(OSError):  # reading it reports the fault
            if kind_of(look.file(key), must_be=False) is not None:
                return f"{key!r} is a COCO annotation file"
    return None


def imagenet(look: Look) -> str | None:
    """Folders or images have ImageNet's names, or a list names images and the numbers of their classes."""
    from recordmill.transforms.sources.imagenet.layout import Layout

    if not look.is_folder:
        return None
    layout = Layout(look, _IMAGENET_FOLDERS)
    if len(layout.synsets) > 1:
        return f"it has folders named by synset, such as {min(layout.synsets)!r}"
    if layout.named:
        return f"{layout.named!r} is named as ILSVRC's images are"
    found = next((key for key in layout.lists() if "/" not in key), None)
    return found and f"{found!r} lists images and the numbers of their classes"


def yolo(look: Look) -> str | None:
    """A data.yaml, darknet's files, or label files with the names of images."""
    from recordmill.transforms.sources.yolo.dataset import LABEL_FOLDERS

    if look.file_name:
        return _data_yaml(look, look.file_name)
    names = look.names()
    if why := next(filter(None, (_data_yaml(look, name) for name in names)), None):
        return None if _has_masks_alone(look, LABEL_FOLDERS) else why
    for name in ("obj.data", "obj.names"):
        if name in names:
            return f"it has darknet's {name!r}"
    folders = [""]
    for name in look.folders():
        if name.lower() in LABEL_FOLDERS:
            folders.append(name)
        elif is_split_name(name):
            inner = (one for one in look.folders(name) if one.lower() in LABEL_FOLDERS)
            folders += [name, *(f"{name}/{one}" for one in inner)]
    labels = (_label_with_image(look, folder) for folder in folders)
    label = next(filter(None, labels), None)
    return label and f"{label!r} is a label file of YOLO"


def _has_masks_alone(look: Look, label_folders: frozenset[str]) -> bool:
    """Whether images have masks, and no folder has a name of label folders, such as `labels`."""
    around = ("", *filter(is_split_name, look.folders()))
    folders = itertools.chain.from_iterable(map(look.folders, around))
    return label_folders.isdisjoint(map(str.lower, folders)) and masks(look) is not None


def _data_yaml(look: Look, name: str) -> str | None:
    from recordmill.transforms.sources.class_tables import YAML_FILES, read_yaml

    key = "" if look.file_name else name
    if extension_of(name) not in ("yaml", "yml") or not is_file(look.path(key)):
        return None
    if not look.is_inside(key):  # reading it reports the fault
        return f"it has {name!r}" if name in YAML_FILES else None
    try:
        found = read_yaml(look.file(key))
    except ValueError:
        return None
    sets = [found[name] for name in ("train", "val", "test") if found.get(name)]
    is_ours = sets and not any(isinstance(one, dict) for one in sets)
    if not is_ours or not found.get("names") or isinstance(found["names"], str):
        return None
    return f"{name!r} names classes and splits as Ultralytics' data.yaml does"


def _label_with_image(look: Look, folder: str) -> str | None:
    """The key of a label file that belongs to an image, if the first texts are all label files."""
    from recordmill.transforms.sources.yolo.dataset import CLASS_FILES, LABEL_FOLDERS
    from recordmill.transforms.sources.yolo.source import is_label_text

    around, _, last = folder.lower().rpartition("/")
    keys = (joined(folder, name) for name in look.names(folder))
    if is_of_labels := last in LABEL_FOLDERS:
        keys = (one.key for one in look.files(folder) if isinstance(one, TreeFile))
    texts = (key for key in keys if extension_of(key) == "txt" and os.path.basename(key) not in CLASS_FILES)
    first = list(itertools.islice(texts, _TEXTS))

    def has_image(key: str) -> bool:
        """Whether its image is next to it, or in the folder for the images of a folder of labels."""
        stem = stem_of(key)
        paths = [stem]
        if is_of_labels:
            paths.append(joined(folder[: len(around)], stem[len(folder) + 1 :]))
        return any(look.has_image(path, (path.rpartition("/")[2],)) for path in paths)

    wanted = list(filter(has_image, first))[:_TRIED]
    is_named = last in ("labels", "label")
    found = None
    # If images are in deeper folders than their labels, the contents of the labels decide.
    for key in wanted or (first[:_TRIED] if is_named else []):
        text = look.head(key, 1 << 12).decode("utf-8", "replace")
        if text.strip() and not is_label_text(text):
            return None
        found = found or (key if text.strip() else None)
    return found or (wanted[0] if wanted and is_named else None)  # all empty: no image has objects


def voc(look: Look) -> str | None:
    """XML of VOC, or masks in a folder SegmentationClass."""
    from recordmill.transforms.sources.voc.source import is_class_mask
    from recordmill.transforms.sources.voc.xml import is_voc_xml

    for key in look.first_files(("xml", "png")):
        if is_class_mask(key):
            return f"{key!r} is a mask of classes as VOC has them"
        if key.endswith(".xml") and is_voc_xml(look.head(key)):
            return f"{key!r} is VOC XML"
    return None


def _labelme_json(head: bytes) -> str:
    is_object = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    is_ours = any(name in head for name in (b'"imagePath"', b'"shape_type"', b'"points"'))
    return "LabelMe JSON" if is_object and b'"shapes"' in head and is_ours else ""


def _labelme_xml(head: bytes) -> str:
    is_ours = any(sign in head for sign in (b"<pt>", b"LabelMe Webtool", b"<imagesize>"))
    return "XML of LabelMe's web tool" if b"<annotation>" in head and is_ours else ""


labelme = a_head({"json": _labelme_json, "xml": _labelme_xml})


def openimages(look: Look) -> str | None:
    """A CSV file with a name and columns of Open Images."""
    from recordmill.transforms.sources.openimages import csv_files

    for file in csv_files(look) if look.is_folder else ():
        try:
            if file.kind != "classes" and "ImageID" in file.header():
                return f"{file.manifest.name} is a file of Open Images by name and columns"
        except ValueError:
            continue
    return None


def masks(look: Look) -> str | None:
    """A folder such as `masks` with the names of images elsewhere, or masks next to most images."""
    if not look.is_folder:
        return None
    if (pattern := look.config.mask_pattern) is not None:
        MaskPattern(pattern)
        return f"--mask_pattern {pattern!r} is given"
    for folder in _mask_folders(look):
        items = itertools.islice(look.files(folder), _MASK_FILES)
        found = [item.key for item in items if isinstance(item, TreeFile)]
        if any(extension_of(key) in ("xml", "json") and not key.endswith("_polygons.json") for key in found):
            continue
        lossless = (key for key in found if extension_of(key) in LOSSLESS)
        first = [key for key in lossless if not stem_of(key).endswith(OTHER_ENDINGS)][:_TRIED]
        matched = [key for key in first if _has_image(look, key)]
        if first and 2 * len(matched) >= len(first):
            return f"{folder!r} has masks such as {matched[0]!r}, which have the names of images"
    for folder in ("", *filter(is_split_name, look.folders())):
        images = list(filter(is_image_name, look.names(folder)))
        stems = set(map(stem_of, images))
        masks = [name for name in images if _is_mask_of(name, stems)]
        if masks and 3 * len(masks) >= len(images):
            return f"{masks[0]!r} is named like the mask of an image next to it, and most images have one"
    return None


def _is_mask_of(name: str, stems: set[str]) -> bool:
    longer = (base for rank, base in without_ending(stem_of(name)) if len(ENDINGS[rank]) > 2)
    return extension_of(name) in LOSSLESS and not stems.isdisjoint(longer)


def _mask_folders(look: Look) -> Iterator[str]:
    """Folders of the input, or in a folder of a split, with a name such as `masks`."""
    of_xml = (name for name in look.folders() if name.lower() == "annotations")
    if any(extension_of(name) == "xml" for folder in of_xml for name in look.names(folder)):
        return
    for around in ("", *filter(is_split_name, look.folders())):
        yield from (joined(around, name) for name in look.folders(around) if is_mask_folder(name))


def _has_image(look: Look, mask: str) -> bool:
    """Whether one of the usual folders has an image with the name of a mask."""
    path = mask_path(mask) or ""
    return look.has_image(path, {base for _, base in without_ending(os.path.basename(path))})


def frames(look: Look) -> str | None:
    """Every folder of images has a file of times. Numbered images are no sign: classes have them too."""
    from recordmill.transforms.sources.frames import TIME_FILES

    why = None
    for key in look.first_files(IMAGE_EXTENSIONS, most=1):
        files = (joined(key.rpartition("/")[0], name) for name in TIME_FILES)
        times = next((file.rpartition("/")[2] for file in files if is_file(look.path(file))), None)
        if times is None:
            return None
        why = why or f"every folder of images has times, such as {key!r} in {times!r}"
    return why


def csv(look: Look) -> str | None:
    """CSV by name; the reason includes the meaning of its columns if they can be read."""
    from recordmill.transforms.sources.tables.manifest_sources import CsvSource

    return _table(look, "CSV", CsvSource(), "csv", "tsv")


def jsonl(look: Look) -> str | None:
    """JSON Lines by name; the reason includes the meaning of its keys if they can be read."""
    from recordmill.transforms.sources.tables.manifest_sources import JsonlSource

    return _table(look, "JSON Lines", JsonlSource(), *_JSON_LINES)


def sequence(look: Look) -> str | None:
    """The first line of JSON Lines has the two mappings of a sequence."""
    from recordmill.transforms.sources.tables.manifests import manifests
    from recordmill.transforms.sources.tables.text_rows import read_objects

    path = _manifest(look, *_JSON_LINES)
    first = None
    with contextlib.suppress(OSError):  # the source of other JSON Lines reports the fault
        if path:
            _, first = next(iter(read_objects(manifests(look.config)[0].file)), (0, None))
    is_sequence = isinstance(first, dict) and isinstance(first.get("feature_lists"), dict)
    return f"the first line of {path!r} has feature_lists" if is_sequence else None


def _manifest(look: Look, *extensions: str) -> str | None:
    """The first manifest, if all have one of the extensions."""
    paths = look.config.annotations or (look.config.input,)
    return paths[0] if all(extension_of(path) in extensions for path in paths) else None


def _table(look: Look, kind: str, source: ManifestSource, *extensions: str) -> str | None:
    if (path := _manifest(look, *extensions)) is None:
        return None
    meaning = ""
    with contextlib.suppress(OSError, ValueError):  # `Source.check` reports the fault
        meaning = f"; {source.described(look.config)}"
    return f"{path!r} is a {kind} file by name{meaning}"


def folder(look: Look) -> str | None:
    """Images by name; the reason includes the labels and splits of the first ones."""
    from recordmill.transforms.sources.folder import FolderSource
    from recordmill.transforms.sources.selection import Selection

    if not look.is_folder:
        return "it is an image file by name" if is_image_name(look.file_name) else None
    every = dataclasses.replace(look.config, kind="folder", label_pattern=None, include=(), exclude=())
    selection = Selection(look.config)
    labels: dict[str, None] = {}
    example = ""
    unread: collections.Counter[str] = collections.Counter()
    most = _SEARCHED if look.has_latency else math.inf
    for number, item in enumerate(FolderSource().items(every, "")):
        if number >= (_DESCRIBED if example else most):
            break
        if isinstance(item, ImageRecord):
            example = example or item.key
            with contextlib.suppress(BadInput):
                labels.update(dict.fromkeys(map(str, selection.labels(item.key, item.annotations.labels))))
        elif isinstance(item, Failure) and item.reason == NOT_AN_IMAGE:
            unread[extension_of(item.key)] += 1
    if not example:
        return None
    splits = FolderSource().split_names(every) or ()
    text = f"it holds image files such as {example!r}; splits: {_some(splits)}; labels: {_some(labels)}"
    return f"{text}; other files, not read: {by_extension(unread, 5)}" if unread else text


def by_extension(found: collections.Counter[str], most: int) -> str:
    """The counts of the most frequent extensions, for messages."""
    kinds = (f"{count} {f'.{end}' if end else 'without extension'}" for end, count in found.most_common(most))
    return ", ".join(kinds)


def _some(found: Collection[str]) -> str:
    shown = ", ".join(itertools.islice(found, 5))
    return f"{shown}, …" if len(found) > 5 else shown or "none"
