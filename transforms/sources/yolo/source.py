"""Source `yolo`: images, each with a text file of boxes, polygons or poses.

Ultralytics' data.yaml, darknet's obj.data, exports of Roboflow and CVAT, and plain folders `images` and
`labels`. An image without a label file is a background: a record without objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.internal_errors import internal_errors
from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    BadInput,
    Box,
    ClassNames,
    Failure,
    ImageRecord,
    JobError,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import Look, links_outside
from recordmill.transforms.sources.names import (
    NOT_AN_IMAGE,
    extension_of,
    folder_of,
    is_image_name,
    name_stem,
    skipped,
    stem_of,
)
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
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder

_LOOKED_AT = 10_000  # files of a bucket in which a check searches for an image
_MAX_LABEL_BYTES = 1 << 26
_BOX = 4
_SMALLEST_POLYGON = 6

_Files = Mapping[str, TreeFile]
_Labels = Mapping[str, list[TreeFile]]  # the label files of an image


class YoloSource(Source):
    """Lists images with the objects of their label files."""

    name = "yolo"
    description = Description(
        reads="images, each with a `.txt` of boxes (`class cx cy w h`), polygons or poses; data.yaml or "
        "obj.data",
        label="class names from data.yaml, obj.names or classes.txt; otherwise the ids",
        split="the keys of data.yaml or obj.data, `train.txt` lists, or folders named like splits",
        key="path of the image below the input",
        example="coco8/\n  data.yaml\n  images/\n    train/\n      1.jpg\n    val/\n      2.jpg\n"
        "  labels/\n    train/\n      1.txt\n    val/\n      2.txt",
        annotations=("masks", "keypoints"),
    )
    searches_roots = True

    def check_input(self, config: SourceConfig) -> None:
        if not is_folder(config.input) and extension_of(config.input) not in ("yaml", "yml"):
            raise ValueError(f"--input is {config.input!r}; --source yolo reads a folder, or a data.yaml")
        YoloDataset(config)
        most = _LOOKED_AT if file_system(config.input).has_latency else math.inf
        files = enumerate(input_files(config))
        if not any(is_image_name(item.key) or number >= most for number, (_, item) in files):
            remedy = "; give --image_root the folder of the images, if they are elsewhere"
            raise ValueError(
                f"--input is {config.input!r}: there is no image below it{links_outside(config) or remedy}"
            )
        _check_has_labels(config)

    def splits(self, config: SourceConfig) -> set[str]:
        found = {one.split for one in YoloDataset(config).sets if one.key is not None}
        return found or set(folder_splits(config))

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
        for _, item in input_files(config):
            if isinstance(item, TreeFile) and is_image_name(item.key):
                images[item.key] = item
            elif item.key in dataset.files:  # an input data.yaml may be a link to anywhere
                continue
            elif isinstance(item, Failure):
                yield item
            elif extension_of(item.key) == "txt":
                texts[item.key] = item
            else:
                yield skipped(item.key, NOT_AN_IMAGE)
        labels = _pair_labels(images, texts)
        yield from _records(config, dataset, images, labels)
        used = {text.key for found in labels.values() for text in found}
        orphans = ((text, text if text.size else None) for key, text in texts.items() if key not in used)
        for text, data in read_files(orphans, _MAX_LABEL_BYTES):
            yield _orphan(text, data)


def _check_has_labels(config: SourceConfig) -> None:
    """Raises ValueError if no text in the first folders has the name of an image, or is in `labels`."""
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
    if all(map(is_split_list, texts)) and look.is_complete and not config.image_roots:
        raise ValueError(
            f"--input is {config.input!r}: there is no label file, such as labels/1.txt"
            f"{links_outside(config)}; for the images without boxes give --source folder"
        )


def _records(config: SourceConfig, dataset: YoloDataset, images: _Files, labels: _Labels) -> Items:
    """The records of the images in the order of the sets, then the images in none."""
    selection = Selection(config)
    has_masks, has_keypoints = (kind in config.include_annotations for kind in ("masks", "keypoints"))
    lines = LineFormat(dataset.labels, dataset.keypoints, has_masks, has_keypoints)
    folders: dict[str, set[str]] = {}  # of the images, by label file
    for image, (label, *_) in labels.items():
        folders.setdefault(label.key, set()).add(folder_of(image))

    def label_file(item: Listed | Failure) -> TreeFile | None:
        found = labels.get(item.key, ()) if isinstance(item, Listed) and selection.takes(item.key) else ()
        return found[0] if len(found) == 1 and found[0].size else None

    def record(item: Listed, data: bytes | BadInput) -> ImageRecord:
        label, *others = [file.key for file in labels.get(item.key, ())] or [""]
        if others:
            detail = f"{label} and {others[0]} both have the name of this image"
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


def _pair_labels(images: Iterable[str], texts: _Files) -> _Labels:
    """The label files of each image by path; if no path matches, by file name, where several may match.

    `labels/train/1.txt`, `train/labels/1.txt` and `train/1.txt` match `images/train/1.jpg`.
    """
    by_path = _grouped(texts, lambda key: without_folder(stem_of(key), LABEL_FOLDERS))
    found: dict[str, list[TreeFile]] = {}
    for key in images:
        if labels := by_path.get(without_folder(stem_of(key), IMAGE_FOLDERS)):
            # Ultralytics, too, prefers one in a folder of labels to one next to the image
            others = [label for label in labels if stem_of(label) != stem_of(key)]
            found[key] = [texts[min(others or labels)]]
    if not found:
        by_name = _grouped(texts, name_stem)
        named = ((key, by_name.get(name_stem(key))) for key in images)
        found = {key: [texts[label] for label in labels] for key, labels in named if labels}
    return found


def _grouped(keys: Iterable[str], name_of: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(name_of(key), []).append(key)
    return found


def _text(data: bytes | BadInput, file: str) -> str:
    if isinstance(data, BadInput):
        raise BadInput("annotations", data.reason, f"{file}: {data.detail}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("annotations", "annotation file is not UTF-8", file) from error


def _orphan(file: TreeFile, data: bytes | BadInput) -> Failure:
    """The failure of a text file without an image; texts that are no label files are skipped."""
    name = file.key.rpartition("/")[2]
    is_other = name in CLASS_FILES or name.lower().startswith("readme")
    is_other = is_other or (is_split_list(file.key) and not file.size)
    with contextlib.suppress(BadInput):
        text = _text(data, file.key)
        is_other = is_other or (bool(text.strip()) and not is_label_text(text))
    if is_other:
        return skipped(file.key, "not a label file")
    return Failure(file.key, "annotations", ORPHAN, "no image has its name")


class LineFormat(NamedTuple):
    """Reads the lines of label files; without `takes_masks`, polygons become boxes around them."""

    labels: Mapping[int, str | int] = {}  # of the classes by id; empty if classes have no names
    keypoints: tuple[int, int] | None = None  # (number, 2 or 3 values each) of poses
    takes_masks: bool = False
    takes_keypoints: bool = False

    @internal_errors("annotations")
    def objects(self, text: str, file: str) -> tuple[AnnotatedObject, ...]:
        """The objects in the text of a label file. Raises BadInput for an invalid line."""
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if words := line.split():
                try:
                    found.append(self._object(words))
                except BadInput as fault:
                    fault.detail = f"{file}, line {number}: {fault.detail}"
                    raise
        return tuple(found)

    def _object(self, words: Sequence[str]) -> AnnotatedObject:
        label = self._label(words[0])
        values = [_number(word) for word in words[1:]]
        if self.keypoints is not None and len(values) == _BOX + math.prod(self.keypoints):
            points = _points(values[_BOX:], self.keypoints[1]) if self.takes_keypoints else ()
            return AnnotatedObject(label, _box(values), keypoints=points)
        if len(values) in (_BOX, _BOX + 1):
            extra = {"confidence": values[_BOX]} if len(values) > _BOX else {}
            return AnnotatedObject(label, _box(values), attributes=extra)
        if len(values) < _SMALLEST_POLYGON or len(values) % 2:
            raise BadInput("annotations", "not a YOLO line", f"a class and {len(values)} numbers")
        _check_normalised(values)
        if self.takes_masks:
            return AnnotatedObject(label, mask=(tuple(values),))
        xs, ys = values[::2], values[1::2]
        return AnnotatedObject(label, Box(min(xs), min(ys), max(xs), max(ys)))

    def _label(self, word: str) -> str | int:
        value = _number(word)
        if value != int(value) or value < 0:
            raise BadInput("annotations", "not a YOLO line", f"the class is {word!r}, not 0 or more")
        label = int(value)
        if self.labels and label not in self.labels:
            detail = f"class {label}; the names are of {min(self.labels)} to {max(self.labels)}"
            raise BadInput("annotations", "class id is not among the names", detail)
        return self.labels.get(label, label)


def is_label_text(text: str) -> bool:
    """Whether the first line of a text that is not blank is a box, polygon or pose."""
    words = next(filter(None, map(str.split, text.splitlines())), [])
    if len(words) <= _BOX or not words[0].isdecimal():
        return False
    try:
        _check_normalised([_number(word) for word in words[1 : _BOX + 1]])
    except BadInput:
        return False
    return True


def _points(values: Sequence[float], step: int) -> tuple[tuple[float, float, int], ...]:
    points = []
    for at in range(0, len(values), step):
        x, y = values[at : at + 2]
        visibility = values[at + 2] if step == 3 else 2
        if visibility not in (0, 1, 2):
            raise BadInput("annotations", "not a YOLO line", f"a keypoint's visibility is {visibility:g}")
        points.append((x, y, int(visibility)) if visibility else (0.0, 0.0, 0))
    return tuple(points)


def _box(values: Sequence[float]) -> Box:
    x, y, width, height = values[:_BOX]
    _check_normalised(values[:_BOX])
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _check_normalised(values: Sequence[float]) -> None:
    for value in values:
        if not -1 <= value <= 2:  # far outside the image, so probably in pixels
            detail = f"{value:g}; coordinates are from 0 to 1, not pixels"
            raise BadInput("annotations", "coordinates are not shares of the image", detail)


def _number(word: str) -> float:
    try:
        value = math.nan if "_" in word else float(word)  # Python reads 1_0 as 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput("annotations", "not a YOLO line", f"{word[:40]!r} is not a number")
    return value
