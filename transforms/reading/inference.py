"""The features that records have in common, and their images, by the first records of a dataset."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from recordmill.transforms.examples.record_view import (
    IMAGE_KEYS,
    RecordView,
    Shape,
    image_within,
    is_encoded,
)
from recordmill.transforms.examples.schema import PIXEL_FORMATS, Dtype, FeatureSpec
from recordmill.transforms.examples.wire import (
    Feature,
    Kind,
    Span,
    read_example,
    read_feature_lists,
    read_tensor,
)
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.shard import frames
from recordmill.transforms.records import BadInput

SAMPLE_RECORDS = 64
"""How many records of a dataset without a manifest are looked at."""
SAMPLE_IMAGES = 8
"""How many records of a split are looked at for their images."""

_SAMPLE_BYTES = 64 << 20
_DTYPES: dict[Kind, Dtype] = {"bytes": "string", "float": "float32", "int64": "int64"}
_ITEM_BYTES = {"uint8": 1, "uint16": 2}
_TENSOR_DTYPES = {b"\x08\x04": "uint8", b"\x08\x11": "uint16"}
_OF_OBJECTS = "image/object/"
_DECODED_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
_GREY = frozenset({"1", "L", "I", "F"})
_ALPHA = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


@dataclasses.dataclass(frozen=True)
class RecordSpecs:
    """What a reader must know of the records of a dataset.

    Attributes:
        features: by stored name; of a sequence those of its context. The shape is () only where every record
            has exactly one value.
        feature_lists: of sequences, one step of each list.
    """

    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]


@dataclasses.dataclass(frozen=True, slots=True)
class SampleImage:
    """One stored image.

    Attributes:
        data: its bytes, as stored.
        codec: `image` for a file, `raw` for pixels, `tensor` for a serialised TensorProto.
        dtype: of its pixels; of a file `uint8` unless it is a PNG of 16 bits.
        shape: height, width and channels that TensorFlow decodes it to, where 2 channels count as 4; None if
            TensorFlow cannot decode the file.
    """

    data: bytes
    codec: str
    dtype: str
    shape: tuple[int, int, int] | None


def specs_of(dataset: Dataset) -> RecordSpecs:
    """The specs of a dataset: those of its manifest, else those of its first records.

    Raises:
        ValueError: as `infer_specs`; or no shard has a record.
    """
    if dataset.features is not None:
        return RecordSpecs(dataset.features, dataset.feature_lists)
    return infer_specs(sample_records(dataset))


def sample_records(dataset: Dataset) -> list[bytes]:
    """Payloads of the first records of each split.

    Raises:
        ValueError: the first records of all splits are damaged.
        OSError: likewise, they cannot be read.
    """
    splits = dataset.splits
    most = SAMPLE_IMAGES
    if dataset.manifest is None:
        most = max(most, SAMPLE_RECORDS // max(len(splits), 1))
    found: list[bytes] = []
    faults: list[Exception] = []
    for shards in splits.values():
        try:
            found += first_records(shards, most)
        except (ValueError, OSError) as fault:  # another split may be there and not damaged
            faults.append(fault)
    if faults and not found:
        raise faults[0]
    return found


def first_records(shards: Iterable[ShardEntry], most: int) -> list[bytes]:
    """Payloads of the first records: at least one, and no more after 64 MB.

    Raises:
        ValueError: the first is damaged.
        OSError: a shard cannot be read.
    """
    found: list[bytes] = []
    held = 0
    try:
        for payload in itertools.islice(_payloads(shards), most):
            held += len(payload)
            if found and held > _SAMPLE_BYTES:
                break
            found.append(payload)
    except ValueError:
        if not found:  # else the error comes when the record is read
            raise
    return found


def _payloads(shards: Iterable[ShardEntry]) -> Iterator[bytes]:
    for shard in shards:
        try:
            yield from (frame.payload for frame in frames(shard.path))
        except ValueError as error:
            raise ValueError(f"{shard.path!r} cannot be read: {error}") from error


def infer_specs(payloads: Sequence[bytes]) -> RecordSpecs:
    """The specs of a dataset by its first records.

    A feature has one value if each of these records has one; else any number, as values of objects always.

    Raises:
        ValueError: there is no record, one is no Example, or a feature is of two kinds.
    """
    if not payloads:
        raise ValueError("there is no record to infer the features from")
    context: dict[str, list[Feature]] = {}
    steps: dict[str, list[Feature]] = {}
    for number, payload in enumerate(payloads):
        try:
            features, lists = read_example(payload), read_feature_lists(payload)
        except BadInput as error:
            raise ValueError(f"record {number} is {error.reason}: {error.detail}") from error
        for name, feature in features.items():
            context.setdefault(name, []).append(feature)
        for name, values in lists.items():
            steps.setdefault(name, []).extend(values)
    return RecordSpecs(
        {
            name: spec
            for name, found in sorted(context.items())
            if (spec := _spec(name, found, len(payloads)))
        },
        {name: spec for name, found in sorted(steps.items()) if (spec := _spec(name, found, len(found)))},
    )


def _spec(name: str, found: Sequence[Feature], records: int) -> FeatureSpec | None:
    """The spec of a feature in so many records; None if none of them has a value."""
    kinds = {feature.kind for feature in found if feature.kind is not None}
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ValueError(f"the feature {name!r} is {' in one record and '.join(sorted(kinds))} in another")
    single = len(found) == records and all(len(feature) == 1 for feature in found)
    listed = name.startswith(_OF_OBJECTS)
    return FeatureSpec(_DTYPES[kinds.pop()], () if single and not listed else (None,))


def image_name(specs: RecordSpecs, dataset: Dataset, payloads: Sequence[bytes]) -> str | None:
    """The stored name of the feature, or feature list, of images; None if there is none.

    Without a manifest, the records must have an image under a usual name.
    """
    stored = {dataset.renames.get(name, name): name for name in (*specs.features, *specs.feature_lists)}
    keys = IMAGE_KEYS if dataset.manifest is None else IMAGE_KEYS[:2]
    for key in keys:
        name = stored.get(key)
        spec = specs.feature_lists.get(name or "", specs.features.get(name or ""))
        if name is None or spec is None or (spec.dtype, spec.shape) != ("string", ()):
            continue
        if dataset.manifest is not None or sample_images(payloads, name, dataset):
            return name
    return None


def sample_images(payloads: Iterable[bytes], name: str, dataset: Dataset) -> list[SampleImage]:
    """The images of records under a name, without bytes that are no image."""
    found = []
    for payload in payloads:
        features = read_example(payload)
        steps = read_feature_lists(payload)
        rows = [features]
        if name in steps:
            lists = steps.items()
            rows = [
                features | {key: values[at] for key, values in lists if at < len(values)}
                for at in range(min(len(steps[name]), 4))
            ]
        for row in rows:
            ours = {dataset.renames.get(key, key): feature for key, feature in row.items()}
            image = _sample_image(payload, row.get(name, Feature(None)), RecordView(payload, ours))
            if image is not None:
                found.append(image)
    return found


def _sample_image(payload: bytes, feature: Feature, fields: RecordView) -> SampleImage | None:
    if len(feature.spans) != 1:
        return None
    span = feature.spans[0]
    told = fields.shape()
    data = payload[span.start : span.stop]
    codec, dtype = _codec(payload, span, told)
    if not codec:
        return None
    shape: tuple[int, int, int] | None
    if codec == "image":
        shape = _file_shape(data)
    elif codec == "tensor":
        sides = read_tensor(payload, span)[1]
        shape = (*sides, 1)[:3] if len(sides) in (2, 3) else None  # type: ignore[assignment]
    else:
        shape = told.pixels(len(data) // _ITEM_BYTES[dtype])
    return SampleImage(data, codec, dtype, shape)


def _file_shape(data: bytes) -> tuple[int, int, int] | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=_DECODED_FORMATS) as opened:
            mode, is_gif = opened.mode, opened.format == "GIF"
            has_alpha = mode in _ALPHA or "transparency" in opened.info
            width, height = opened.size
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    if has_alpha and not is_gif:
        return height, width, 4
    return height, width, 1 if not is_gif and (mode in _GREY or mode.startswith("I;")) else 3


def _codec(payload: bytes, span: Span, shape: Shape) -> tuple[str, str]:
    """Codec and dtype of bytes; empty if they are no image."""
    data = payload[span.start : span.stop]
    if shape.image_format not in PIXEL_FORMATS and is_encoded(data[:16]):
        return "image", "uint16" if data[:4] == b"\x89PNG" and data[24:25] == b"\x10" else "uint8"
    size = _ITEM_BYTES.get(shape.dtype, 1)
    if shape.image_format != "tensor" and shape.pixels(len(data) // size) and len(data) % size == 0:
        return "raw", shape.dtype if shape.dtype in _ITEM_BYTES else "uint8"
    if data[:2] in _TENSOR_DTYPES and (shape.image_format == "tensor" or _is_tensor(payload, span, shape)):
        return "tensor", _TENSOR_DTYPES[data[:2]]
    try:
        image_within(payload, span, shape)
    except BadInput:
        return "", ""
    return "image", "uint8"


def _is_tensor(payload: bytes, span: Span, shape: Shape) -> bool:
    try:
        return image_within(payload, span, shape)[1] is not None
    except BadInput as error:
        return "the tensor is" in error.detail
