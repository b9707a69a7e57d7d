"""Checks the arguments of `load_dataset`: which tensors are read, and how images are decoded."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Literal, get_args

from recordmill.pipelines.input.layout import (
    BOXES,
    HEIGHTS,
    OBJECTS,
    WIDTHS,
    ImageLayout,
    Layout,
    layout_of,
)
from recordmill.pipelines.input.splits import ALL, Piece
from recordmill.transforms.examples.record_view import FILENAME, LABEL_KEYS, SOURCE_ID
from recordmill.transforms.examples.wire import read_example
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.inference import SAMPLE_IMAGES, SampleImage, first_records, sample_images
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.layout import REPORT_DATA

Resize = Literal["stretch", "pad", "crop_or_pad"]
HEAD_BYTES = 29
"""Of a PNG: signature, and its header without the checksum."""

_KEYS = ("sequence/key", FILENAME, SOURCE_ID)
_COUNTED = 1000
_PNG_CHANNELS = {b"\x08\x00": 1, b"\x08\x02": 3, b"\x08\x06": 4}


@dataclasses.dataclass(frozen=True)
class Asked:
    """The arguments of `load_dataset` about elements."""

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
        """Height and width of the result; None as stored."""
        if self.size is None:
            return None
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return int(height), int(width)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How records become elements.

    Attributes:
        layout: of the tensors that are read; its image is None if the image is not decoded.
        kept: names of the tensors of the result.
        label: name of the label; None if there is none.
        key: name of the key of the record; None if there is none.
        classes: length of one-hot labels; 0 for none.
        pair: names of input and target; the target is empty for all features of objects.
    """

    asked: Asked
    layout: Layout
    kept: frozenset[str]
    label: str | None
    key: str | None
    classes: int
    pair: tuple[str, str] | None


def plan_of(
    dataset: Dataset, pieces: Sequence[Piece], asked: Asked, class_names: Sequence[str], is_batched: bool
) -> Plan:
    """The plan for a dataset. Raises ValueError if an argument does not fit it."""
    first = first_records([piece.shard for piece in pieces], SAMPLE_IMAGES)
    if not first:
        raise ValueError(f"{dataset.path!r} has no record to read")
    layout = layout_of(dataset, asked.decode)
    label = _label(layout)
    pair = _pair(layout, label) if asked.as_supervised else None
    if pair is not None and pair[1] == label and layout.features[label].shape == (None,):
        _check_labels(dataset, pieces, label, asked)
    kept = _kept(layout, asked, pair)
    image = layout.image if asked.decode else None
    if image is not None and image.name in kept:
        needs_one_size = is_batched and asked.target is None and image.name in layout.features
        image = _image(image, sample_images(first, image.name, dataset), asked, needs_one_size)
    else:
        image = None
    layout = dataclasses.replace(
        layout,
        image=image,
        masks={name: fill for name, fill in layout.masks.items() if name in kept},
        object_masks=layout.object_masks if layout.object_masks in kept else None,
    )
    classes = _classes(asked, label, kept, class_names)
    key = layout.stored(*_KEYS)
    hidden = _hidden(layout, kept, asked)
    if image is not None and key is not None:
        hidden.add(key)
    return Plan(asked, layout.only(kept | hidden), frozenset(kept), label, key, classes, pair)


def _label(layout: Layout) -> str | None:
    """The name of the class ids of a record."""
    ids = (name for name, one in layout.features.items() if one.dtype == "int64")
    by_ours = {layout.ours.get(name, name): name for name in ids}
    return next((by_ours[name] for name in LABEL_KEYS if name in by_ours), None)


def _pair(layout: Layout, label: str | None) -> tuple[str, str]:
    shown = ", ".join(map(repr, layout.names))
    if layout.image is None:
        raise ValueError(f"as_supervised is True, and records have no image; they have {shown}")
    mask = next(iter(layout.masks), None)
    if label is not None and (mask is None or layout.features[label].shape == ()):
        return layout.image.name, label
    if mask is not None:  # a plain record has an empty list of labels beside its mask
        return layout.image.name, mask
    if layout.stored(BOXES) is None:
        raise ValueError(
            f"as_supervised is True, and records have no label, mask or boxes; they have {shown}"
        )
    return layout.image.name, ""


def _check_labels(dataset: Dataset, pieces: Sequence[Piece], name: str, asked: Asked) -> None:
    """Raises ValueError if records lack the label of their (image, label) pair.

    The numbers are those of report.json if complete splits are read, and else of the first records.
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
    """The number of records without a label, and of all, in report.json; None if it does not have them."""
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


def _kept(layout: Layout, asked: Asked, pair: tuple[str, str] | None) -> set[str]:
    names = set(layout.names)
    if pair is not None:
        targets = {pair[1]} if pair[1] else {name for name in names if is_of_objects(name, layout)}
        return {pair[0], *targets}
    if asked.features is None:
        return names
    if not asked.features or not names.issuperset(asked.features):
        shown = ", ".join(map(repr, sorted(names)))
        raise ValueError(f"features is {list(asked.features)!r}; records have {shown}")
    return set(asked.features)


def is_of_objects(name: str, layout: Layout) -> bool:
    """Whether a tensor has values of the objects of an image."""
    return layout.ours.get(name, name).startswith(OBJECTS)


def _hidden(layout: Layout, kept: set[str], asked: Asked) -> set[str]:
    """Names of features that are parsed because a kept one needs them.

    Raises:
        ValueError: `size` has no effect, or the stored size is missing.
    """
    image = layout.image
    has_objects = any(is_of_objects(name, layout) for name in kept)
    has_masks = asked.decode and (layout.masks or layout.object_masks is not None)
    found: set[str | None] = set()
    if image is not None:
        found |= {image.height, image.width, image.depth if image.codec == "raw" else None}
    else:
        if asked.target is not None and not has_masks and not has_objects:
            raise ValueError(f"size is {asked.size!r}, and no image, mask or box is read; leave size out")
        if has_masks or asked.target is not None:
            sizes = {layout.scalar(*HEIGHTS), layout.scalar(*WIDTHS)}
            if None in sizes:
                needs = "masks are read" if asked.target is None else f"size is {asked.size!r}"
                raise ValueError(f"{needs}, and the stored height and width are missing; read the image too")
            found |= sizes
    if has_objects and asked.target is not None and asked.resize == "crop_or_pad":
        found.add(layout.stored(BOXES))
    return {name for name in found if name is not None}


def _classes(asked: Asked, label: str | None, kept: set[str], class_names: Sequence[str]) -> int:
    if asked.one_hot is False:
        return 0
    if label is None or label not in kept:
        raise ValueError(f"one_hot is {asked.one_hot!r}, and no label is read; leave it out")
    if asked.one_hot is not True:
        return asked.one_hot
    if not class_names:
        raise ValueError(
            "one_hot is True, and the dataset has no class names to count; give the number of classes"
        )
    return len(class_names)


def _image(
    image: ImageLayout, samples: Sequence[SampleImage], asked: Asked, needs_one_size: bool
) -> ImageLayout:
    if image.codec != "image" and asked.dtype not in (None, image.dtype):
        raise ValueError(f"dtype is {asked.dtype!r}, and pixels are stored as {image.dtype}; leave it out")
    shapes = [sample.shape for sample in samples if sample.shape is not None]
    if len(shapes) < len(samples):
        raise ValueError(f"TensorFlow cannot decode an image in {image.name!r}; give decode=False")
    channels = image.channels if asked.channels is None else asked.channels
    sizes = {shape[:2] for shape in shapes} if needs_one_size else set()
    if len(sizes) > 1:
        shown = " and ".join(f"{height}x{width}" for height, width in sorted(sizes)[:2])
        raise ValueError(
            f"batch_size is given, and images differ in size ({shown}); give size=(height, width) too"
        )
    sides = next(iter(sizes), None)
    dtype = asked.dtype or image.dtype
    is_uniform = sides is not None and dtype == "uint8" and {shape[2] for shape in shapes} == {channels}
    return dataclasses.replace(
        image,
        channels=channels,
        dtype=dtype,
        sides=sides,
        head=_common_head(samples, channels) if is_uniform else b"",
        is_strict=asked.channels is None,
        keeps_bits=asked.dtype is None,
    )


def _common_head(samples: Sequence[SampleImage], channels: int) -> bytes:
    """The first bytes of PNGs of 8 bits, up to the end of their header; empty if they differ."""
    heads = {sample.data[:HEAD_BYTES] for sample in samples if sample.codec == "image"}
    head = heads.pop() if len(heads) == 1 else b""
    # a transparent colour is a channel that is not in the header
    return head if head[:4] == b"\x89PNG" and _PNG_CHANNELS.get(head[24:26]) == channels else b""
