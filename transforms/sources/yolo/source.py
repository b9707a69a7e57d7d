"""Source `yolo`: images with a text file of boxes, polygons or poses each.

Ultralytics' data.yaml, darknet's obj.data, Roboflow's and CVAT's exports, and bare trees of `images` and
`labels`. An image without a label file is a background: a record without objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping

from recordmill.transforms.records import Annotations, BadInput, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.sources.config import SourceConfig, readable
from recordmill.transforms.sources.names import (
    NOT_AN_IMAGE,
    extension_of,
    folder_of,
    is_image_name,
    name_stem,
    skipped,
    stem_of,
)
from recordmill.transforms.sources.outline import Look, links_outside
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
    ORPHAN,
    Listed,
    folder_splits,
    images_of_splits,
    input_files,
    is_split_list,
    root_of,
    without_folder,
)
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.small_files import read_files
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.yolo.dataset import CLASS_FILES, LABEL_FOLDERS, YoloDataset
from recordmill.transforms.sources.yolo.lines import LineFormat, is_label_text
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder

_LOOKED_AT = 10_000  # files among which a check looks for an image, where calls wait for a service
_MAX_LABEL_BYTES = 1 << 26

_Labels = Mapping[str, list[str]]  # keys of the label files of an image


class YoloSource(Source):
    """Lists images with the objects of their label files."""

    name = "yolo"
    description = Description(
        reads="images and `.txt` of `class cx cy w h`, polygons or poses; data.yaml or obj.data",
        label="class names of data.yaml, obj.names or classes.txt; else the ids",
        split="the keys of data.yaml or obj.data, `train.txt` lists, or folders named like splits",
        key="path of the image below the input",
        example="coco8/\n  data.yaml\n  images/\n    train/\n      1.jpg\n    val/\n      2.jpg\n"
        "  labels/\n    train/\n      1.txt\n    val/\n      2.txt",
        annotations=("masks", "keypoints"),
    )
    flags = ()
    searches_roots = True

    def check_input(self, config: SourceConfig) -> None:
        if not is_folder(config.input) and extension_of(config.input) not in ("yaml", "yml"):
            raise ValueError(f"--input is {config.input!r}; --source yolo reads a folder, or a data.yaml")
        YoloDataset(config)
        most = _LOOKED_AT if file_system(config.input).has_latency else math.inf
        files = enumerate(input_files(config))
        if not any(is_image_name(item.key) or number >= most for number, item in files):
            remedy = "; give --image_root the folder of the images, if they are elsewhere"
            raise ValueError(
                f"--input is {config.input!r}: there is no image below it{links_outside(config) or remedy}"
            )
        _check_has_labels(config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            sets = YoloDataset(config).sets
            return tuple(sorted({one.split for one in sets if one.key is not None})) or folder_splits(config)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("detection",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        try:
            dataset = YoloDataset(config)
        except ValueError as error:
            raise JobError(str(error)) from error
        if dataset.names:
            yield ClassNames(dataset.names)
        images: dict[str, TreeFile] = {}
        texts: dict[str, TreeFile] = {}
        for item in input_files(config):
            if isinstance(item, TreeFile) and is_image_name(item.key):
                images[item.key] = item
            elif item.key in dataset.files:  # the data.yaml that the input is may be a link to anywhere
                continue
            elif isinstance(item, Failure):
                yield item
            elif extension_of(item.key) == "txt":
                texts[item.key] = item
            else:
                yield skipped(item.key, NOT_AN_IMAGE)
        labels = _pair_labels(images, texts)
        yield from _records(config, dataset, images, texts, labels)
        used = set(itertools.chain.from_iterable(labels.values()))
        orphans = ((text, text if text.size else None) for key, text in texts.items() if key not in used)
        for text, data in read_files(orphans, _MAX_LABEL_BYTES):
            yield _orphan(text, data)


def _check_has_labels(config: SourceConfig) -> None:
    """Raises ValueError if no file in the first folders can be a label file.

    A label file has the name of an image, or lies below a folder with a name such as `labels`.
    """
    look = Look(dataclasses.replace(config, input=root_of(config)))
    levels = list(look.walk())
    stems = {name_stem(name) for _, level in levels for name in level.images}
    likely = (
        name
        for folder, level in levels
        for name in level.others
        if name_stem(name) in stems or not LABEL_FOLDERS.isdisjoint(folder.lower().split("/"))
    )
    texts = (name for name in likely if extension_of(name) == "txt" and name not in CLASS_FILES)
    if all(map(is_split_list, texts)) and look.is_whole and not config.image_roots:
        raise ValueError(
            f"--input is {config.input!r}: there is no label file, such as labels/1.txt"
            f"{links_outside(config)}; for the images without boxes give --source folder"
        )


def _records(
    config: SourceConfig,
    dataset: YoloDataset,
    images: Mapping[str, TreeFile],
    texts: Mapping[str, TreeFile],
    labels: _Labels,
) -> Items:
    """The records of the images, in the order of the sets; then images that are in none."""
    selection = Selection(config)
    has_masks, has_keypoints = (kind in config.include_annotations for kind in ("masks", "keypoints"))
    lines = LineFormat(dataset.labels, dataset.keypoints, has_masks, has_keypoints)
    folders: dict[str, set[str]] = {}  # of the images of each label file
    for image, (label, *_) in labels.items():
        folders.setdefault(label, set()).add(folder_of(image))

    def label_file(item: Listed | Failure) -> TreeFile | None:
        found = labels.get(item.key, ()) if isinstance(item, Listed) and selection.takes(item.key) else ()
        return texts[found[0]] if len(found) == 1 and texts[found[0]].size else None

    def record(item: Listed, data: bytes | BadInput) -> ImageRecord:
        label, *others = labels.get(item.key, [""])
        if others:
            detail = f"{label} and {others[0]} are both called like it"
            raise BadInput("annotations", "several annotations of one name", detail)
        if len(folders.get(label, ())) > 1:
            raise BadInput("annotations", "several images of one name", f"{label} may be of each")
        annotations = Annotations(objects=lines.objects(_text(data, label), label), relative=True)
        image = images[item.key]
        return ImageRecord(item.key, image.ref, item.split, annotations, item.origin, image.size)

    listed = images_of_splits(images, dataset.sets, functools.partial(dataset.image_of, images=images))
    for item, data in read_files(((item, label_file(item)) for item in listed), _MAX_LABEL_BYTES):
        if isinstance(item, Failure):
            yield item
        else:
            yield selection.item(item.key, functools.partial(record, item, data))


def _pair_labels(images: Iterable[str], texts: Iterable[str]) -> _Labels:
    """The label file of each image, by path; where no label file has the path of an image, by file name.

    `labels/train/1.txt`, `train/labels/1.txt` and `train/1.txt` are of `images/train/1.jpg`. An image has
    several label files where their names do not tell them apart.
    """
    by_path = _grouped(texts, lambda key: without_folder(stem_of(key), LABEL_FOLDERS))
    found: dict[str, list[str]] = {}
    for key in images:
        if labels := by_path.get(without_folder(stem_of(key), IMAGE_FOLDERS)):
            # as Ultralytics, prefers one in a folder of labels to one next to the image
            others = [label for label in labels if stem_of(label) != stem_of(key)]
            found[key] = [min(others or labels)]
    if found:
        return found
    by_name = _grouped(texts, name_stem)
    return {key: by_name[name_stem(key)] for key in images if name_stem(key) in by_name}


def _grouped(keys: Iterable[str], name_of: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(name_of(key), []).append(key)
    return found


def _text(data: bytes | BadInput, file: str) -> str:
    if isinstance(data, BadInput):
        raise data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("annotations", "annotation file is not UTF-8", file) from error


def _orphan(file: TreeFile, data: bytes | BadInput) -> Failure:
    """The failure of a text file without an image: of a label file, or another text, which is skipped."""
    name = file.key.rpartition("/")[2]
    is_other = name in CLASS_FILES or name.lower().startswith("readme")
    is_other = is_other or (is_split_list(file.key) and not file.size)
    with contextlib.suppress(BadInput):
        text = _text(data, file.key)
        is_other = is_other or (bool(text.strip()) and not is_label_text(text))
    if is_other:
        return skipped(file.key, "not a label file")
    return Failure(file.key, "annotations", ORPHAN, "no image has its name")
