"""Every flag of `convert` changes the checked options of a call; those of other commands are read."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from docs.generate import COMMANDS
from recordmill.pipelines.options.convert import CONVERT, parse_convert
from recordmill.pipelines.options.parser import Command
from recordmill.transforms.flags import flags_of
from recordmill.transforms.sweeping.settings import SweepConfig
from tests.images.drawn import encoded, gradient
from tests.lazy import tf

CSV = ("--annotations=labels.csv",)
SPLITS = ("--splits=a=0.5,b=0.5",)
JPEG = ("--image_format=jpeg",)
MASKS = ("--input=pairs", "--source=masks")
RECORDS = ("--input=x.tfrecord", "--source=tfrecord", "--input_features=a=image/encoded")
# A value of each flag, and the flags without which it has no effect.
VALUES: dict[str, tuple[str, ...]] = {
    "input": ("pairs",),
    "output": ("other",),
    "source": ("folder",),
    "annotations": ("labels.csv",),
    "image_root": ("pairs", *CSV),
    "image_column": ("file", *CSV),
    "label_column": ("camera", *CSV),
    "label_pattern": ("(.)",),
    "include": ("cat/*",),
    "exclude": ("cat/*",),
    "include_annotations": ("masks", *MASKS),
    "input_features": ("a=image/encoded,b=image/format", *RECORDS),
    "mask_pattern": ("masks/{stem}.png", *MASKS),
    "limit": ("1",),
    "image_format": ("png",),
    "jpeg_quality": ("80", *JPEG),
    "validate": ("header",),
    "exif": ("ignore",),
    "subsampling": ("444", *JPEG),
    "reencode": ("always", *JPEG),
    "max_side": ("9",),
    "short_side": ("9",),
    "size": ("9x9",),
    "fit": ("crop", "--size=9x9"),
    "color": ("rgb",),
    "optimize": ("lossless",),
    "alpha": ("fail",),
    "background": ("red", "--alpha=flatten"),
    "metadata": ("strip",),
    "target_ssim": ("0.9", *JPEG),
    "schema": ("imagenet",),
    "rename": ("image/format=f",),
    "boxes": ("drop",),
    "map_image": ("textwrap:dedent",),
    "duplicates": ("drop",),
    "label_file": ("names.txt",),
    "label_offset": ("3",),
    "mask_values": ("1=2", *MASKS),
    "ignore_label": ("1", *MASKS),
    "splits": ("a=1",),
    "group_by": ("camera", *SPLITS),
    "group_pattern": ("(.)", *SPLITS),
    "num_shards": ("3",),
    "shard_size": ("1MB",),
    "reader_hosts": ("2",),
    "seed": ("1",),
    "order": ("key",),
    "writer": ("beam",),
    "overwrite": ("true",),
    "max_failure_ratio": ("0.5",),
    "strict": ("true",),
    "name": ("pets",),
    "dataset_version": ("auto",),
    "keep_versions": ("2", "--dataset_version=auto"),
    "plan": ("true",),
    "progress": ("none",),
    "verbose": ("true",),
    "quiet": ("true",),
    "runner": ("FnApiRunner",),
    "direct_num_workers": ("3",),
    "direct_running_mode": ("multi_threading",),
}
NEEDS_DATAFLOW = {"async"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    image, mask = encoded(gradient(), "PNG"), encoded(np.zeros((4, 4), np.uint8), "PNG")
    for name in ("photos/cat/1.png", "photos/dog/2.png", "pairs/images/a.png", "pairs/masks/a.png"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mask if "masks" in name else image)
    (folder / "labels.csv").write_text("path,file,label,camera\ncat/1.png,cat/1.png,cat,x\n")
    (folder / "names.txt").write_text("cat\ndog\n")
    values = {"a": image, "b": b"png"}
    features = {name: tf.train.Feature(bytes_list={"value": [value]}) for name, value in values.items()}
    with tf.io.TFRecordWriter(str(folder / "x.tfrecord")) as writer:
        writer.write(tf.train.Example(features={"feature": features}).SerializeToString())
    return folder


def test_every_flag_is_here() -> None:
    assert VALUES.keys() | NEEDS_DATAFLOW == {one.name for one in CONVERT.flags}


@pytest.mark.parametrize("name", list(VALUES))
def test_a_flag_changes_the_options(name: str, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(inputs)
    value, *needs = VALUES[name]
    call = ["--input=photos", "--output=out", f"--direct_num_workers={os.cpu_count()}", *needs]
    assert parse_convert([*call, f"--{name}={value}"], "x") != parse_convert(call, "x")


@pytest.mark.parametrize("command", COMMANDS[1:], ids=lambda command: command.name)
def test_a_flag_of_another_command_is_read(command: Command) -> None:
    """`SweepConfig` reads its own flags; those that `convert` has too are tested above."""
    folder = Path(__file__).parents[2] / "pipelines"
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    own = {one.name for one in command.flags} - VALUES.keys() - {one.name for one in flags_of(SweepConfig)}
    assert own or command.name == "sweep"
    assert [
        name for name in own if not re.search(rf"\bargs\.{name}\b|\(\"{name}\"|\"{name}\"[,)]", text)
    ] == []
