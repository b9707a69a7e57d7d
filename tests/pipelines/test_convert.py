"""Whole conversions through the command line, read back with TensorFlow and TFDS."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw, draw_folder
from recordmill.transforms.storage.local import LocalFileSystem
from tests.conftest import Figure
from tests.lazy import jsonschema
from tests.pipelines.conversion import by_key, convert, convert_call, digests, examples, failures, manifest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 images in three labels."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    assert len(list(draw_folder(folder, each=6))) == 18
    return folder


def parsed(output: Path, spec: dict[str, object], pattern: str = "*") -> list[dict[str, object]]:
    """Records as tf.io.parse_single_example reads them."""
    import tensorflow as tf

    paths = sorted(str(path) for path in output.glob(f"{pattern}.tfrecord"))
    dataset = tf.data.TFRecordDataset(paths).map(lambda one: tf.io.parse_single_example(one, spec))
    return list(dataset.as_numpy_iterator())


def test_a_folder_of_labels(photos: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--num_shards=2") == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "dataset_info.json",
        "failures.jsonl",
        "features.json",
        "image.class.label.labels.txt",
        "index",
        "manifest.json",
        "report.html",
        "report.json",
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/text": tf.io.FixedLenFeature([], tf.string),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
        "image/key/sha256": tf.io.FixedLenFeature([], tf.string),
    }
    found = parsed(output, spec)
    names = ["circle", "square", "triangle"]
    assert {one["image/filename"].decode() for one in found} == {
        str(path.relative_to(photos)) for path in photos.rglob("*.*")
    }
    for one in found:
        key = one["image/filename"].decode()
        stored = (photos / key).read_bytes()
        assert one == {
            "image/encoded": stored,
            "image/format": b"jpeg",
            "image/height": 240,
            "image/width": 320,
            "image/class/label": names.index(key.split("/")[0]),
            "image/class/text": key.split("/")[0].encode(),
            "image/filename": key.encode(),
            "image/key/sha256": hashlib.sha256(stored).hexdigest().encode(),
        }
        assert tf.io.decode_image(one["image/encoded"]).shape == (240, 320, 3)
    made = manifest(output)
    schema = json.loads((ROOT / "transforms/shards/manifest.schema.json").read_text())
    jsonschema.validate(made, schema)
    assert made["counts"] == {"read": 18, "written": 18, "failed": 0, "skipped": 0}
    assert made["labels"] == {"0": "circle", "1": "square", "2": "triangle"}
    assert made["actions"] == {"kept": 18}
    total = sum(path.stat().st_size for path in photos.rglob("*.*"))
    assert made["bytes"]["source"] == made["bytes"]["encoded"] == total
    for shard in made["splits"]["train"]["shards"]:
        contents = (output / shard["file"]).read_bytes()
        assert (shard["bytes"], shard["sha256"]) == (len(contents), hashlib.sha256(contents).hexdigest())
        records = list(tf.data.TFRecordDataset(str(output / shard["file"])).as_numpy_iterator())
        assert shard["records"] == len(records)
        # The index leads to each of them.
        lines = (output / "index" / shard["file"]).with_suffix(".idx").read_text().splitlines()
        frames = [tuple(map(int, line.split())) for line in lines]
        assert [contents[offset + 12 : offset + length - 4] for offset, length in frames] == records
        assert sum(length for _, length in frames) == len(contents)


def test_same_bytes_whatever_the_order_of_creation_and_the_workers(
    photos: Path, tmp_path: Path, figure: Figure
) -> None:
    paths = sorted(path for path in photos.rglob("*") if path.is_file())
    for number, order in enumerate((paths, paths[::-1])):
        # Past the number of images below which no process is spawned.
        folder = tmp_path / f"photos{number}"
        for copy in range(30) if number == 0 else reversed(range(30)):
            for path in order:
                target = folder / f"copy{copy}" / path.relative_to(photos)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)
    args = ("--num_shards=3", "--splits=train=0.8,val=0.2", "--label_pattern=(circle|square|triangle)/")
    made = []
    for number, workers in ((0, 1), (1, 3)):
        output = tmp_path / f"out{number}-{workers}"
        call = ("--input", tmp_path / f"photos{number}", "--output", output, "--direct_num_workers", workers)
        assert convert(*call, *args) == 0
        made.append(digests(output))
    assert len(made[0]) == 12
    assert made[0] == made[1]
    figure("files", len(made[0]))
    assert manifest(output)["counts"]["written"] == 540


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["multi_threading", pytest.param("multi_processing", marks=pytest.mark.slow)]
)
def test_same_bytes_from_the_workers_of_beam(mode: str, photos: Path, tmp_path: Path) -> None:
    args = ("--input", photos, "--num_shards=3")
    assert convert(*args, "--output", tmp_path / "ours") == 0
    beams = (f"--direct_running_mode={mode}", "--direct_num_workers=2")
    assert convert(*args, "--output", tmp_path / "beams", *beams) == 0
    assert digests(tmp_path / "beams") == digests(tmp_path / "ours")


@pytest.mark.slow
def test_seed_moves_the_order_and_no_split(photos: Path, tmp_path: Path) -> None:
    splits = []
    orders = []
    for seed in (0, 1):
        output = tmp_path / str(seed)
        args = ("--num_shards=1", "--splits=train=0.5,val=0.5", f"--seed={seed}")
        assert convert("--input", photos, "--output", output, *args) == 0
        splits.append(set(by_key(output, "train*")))
        orders.append(list(by_key(output, "train*")))
    assert splits[0] == splits[1]
    assert orders[0] != orders[1]


@pytest.mark.slow
def test_order_by_key(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--num_shards=3", "--order=key") == 0
    keys = list(by_key(output))
    assert keys == sorted(keys)
    assert [shard["records"] for shard in manifest(output)["splits"]["train"]["shards"]] == [6, 6, 6]


@pytest.mark.slow
def test_splits_from_the_folders(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for path in (
        "train/square/a.jpg",
        "train/circle/deep/b.JPG",
        "validation/circle/c.jpg",
        "validation/d.jpg",
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((photos / "circle/circle_000.jpg").read_bytes())
    output = tmp_path / "out"
    assert convert("--input", folder, "--output", output) == 0
    labels = {key: one["image/class/text"] for key, one in by_key(output, "train*").items()}
    assert labels == {"train/square/a.jpg": [b"square"], "train/circle/deep/b.JPG": [b"circle"]}
    labels = {key: one["image/class/text"] for key, one in by_key(output, "validation*").items()}
    assert labels == {"validation/circle/c.jpg": [b"circle"], "validation/d.jpg": []}
    # The layout's splits give way to those that are asked for.
    assert convert("--input", folder, "--output", tmp_path / "all", "--splits=all=1") == 0
    assert set(manifest(tmp_path / "all")["splits"]) == {"all"}


@pytest.mark.slow
def test_group_by_keeps_groups_together(tmp_path: Path) -> None:
    rows = "".join(f"{number},{number % 40}\n" for number in range(400))
    (tmp_path / "rows.csv").write_text(f"x,patient\n{rows}")
    output = tmp_path / "out"
    args = ("--splits=train=0.6,val=0.4", "--group_by=patient")
    assert convert("--input", tmp_path / "rows.csv", "--output", output, *args) == 0
    train, val = ({one["patient"][0] for one in examples(output, f"{name}*")} for name in ("train", "val"))
    assert not train & val
    assert train | val == set(range(40))


@pytest.mark.slow
def test_group_pattern(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    args = ("--splits=train=0.5,val=0.5", r"--group_pattern=_(\d+)\.")
    assert convert("--input", photos, "--output", output, *args) == 0
    train, val = ({key[-7:-4] for key in by_key(output, f"{name}*")} for name in ("train", "val"))
    assert not train & val


def test_raw_pixels_equal_the_decoded_source(tmp_path: Path) -> None:
    import tensorflow as tf

    folder = tmp_path / "photos"
    folder.mkdir()
    draw("circle", 1, 33, 17).save(folder / "colour.png")
    draw("square", 2, 9, 31).convert("L").save(folder / "grey.png")
    draw("square", 3, 64, 48).save(folder / "photo.jpg", quality=90)
    output = tmp_path / "out"
    assert convert("--input", folder, "--output", output, "--schema=plain", "--image_format=raw") == 0
    found = {}
    for one in examples(output):
        shape = (one["height"][0], one["width"][0], one["depth"][0])
        found[shape] = np.frombuffer(one["image_raw"][0], one["dtype"][0].decode()).reshape(shape)
    assert set(found) == {(17, 33, 3), (31, 9, 1), (48, 64, 3)}
    np.testing.assert_array_equal(found[17, 33, 3], np.asarray(Image.open(folder / "colour.png")))
    np.testing.assert_array_equal(found[31, 9, 1][:, :, 0], np.asarray(Image.open(folder / "grey.png")))
    decoded = tf.io.decode_jpeg((folder / "photo.jpg").read_bytes(), dct_method="INTEGER_ACCURATE")
    np.testing.assert_array_equal(found[48, 64, 3], decoded)


@pytest.mark.slow
def test_jpeg_quality_has_an_effect(photos: Path, tmp_path: Path) -> None:
    sizes = []
    for quality in (60, 80):
        output = tmp_path / str(quality)
        args = ("--image_format=jpeg", f"--jpeg_quality={quality}")
        assert convert("--input", photos, "--output", output, *args) == 0
        made = manifest(output)
        assert made["actions"] == {"reencoded": 18}
        sizes.append(made["bytes"]["encoded"])
    assert sizes[0] < sizes[1] < made["bytes"]["source"]


def test_bad_images_are_failures_with_reasons_and_the_gate_decides(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    (folder / "circle").mkdir(parents=True)
    for path in (photos / "circle").iterdir():
        (folder / "circle" / path.name).write_bytes(path.read_bytes())
    whole = (photos / "circle/circle_000.jpg").read_bytes()
    (folder / "circle/truncated.jpg").write_bytes(whole[:3000])
    (folder / "circle/text.jpg").write_text("no image")
    (folder / "notes.txt").write_text("not an image by name")
    output = tmp_path / "out"
    assert convert("--input", folder, "--output", output) == 1
    assert [(one["key"], one["stage"], one.get("skipped", False)) for one in failures(output)] == [
        ("circle/text.jpg", "decode", False),
        ("circle/truncated.jpg", "decode", False),
        ("notes.txt", "list", True),
    ]
    assert sorted(path.name for path in output.iterdir()) == [".recordmill", "failures.jsonl"]
    # What that left does not stand in the way of the same call with a higher ratio.
    assert convert("--input", folder, "--output", output, "--max_failure_ratio=0.25") == 0
    assert manifest(output)["counts"] == {"read": 9, "written": 6, "failed": 2, "skipped": 1}
    assert not (output / ".recordmill").exists()
    assert len(failures(output)) == 3
    assert len(by_key(output)) == 6


def test_the_reason_of_a_failed_job_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_text("no image")
    assert convert("--input", tmp_path / "photos", "--output", tmp_path / "out", "--quiet") == 1
    assert capfd.readouterr().err == (
        "recordmill convert: error: 1 of 1 inputs failed (100.00%; most often decode: not an image, 1), "
        f"above --max_failure_ratio=0.01; nothing is published, {tmp_path}/out/failures.jsonl names each\n"
    )


def test_manifest_columns_become_typed_features(photos: Path, tmp_path: Path) -> None:
    rows = [
        ["path", "label", "split", "age", "score", "code", "box", "note"],
        ["circle/circle_000.jpg", "a", "train", "7", "0.5", "007", "[1, 2]", "two\nlines"],
        ["./square/square_000.jpg", "b", "val", "8", "1", "010", "[3, 4]", ""],
        ["../../etc/passwd", "b", "val", "8", "1", "010", "[3, 4]", ""],
    ]
    with open(photos / "labels.csv", "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(rows)
    output = tmp_path / "out"
    try:
        args = ("--input", photos / "labels.csv", "--output", output, "--max_failure_ratio=0.5")
        assert convert(*args) == 0
    finally:
        (photos / "labels.csv").unlink()
    found = by_key(output)
    first = found["circle/circle_000.jpg"]
    assert {name: first[name] for name in ("age", "code", "box", "note")} == {
        "age": [7],
        "code": [b"007"],
        "box": [1, 2],
        "note": [b"two\nlines"],
    }
    assert first["score"] == [0.5]
    assert found["square/square_000.jpg"]["score"] == [1.0]
    assert found["square/square_000.jpg"]["note"] == [b""]
    assert set(by_key(output, "val*")) == {"square/square_000.jpg"}
    features = manifest(output)["features"]
    assert features["age"] == {"dtype": "int64", "shape": []}
    assert features["score"] == {"dtype": "float32", "shape": []}
    assert features["box"] == {"dtype": "int64", "shape": [2]}
    assert [(one["stage"], one["reason"]) for one in failures(output)] == [
        ("manifest", "outside the input root")
    ]


@pytest.mark.slow
def test_features_alone(tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    lines = [{"x": number / 4, "name": f"n{number}", "tags": ["a"] * (number % 3)} for number in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = tmp_path / "out"
    assert convert("--input", tmp_path / "rows.jsonl", "--output", output) == 0
    found = sorted(examples(output), key=lambda one: one["x"])
    assert [one["x"] for one in found] == [[number / 4] for number in range(20)]
    assert [len(one["tags"]) for one in found] == [number % 3 for number in range(20)]
    rows = list(tfds.builder_from_directory(output).as_dataset(split="train").as_numpy_iterator())
    assert sorted(row["name"] for row in rows) == sorted(f"n{number}".encode() for number in range(20))


@pytest.mark.slow
def test_imagenet_schema_and_rename(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    args = ("--schema=imagenet", "--rename=image/encoded=jpeg,image/class/label=y")
    assert convert("--input", photos, "--output", output, *args) == 0
    found = list(examples(output))
    assert {one["y"][0] for one in found} == {1, 2, 3}
    assert found[0]["image/format"] == [b"JPEG"]
    assert found[0]["image/object/bbox/xmin"] == []
    assert "image/encoded" not in found[0]
    assert set(manifest(output)["features"]) == set(found[0])
    assert (output / "y.labels.txt").read_text().splitlines()[1:] == ["circle", "square", "triangle"]


@pytest.mark.slow
def test_label_file_and_offset(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("triangle\nsquare\ncircle\n")
    output = tmp_path / "out"
    args = ("--label_file", tmp_path / "labels.txt", "--label_offset=5")
    assert convert("--input", photos, "--output", output, *args) == 0
    assert manifest(output)["labels"] == {"5": "triangle", "6": "square", "7": "circle"}
    assert all(
        one["image/class/label"] == [{"triangle": 5, "square": 6, "circle": 7}[key.split("/")[0]]]
        for key, one in by_key(output).items()
    )


def test_a_repeated_key_is_named_by_both_its_places(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (photos / "rows.csv").write_text(
        "path,split\ncircle/circle_000.jpg,train\nsquare/square_000.jpg,train\n./circle//circle_000.jpg,val\n"
    )
    output = tmp_path / "out"
    try:
        assert convert("--input", photos / "rows.csv", "--output", output, "--quiet") == 1
    finally:
        (photos / "rows.csv").unlink()
    message = capfd.readouterr().err
    assert "key 'circle/circle_000.jpg' is not unique" in message
    assert "rows.csv, line 2" in message
    assert "rows.csv, line 4" in message
    assert message.count("\n") == 1
    assert not list(output.glob("*.tfrecord"))
    assert failures(output) == []


def test_an_empty_split_is_named(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "photos"
    (folder / "val").mkdir(parents=True)
    (folder / "train").mkdir()
    (folder / "train/a.jpg").write_bytes((photos / "circle/circle_000.jpg").read_bytes())
    output = tmp_path / "out"
    assert convert("--input", folder, "--output", output, "--quiet") == 1
    assert "split 'val' is empty" in capfd.readouterr().err
    assert not (output / "manifest.json").exists()


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("a[/b],c\n1,2\n")
    assert convert("--input", tmp_path / "rows.csv", "--output", tmp_path / "out", "--plan") == 0
    assert "feature a[/b]" in capfd.readouterr().out


def test_a_group_that_does_not_take_part_in_the_match(photos: Path, tmp_path: Path) -> None:
    args = ("--splits=a=0.5,b=0.5", "--group_pattern=(dog)?circle", "--max_failure_ratio=1")
    assert convert("--input", photos, "--output", tmp_path / "out", *args) == 1
    assert {one["reason"] for one in failures(tmp_path / "out")} == {"no value to group by"}


def test_free_space_is_looked_at_before(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_: 1000)
    output = tmp_path / "out"
    assert convert("--input", photos, "--output", output, "--quiet") == 1
    assert "will be written, and 1.0 kB are free there" in capfd.readouterr().err
    assert not list(output.rglob("*.tfrecord"))


def test_no_more_shards_than_records(photos: Path, tmp_path: Path) -> None:
    assert convert("--input", photos, "--output", tmp_path / "out", "--shard_size=1") == 0
    assert len(manifest(tmp_path / "out")["splits"]["train"]["shards"]) == 18


@pytest.mark.slow
def test_nobody_reads_the_summary(photos: Path, tmp_path: Path) -> None:
    call = convert_call(photos, tmp_path / "out")
    with subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert job.stdout is not None
        job.stdout.close()
        assert job.wait(timeout=120) == 0
    assert (tmp_path / "out/manifest.json").exists()


def test_plan_writes_nothing(photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    args = ("--plan", "--splits=train=0.5,val=0.5", "--num_shards=train=3,val=1")
    assert convert("--input", photos, "--output", output, *args) == 0
    printed = capfd.readouterr().out
    assert not output.exists()
    assert "split train" in printed
    assert "3 shards" in printed


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "recordmill.pipelines.convert"],
        [sys.executable, str(ROOT / "pipelines/convert.py")],
        [sys.executable, "-m", "recordmill.pipelines.cli", "convert"],
    ],
)
@pytest.mark.slow
def test_every_way_to_start_it(photos: Path, tmp_path: Path, command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    call = [*command, "--input", str(photos), "--output", str(tmp_path / "out")]
    cwd = tmp_path if command[1].endswith(".py") else ROOT
    done = subprocess.run(call, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "written" in done.stdout
    assert "source: folder" in done.stderr
    assert (tmp_path / "out/manifest.json").exists()
