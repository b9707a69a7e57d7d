"""The features that records have in common, and their images, by the first records of a dataset."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence

from recordmill.transforms.examples.record_view import (
    IMAGE_KEYS,
    RecordView,
    Shape,
    renamed_view,
    stored_form,
)
from recordmill.transforms.examples.schema import Dtype, FeatureSpec
from recordmill.transforms.examples.wire import Feature, Kind, read_example, read_feature_lists
from recordmill.transforms.reading.dataset import Dataset, ShardEntry
from recordmill.transforms.reading.shard import frames
from recordmill.transforms.records import BadInput

SAMPLE_RECORDS = 64
"""How many records of a dataset without a manifest are looked at."""
SAMPLE_IMAGES = 8
"""How many records of a split are looked at for their images."""

_SAMPLE_BYTES = 64 << 20
_DTYPES: dict[Kind, Dtype] = {"bytes": "string", "float": "float32", "int64": "int64"}
_MOST_FRAMES = 4
_OF_OBJECTS = "image/object/"
_DECODED_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
_GREY = frozenset({"1", "L", "I", "F"})
_ALPHA = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


@dataclasses.dataclass(frozen=True)
class RecordSpecs:
    """The features of the records of a dataset.

    Attributes:
        features: by stored name; of a sequence those of its context. The shape is () only where every record
            has exactly one value.
    """

    features: Mapping[str, FeatureSpec]
    feature_lists: Mapping[str, FeatureSpec]


@dataclasses.dataclass(frozen=True, slots=True)
class SampleImage:
    """One stored image.

    Attributes:
        codec: `image` for a file, `raw` for pixels, `tensor` for a serialised TensorProto.
        dtype: of its pixels; of a file `uint8` unless it is a PNG of 16 bits.
        shape: height, width and channels that TensorFlow decodes it to, where 2 channels count as 4; None if
            TensorFlow cannot decode the file.
    """

    data: bytes
    codec: str
    dtype: str
    shape: tuple[int, int, int] | None


def specs_of(dataset: Dataset, first: Sequence[bytes]) -> RecordSpecs:
    """The specs in the manifest, else those of the first records. Raises ValueError as `infer_specs`."""
    if dataset.features is not None:
        return RecordSpecs(dataset.features, dataset.feature_lists)
    return infer_specs(first)


def sample_records(dataset: Dataset) -> list[bytes]:
    """Payloads of the first records of each split.

    Raises:
        ValueError: the first records of all splits are damaged.
        OSError: likewise, they cannot be read.
    """
    splits = dataset.splits
    inferred = SAMPLE_RECORDS // max(len(splits), 1) if dataset.manifest is None else 0
    found: list[bytes] = []
    faults: list[Exception] = []
    for shards in splits.values():
        try:
            found += first_records(shards, max(SAMPLE_IMAGES, inferred))
        except (ValueError, OSError) as fault:  # another split may be readable
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
    for shard in shards:
        try:
            for frame in itertools.islice(frames(shard.path), most - len(found)):
                held += len(frame.payload)
                if found and held > _SAMPLE_BYTES:
                    return found
                found.append(frame.payload)
        except ValueError as error:
            if found:
                return found  # the error comes when the record is read
            raise ValueError(f"{shard.path!r} cannot be read: {error}") from error
        if len(found) == most:
            break
    return found


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
    return RecordSpecs(_specs(context, len(payloads)), _specs(steps, None))


def _specs(features: Mapping[str, Sequence[Feature]], records: int | None) -> dict[str, FeatureSpec]:
    """The specs of the features that have a value; `records` of None is as many as have the feature."""
    specs = {}
    for name, found in sorted(features.items()):
        kinds = {feature.kind for feature in found if feature.kind is not None}
        if len(kinds) > 1:
            kind = " in one record and ".join(sorted(kinds))
            raise ValueError(f"the feature {name!r} is {kind} in another")
        single = records in (None, len(found)) and all(len(feature) == 1 for feature in found)
        if kinds:
            shape = () if single and not name.startswith(_OF_OBJECTS) else (None,)
            specs[name] = FeatureSpec(_DTYPES[kinds.pop()], shape)
    return specs


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
    """The images of records under a stored name, without bytes that are no image."""
    ours = dataset.renames.get(name, name)
    images = []
    for payload in payloads:
        try:
            record = renamed_view(payload, dataset.renames)
        except BadInput as error:
            raise ValueError(f"a record with {ours!r} cannot be read: {error}") from error
        views = [record]
        if ours in record.lists:
            views = record.steps()[: min(len(record.lists[ours]), _MOST_FRAMES)]
        shape = record.shape()
        images += [_sample_image(view.take(ours), view, view.shape(shape)) for view in views]
    return [image for image in images if image is not None]


def _sample_image(feature: Feature, view: RecordView, shape: Shape) -> SampleImage | None:
    if len(feature.spans) != 1:
        return None
    [span] = feature.spans
    try:
        form = stored_form(view.record, span, shape)
    except BadInput:
        return None
    data = view.record[span.start : span.stop]
    if form.codec != "image":
        known = form.dtype in ("uint8", "uint16")
        return SampleImage(data, form.codec, form.dtype, form.pixels) if known else None
    is_deep = data[:4] == b"\x89PNG" and data[24:25] == b"\x10"
    return SampleImage(data, "image", "uint16" if is_deep else "uint8", _file_shape(data))


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
