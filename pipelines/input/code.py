"""The code that reads a dataset in plain TensorFlow, and its input readers for the Object Detection API.

In the code, `repr` quotes all names, because they come from data. Source of the format of the readers:
object_detection/protos/{pipeline,input_reader}.proto, in protobuf's text format.
"""

from __future__ import annotations

import ast
import importlib.resources
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from recordmill.pipelines.input.layout import (
    BOXES,
    HEIGHTS,
    OBJECT_MASKS,
    WIDTHS,
    ImageLayout,
    Layout,
    Parser,
)
from recordmill.transforms.examples.record_view import BOX_KEYS
from recordmill.transforms.examples.wire import read_example
from recordmill.transforms.reading.dataset import Dataset, ShardEntry, class_names
from recordmill.transforms.reading.inference import sample_records
from recordmill.transforms.reading.shard import opened
from recordmill.transforms.sources.names import is_split_name
from recordmill.transforms.storage.files import is_file

_SHARD = re.compile(r"(?P<stem>.*)-(?P<shard>\d{5})-of-(?P<count>\d{5})(?P<ending>[^/]*)")
_WIDTH = 96
_LABEL_MAP = "label_map.pbtxt"
# The reader looks for these names alone.
_NAMES = ("image/encoded", *BOX_KEYS, "image/object/class/label")
_KEYPOINTS = "image/object/keypoint/x"


def parsing_code(dataset: Dataset, layout: Layout) -> str:
    """A module with `FILES`, `RECORDS`, `CLASS_NAMES`, `FEATURES`, `parse` and `load`; it runs by itself."""
    lines = [
        f'"""Reads {_in_docstring(dataset.path)} with TensorFlow alone."""',
        "",
        "import tensorflow as tf",
        "",
        *_files(dataset),
    ]
    names = class_names(dataset).names
    if names:
        lines += _dictionary("CLASS_NAMES", {repr(number): repr(name) for number, name in names.items()})
    lines += _dictionary("FEATURES", {repr(name): _parser(one) for name, one in layout.parsers.items()})
    if layout.feature_lists:
        lists = {repr(name): _parser(one) for name, one in layout.list_parsers.items()}
        lines += _dictionary("FEATURE_LISTS", lists)
    parse = _parse(layout)
    lines += ["", "", *_functions("\n".join(parse)), *parse, "", "", *_load(dataset), "", "", *_main()]
    return "\n".join(lines) + "\n"


def compression_of(shards: Sequence[ShardEntry]) -> str:
    """The compression of the first shard that is not empty, as TensorFlow names it."""
    path = next((shard.path for shard in shards if shard.size), None)
    if path is None:
        return ""
    with opened(path) as file:
        return file.compression


def _splits(dataset: Dataset) -> dict[str, tuple[ShardEntry, ...]]:
    return {split: shards for split, shards in dataset.splits.items() if shards}


def _files(dataset: Dataset) -> list[str]:
    lines = [f"FOLDER = {dataset.folder!r}", "FILES = {"]
    known = {}
    for split, shards in _splits(dataset).items():
        lines.append(f"    {split!r}: {_listed(dataset.folder, shards)},")
        counts = [shard.records for shard in shards if shard.records is not None]
        if len(counts) == len(shards):
            known[repr(split)] = str(sum(counts))
    return [*lines, "}", *(_dictionary("RECORDS", known) if known else [])]


def _listed(folder: str, shards: Sequence[ShardEntry]) -> str:
    """An expression for the paths of some shards: those of one set by their numbers."""
    names = [
        (True, shard.path[len(folder) + 1 :]) if shard.path.startswith(f"{folder}/") else (False, shard.path)
        for shard in shards
    ]
    sharded = _one_set([name for within, name in names if within], len(shards))
    if sharded is not None:
        stem, count, ending = sharded
        template = f"{{FOLDER}}/{_braced(stem)}-{{shard:05d}}-of-{count:05d}{_braced(ending)}"
        return f"[f{template!r} for shard in range({count})]"
    items = [f"FOLDER + {'/' + name!r}" if within else repr(name) for within, name in names]
    return f"[{items[0]}]" if len(items) == 1 else "[\n        " + ",\n        ".join(items) + ",\n    ]"


def _one_set(names: Sequence[str], count: int) -> tuple[str, int, str] | None:
    """Stem, number and ending of the names of one complete set of shards; None if they are not one."""
    first = _SHARD.fullmatch(names[0]) if names else None
    if first is None:
        return None
    complete = [f"{first['stem']}-{shard:05d}-of-{count:05d}{first['ending']}" for shard in range(count)]
    return (first["stem"], count, first["ending"]) if list(names) == complete else None


def shard_pattern(shards: Sequence[ShardEntry]) -> str | None:
    """A glob for the paths of one complete set of shards; None if they are not one."""
    sharded = _one_set([shard.path for shard in shards], len(shards))
    if sharded is None or any(mark in sharded[0] + sharded[2] for mark in "*?["):
        return None
    stem, count, ending = sharded
    return f"{stem}-?????-of-{count:05d}{ending}"


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _dictionary(name: str, items: Mapping[str, str]) -> list[str]:
    one_line = f"{name} = {{{', '.join(f'{key}: {value}' for key, value in items.items())}}}"
    if len(one_line) <= _WIDTH:
        return [one_line]
    return [f"{name} = {{", *(f"    {key}: {value}," for key, value in items.items()), "}"]


def _parser(one: Parser) -> str:
    arguments = [*([] if one.shape is None else [str(one.shape)]), f"tf.{one.dtype}"]
    if one.allow_missing:
        arguments.append("allow_missing=True")
    return f"tf.io.{one.kind}({', '.join(arguments)})"


def _functions(code: str) -> Iterator[str]:
    """The functions of `decoding` that code calls, and those that they call, without annotations."""
    source = importlib.resources.files(__package__).joinpath("decoding.py").read_text("utf-8")
    lines = source.splitlines()
    functions = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}
    called: set[str] = set()
    trees: list[ast.AST] = [ast.parse(code)]
    while trees:
        used = {one.id for one in ast.walk(trees.pop()) if isinstance(one, ast.Name)}
        new = (used & functions.keys()) - called
        called |= new
        trees += [functions[name] for name in new]
    for name, function in functions.items():
        if name in called:
            yield f"def {name}({', '.join(argument.arg for argument in function.args.args)}):"
            body = lines[function.body[0].lineno - 1 : function.end_lineno]
            yield from (re.sub(r"\) -> [^:]+:$", "):", line) for line in body)
            yield from ("", "")


def _parse(layout: Layout) -> list[str]:
    """The function `parse`, which does what `elements.Elements` does without a size."""
    lines = ["def parse(serialized):", '    """The tensors of one record, by name."""']
    if layout.feature_lists:
        call = "tf.io.parse_single_sequence_example(serialized, FEATURES, FEATURE_LISTS)"
        shared = [name for name in layout.features if name in layout.feature_lists]
        renamed = [f"    features[{'context/' + name!r}] = features.pop({name!r})" for name in shared]
        return [
            *lines,
            f"    features, steps = {call}",
            *_frames(layout),
            *renamed,
            "    return {**features, **steps}",
        ]
    lines.append("    features = tf.io.parse_single_example(serialized, FEATURES)")
    return [*lines, *_image(layout), *_masks(layout), *_boxes(layout), "    return features"]


def _image(layout: Layout) -> list[str]:
    image = layout.image
    if image is None:
        return []
    sides = [name and f"features[{name!r}]" for name in (image.height, image.width, image.depth)]
    data = f"features[{image.name!r}]"
    return [f"    {data} = {_pixels(image, data, sides)}"]


def _pixels(image: ImageLayout, data: str, sides: Sequence[str | None]) -> str:
    """An expression for the pixels of an image: height x width x channels."""
    dtype = f"tf.{image.dtype}"
    if image.is_plain_jpeg:
        return f"tf.io.decode_jpeg({data}, channels=3)"
    if image.codec == "raw":
        shape = ", ".join(side or "-1" for side in sides)
        pixels = f"tf.reshape(tf.io.decode_raw({data}, {dtype}), [{shape}])"
    else:
        pixels = f"{'file' if image.codec == 'image' else 'tensor'}_pixels({data}, {dtype})"
    return f"with_channels({pixels}, {image.channels})"


def _frames(layout: Layout) -> list[str]:
    image = layout.image
    if image is None or image.name not in layout.feature_lists:
        return []
    frames = f"steps[{image.name!r}]"
    given = [frames]
    sides: list[str | None] = []
    for name in (image.height, image.width, image.depth) if image.codec == "raw" else ():
        if name in layout.feature_lists:
            sides.append(f"step[{len(given)}]")
            given.append(f"steps[{name!r}]")
        else:
            sides.append(None if name is None else f"features[{name!r}]")
    return [
        "    # Frames x height x width x channels: the frames of one record have one size.",
        f"    {frames} = map_each(",
        f"        lambda step: {_pixels(image, 'step[0]', sides)},",
        f"        ({', '.join(given)},),",
        f"        [None, None, {image.channels}],",
        f"        [0, 0, {image.channels}],",
        f"        tf.{image.dtype},",
        "    )",
    ]


def _masks(layout: Layout) -> list[str]:
    if not layout.masks and layout.object_masks is None:
        return []
    if layout.image is not None:
        lines = [f"    height, width = tf.unstack(tf.shape(features[{layout.image.name!r}])[:2])"]
    else:
        names = layout.scalar(*HEIGHTS), layout.scalar(*WIDTHS)
        lines = [f"    height, width = {', '.join(f'features[{name!r}]' for name in names)}"]
    for name, fill in layout.masks.items():
        mask, dtype = f"features[{name!r}]", "tf.uint8" if fill else "tf.uint16"
        lines += [f"    {mask} = decode_mask(", f"        {mask}, height, width, {fill}, {dtype}", "    )"]
    if layout.object_masks is not None:
        masks = f"features[{layout.object_masks!r}]"
        lines += [
            "    # A mask of the image for each object: 1 where the object is.",
            f"    {masks} = map_each(",
            "        lambda mask: decode_object_mask(mask, height, width),",
            f"        {masks},",
            "        [None, None],",
            "        [height, width],",
            "        tf.uint8,",
            "    )",
        ]
    return lines


def _boxes(layout: Layout) -> Iterator[str]:
    for name, sides in layout.boxes.items():
        yield "    # ymin, xmin, ymax, xmax of each box, normalised to [0, 1], as tf.image takes them."
        yield f"    features[{name!r}] = tf.stack("
        yield "        ["
        yield from (f"            features.pop({side!r})," for side in sides)
        yield "        ],"
        yield "        axis=-1,"
        yield "    )"


def _load(dataset: Dataset) -> list[str]:
    splits = _splits(dataset)
    default = "train" if "train" in splits else next(iter(splits), "train")
    compression = compression_of(dataset.shards)
    given = f", compression_type={compression!r}" if compression else ""
    cardinality = [
        "    if split in RECORDS:",
        "        dataset = dataset.apply(tf.data.experimental.assert_cardinality(RECORDS[split]))",
    ]
    return [
        f"def load(split={default!r}, shuffle=0, seed=None):",
        '    """A tf.data.Dataset of the records of a split; `shuffle` is how many to shuffle among."""',
        "    files = tf.data.Dataset.from_tensor_slices(FILES[split])",
        "    if shuffle:",
        "        files = files.shuffle(len(FILES[split]), seed)",
        "    dataset = files.interleave(",
        f"        lambda file: tf.data.TFRecordDataset(file{given}),",
        "        cycle_length=16,",
        "        num_parallel_calls=tf.data.AUTOTUNE,",
        "    )",
        *(cardinality if any(shard.records is not None for shard in dataset.shards) else []),
        "    if shuffle:",
        "        dataset = dataset.shuffle(shuffle, seed)",
        "    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)",
        "    return dataset.prefetch(tf.data.AUTOTUNE)",
    ]


def _main() -> list[str]:
    return [
        "if __name__ == '__main__':",
        "    for features in load().take(1):",
        "        for name, value in features.items():",
        "            print(name, value.dtype.name, value.shape)",
    ]


def _in_docstring(text: str) -> str:
    return repr(text)[1:-1].replace('"', '\\"')


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
    """The readers of a pipeline.config: of `train` to train on, of `val`, `test` and the like to evaluate."""
    label_map = f"{dataset.folder}/{_LABEL_MAP}"
    has_map = is_file(label_map)
    missing = f"# label_map_path is missing: there is no {_LABEL_MAP} next to these records."
    lines = [] if has_map else [missing]
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
    if (spec := layout.features.get(OBJECT_MASKS)) is not None:
        kind = "PNG_MASKS" if spec.dtype == "string" else "NUMERICAL_MASKS"
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
