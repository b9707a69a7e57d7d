"""`recordmill schema`: what it prints of datasets that were converted, and how it refuses."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from PIL import Image

from benchmarks.drawings import draw
from recordmill.pipelines import schema_code
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert

# Of object_detection/protos/{pipeline,input_reader}.proto: number, label and type of the fields.
OPTIONAL, REPEATED = 1, 3
UINT32, BOOL, STRING, MESSAGE, ENUM = 13, 8, 9, 11, 14
READER_FIELDS = [
    ("name", 23, OPTIONAL, STRING, ""),
    ("label_map_path", 1, OPTIONAL, STRING, ""),
    ("shuffle", 2, OPTIONAL, BOOL, ""),
    ("num_epochs", 5, OPTIONAL, UINT32, ""),
    ("num_keypoints", 16, OPTIONAL, UINT32, ""),
    ("load_instance_masks", 7, OPTIONAL, BOOL, ""),
    ("mask_type", 10, OPTIONAL, ENUM, ".od.InstanceMaskType"),
    ("tf_record_input_reader", 8, OPTIONAL, MESSAGE, ".od.TFRecordInputReader"),
]


def parsed(text: str) -> Any:
    """The input readers of a pipeline.config, by protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="od.proto", package="od", syntax="proto2")
    enum = file.enum_type.add(name="InstanceMaskType")
    for number, name in enumerate(("DEFAULT", "NUMERICAL_MASKS", "PNG_MASKS")):
        enum.value.add(name=name, number=number)
    records = file.message_type.add(name="TFRecordInputReader")
    records.field.add(name="input_path", number=1, label=REPEATED, type=STRING)
    reader = file.message_type.add(name="InputReader")
    for name, number, label, kind, type_name in READER_FIELDS:
        field = reader.field.add(name=name, number=number, label=label, type=kind)
        if type_name:
            field.type_name = type_name
    pipeline = file.message_type.add(name="TrainEvalPipelineConfig")
    for name, number, label in (("train_input_reader", 4, OPTIONAL), ("eval_input_reader", 5, REPEATED)):
        pipeline.field.add(name=name, number=number, label=label, type=MESSAGE, type_name=".od.InputReader")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("od.TrainEvalPipelineConfig"))
    return text_format.Parse(text, kind())


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with boxes, of two splits."""
    place = tmp_path_factory.mktemp("boxes")
    with (place / "boxes.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["filename", "class", "xmin", "ymin", "xmax", "ymax", "split"])
        for number in range(4):
            draw("circle", number, 32, 24).save(place / f"{number}.png")
            split = "val" if number == 3 else "train"
            table.writerow([f"{number}.png", "it's", 4, 6, 16, 18, split])
    assert convert("--input", place / "boxes.csv", "--output", place / "out", "--num_shards", "2") == 0
    return place


def printed(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert schema_code.main([*map(str, argv)]) == 0
    return capsys.readouterr().out


def test_the_code_reads_what_was_converted(boxes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = printed(capsys, boxes / "out")
    made: dict[str, Any] = {"__name__": "printed"}
    exec(compile(code, "printed", "exec"), made)
    assert made["CLASS_NAMES"] == {1: "it's"}
    assert made["RECORDS"] == {"train": 3, "val": 1}
    found = list(made["load"]().as_numpy_iterator())
    assert sorted(one["image/filename"].decode() for one in found) == ["0.png", "1.png", "2.png"]
    for one in [*found, *made["load"]("val").as_numpy_iterator()]:
        pixels = np.asarray(Image.open(boxes / one["image/filename"].decode()))
        np.testing.assert_array_equal(one["image/encoded"], pixels)
        assert one["image/object/bbox"].tolist() == [[0.25, 0.125, 0.75, 0.5]]
        assert one["image/object/class/label"].tolist() == [1]


@pytest.mark.slow
def test_it_runs_by_itself(boxes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = boxes / "parse.py"
    script.write_text(printed(capsys, boxes / "out", "--split", "val"), "utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "image/encoded uint8 (24, 32, 3)\n" in done.stdout


def test_of_a_bucket_the_code_is_the_same(
    boxes: Path, bucket: str, bucket_server: BucketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket_server.upload_folder(boxes / "out", f"{bucket}/out")
    remote = printed(capsys, f"{bucket}/out")
    assert remote.replace(f"{bucket}/out", f"{boxes}/out") == printed(capsys, boxes / "out")


def test_the_input_readers_are_those_of_the_api(boxes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = parsed(printed(capsys, boxes / "out", "--format", "input_reader"))
    (evaluation,) = config.eval_input_reader
    for reader, split in ((config.train_input_reader, "train"), (evaluation, "val")):
        assert reader.name == split
        assert reader.label_map_path == f"{boxes}/out/label_map.pbtxt"
        (pattern,) = reader.tf_record_input_reader.input_path
        there = sorted(Path("/").glob(pattern.lstrip("/")))
        assert there == sorted((boxes / "out").glob(f"{split}-*.tfrecord")) and len(there) == 2
        assert not reader.load_instance_masks
    assert (evaluation.shuffle, evaluation.num_epochs) == (False, 1)
    assert not config.train_input_reader.HasField("shuffle")


def test_the_input_readers_follow_the_code(boxes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = printed(capsys, boxes / "out")
    comment = code.partition("for its pipeline.config:\n#\n")[2]
    assert all(line.startswith("# ") for line in comment.splitlines())
    text = "".join(f"{line[2:]}\n" for line in comment.splitlines())
    assert text == printed(capsys, boxes / "out", "--format", "input_reader")


def test_masks_and_key_points_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    numbers = {f"image/object/bbox/{side}": [0.0, 0.5] for side in ("xmin", "xmax", "ymin", "ymax")}
    numbers |= {f"image/object/keypoint/{axis}": [0.25] * 6 for axis in ("x", "y")}
    made = {name: tf.train.Feature(float_list={"value": values}) for name, values in numbers.items()}
    made["image/object/class/label"] = tf.train.Feature(int64_list={"value": [1, 2]})
    for name, values in (
        ("image/object/mask", [b"\x89PNG", b"\x89PNG"]),
        ("image/encoded", [b"\xff\xd8\xff"]),
    ):
        made[name] = tf.train.Feature(bytes_list={"value": values})
    with tf.io.TFRecordWriter(str(tmp_path / "all.record")) as writer:
        writer.write(tf.train.Example(features={"feature": made}).SerializeToString())
    text = printed(capsys, tmp_path / "all.record", "--format", "input_reader")
    reader = parsed(text).train_input_reader
    assert (reader.load_instance_masks, reader.mask_type, reader.num_keypoints) == (True, 2, 3)
    assert reader.tf_record_input_reader.input_path == [str(tmp_path / "all.record")]
    assert not reader.label_map_path and "# label_map_path is missing" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["nowhere"], "'/.*nowhere' is not there; give a folder of a dataset"),
        (["out", "--split", "test"], "--split is 'test'; there is 'train', 'val'"),
        (["photos", "--format", "input_reader"], "--format is 'input_reader', but its records have no boxes"),
    ],
)
def test_a_wrong_call_is_refused(
    argv: list[str],
    told: str,
    boxes: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(boxes)
    if not (boxes / "photos").exists():
        (boxes / "plain").mkdir()
        draw("circle", 0, 32, 24).save(boxes / "plain/0.png")
        assert convert("--input", boxes / "plain", "--output", boxes / "photos") == 0
        capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        schema_code.main(argv)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(told, line), line


def test_a_damaged_file_is_named(boxes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = max((boxes / "out").glob("train-*.tfrecord"), key=lambda path: path.stat().st_size)
    damaged = bytearray(shard.read_bytes())
    damaged[40] ^= 1
    (tmp_path / "train.tfrecord").write_bytes(damaged)
    with pytest.raises(SystemExit) as stop:
        schema_code.main([str(tmp_path / "train.tfrecord")])
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "train.tfrecord" in line and "record 0 at byte 0" in line


def test_neither_beam_nor_tensorflow_is_imported() -> None:
    code = (
        "import sys, recordmill.pipelines.schema_code; "
        "print({'apache_beam', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_reader_that_leaves_is_no_error_of_ours(boxes: Path) -> None:
    call = [sys.executable, "-m", "recordmill.pipelines.schema_code", str(boxes / "out")]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1
