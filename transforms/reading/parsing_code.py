"""The code that reads a dataset, in plain TensorFlow. Names come from data: all are written by `repr`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from recordmill.transforms.examples.schema import FeatureSpec
from recordmill.transforms.reading.dataset import ShardEntry
from recordmill.transforms.reading.parsing_dataset import Described
from recordmill.transforms.reading.parsing_sample import ImageLayout

_BOX = "image/object/bbox/"
_OBJECT_MASKS = "image/object/mask"
_PNG_MASKS = (
    "image/segmentation/class/encoded",
    "image/segmentation/instance/encoded",
    "image/panoptic/category/encoded",
    "image/panoptic/instance/encoded",
)
_RAW_MASK = "mask_raw"
_SHARD = re.compile(r"(?P<stem>.*)-(?P<shard>\d{5})-of-(?P<count>\d{5})(?P<ending>[^/]*)")
_WIDTH = 96
_RGBA = 4  # channels


def parsing_code(found: Described) -> str:
    """A module with `FILES`, `RECORDS`, `CLASS_NAMES`, `FEATURES`, `parse` and `load`; it runs by itself."""
    lines = [
        f'"""Reads {_in_docstring(found.path)} with TensorFlow alone."""',
        "",
        "import tensorflow as tf",
        "",
    ]
    lines += _files(found)
    if found.labels:
        lines += _dictionary(
            "CLASS_NAMES", {repr(number): repr(name) for number, name in found.labels.items()}
        )
    parser = _context_parser if found.feature_lists else _parser
    specs = {repr(name): parser(spec) for name, spec in found.features.items()}
    lines += _dictionary("FEATURES", specs)
    if found.feature_lists:
        lists = {repr(name): _step_parser(spec) for name, spec in found.feature_lists.items()}
        lines += _dictionary("FEATURE_LISTS", lists)
    lines += ["", *_rgba(found), *_parse(found), "", "", *_load(found), "", "", *_main()]
    return "\n".join(lines) + "\n"


def _files(found: Described) -> list[str]:
    lines = [f"FOLDER = {found.folder!r}", "FILES = {"]
    for split, shards in found.splits.items():
        lines.append(f"    {split!r}: {_listed(found.folder, shards)},")
    lines.append("}")
    counts = {name: [shard.records for shard in shards] for name, shards in found.splits.items()}
    known = {
        repr(name): str(sum(records))
        for name, listed in counts.items()
        if len(records := [count for count in listed if count is not None]) == len(listed)
    }
    return lines + (_dictionary("RECORDS", known) if known else [])


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
    return (
        "[" + ", ".join(items) + "]"
        if len(items) < 2
        else "[\n        " + ",\n        ".join(items) + ",\n    ]"
    )


def _one_set(names: Sequence[str], count: int) -> tuple[str, int, str] | None:
    """Stem, number and ending of the names of one whole set of shards; None where they are none."""
    matches = [match for match in map(_SHARD.fullmatch, names) if match]
    if len(matches) != count or not count:
        return None
    first = matches[0]
    whole = [f"{first['stem']}-{shard:05d}-of-{count:05d}{first['ending']}" for shard in range(count)]
    return (first["stem"], count, first["ending"]) if list(names) == whole else None


def shard_pattern(shards: Sequence[ShardEntry]) -> str | None:
    """A glob for the paths of one whole set of shards; None where they are none."""
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


def _parser(spec: FeatureSpec) -> str:
    """What parses a feature: any number of values become a tensor of that length."""
    if spec.shape == (None,):
        return f"tf.io.FixedLenSequenceFeature([], tf.{spec.dtype}, allow_missing=True)"
    return f"tf.io.FixedLenFeature({list(spec.shape)}, tf.{spec.dtype})"


def _context_parser(spec: FeatureSpec) -> str:
    """The same for the context of a sequence, which takes no FixedLenSequenceFeature."""
    return f"tf.io.RaggedFeature(tf.{spec.dtype})" if spec.shape == (None,) else _parser(spec)


def _step_parser(spec: FeatureSpec) -> str:
    """The same for one step: a step with any number of values makes a tf.RaggedTensor of the list."""
    if spec.shape == (None,):
        return f"tf.io.RaggedFeature(tf.{spec.dtype})"
    return f"tf.io.FixedLenSequenceFeature({list(spec.shape)}, tf.{spec.dtype}, allow_missing=True)"


def _parse(found: Described) -> list[str]:
    body = ["", "def parse(serialized):", '    """The tensors of one record, by name."""']
    if found.feature_lists:
        body += [
            "    features, steps = tf.io.parse_single_sequence_example(serialized, FEATURES, FEATURE_LISTS)",
            *_indented(_frames(found)),
        ]
        shared = [name for name in found.features if name in found.feature_lists]
        body += [f"    features[{'context/' + name!r}] = features.pop({name!r})" for name in shared]
        return [*body, "    return {**features, **steps}"]
    body.append("    features = tf.io.parse_single_example(serialized, FEATURES)")
    return [*body, *_indented([*_masks(found), *_image(found), *_objects(found)]), "    return features"]


def _indented(lines: Sequence[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _image(found: Described) -> list[str]:
    layout = found.sample.image
    if layout is None or not layout.is_decodable or layout.key not in found.features:
        return []
    image = f"features[{layout.key!r}]"
    decoded = f"{image} = {_decoded(layout, image, 'features')}"
    return [*_checks(layout, "features"), decoded]


def _decoded(layout: ImageLayout, data: str, features: str) -> str:
    """An expression for the pixels of an image: uint8 or uint16, height x width x channels."""
    if layout.codec == "tensor":
        return f"tf.ensure_shape(tf.io.parse_tensor({data}, tf.{layout.dtype}), [None, None, None])"
    if layout.codec == "raw":
        sides = (layout.height, layout.width, layout.channels)
        shape = [f"{features}[{side!r}]" if isinstance(side, str) else str(side) for side in sides]
        return f"tf.reshape(tf.io.decode_raw({data}, tf.{layout.dtype}), [{', '.join(shape)}])"
    if layout.channels == _RGBA:
        return f"decode_rgba({data})"
    dtype = "" if layout.dtype == "uint8" else f", dtype=tf.{layout.dtype}"
    return f"tf.io.decode_image({data}, channels={layout.channels}{dtype}, expand_animations=False)"


def _rgba(found: Described) -> list[str]:
    """What decodes images of which some have an alpha channel: tf.io.decode_image gives none to a JPEG."""
    layout = found.sample.image
    if layout is None or layout.codec != "image" or layout.channels != _RGBA:
        return []
    dtype = "" if layout.dtype == "uint8" else f", dtype=tf.{layout.dtype}"
    return [
        "",
        "def decode_rgba(encoded):",
        '    """Pixels with an alpha channel, opaque where the format has none."""',
        "",
        "    def opaque():",
        f"        image = tf.io.decode_image(encoded, channels=3{dtype}, expand_animations=False)",
        "        return tf.concat([image, tf.ones_like(image[:, :, :1]) * image.dtype.max], axis=-1)",
        "",
        "    return tf.cond(",
        "        tf.reduce_any(tf.strings.substr(encoded, 0, 4) == [b'\\x89PNG', b'RIFF']),",
        f"        lambda: tf.io.decode_image(encoded, channels=4{dtype}, expand_animations=False),",
        "        opaque,",
        "    )",
        "",
    ]


def _checks(layout: ImageLayout, features: str) -> list[str]:
    """Pixels of two types cannot be in one tensor."""
    if layout.codec != "raw" or layout.dtype_key is None:
        return []
    return [f"tf.debugging.assert_equal({features}[{layout.dtype_key!r}], {layout.dtype!r})"]


def _stored(found: Described, name: str) -> str:
    """The name that a feature is stored under, as a literal."""
    return repr(found.stored.get(name, name))


def _masks(found: Described) -> list[str]:
    """Masks of whole images, height x width x 1; without a pixel where a record has none."""
    lines = []
    for name in filter(found.spec, _PNG_MASKS):
        mask = f"features[{_stored(found, name)}]"
        spec = found.spec(name)
        if spec is not None and spec.shape == ():
            lines.append(f"{mask} = tf.io.decode_png({mask}, channels=1)")
            continue
        lines += [
            f"encoded = {mask}",
            f"{mask} = tf.cond(",
            "    tf.size(encoded) > 0,",
            "    lambda: tf.io.decode_png(encoded[0], channels=1),",
            "    lambda: tf.zeros([0, 0, 1], tf.uint8),",
            ")",
        ]
    if found.spec(_RAW_MASK) is not None:
        mask = f"features[{_stored(found, _RAW_MASK)}]"
        shape = f"[features[{_stored(found, 'height')}], features[{_stored(found, 'width')}], 1]"
        lines.append(f"{mask} = tf.reshape(tf.io.decode_raw({mask}, tf.uint8), {shape})")
    return lines


def _objects(found: Described) -> list[str]:
    lines = []
    if has_boxes(found):
        sides = [f"features[{_stored(found, _BOX + side)}]" for side in ("ymin", "xmin", "ymax", "xmax")]
        lines += [
            "# As tf.image takes them: ymin, xmin, ymax, xmax, shares of height and width.",
            "features['boxes'] = tf.stack(",
            "    [",
            *(f"        {side}," for side in sides),
            "    ],",
            "    axis=-1,",
            ")",
        ]
    if found.spec(_OBJECT_MASKS) is not None and found.sample.masks_are_png:
        masks = f"features[{_stored(found, _OBJECT_MASKS)}]"
        lines += [
            "# A mask of the whole image for each object.",
            f"encoded = {masks}",
            f"{masks} = tf.cond(",
            "    tf.size(encoded) > 0,",
            "    lambda: tf.map_fn(",
            "        lambda png: tf.io.decode_png(png, channels=1)[:, :, 0],",
            "        encoded,",
            "        fn_output_signature=tf.TensorSpec([None, None], tf.uint8),",
            "    ),",
            "    lambda: tf.zeros([0, 0, 0], tf.uint8),",
            ")",
        ]
    return lines


def has_boxes(found: Described) -> bool:
    """Whether records have lists of boxes."""
    return all(found.spec(_BOX + side) is not None for side in ("xmin", "xmax", "ymin", "ymax"))


def _frames(found: Described) -> list[str]:
    layout = found.sample.image
    if layout is None or not layout.is_decodable or layout.key not in found.feature_lists:
        return []
    frames = f"steps[{layout.key!r}]"
    given, pixels = "encoded", _decoded(layout, "step", "steps")
    if layout.codec == "raw":
        given, pixels = _raw_frames(layout)
    return [
        *_checks(layout, "steps"),
        "# Frames x height x width x channels: the frames of one record are of one size.",
        f"encoded = {frames}",
        f"{frames} = tf.cond(",
        "    tf.size(encoded) > 0,",
        "    lambda: tf.map_fn(",
        f"        lambda step: {pixels},",
        f"        {given},",
        f"        fn_output_signature=tf.TensorSpec([None, None, None], tf.{layout.dtype}),",
        "    ),",
        f"    lambda: tf.zeros([0, 0, 0, 0], tf.{layout.dtype}),",
        ")",
    ]


def _raw_frames(layout: ImageLayout) -> tuple[str, str]:
    """What is mapped, and the pixels of each step: its own sides shape them."""
    shape, beside = [], ["encoded"]
    for side in (layout.height, layout.width, layout.channels):
        if isinstance(side, str):
            shape.append(f"step[{len(beside)}]")
            beside.append(f"steps[{side!r}]")
        else:
            shape.append(str(side))
    pixels = f"tf.reshape(tf.io.decode_raw(step[0], tf.{layout.dtype}), [{', '.join(shape)}])"
    return f"({', '.join(beside)},)", pixels


def _load(found: Described) -> list[str]:
    first = next(iter(found.splits), "train")
    default = "train" if "train" in found.splits else first
    compression = f", compression_type={found.compression!r}" if found.compression else ""
    counts = [shard.records for shards in found.splits.values() for shard in shards]
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
        f"        lambda file: tf.data.TFRecordDataset(file{compression}),",
        "        cycle_length=16,",
        "        num_parallel_calls=tf.data.AUTOTUNE,",
        "    )",
        *(cardinality if any(count is not None for count in counts) else []),
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
