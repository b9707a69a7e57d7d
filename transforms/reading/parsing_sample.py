"""What the specs of features leave open for a parser, told by the first records: how images are stored."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence

from recordmill.transforms.examples.wire import read_example
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.inference import RecordSpecs, SampleImage, image_name, sample_images

_HEIGHTS, _WIDTHS = ("image/height", "height"), ("image/width", "width")
_CHANNELS = ("image/channels", "image/depth", "channels", "depth")
_DTYPES = ("image/dtype", "dtype")
_BYTES = {"uint8": 1, "uint16": 2}
_MASKS = "image/object/mask"
_BOXES, _KEYPOINTS = "image/object/bbox/xmin", "image/object/keypoint/x"
_GREY = frozenset({"1", "L", "I", "F"})
_ALPHA = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


@dataclasses.dataclass(frozen=True, slots=True)
class ImageLayout:
    """How the image of a record, or of a step of a sequence, is stored. Names are stored ones.

    Attributes:
        key: of its bytes.
        codec: `image` for a file, `raw` for rows of pixels, `tensor` for what tf.io.serialize_tensor makes.
        height: the feature that tells it; None where none does.
        width: the same.
        channels: the feature that tells how many there are, or how many there are.
        dtype: of the decoded pixels.
        dtype_key: the feature that tells it; None where none does.
    """

    key: str
    codec: str
    height: str | None
    width: str | None
    channels: str | int
    dtype: str
    dtype_key: str | None

    @property
    def is_decodable(self) -> bool:
        """Whether all is known that makes pixels of it."""
        return self.codec != "raw" or (self.height is not None and self.width is not None)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """What the first records tell.

    Attributes:
        image: of a record, of a sequence its steps'; None where there is none.
        keypoints: of each object; 0 where there are none.
        masks_are_png: whether masks of objects are bytes.
    """

    image: ImageLayout | None = None
    keypoints: int = 0
    masks_are_png: bool = False


def sample_of(dataset: Dataset, specs: RecordSpecs, payloads: Sequence[bytes]) -> Sample:
    """What records tell.

    Args:
        dataset: theirs.
        specs: theirs.
        payloads: the first of them.

    Raises:
        BadInput: one is no Example.
    """
    name = image_name(specs, dataset, payloads)
    images = [] if name is None else sample_images(payloads, name, dataset)
    layout = None if name is None or not images else _layout(name, images, dataset, specs)
    ours = {new: old for old, new in dataset.renames.items()}
    masks = specs.features.get(ours.get(_MASKS, _MASKS))
    return Sample(layout, _keypoints(payloads, ours), masks is not None and masks.dtype == "string")


def _layout(name: str, images: Sequence[SampleImage], dataset: Dataset, specs: RecordSpecs) -> ImageLayout:
    beside = specs.feature_lists if name in specs.feature_lists else specs.features
    stored = {dataset.renames.get(one, one): one for one, spec in beside.items() if spec.shape == ()}
    first = images[0]
    channels: str | int | None = _first(stored, _CHANNELS)
    if first.codec == "image":
        channels = max(map(_channels_of_file, images))
    elif channels is None:
        pixels = (first.height or 0) * (first.width or 0) * _BYTES[first.dtype]
        channels = len(first.data) // pixels if pixels else 1
    deep = any(image.dtype == "uint16" for image in images)
    return ImageLayout(
        name,
        first.codec,
        _first(stored, _HEIGHTS),
        _first(stored, _WIDTHS),
        channels,
        "uint16" if deep else "uint8",
        _first(stored, _DTYPES),
    )


def _first(stored: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((stored[name] for name in names if name in stored), None)


def _channels_of_file(image: SampleImage) -> int:
    """1 for grey, 4 with alpha, else 3: grey among colour is repeated, and loses nothing."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image.data)) as opened:
            mode, has_transparency = opened.mode, "transparency" in opened.info
    except (OSError, ValueError, Image.DecompressionBombError):
        return 3
    if mode in _ALPHA or has_transparency:
        return 4
    return 1 if mode in _GREY or mode.startswith("I;") else 3


def _keypoints(payloads: Iterable[bytes], ours: Mapping[str, str]) -> int:
    """How many key points an object has."""
    most = 0
    for payload in payloads:
        features = read_example(payload)
        objects = features.get(ours.get(_BOXES, _BOXES))
        points = features.get(ours.get(_KEYPOINTS, _KEYPOINTS))
        if objects and points:
            most = max(most, len(points) // len(objects))
    return most
