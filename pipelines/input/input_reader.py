"""The input readers of the Object Detection API for a dataset with boxes.

Source of the format: object_detection/protos/{pipeline,input_reader}.proto, in protobuf's text format.
"""

from __future__ import annotations

import json

from recordmill.pipelines.input.code import compression_of, shard_pattern
from recordmill.pipelines.input.layout import BOXES, OBJECT_MASKS, Layout
from recordmill.transforms.examples.record_view import BOX_KEYS
from recordmill.transforms.examples.wire import read_example
from recordmill.transforms.reading.dataset import Dataset
from recordmill.transforms.reading.inference import sample_records
from recordmill.transforms.sources.names import is_split_name
from recordmill.transforms.storage.files import is_file

_LABEL_MAP = "label_map.pbtxt"
# The reader looks for these names alone.
_NAMES = ("image/encoded", *BOX_KEYS, "image/object/class/label")
_KEYPOINTS = "image/object/keypoint/x"


def why_no_reader(dataset: Dataset, layout: Layout) -> str:
    """The reason why the Object Detection API cannot read a dataset; empty if it can."""
    if layout.stored(BOXES) is None:
        return "its records have no boxes"
    missing = [name for name in _NAMES if name not in layout.features]
    if missing:
        return f"its records have no feature {missing[0]!r}, where the Object Detection API looks"
    if compression_of(dataset.shards):
        return "its shards are compressed, which the Object Detection API does not read"
    return ""


def input_readers(dataset: Dataset, layout: Layout) -> str:
    """The readers of a pipeline.config: of `train` to train on, of `val`, `test` and the like to evaluate.

    Args:
        dataset: for which `why_no_reader` is empty.
        layout: of its records.
    """
    label_map = f"{dataset.folder}/{_LABEL_MAP}"
    has_map = is_file(label_map)
    lines = (
        [] if has_map else [f"# label_map_path is missing: there is no {_LABEL_MAP} beside these records."]
    )
    annotations = _annotations(dataset, layout)
    for split, shards in dataset.splits.items():
        if not shards:
            continue
        trains = split.startswith("train") or not is_split_name(split)
        pattern = shard_pattern(shards)
        paths = [shard.path for shard in shards] if pattern is None else [pattern]
        lines += [
            f"{'train' if trains else 'eval'}_input_reader {{",
            f"  name: {_quoted(split)}",
            *([f"  label_map_path: {_quoted(label_map)}"] if has_map else []),
            *([] if trains else ["  shuffle: false", "  num_epochs: 1"]),
            *annotations,
            "  tf_record_input_reader {",
            *(f"    input_path: {_quoted(path)}" for path in paths),
            "  }",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _annotations(dataset: Dataset, layout: Layout) -> list[str]:
    lines = []
    if OBJECT_MASKS in layout.features:
        kind = "PNG_MASKS" if layout.features[OBJECT_MASKS].dtype == "string" else "NUMERICAL_MASKS"
        lines += ["  load_instance_masks: true", f"  mask_type: {kind}"]
    keypoints = _keypoints(dataset) if _KEYPOINTS in layout.features else 0
    return [*lines, f"  num_keypoints: {keypoints}"] if keypoints else lines


def _keypoints(dataset: Dataset) -> int:
    """The most key points of an object in the first records."""
    counts = [0]
    for payload in sample_records(dataset):
        features = read_example(payload)
        objects, points = (len(features.get(name, ())) for name in (BOX_KEYS[0], _KEYPOINTS))
        counts.append(points // objects if objects else 0)
    return max(counts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
