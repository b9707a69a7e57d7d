"""dataset_info.json, features.json and label files, as `tfds.builder_from_directory` reads them.

Source of the formats: tensorflow_datasets/core/proto/{dataset_info,feature}.proto, in their JSON form,
where 64-bit integers are text and an unknown dimension is -1.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.examples.schema import PIXEL_FORMATS, DatasetSummary, FeatureSpec, Shape

# Shards are `train-00000-of-00016.tfrecord`.
_FILEPATH_TEMPLATE = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"
_FEATURES_PACKAGE = "tensorflow_datasets.core.features."
_CLASS_ROLES = ("label", "object_label")
_ANIMATED_FORMATS = frozenset({"gif", "webp"})
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_VERSION = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}")

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class SplitInfo:
    """The records in each shard of a split, in order, and the bytes of all shards. A shard may be empty."""

    shard_lengths: tuple[int, ...]
    num_bytes: int


def dataset_name(text: str) -> str:
    """The nearest name that TFDS accepts: ASCII letters, digits and underscores, a letter first."""
    name = re.sub(r"[^a-zA-Z0-9]+", "_", text).strip("_").lower()
    if not name:
        return "dataset"
    return name if name[0].isalpha() else f"dataset_{name}"


def supervised_keys(specs: Mapping[str, FeatureSpec]) -> tuple[str, str] | None:
    """The features that `as_supervised=True` yields: the image, and its label or else its first mask.

    None if the dataset has no images, or neither labels nor masks of images.
    """
    keys: dict[str, str] = {}
    for name, spec in specs.items():
        keys.setdefault(spec.role, name)
    target = keys.get("label") or keys.get("mask")
    return (keys["image"], target) if target and "image" in keys else None


def dataset_info(
    name: str, version: str, splits: Mapping[str, SplitInfo], supervised: tuple[str, str] | None = None
) -> str:
    """The text of dataset_info.json; a name as of `dataset_name`, and keys as of `supervised_keys`.

    Raises:
        ValueError: TFDS would not accept the name or the version.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"dataset name is {name!r}; TFDS accepts letters, digits and _, such as {dataset_name(name)!r}"
        )
    if not _VERSION.fullmatch(version):
        raise ValueError(f"dataset version is {version!r}; it must be three integers, as 1.0.0")
    info: Json = {"name": name, "version": version, "fileFormat": "tfrecord"}
    info["splits"] = [
        {
            "name": split,
            "filepathTemplate": _FILEPATH_TEMPLATE,
            "shardLengths": [str(length) for length in shards.shard_lengths],
            "numBytes": str(shards.num_bytes),
        }
        for split, shards in splits.items()
    ]
    if supervised:
        info["supervisedKeys"] = {"tuple": {"items": [{"featureKey": key} for key in supervised]}}
    return _json(info)


def features_json(specs: Mapping[str, FeatureSpec], summary: DatasetSummary) -> str:
    """The text of features.json."""
    features = {name: _feature(spec, summary) for name, spec in sorted(specs.items())}
    return _json(_of_class("features_dict.FeaturesDict", featuresDict={"features": features}))


def label_files(specs: Mapping[str, FeatureSpec], class_names: tuple[str, ...] | None) -> dict[str, str]:
    """The files of class names, by file name: one line for each id. None without class names."""
    if not class_names:
        return {}
    keys = [name for name, spec in specs.items() if spec.role in _CLASS_ROLES]
    return {
        f"{key.replace('/', '.')}.labels.txt": "".join(f"{name}\n" for name in class_names) for key in keys
    }


def _feature(spec: FeatureSpec, summary: DatasetSummary) -> Json:
    if spec.role == "image":
        return _image(summary)
    if spec.role in _CLASS_ROLES and summary.class_names:
        label = _of_class(
            "class_label_feature.ClassLabel", classLabel={"numClasses": str(len(summary.class_names))}
        )
        return label if spec.shape == () else _sequence(label)
    if spec.role == "object_mask":  # each object has a PNG
        return _sequence(_decoded("uint8", (None, None, 1)))
    if spec.role == "mask" and (mask := _mask(spec, summary)):
        return mask
    if spec.shape == (None,):
        return _sequence(_scalar(spec))
    return _scalar(spec) if spec.shape == () else _tensor(spec.dtype, spec.shape)


def _image(summary: DatasetSummary) -> Json:
    """The image, decoded wherever TFDS can decode it without loss; else its bytes.

    TFDS decodes with tf.io.decode_image, which takes one number of channels and one rank for all
    images. Grey among colour is repeated into three channels. Any other mix of channels, and what
    have an alpha channel and others have none, is left as each image is. GIF and WebP come with an axis of
    frames, so among others they cannot be decoded alike.
    """
    animated = summary.formats & _ANIMATED_FORMATS
    if summary.formats & PIXEL_FORMATS or (animated and animated != summary.formats):
        return _tensor("string", ())
    frames: Shape = (None,) if animated else ()
    # As 16 bits if some image has them: 8-bit values are scaled up, without loss.
    dtype = "uint16" if "uint16" in summary.dtypes else "uint8"
    shape: Shape = (*frames, None, None, _channels(summary))
    return _decoded(dtype, shape)


def _mask(spec: FeatureSpec, summary: DatasetSummary) -> Json | None:
    """A PNG mask, as a list of one or none if some records have none; None if only its bytes can be read.

    TFDS decodes all masks to one type, and tf.io.decode_image scales 8-bit values up to 16 bits: that changes
    class ids, so masks of both types stay bytes. So do raw pixels, whose shape TFDS cannot know.
    """
    dtypes = summary.mask_dtypes.get(spec.mask, frozenset())
    is_complete = spec.mask in summary.complete_masks
    if len(dtypes) != 1 or not (is_complete or spec.shape == (None,)):
        return None
    image = _decoded(min(dtypes), (None, None, 1))
    return image if is_complete else _sequence(image)


def _decoded(dtype: str, shape: Shape) -> Json:
    return _of_class("image_feature.Image", image={"dtype": dtype, "shape": _shape(shape)})


def _channels(summary: DatasetSummary) -> int | None:
    """The channels to decode every image with; None for those that each image has."""
    if summary.channels in ({3}, {1, 3}) or not summary.channels:
        return 3
    if summary.channels == {4}:
        return 4
    if summary.channels == {1} and "bmp" not in summary.formats:  # decode_image refuses to ask it of a BMP
        return 1
    return None


def _scalar(spec: FeatureSpec) -> Json:
    if spec.dtype == "string":
        return _of_class("text_feature.Text", text={})
    return _of_class("scalar.Scalar", tensor={"dtype": spec.dtype, "encoding": "none", "shape": {}})


def _tensor(dtype: str, shape: Shape) -> Json:
    tensor = {"dtype": dtype, "encoding": "none", "shape": _shape(shape)}
    return _of_class("tensor_feature.Tensor", tensor=tensor)


def _sequence(element: Json) -> Json:
    return _of_class("sequence_feature.Sequence", sequence={"feature": element, "length": "-1"})


def _shape(shape: Shape) -> Json:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]} if shape else {}


def _of_class(name: str, **content: Json) -> Json:
    return {"pythonClassName": _FEATURES_PACKAGE + name, **content}


def _json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
