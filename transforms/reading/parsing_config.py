"""The input readers of the Object Detection API for a dataset with boxes.

Source of the format: object_detection/protos/{pipeline,input_reader}.proto, in protobuf's text format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.parsing_code import has_boxes, shard_pattern
from recordmill.transforms.reading.parsing_dataset import Described
from recordmill.transforms.sources.names import is_split_name
from recordmill.transforms.storage.files import is_file

_LABEL_MAP = "label_map.pbtxt"
# The reader looks for these names alone.
_NAMES = (
    "image/encoded",
    *(f"image/object/bbox/{side}" for side in ("xmin", "xmax", "ymin", "ymax")),
    "image/object/class/label",
)
_MASKS, _KEYPOINTS = "image/object/mask", "image/object/keypoint/x"


def why_no_reader(found: Described) -> str:
    """What keeps the Object Detection API from reading a dataset; empty where nothing does."""
    if found.feature_lists or not has_boxes(found):
        return "its records have no boxes"
    renamed = [name for name in _NAMES if name not in found.features]
    if renamed:
        return f"its records have no feature {renamed[0]!r}, where the Object Detection API looks"
    if found.compression:
        return "its shards are compressed, which the Object Detection API does not read"
    return ""


def input_readers(found: Described) -> str:
    """The readers of a pipeline.config: of `train` to train on, of `val`, `test` and the like to evaluate.

    Args:
        found: a dataset for which `why_no_reader` is empty.
    """
    label_map = f"{found.folder}/{_LABEL_MAP}"
    has_map = is_file(label_map)
    lines = (
        [] if has_map else [f"# label_map_path is missing: there is no {_LABEL_MAP} beside these records."]
    )
    for split, shards in found.splits.items():
        trains = split.startswith("train") or not is_split_name(split)
        lines += [f"{'train' if trains else 'eval'}_input_reader {{"]
        lines += [f"  name: {_quoted(split)}"]
        lines += [f"  label_map_path: {_quoted(label_map)}"] if has_map else []
        lines += [] if trains else ["  shuffle: false", "  num_epochs: 1"]
        lines += _annotations(found)
        paths = _paths(shards)
        lines += [
            "  tf_record_input_reader {",
            *(f"    input_path: {_quoted(path)}" for path in paths),
            "  }",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _annotations(found: Described) -> list[str]:
    lines = []
    if _MASKS in found.features:
        kind = "PNG_MASKS" if found.sample.masks_are_png else "NUMERICAL_MASKS"
        lines += ["  load_instance_masks: true", f"  mask_type: {kind}"]
    if _KEYPOINTS in found.features and found.sample.keypoints:
        lines.append(f"  num_keypoints: {found.sample.keypoints}")
    return lines


def _paths(shards: Sequence[ShardEntry]) -> list[str]:
    pattern = shard_pattern(shards)
    return [shard.path for shard in shards] if pattern is None else [pattern]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
