"""How the stored records of a dataset become tensors.

`load_dataset` executes a layout, and `recordmill schema` prints it as code. It is found without TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.inference import (
    SampleImage,
    image_name,
    sample_images,
    sample_records,
    specs_of,
)
from recordmill.transforms.storage.files import is_file, read_bytes

OBJECTS = "image/object/"
BOXES = OBJECTS + "bbox"
PART_BOXES = OBJECTS + "part/bbox"
OBJECT_MASKS = OBJECTS + "mask"
MASK_FILLS = {
    "image/segmentation/class/encoded": 255,
    "image/panoptic/category/encoded": 255,
    "mask_raw": 255,
    "image/segmentation/instance/encoded": 0,
    "image/panoptic/instance/encoded": 0,
}
"""The value of each mask of an image where there is no image, or no mask: 255 means ignore."""
HEIGHTS, WIDTHS = ("image/height", "height"), ("image/width", "width")

_SIDES = ("ymin", "xmin", "ymax", "xmax")
_CHANNELS = ("image/channels", "image/depth", "channels", "depth")


@dataclasses.dataclass(frozen=True)
class ImageLayout:
    """How the image of a record, or of each step of a sequence, becomes pixels. Names are stored ones.

    Attributes:
        codec: `image` for a file, `raw` for rows of pixels, `tensor` for what tf.io.serialize_tensor makes.
        channels: of the pixels: 1, 3 or 4; 0 for as many as each image has.
        dtype: of the pixels.
        formats: that images may have, by the manifest; empty without one.
        height: the feature that has it; None if there is none.
        sides: height and width of all images as stored, which are checked; None if they may differ.
        head: first bytes of each file, if the first ones are PNGs of one size and kind; else empty.
        is_strict: whether an image that would lose colour or alpha is refused.
        keeps_bits: whether an image that would lose bits is refused.
    """

    name: str
    codec: str
    channels: int
    dtype: str
    formats: frozenset[str]
    height: str | None
    width: str | None
    depth: str | None
    sides: tuple[int, int] | None = None
    head: bytes = b""
    is_strict: bool = True
    keeps_bits: bool = True

    @property
    def is_plain_jpeg(self) -> bool:
        """Whether every image is a JPEG that is decoded to three channels of 8 bits."""
        return self.formats == {"jpeg"} and self.channels == 3 and self.dtype == "uint8"


class Parser(NamedTuple):
    """What parses a feature: a class of tf.io and its arguments."""

    kind: str
    shape: list[int] | None
    dtype: str
    allow_missing: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a record becomes tensors. Names are stored ones, except those of `boxes`.

    Attributes:
        features: that are parsed; of a sequence its context.
        ours: the name in our schemas, by name; only names that differ.
        image: of the record, or of its steps; None if it is left as stored.
        masks: of the image, with the value for no mask.
        object_masks: the PNGs of the masks of objects; None if there are none.
        boxes: by name of the tensor: ymin, xmin, ymax and xmax.
    """

    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]
    ours: Mapping[str, str]
    image: ImageLayout | None = None
    masks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    object_masks: str | None = None
    boxes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the tensors; a feature of the context may have the name of a list."""
        sides = {side for stored in self.boxes.values() for side in stored}
        return [*(name for name in (*self.features, *self.feature_lists) if name not in sides), *self.boxes]

    def stored(self, *ours: str) -> str | None:
        """The tensor's name for the first of our names that there is."""
        by_ours = {self.ours.get(name, name): name for name in reversed(self.names)}
        return next((by_ours[name] for name in ours if name in by_ours), None)

    def scalar(self, *ours: str) -> str | None:
        """The stored name for the first of our names that is one integer of a record, or of each step."""
        by_ours = {
            self.ours.get(name, name): name
            for specs in (self.features, self.feature_lists)
            for name, spec in specs.items()
            if (spec.dtype, spec.shape) == ("int64", ())
        }
        return next((by_ours[name] for name in ours if name in by_ours), None)

    def only(self, names: Collection[str]) -> Layout:
        """The layout of these tensors alone."""
        boxes = {name: sides for name, sides in self.boxes.items() if name in names}
        wanted = {*names, *(side for sides in boxes.values() for side in sides)}
        return dataclasses.replace(
            self,
            features={name: spec for name, spec in self.features.items() if name in wanted},
            feature_lists={name: spec for name, spec in self.feature_lists.items() if name in wanted},
            boxes=boxes,
        )

    @property
    def parsers(self) -> dict[str, Parser]:
        """The parser of each feature."""
        # the context of a sequence takes no FixedLenSequenceFeature
        listed = _ragged if self.feature_lists else _sequence
        return {
            name: listed(spec) if name in self.masks or spec.shape == (None,) else _fixed(spec)
            for name, spec in self.features.items()
        }

    @property
    def list_parsers(self) -> dict[str, Parser]:
        """The parser of each list, which is a RaggedTensor if a step has any number of values."""
        return {
            name: _ragged(spec) if spec.shape == (None,) else _sequence(spec)
            for name, spec in self.feature_lists.items()
        }


def _ragged(spec: FeatureSpec) -> Parser:
    return Parser("RaggedFeature", None, spec.dtype)


def _fixed(spec: FeatureSpec) -> Parser:
    return Parser("FixedLenFeature", [side for side in spec.shape if side is not None], spec.dtype)


def _sequence(spec: FeatureSpec) -> Parser:
    return _fixed(spec)._replace(kind="FixedLenSequenceFeature", allow_missing=True)


def layout_of(dataset: Dataset, decode: bool = True) -> Layout:
    """The layout of the records of a dataset, from its metadata, or else from its first records.

    Args:
        decode: whether images are decoded; they must then all be stored in one way.

    Raises:
        ValueError: there is no record, a shard is damaged, or images are stored in several ways.
        BadInput: a record is no Example.
        OSError: a shard cannot be read.
    """
    payloads = sample_records(dataset) if dataset.manifest is None else []
    specs = specs_of(dataset, payloads)
    name = image_name(specs, dataset, payloads)
    layout = Layout(specs.features, specs.feature_lists, dataset.renames)
    if name is not None:
        layout = dataclasses.replace(layout, image=_image_layout(name, dataset, layout, payloads, decode))
    return layout if layout.feature_lists else _with_annotations(layout)


def _image_layout(
    name: str, dataset: Dataset, layout: Layout, payloads: Sequence[bytes], decode: bool
) -> ImageLayout | None:
    """None if the pixels have no known height and width."""
    formats = frozenset(dataset.manifest.get("formats", ()) if dataset.manifest is not None else ())
    published = _published(dataset, name)
    if published is None:
        if dataset.manifest is not None:
            payloads = sample_records(dataset)
        published = _sampled(name, sample_images(payloads, name, dataset), formats, decode)
    codec, channels, dtype = published
    height, width, depth = layout.scalar(*HEIGHTS), layout.scalar(*WIDTHS), layout.scalar(*_CHANNELS)
    if codec == "raw" and (height is None or width is None):
        return None
    return ImageLayout(name, codec, channels, dtype, formats, height, width, depth)


def _published(dataset: Dataset, name: str) -> tuple[str, int, str] | None:
    """Codec, channels and dtype of all images in features.json; None if images differ."""
    path = f"{dataset.folder}/features.json"
    if dataset.manifest is None or not is_file(path):
        return None
    try:
        image: Any = json.loads(read_bytes(path))["featuresDict"]["features"][name]["image"]
        channels, dtype = int(image["shape"]["dimensions"][-1]), str(image["dtype"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    return ("image", channels, dtype) if channels > 0 else None


def _sampled(
    name: str, samples: Sequence[SampleImage], formats: Collection[str], decode: bool
) -> tuple[str, int, str]:
    """Codec, channels and dtype of the first images: grey among colour gets three channels."""
    codecs = {sample.codec for sample in samples}
    if decode and len(codecs) > 1:
        raise ValueError(
            f"images in {name!r} are stored in several ways: {sorted(codecs)}; "
            "load_dataset with decode=False reads them as stored"
        )
    codec = codecs.pop() if codecs else next((one for one in ("raw", "tensor") if one in formats), "image")
    dtype = "uint16" if any(sample.dtype == "uint16" for sample in samples) else "uint8"
    found = {sample.shape[2] for sample in samples if sample.shape is not None}
    return codec, 4 if found & {2, 4} else 1 if found == {1} else 3, dtype


def _with_annotations(layout: Layout) -> Layout:
    """The layout with masks and boxes, if the records have all their features."""
    by_ours = {layout.ours.get(name, name): name for name in layout.features}
    boxes = {}
    for prefix in (BOXES, PART_BOXES):
        sides = tuple(by_ours.get(f"{prefix}/{side}", "") for side in _SIDES)
        specs = [layout.features[side] for side in sides if side]
        if len(specs) == len(sides) and all((one.dtype, one.shape) == ("float32", (None,)) for one in specs):
            boxes[_name_of_boxes(prefix, sides)] = prefix, sides
    boxes = {name: found for name, found in boxes.items() if name not in layout.features}
    layout = dataclasses.replace(
        layout,
        boxes={name: sides for name, (_, sides) in boxes.items()},
        ours={**layout.ours, **{name: prefix for name, (prefix, _) in boxes.items() if name != prefix}},
    )
    if layout.image is None and (layout.scalar(*HEIGHTS) is None or layout.scalar(*WIDTHS) is None):
        return layout
    texts = {ours: name for ours, name in by_ours.items() if layout.features[name].dtype == "string"}
    return dataclasses.replace(
        layout,
        masks={texts[ours]: fill for ours, fill in MASK_FILLS.items() if ours in texts},
        object_masks=texts.get(OBJECT_MASKS),
    )


def _name_of_boxes(prefix: str, sides: Sequence[str]) -> str:
    """The common prefix of the stored names of the sides, else our name."""
    renamed = sides[0].removesuffix("/ymin")
    same = all(stored == f"{renamed}/{side}" for stored, side in zip(sides, _SIDES, strict=True))
    return renamed if same else prefix
