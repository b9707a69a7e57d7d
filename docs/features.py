"""The features of each schema, from the code: types, shapes, when they are present; and their meaning."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from recordmill.transforms.examples.columns import Column
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.examples.schema import DatasetSummary, FeatureSpec, Schema, SequenceSchema

_BASE = DatasetSummary(True, (1, 1))
# When a feature is present that not every dataset of a schema has.
_CONDITIONS = {
    "labels": "images have labels",
    "objects": "there are objects",
    "object_masks": "objects have masks (`--include_annotations masks`)",
    "keypoints": "`--include_annotations keypoints`",
    "parts": "objects have parts (VOC)",
    "captions": "`--include_annotations captions`",
    "class": "there are masks of classes",
    "instance": "there are masks of instances",
    "panoptic": "there are panoptic masks",
    "frames": "steps have images",
    "step_labels": "steps have labels",
    "raw": "`--image_format raw` or `tensor`",
    "qualities": "`--target_ssim`",
    "attributes": "objects have attributes",
}
# Instead of a list of conditions.
_OTHER_CONDITIONS = {"mask_raw": "the input has masks of any kind"}
_BBOX = "side of each object's box, normalised to [0, 1]"
_PART = "side of each part's box, normalised to [0, 1]"
_MEANINGS = {
    "image/encoded": "the stored image",
    "image/format": "`jpeg`, `png`, `gif`, `bmp`, `webp`, `raw` or `tensor`",
    "image/height": "pixels",
    "image/width": "pixels",
    "image/filename": "the key of the record",
    "image/channels": "1 to 4",
    "image/dtype": "of the pixels: `uint8` or `uint16`",
    "image/jpeg_quality": "the quality that was chosen; 0 if the source was kept",
    "image/class/label": "class id",
    "image/class/text": "class name",
    "image/key/sha256": "SHA-256 of `image/encoded`, in hexadecimal",
    "image/source_id": "the source's own id (COCO), or the key",
    "image/caption": "captions of the image",
    "image/object/class/label": "class id of each object, from 1",
    "image/object/class/text": "class name of each object",
    "image/object/mask": "a PNG for each object: 1 inside, 0 outside; the filled box if it has no mask",
    "image/object/keypoint/x": "normalised to [0, 1]; as many for each object as for the one with the most",
    "image/object/keypoint/y": "likewise",
    "image/object/keypoint/visibility": "0 not labelled, 1 hidden, 2 visible",
    "image/object/part/text": "name of each part",
    "image/object/part/object": "index of the part's object, from 0",
    "image/object/<attribute>": "such as `is_crowd`, `area`, `difficult`, `truncated`, `view`: "
    "a value for each object; 0 or empty if it has none",
    "image/segmentation/class/encoded": "a grey PNG of the image's size: the class id of each pixel; "
    "255 means ignore",
    "image/segmentation/class/format": "`png`",
    "image/segmentation/instance/encoded": "a grey PNG of 8 or 16 bits: the number of each pixel's "
    "object; 0 for none. A record without this mask has an empty list",
    "image/segmentation/instance/format": "`png`",
    "image/panoptic/category/encoded": "a grey PNG of 8 bits: the class id of each pixel; 255 for no segment",
    "image/panoptic/category/format": "`png`",
    "image/panoptic/instance/encoded": "a grey PNG of 8 or 16 bits: the number of the pixel's thing "
    "in this image, from 1; 0 for stuff",
    "image/panoptic/instance/format": "`png`",
    "image/colorspace": "`RGB`, `Grayscale`, `CMYK`, `RGBA` or `GrayscaleAlpha`",
    "image/class/synset": "the label: the synset",
    "image/object/bbox/label": "class id of each object",
    "image_raw": "the pixels, row by row; the encoded image with another `--image_format` than `raw`",
    "mask_raw": "height × width class ids, one byte each",
    "height": "pixels",
    "width": "pixels",
    "depth": "channels",
    "dtype": "of the pixels: `uint8` or `uint16`",
    "label": "class id",
    "jpeg_quality": "the quality that was chosen; 0 if the source was kept",
    "sequence/key": "the key of the record",
    **{f"image/object/bbox/{side}": _BBOX for side in ("xmin", "xmax", "ymin", "ymax")},
    **{f"image/object/part/bbox/{side}": _PART for side in ("xmin", "xmax", "ymin", "ymax")},
}
# Where a schema differs.
_OTHER_MEANINGS = {
    ("imagenet", "image/format"): "`JPEG`, or the format in lower case",
    ("imagenet", "image/class/label"): "class id, from 1",
    ("imagenet", "image/class/text"): "the readable name if the source has one, or the synset",
    ("sequence", "image/class/label"): "class id of the sequence",
    ("sequence", "image/class/text"): "class name of the sequence",
}
_OF_STEPS = {
    "image/class/label": "class ids of the step",
    "image/class/text": "class names of the step",
}


def schema_table(name: str) -> str:
    """The table of a schema: each feature in a row."""
    schema = SCHEMAS[name]
    tables = [_table(_rows(schema, "specs", lambda key: _meaning(name, key)))]
    if isinstance(schema, SequenceSchema):
        meanings = {**_MEANINGS, **_OF_STEPS}
        steps = _table(_rows(schema, "list_specs", meanings.__getitem__))
        tables = ["Context:", tables[0], "Feature lists, one item for each step:", steps]
    return "\n\n".join(tables)


def _table(rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["| feature | type | shape | present if | meaning |", "|---|---|---|---|---|"]
    for rest, same in itertools.groupby(rows, key=lambda row: row[1:]):
        keys = ", ".join(row[0] for row in same)
        lines.append("| " + " | ".join([keys, *rest]) + " |")
    return "\n".join(lines)


def _rows(schema: Schema, method: str, meaning: Callable[[str], str]) -> Iterator[tuple[str, ...]]:
    def specs(summary: DatasetSummary) -> dict[str, FeatureSpec]:
        found: dict[str, FeatureSpec] = getattr(schema, method)(summary)
        return {key.replace("/attribute", "/<attribute>"): spec for key, spec in found.items()}

    always = specs(_BASE)
    several = specs(dataclasses.replace(_BASE, label_counts=(0, 2), annotated=frozenset({"labels"})))
    by_condition = {name: specs(summary) for name, summary in _summaries().items()}
    every = {key: spec for found in (always, *by_condition.values()) for key, spec in found.items()}
    for key, spec in every.items():
        when = [_CONDITIONS[name] for name, found in by_condition.items() if key in found]
        shape = _shape(always.get(key, spec))
        if several.get(key, spec).shape != spec.shape:
            shape += "; a list if some record has no label or several"
        dtype = "that of its values" if "<" in key else spec.dtype
        condition = "always" if key in always else _OTHER_CONDITIONS.get(key) or " or ".join(when)
        yield f"`{key}`", dtype, shape, condition, meaning(key)


def _shape(spec: FeatureSpec) -> str:
    return "list" if spec.shape else "one value"


def _meaning(schema: str, key: str) -> str:
    return _OTHER_MEANINGS.get((schema, key)) or _MEANINGS[key]


def _summaries() -> dict[str, DatasetSummary]:
    """For each condition, a dataset of which it is true."""
    found = {
        name: dataclasses.replace(_BASE, annotated=frozenset({name}))
        for name in _CONDITIONS
        if name not in ("raw", "qualities", "attributes")
    }
    attributes = {"attribute": Column("int64", ())}
    return {
        **found,
        "raw": dataclasses.replace(_BASE, formats=frozenset({"raw"})),
        "qualities": dataclasses.replace(_BASE, chose_qualities=True),
        "attributes": dataclasses.replace(_BASE, attributes=attributes, annotated=frozenset({"objects"})),
    }
