"""What is asked of `load_dataset` and what the dataset is: which features are parsed and decoded, and how."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import tensorflow as tf

from recordmill.pipelines.input_splits import ALL, Piece
from recordmill.transforms.examples.record_view import FILENAME, LABEL_KEYS, SOURCE_ID
from recordmill.transforms.examples.wire import read_example
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.inference import (
    SAMPLE_RECORDS,
    RecordSpecs,
    SampleImage,
    first_records,
    image_name,
    infer_specs,
    sample_images,
)
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.layout import REPORT_DATA

Resize = Literal["stretch", "pad", "crop_or_pad"]

SIDES = (
    "image/object/bbox/xmin",
    "image/object/bbox/xmax",
    "image/object/bbox/ymin",
    "image/object/bbox/ymax",
)
OBJECTS = "image/object/"
OBJECT_MASKS = "image/object/mask"
MASK_FILLS = {
    "image/segmentation/class/encoded": 255,
    "image/panoptic/category/encoded": 255,
    "mask_raw": 255,
    "image/segmentation/instance/encoded": 0,
    "image/panoptic/instance/encoded": 0,
}
"""What masks of a whole image have where there is no image: 255 is looked at by no trainer."""

_HEIGHTS, _WIDTHS = ("image/height", "height"), ("image/width", "width")
_CHANNELS = ("image/channels", "image/depth", "channels", "depth")
_KEYS = ("sequence/key", FILENAME, SOURCE_ID)
_SAMPLE = 8
_COUNTED = 1000
HEAD_BYTES = 29
"""Of a PNG: signature, and its header without the checksum."""
_PNG_CHANNELS = {b"\x08\x00": 1, b"\x08\x02": 3, b"\x08\x06": 4}


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked of elements; see `load_dataset`."""

    decode: bool
    size: int | tuple[int, int] | None
    resize: Resize
    antialias: bool
    channels: int | None
    dtype: str | None
    features: Sequence[str] | None
    as_supervised: bool
    one_hot: bool | int

    def __post_init__(self) -> None:
        if self.resize not in get_args(Resize):
            raise ValueError(f"resize is {self.resize!r}; it may be 'stretch', 'pad' or 'crop_or_pad'")
        if self.channels not in (None, 0, 1, 3, 4):
            raise ValueError(
                f"channels is {self.channels!r}; it may be 1, 3 or 4, 0 for as each image has, or None"
            )
        if self.dtype not in (None, "uint8", "uint16"):
            raise ValueError(f"dtype is {self.dtype!r}; it may be 'uint8', 'uint16' or None")
        if self.one_hot is not False and self.one_hot is not True and self.one_hot < 1:
            raise ValueError(
                f"one_hot is {self.one_hot!r}; it may be True, False or a number of classes from 1"
            )
        self._check_size()
        for name in ("size", "channels", "dtype"):
            if not self.decode and getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r} with decode=False; give decode=True")
        if isinstance(self.features, str):
            raise ValueError(
                f"features is {self.features!r}; it is a list of names, such as [{self.features!r}]"
            )
        if self.features is not None and self.as_supervised:
            raise ValueError(
                "features is given with as_supervised=True, which chooses them itself; give one of both"
            )

    def _check_size(self) -> None:
        sides = (self.size,) * 2 if isinstance(self.size, int) else self.size
        if sides is None:
            return
        if isinstance(sides, str) or not (len(sides) == 2 and min(sides) >= 1):
            match = re.fullmatch(r"(\d+)[x×](\d+)", str(self.size))
            example = f"({match[1]}, {match[2]})" if match is not None else "(224, 224)"
            raise ValueError(
                f"size is {self.size!r}; it is (height, width) in pixels, such as {example}, or one number"
            )

    @property
    def target(self) -> tuple[int, int] | None:
        """Height and width that images are to have."""
        if self.size is None:
            return None
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return int(height), int(width)


@dataclasses.dataclass(frozen=True)
class ImagePlan:
    """How images are decoded.

    Attributes:
        name: stored, of the feature.
        codec: `image`, `raw` or `tensor`.
        channels: that they are to have; 0 for as each has.
        dtype: of their pixels.
        is_strict: what would lose colour or alpha is refused.
        keeps_bits: what would lose bits is refused.
        jpeg_only: there is no other format.
        may_be_png: there may be PNGs.
        png_only: there is no other format.
        sides: that all have as stored, which is checked; None where they may differ.
        head: bytes that a file begins with, where the first ones are PNGs of one size and kind; else empty.
        height: stored name of the feature that tells it; None where none does.
        width: likewise.
        depth: likewise, of the channels.
    """

    name: str
    codec: str
    channels: int
    dtype: str
    is_strict: bool
    keeps_bits: bool
    jpeg_only: bool
    may_be_png: bool
    png_only: bool
    sides: tuple[int, int] | None
    head: bytes
    height: str | None
    width: str | None
    depth: str | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """What becomes of a record.

    Attributes:
        asked: by the caller.
        specs: of all features that are parsed.
        kept: names of the elements of the result, as they are stored.
        ours: the name in our schemas, by stored name; only where they differ.
        image: of the record or of the steps; None where it is not decoded.
        label: stored name of the label; None where there is none.
        key: of the feature that names the record.
        classes: length of one-hot labels; 0 for none.
        pair: names of input and target; of the target empty for all features of objects.
    """

    asked: Asked
    specs: RecordSpecs
    kept: frozenset[str]
    ours: Mapping[str, str]
    image: ImagePlan | None
    label: str | None
    key: str | None
    classes: int
    pair: tuple[str, str] | None

    def name(self, stored: str) -> str:
        """The name in our schemas of a stored one."""
        return self.ours.get(stored, stored)

    def stored(self, *ours: str) -> str | None:
        """The stored name of the first of ours that is parsed."""
        return _stored(self.specs, self.ours, *ours)


def plan_of(
    dataset: Dataset, pieces: Sequence[Piece], asked: Asked, class_names: Sequence[str], is_batched: bool
) -> Plan:
    """How the records of a dataset become what is asked for.

    Raises:
        ValueError: what is asked for does not fit the dataset.
    """
    most = SAMPLE_RECORDS if dataset.manifest is None else _SAMPLE
    payloads = first_records([piece.shard for piece in pieces], most)
    if not payloads:
        raise ValueError(f"{dataset.path!r} has no record to read")
    specs = (
        RecordSpecs(dataset.features, dataset.feature_lists)
        if dataset.features is not None
        else infer_specs(payloads)
    )
    ours = dataset.renames
    image = image_name(specs, dataset, payloads)
    label = _label(specs, ours)
    pair = _pair(specs, ours, image, label) if asked.as_supervised else None
    if pair is not None and pair[1] == label and specs.features[label].shape == (None,):
        _check_labels(dataset, pieces, label, asked)
    kept = _kept(specs, ours, asked, pair)
    parsed = set(kept)
    image_plan = None
    if image is not None and asked.decode and image in kept:
        samples = sample_images(payloads[:_SAMPLE], image, dataset)
        image_plan = _image_plan(image, samples, dataset, specs, asked, is_batched)
    _check_target(image_plan, kept, ours, specs, asked)
    parsed |= _hidden(kept, ours, specs, image_plan, asked)
    classes = _classes(asked, label, kept, class_names)
    key = _stored(specs, ours, *_KEYS)
    if image_plan is not None and key is not None:
        parsed.add(key)
    chosen = RecordSpecs(
        {name: spec for name, spec in specs.features.items() if name in parsed},
        {name: spec for name, spec in specs.feature_lists.items() if name in parsed},
    )
    return Plan(asked, chosen, frozenset(kept), ours, image_plan, label, key, classes, pair)


def _stored(specs: RecordSpecs, ours: Mapping[str, str], *names: str) -> str | None:
    by_ours = {ours.get(name, name): name for name in (*specs.feature_lists, *specs.features)}
    return next((by_ours[name] for name in names if name in by_ours), None)


def _label(specs: RecordSpecs, ours: Mapping[str, str]) -> str | None:
    """The stored name of the class ids of a whole record."""
    by_ours = {ours.get(name, name): name for name, spec in specs.features.items() if spec.dtype == "int64"}
    return next((by_ours[name] for name in LABEL_KEYS if name in by_ours), None)


def _pair(
    specs: RecordSpecs, ours: Mapping[str, str], image: str | None, label: str | None
) -> tuple[str, str]:
    known = ", ".join(map(repr, (*specs.features, *specs.feature_lists)))
    if image is None:
        raise ValueError(f"as_supervised is True, and records have no image; they have {known}")
    objects = _stored(specs, ours, *SIDES)
    is_object_dataset = objects is not None and label is None
    mask = _stored(specs, ours, *MASK_FILLS)
    target = label or mask or ("" if is_object_dataset else None)
    if mask is not None and label is not None and specs.features[label].shape != ():
        target = mask  # a plain record has an empty list of labels beside its mask
    if target is None:
        raise ValueError(
            f"as_supervised is True, and records have no label, mask or boxes; they have {known}"
        )
    return image, target


def _check_labels(dataset: Dataset, pieces: Sequence[Piece], name: str, asked: Asked) -> None:
    """Raises ValueError if records lack the label of their (image, label) pair.

    The numbers are those of report.json if complete splits are read, and else of the first records.

    Args:
        dataset: the dataset.
        pieces: the pieces of it that are read.
        name: of the label's feature, as stored.
        asked: with `one_hot`, only a dataset without any label is refused.
    """
    counts = _unlabelled(dataset, pieces)
    if counts is None:
        first = first_records([piece.shard for piece in pieces], _COUNTED)
        missing = sum(not read_example(payload).get(name, ()) for payload in first)
        records, shown = len(first), f"the first {len(first):,}"
    else:
        missing, records = counts
        shown = f"{records:,}"
    if missing == records or (missing and asked.one_hot is False):
        zeros = "" if missing == records else "; one_hot=True stores a vector of zeros for a missing label"
        raise ValueError(
            f"as_supervised is True, and {missing:,} of {shown} records have no label ({name!r}); "
            f"leave as_supervised out, or convert labelled images only{zeros}"
        )


def _unlabelled(dataset: Dataset, pieces: Sequence[Piece]) -> tuple[int, int] | None:
    """The records without a label, and all records, by report.json; None where it does not count them."""
    read = [piece.shard for piece in pieces if not piece.skip and piece.take in (ALL, piece.shard.records)]
    shards = [shard for name in {shard.split for shard in read} for shard in dataset.splits[name or "train"]]
    if not dataset.is_whole or len(read) < len(pieces) or len(read) < len(shards):
        return None
    try:
        splits = json.loads(read_bytes(f"{dataset.folder}/{REPORT_DATA}"))["splits"]
        found = [splits[name] for name in {shard.split for shard in read}]
        return sum(one["unlabelled"] for one in found), sum(one["records"] for one in found)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _kept(
    specs: RecordSpecs, ours: Mapping[str, str], asked: Asked, pair: tuple[str, str] | None
) -> set[str]:
    names = {*specs.features, *specs.feature_lists}
    if pair is not None:
        if pair[1]:
            return set(pair)
        return {pair[0], *(name for name in names if ours.get(name, name).startswith(OBJECTS))}
    if asked.features is None:
        return names
    unknown = [name for name in asked.features if name not in names]
    if unknown or not asked.features:
        known = ", ".join(map(repr, sorted(names)))
        raise ValueError(f"features is {list(asked.features)!r}; records have {known}")
    return set(asked.features)


def _hidden(
    kept: set[str], ours: Mapping[str, str], specs: RecordSpecs, image: ImagePlan | None, asked: Asked
) -> set[str]:
    """What is parsed though it was not asked for, since what was needs it."""
    names = {ours.get(name, name) for name in kept}
    found: set[str | None] = set()
    if image is not None:
        found |= {image.height, image.width}
        if image.codec == "raw":
            found.add(image.depth)
    elif names & MASK_FILLS.keys() or OBJECT_MASKS in names or _moves(names, asked):
        found |= {_stored(specs, ours, *_HEIGHTS), _stored(specs, ours, *_WIDTHS)}
    if _moves(names, asked) or OBJECT_MASKS in names:
        found |= {_stored(specs, ours, side) for side in SIDES}
    return {name for name in found if name is not None}


def _moves(names: set[str], asked: Asked) -> bool:
    """Whether there are objects that move with their image."""
    return (
        asked.target is not None
        and asked.resize != "stretch"
        and any(one.startswith(OBJECTS) for one in names)
    )


def _check_target(
    image: ImagePlan | None, kept: set[str], ours: Mapping[str, str], specs: RecordSpecs, asked: Asked
) -> None:
    """Refuses a size where there is nothing of a size, or where the size before is not known."""
    names = {ours.get(name, name) for name in kept}
    if image is not None or asked.target is None:
        return
    if not (names & MASK_FILLS.keys() or any(name.startswith(OBJECTS) for name in names)):
        raise ValueError(f"size is {asked.size!r}, and no image, mask or box is read; leave size out")
    if _stored(specs, ours, *_HEIGHTS) is None or _stored(specs, ours, *_WIDTHS) is None:
        raise ValueError(
            f"size is {asked.size!r}, and the height and width before are not known; read the image too"
        )


def _classes(asked: Asked, label: str | None, kept: set[str], class_names: Sequence[str]) -> int:
    if asked.one_hot is False:
        return 0
    if label is None or label not in kept:
        raise ValueError(f"one_hot is {asked.one_hot!r}, and no label is read; leave it out")
    if asked.one_hot is not True:
        return asked.one_hot
    if not class_names:
        raise ValueError(
            "one_hot is True, and no class names tell how many classes there are; give their number"
        )
    return len(class_names)


def _image_plan(
    name: str,
    samples: Sequence[SampleImage],
    dataset: Dataset,
    specs: RecordSpecs,
    asked: Asked,
    is_batched: bool,
) -> ImagePlan:
    """How images are decoded, by what the first ones are."""
    codecs = {sample.codec for sample in samples}
    if len(codecs) > 1:
        raise ValueError(
            f"images in {name!r} are stored in several ways: {sorted(codecs)}; give decode=False"
        )
    formats = set(dataset.manifest["formats"]) if dataset.manifest is not None else set()
    codec = codecs.pop() if codecs else next(iter(formats & {"raw", "tensor"}), "image")
    shapes = [_decoded_shape(sample, name) for sample in samples]
    dtype = asked.dtype or ("uint16" if any(sample.dtype == "uint16" for sample in samples) else "uint8")
    if codec != "image" and samples and dtype != samples[0].dtype:
        raise ValueError(
            f"dtype is {asked.dtype!r}, and pixels are stored as {samples[0].dtype}; leave it out"
        )
    ours = dataset.renames
    found = {shape[2] for shape in shapes}
    channels = _channels(asked, found)
    sides = _common_sides(shapes, asked, is_batched and name in specs.features)
    return ImagePlan(
        name,
        codec,
        channels,
        dtype,
        asked.channels is None,
        asked.dtype is None,
        formats == {"jpeg"},
        not formats or "png" in formats,
        formats == {"png"},
        sides,
        _common_head(samples, channels) if sides is not None and found == {channels} else b"",
        _stored(specs, ours, *_HEIGHTS),
        _stored(specs, ours, *_WIDTHS),
        _stored(specs, ours, *_CHANNELS),
    )


def _channels(asked: Asked, found: set[int]) -> int:
    if asked.channels is not None:
        return asked.channels
    if found & {2, 4}:
        return 4
    return 1 if found == {1} else 3


def _common_sides(
    shapes: Sequence[tuple[int, int, int]], asked: Asked, is_needed: bool
) -> tuple[int, int] | None:
    """The sides of all images, where batches need that they are the same."""
    if asked.target is not None or not is_needed or not shapes:
        return None
    sides = {shape[:2] for shape in shapes}
    if len(sides) > 1:
        shown = " and ".join(f"{height}x{width}" for height, width in sorted(sides)[:2])
        raise ValueError(
            f"batch_size is given, and images differ in size ({shown}); give size=(height, width) too"
        )
    return sides.pop()


def _common_head(samples: Sequence[SampleImage], channels: int) -> bytes:
    """What PNGs of 8 bits begin with, up to the end of their header; empty where images are not all alike."""
    heads = {sample.data[:HEAD_BYTES] for sample in samples if sample.codec == "image"}
    head = heads.pop() if len(heads) == 1 else b""
    # a transparent colour is a channel that the header does not tell of
    return head if head[:4] == b"\x89PNG" and _PNG_CHANNELS.get(head[24:26]) == channels else b""


def _decoded_shape(sample: SampleImage, name: str) -> tuple[int, int, int]:
    with tf.init_scope():
        try:
            if sample.codec == "image":
                height, width, channels = tf.io.decode_image(sample.data, expand_animations=False).shape
            elif sample.codec == "tensor":
                height, width, channels = (*tf.io.parse_tensor(sample.data, sample.dtype).shape, 1)[:3]
            else:
                height, width = sample.height or 0, sample.width or 0
                items = len(sample.data) // tf.dtypes.as_dtype(sample.dtype).size
                channels = sample.channels or items // max(height * width, 1)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"TensorFlow cannot decode an image in {name!r}: {error.message}; give decode=False"
            ) from error
    return int(height), int(width), int(channels)
