"""Source `yolo`: images with a text file of boxes, polygons or poses each.

Ultralytics' data.yaml, darknet's obj.data, Roboflow's and CVAT's exports, and bare trees of `images` and
`labels`. An image without a label file is a background: a record without objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.records import Annotations, BadInput, ClassNames, Failure, ImageRecord
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.names import (
    extension_of,
    is_image_name,
    is_split_name,
    name_stem,
    printable,
    stem_of,
)
from recordmill.transforms.sources.outline import Look, links_outside
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
    ORPHAN,
    by_stem,
    folder_split,
    folder_splits,
    input_files,
    root_of,
    text_of,
    with_texts,
    without_folder,
)
from recordmill.transforms.sources.selection import EXCLUDED, Selection, check_selection
from recordmill.transforms.sources.source import (
    Description,
    Item,
    Items,
    Source,
)
from recordmill.transforms.sources.tree import TreeFile
from recordmill.transforms.sources.yolo.dataset import (
    CLASS_FILES,
    LABEL_FOLDERS,
    YoloDataset,
    read_dataset,
    yolo_dataset,
)
from recordmill.transforms.sources.yolo.lines import LineFormat, is_label_text
from recordmill.transforms.sources.yolo.lists import listed_images
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder

_LOOKED_AT = 10_000  # files among which check() looks for an image, where calls wait for a service


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

    def check(self, config: SourceConfig) -> None:
        check_input_exists(config)
        unused = ("annotations", "image_column", "label_column", "label_pattern", "input_features")
        check_unused(config, self.name, *unused, "mask_pattern")
        check_selection(config)
        if "captions" in config.include_annotations:
            raise ValueError("--include_annotations has 'captions', and YOLO has masks and keypoints")
        with readable("--input", config.input):
            if not is_folder(config.input) and extension_of(config.input) not in ("yaml", "yml"):
                raise ValueError(f"--input is {config.input!r}; --source yolo wants a folder, or a data.yaml")
            yolo_dataset(config)
            _check_has_images(config)
            _check_has_labels(config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...]:
        with readable("--input", config.input):
            dataset = yolo_dataset(config)
            if dataset.sets:
                return tuple(sorted({one.split for one in dataset.sets}))
            return folder_splits(config)

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("detection",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config)


class Listed(NamedTuple):
    """An image of a split, and where that is told."""

    image: TreeFile
    split: str | None
    origin: str


def _check_has_images(config: SourceConfig) -> None:
    has_latency = file_system(config.input).has_latency
    for number, item in enumerate(input_files(config)):
        if is_image_name(item.key) or (has_latency and number >= _LOOKED_AT):
            return
    remedy = links_outside(config) or "; give --image_root the folder of the images, if they are elsewhere"
    raise ValueError(f"--input is {config.input!r}: there is no image below it{remedy}")


def _check_has_labels(config: SourceConfig) -> None:
    """Raises ValueError if no file in the first folders can be a label file.

    A label file has the name of an image, or lies below a folder with a name such as `labels`.
    """
    look = Look(dataclasses.replace(config, input=root_of(config)))
    levels = list(look.walk())
    stems = {name_stem(name) for _, level in levels for name in level.images}
    for key, level in levels:
        is_of_labels = not LABEL_FOLDERS.isdisjoint(key.lower().split("/"))
        for name in level.others:
            if extension_of(name) != "txt" or name in CLASS_FILES or is_split_name(name_stem(name)):
                continue
            if is_of_labels or name_stem(name) in stems:
                return
    if look.is_whole and not config.image_roots:
        raise ValueError(
            f"--input is {config.input!r}: there is no label file, such as labels/1.txt"
            f"{links_outside(config)}; for the images without boxes give --source folder"
        )


def _items(config: SourceConfig) -> Iterator[Item]:
    dataset = read_dataset(config)
    if dataset.names:
        yield ClassNames(dataset.names)
    images: dict[str, TreeFile] = {}
    texts: dict[str, TreeFile] = {}
    for item in input_files(config):
        if isinstance(item, Failure):
            if item.key not in dataset.files:  # the data.yaml that the input is may be a link to anywhere
                yield item
        elif is_image_name(item.key):
            images[item.key] = item
        elif extension_of(item.key) == "txt" and item.key not in dataset.files:
            texts[item.key] = item
        elif item.key not in dataset.files:
            yield Failure(item.key, "list", "not an image by name", skipped=True)
    pairs = pair_labels(images, texts)
    yield from _records(config, dataset, images, pairs, texts)
    used = {key for keys in pairs.values() for key in keys}
    yield from _orphans(text for key, text in texts.items() if key not in used)


def _records(
    config: SourceConfig,
    dataset: YoloDataset,
    images: Mapping[str, TreeFile],
    pairs: Mapping[str, list[str]],
    texts: Mapping[str, TreeFile],
) -> Iterator[ImageRecord | Failure]:
    """The records of the images, in the order of the sets; then images that are in none."""
    selection = Selection(config)
    taken = frozenset(config.include_annotations)
    lines = LineFormat(dataset.labels, dataset.keypoints, "masks" in taken, "keypoints" in taken)
    alike = _alike(pairs)
    failures: list[Failure] = []

    def wanted() -> Iterator[tuple[Listed, TreeFile | None]]:
        for item in _listed(config, dataset, images):
            if isinstance(item, Failure):
                failures.append(item)
            elif not selection.takes(item.image.key):
                failures.append(Failure(item.image.key, "list", EXCLUDED, skipped=True))
            elif len(labels := pairs.get(item.image.key, [])) > 1:
                detail = f"{labels[0]} and {labels[1]} are both called like it"
                fault = "several annotations of one name"
                failures.append(Failure(item.image.key, "annotations", fault, detail))
            elif item.image.key in alike:
                fault = "several images of one name"
                failures.append(Failure(item.image.key, "annotations", fault, f"{labels[0]} may be of each"))
            else:
                yield item, texts[labels[0]] if labels else None

    for item, text in with_texts(wanted()):
        yield from failures
        failures.clear()
        label_file = pairs.get(item.image.key, [""])[0]
        yield _record(item, text, label_file, lines)
    yield from failures


def _record(item: Listed, text: str | BadInput, label_file: str, lines: LineFormat) -> ImageRecord | Failure:
    key = item.image.key
    try:
        if isinstance(text, BadInput):
            raise text
        annotations = Annotations(objects=lines.objects(text, label_file), relative=True)
    except BadInput as fault:
        return Failure(key, fault.stage, fault.reason, printable(fault.detail))
    return ImageRecord(key, item.image.ref, item.split, annotations, item.origin, item.image.size)


def _listed(
    config: SourceConfig, dataset: YoloDataset, images: Mapping[str, TreeFile]
) -> Iterator[Listed | Failure]:
    """The images of each set; without sets, all of them."""
    if not dataset.sets:
        for image in images.values():
            yield Listed(image, folder_split(image.key), "")
        return
    seen: set[str] = set()
    for one in dataset.sets:
        if one.is_list:
            for found in listed_images(config, dataset, one, images):
                if isinstance(found, Failure):
                    yield found
                else:
                    seen.add(found.key)
                    yield Listed(found.image, one.split, found.origin)
            continue
        prefix = f"{one.where}/".lstrip("/")
        for key, image in images.items():
            if key.startswith(prefix) and key not in seen:
                seen.add(key)
                yield Listed(image, one.split, "")
    for split, text in dataset.missing:
        yield Failure(printable(text), "list", "named images are not there", f"of {split}", skipped=True)
    for key in sorted(images.keys() - seen):
        yield Failure(key, "list", "image in no split", skipped=True)


def pair_labels(images: Mapping[str, TreeFile], texts: Mapping[str, TreeFile]) -> dict[str, list[str]]:
    """The label file of each image, by path; where no label file has the path of an image, by file name.

    `labels/train/1.txt`, `train/labels/1.txt` and `train/1.txt` are of `images/train/1.jpg`.

    Returns:
        By key of an image that has any: one key, or several of one name that cannot be told apart.
    """
    by_path: dict[str, list[str]] = {}
    for key in texts:
        by_path.setdefault(without_folder(stem_of(key), LABEL_FOLDERS), []).append(key)
    found = {}
    for key in images:
        if labels := by_path.get(without_folder(stem_of(key), IMAGE_FOLDERS)):
            found[key] = [_nearest(stem_of(key), labels)]
    if found:
        return found
    stems = by_stem(texts)
    return {key: stems[stem] for key in images if (stem := name_stem(key)) in stems}


def _alike(pairs: Mapping[str, list[str]]) -> frozenset[str]:
    """The images that share a label file with one of another folder: whose it is, nothing tells."""
    folders: dict[str, set[str]] = {}
    for image, labels in pairs.items():
        folders.setdefault(labels[0], set()).add(image.rpartition("/")[0])
    return frozenset(image for image, labels in pairs.items() if len(folders[labels[0]]) > 1)


def _nearest(image: str, labels: list[str]) -> str:
    """The label file in a folder of labels rather than the one beside the image, as Ultralytics has it."""
    return min(labels, key=lambda label: (stem_of(label) == image, label))


def _orphans(texts: Iterable[TreeFile]) -> Iterator[Failure]:
    for text in texts:
        name = text.key.rpartition("/")[2]
        content = text_of(text)
        is_labels = isinstance(content, BadInput) or not content.strip() or is_label_text(content)
        is_list = name == text.key and is_split_name(stem_of(name)) and not text.size
        if name in CLASS_FILES or is_list or name.lower().startswith("readme") or not is_labels:
            yield Failure(text.key, "list", "not a label file", skipped=True)
        else:
            yield Failure(text.key, "annotations", ORPHAN, "no image has its name")
