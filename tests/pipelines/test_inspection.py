"""`recordmill inspect` as people call it, on files that TensorFlow, TFDS and conversions wrote."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines import inspection
from recordmill.transforms.reading import inspected
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert


def inspect(*args: object) -> int:
    """Exit status of `recordmill inspect`, in this process."""
    try:
        return inspection.main([str(one) for one in args], prog="recordmill inspect")
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


def told(capsys: pytest.CaptureFixture[str], *args: object, status: int = 0) -> str:
    """What it prints."""
    assert inspect(*args) == status
    said = capsys.readouterr()
    assert not said.err
    return said.out


def as_json(capsys: pytest.CaptureFixture[str], *args: object, status: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        told(capsys, *args, "--json", status=status), parse_constant=pytest.fail
    )
    return found


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one line of a call that is wrong."""
    assert inspect(*args) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1
    return said.err


@pytest.fixture(scope="module")
def out(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of ours: 12 images of three labels, in two files."""
    output = tmp_path_factory.mktemp("ours") / "out"
    assert (
        convert("--input", photos, "--output", output, "--num_shards=2", "--rename=image/encoded=pixels") == 0
    )
    return output


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tfds/`, of TFDS's own serialisation; `plain/`, of TensorFlow's: raw pixels, and packed sequences."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("foreign")
    tfds_folder, plain = folder / "tfds", folder / "plain"
    tfds_folder.mkdir()
    plain.mkdir()
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["[bold]cat", "dog"]),
            "objects": tfds.features.Sequence({"bbox": tfds.features.BBoxFeature()}),
            "x": tfds.features.Tensor(shape=(2, 3), dtype=np.float32),
        }
    )
    features.save_metadata(str(tfds_folder))
    with tf.io.TFRecordWriter(str(tfds_folder / "tiny-train.tfrecord-00000-of-00001")) as file:
        for number in range(8):
            item = {
                "image": np.full((10 + number, 20, 3), number, np.uint8),
                "label": number % 2,
                "objects": [{"bbox": tfds.features.BBox(0.0, 0.0, 0.5, 1.0)}] * (number % 3),
                "x": np.full((2, 3), np.nan if number == 3 else number, np.float32),
            }
            file.write(features.serialize_example(features.encode_example(item)))
    train = tf.train
    with tf.io.TFRecordWriter(str(plain / "raw.tfrecord")) as file:
        for number in range(30):
            values = {
                "image_raw": train.Feature(bytes_list=train.BytesList(value=[bytes(28 * 28)])),
                "note\x1b[31m": train.Feature(bytes_list=train.BytesList(value=["[red]é\x07".encode()])),
            }
            for name, value in {"height": 28, "width": 28, "depth": 1, "label": number % 3}.items():
                values[name] = train.Feature(int64_list=train.Int64List(value=[value]))
            file.write(train.Example(features=train.Features(feature=values)).SerializeToString())
    options = tf.io.TFRecordOptions(compression_type="ZLIB")
    with tf.io.TFRecordWriter(str(plain / "sequences.tfrecord.zz"), options) as file:
        for number in range(1, 5):
            words = [
                train.Feature(bytes_list=train.BytesList(value=[f"word{at}".encode()]))
                for at in range(number)
            ]
            lists = train.FeatureLists(feature_list={"word": train.FeatureList(feature=words)})
            file.write(train.SequenceExample(feature_lists=lists).SerializeToString())
    return folder


def test_a_dataset_of_ours(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, out, "--records=1")
    assert page.startswith(f"{out}\n  what         a dataset that Recordmill wrote")
    assert "in the schema classification\n" in page
    assert "\n  records      12, all read\n" in page
    assert "\n  files        2 files, " in page and ", not compressed, indexed\n" in page
    assert re.search(
        r"\n  pixels +string +all  jpeg, height 240, width 320, 3 channels, \d+\.\d kB to ", page
    )
    assert re.search(r"\n  image/height +int64 +all  always 240\n", page)
    assert re.search(r"\n  0  circle +4  #+\n  1  square +4  #+\n  2  triangle +4  #+\n", page)
    assert page.count("\nrecord ") == 1
    assert re.search(r"\n  image/class/label +[012] \((circle|square|triangle)\)\n", page)
    found = as_json(capsys, out)
    assert (found["kind"], found["sound"], found["format_version"]) == ("dataset", True, 1)
    assert found["records"] == {"count": 12, "exact": True}
    assert found["dataset"]["schema"] == "classification"
    assert [file["compressed"] for file in found["files"]] == [False, False]
    assert sum(file["records"]["count"] for file in found["files"]) == 12
    assert found["classes"]["image/class/label"][0] == {"label": 0, "count": 4, "name": "circle"}
    sizes = [len(path.read_bytes()) for path in out.glob("*.tfrecord")]
    assert found["read"]["bytes"] == sum(sizes) - 16 * 12


def test_a_sample_says_so(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, out, "--sample=4", "--records=0")
    assert "\n  records      12, from the manifest\n" in page
    assert (
        "\n  read         a sample: 4 records, " in page and "the first of 2 files; --all reads all" in page
    )
    assert "\nrecord " not in page
    found = as_json(capsys, out, "--sample=4")
    assert found["read"]["records"] == 4 and not found["read"]["whole"]
    assert [file["read"] for file in found["files"]] == [2, 2]
    assert as_json(capsys, out, "--all")["read"]["whole"]


def test_what_tfds_wrote(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign / "tfds"
    page = told(capsys, folder)
    assert "TFRecords of Examples, without a manifest" in page
    assert re.search(r"\n  image +string +all  png, height 10 to 17, width 20, 3 channels, ", page)
    assert re.search(r"\n  x +float32\[6\] +all  .*, 6 not finite\n", page)
    assert re.search(r"\n  objects/bbox +float32\[0\.\.8\] ", page)
    assert re.search(r"\n  0  \[bold\]cat  4  #+\n  1  dog +4  #+\n", page)
    found = as_json(capsys, folder)
    assert found["features"]["x"]["length"] == {"min": 6, "max": 6}
    assert found["features"]["objects/bbox"]["records"] == 8
    assert found["splits"]["train"]["records"] == 8


def test_a_switch_before_the_path(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect("--json", "--all", foreign / "tfds") == 0
    assert json.loads(capsys.readouterr().out)["read"]["whole"]
    assert inspect("--json", "false", foreign / "tfds") == 0
    assert "every checksum was verified" in capsys.readouterr().out


def test_what_tensorflow_wrote(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, foreign / "plain")
    assert (
        "TFRecords of Examples, SequenceExamples" in page and "2 files, " in page and "1 compressed" in page
    )
    assert re.search(
        r"\n  image_raw +string +88\.2 %  raw, height 28, width 28, 1 channel, 784 bytes\n", page
    )
    assert "\x1b" not in page and "\x07" not in page
    assert re.search(r"\n  note\\x1b\[31m +string ", page)
    found = as_json(capsys, foreign / "plain")
    assert found["kinds"]["examples"] == 30 and found["kinds"]["sequence_examples"] == 4
    assert found["feature_lists"]["word"]["steps"] == {"min": 1, "max": 4}
    assert found["features"]["image_raw"]["share"] == round(30 / 34, 6)
    first = found["first"][0]
    assert first["file"] == "raw.tfrecord" and first["features"]["label"]["values"] == [0]


def test_one_record(out: Path, foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    paths = sorted(out.glob("*.tfrecord"))
    stored = [
        tf.train.Example.FromString(payload).features.feature
        for payload in tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator()
    ]
    for number in (0, 11):
        found = as_json(capsys, out, f"--record={number}")
        key = found["features"]["image/filename"]["values"][0]["text"]
        assert key == stored[number]["image/filename"].bytes_list.value[0].decode()
    in_second = as_json(capsys, out, f"--record={paths[1].name}:0")
    assert in_second["file"] == paths[1].name and in_second["number"] == 0
    page = told(capsys, foreign / "plain/sequences.tfrecord.zz", "--record=3")
    assert "    step 3  'word3'\n" in page.replace("step 3   ", "step 3  ")
    assert "it may be 0 to 11" in refused(capsys, out, "--record=12")
    assert f"it may be {paths[0].name}:0 to " in refused(capsys, out, f"--record={paths[0].name}:99")


def test_a_contact_sheet(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in out.rglob("*"))
    sheet = tmp_path / "sheet.png"
    assert f"{sheet} shows 12 records\n" in told(capsys, out, "--images", sheet, "--records=0")
    wide, few = tmp_path / "wide.png", tmp_path / "few.png"
    assert as_json(capsys, out, "--images", wide, "--columns=12")["sheet"] == str(wide)
    assert "shows 3 records" in told(capsys, out, "--images", few, "--pictures=3")
    sizes = {path.name: Image.open(path).size for path in (sheet, wide, few)}
    assert sizes["wide.png"][0] > 1.9 * sizes["sheet.png"][0]
    assert sizes["few.png"][0] < 0.6 * sizes["sheet.png"][0]
    assert np.asarray(Image.open(sheet).convert("L")).std() > 20
    assert sorted(path.name for path in out.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.png", "sheet.png", "wide.png"]


def test_damage_is_told_with_its_place(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = max(out.glob("*.tfrecord"), key=lambda path: path.stat().st_size)
    index = out / "index" / f"{source.stem}.idx"
    places = [tuple(map(int, line.split())) for line in index.read_text().splitlines()]
    (offset, length), count = places[2], len(places)
    data = bytearray(source.read_bytes())
    data[offset + length // 2] ^= 4
    path = tmp_path / "some.tfrecord"
    path.write_bytes(data)
    page = told(capsys, path, status=1)
    assert (
        f"some.tfrecord: record 2 at byte {offset:,}: its {length - 16} bytes do not have the checksum"
        in page
    )
    assert f"{length:,} bytes are lost, and the next record is at byte {places[3][0]:,}\n" in page
    assert f"some.tfrecord: {count - 1} records could be read\n" in page
    found = as_json(capsys, path, status=1)
    assert not found["sound"] and found["read"]["records"] == count - 1
    assert found["files"][0]["damage"][0]["offset"] == offset
    assert inspect(path, "--record=2") == 1
    assert f"record 2 at byte {offset}" in capsys.readouterr().err
    path.write_bytes(data[: offset + 7])
    assert "the last 7 bytes are lost" in told(capsys, path, status=1)


def test_what_the_manifest_says_is_compared(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Path(shutil.copytree(out, tmp_path / "out"))
    first, second = sorted(output.glob("*.tfrecord"))
    data = second.read_bytes()
    places = (output / "index" / f"{second.stem}.idx").read_text().splitlines()
    second.write_bytes(data[: int(places[-1].split()[0])])
    page = told(capsys, output, status=1)
    assert f"bytes; the manifest says {len(data):,}\n" in page
    assert f"{second.name} has {len(places) - 1} records; the manifest says {len(places)}\n" in page
    first.unlink()
    assert f"{first.name} is not there, though the manifest lists it\n" in told(capsys, output, status=1)


@pytest.mark.parametrize(
    ("data", "said", "status"),
    [
        (b"", "\n  records  0, all read\n", 0),
        (b"\xff\xd8\xff\xe0 a picture", "no TFRecords", 1),
        (b"\x05\0\0\0\0\0\0\0\xea\xb2\x04\x3ehello", "the file ends in it", 1),
    ],
)
def test_files_that_are_none(
    data: bytes, said: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.tfrecord").write_bytes(data)
    assert said in told(capsys, tmp_path / "x.tfrecord", status=status)
    assert as_json(capsys, tmp_path / "x.tfrecord", status=status)["records"] == {"count": 0, "exact": True}


def test_records_that_are_no_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as file:
        file.write(b"hello")
        file.write(bytes(200))
    page = told(capsys, tmp_path / "x.tfrecord")
    assert "- 2 records without a tf.train.Example: only sizes are shown\n" in page
    assert "5 to 200 bytes each" in page
    assert "  not a tf.train.Example: 'hello'\n" in page


def test_a_list_of_images_and_a_key_without_a_letter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    stored = io.BytesIO()
    Image.new("L", (7, 5)).save(stored, "PNG")
    images = tf.train.Feature(bytes_list={"value": 2 * [stored.getvalue()]})
    values = {"": tf.train.Feature(int64_list={"value": [7]}), "image": images}
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as file:
        file.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
    page = told(capsys, tmp_path / "x.tfrecord")
    one = f"png, 5 high, 7 wide, 1 channel, {len(stored.getvalue())} bytes"
    assert f"\n  image  [{one}; {one}]\n" in page
    assert "\n  ''     int64      all  always 7\n" in page and "\n  ''     7\n" in page


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("none.tfrecord",), "is not there; give a folder of a dataset, a TFRecord file, or a pattern"),
        (("s3://bucket/x",), "PATH is 's3://bucket/x': local paths and gs:// URIs are read"),
        (("{out}", "--record=x"), "--record is 'x'; it may be a number from 0, or FILE:NUMBER"),
        (("{out}", "--record=no.tfrecord:1"), "--record names the file 'no.tfrecord'; the files are train-"),
        (("{out}", "--record=1", "--images=x.png"), "--record shows one record; remove --images"),
        (("{out}", "--sample=0"), "--sample is 0; it may be 1 or more"),
        (("{out}", "--sample=3", "--all"), "--sample is 3, and --all reads every record"),
        (("{out}", "--images=sheet.jpg"), "--images is 'sheet.jpg'; it is written as PNG"),
        (
            ("{out}", "--images=none/sheet.png"),
            "--images is 'none/sheet.png'; give a file in an existing",
        ),
        (("{out}", "--columns=3"), "--columns is for the contact sheet; also give --images sheet.png"),
        (("{out}", "--record=99"), "--record is '99'; it may be 0 to 11"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(
    args: tuple[str, ...], said: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *(one.format(out=out) for one in args))


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_a_narrow_terminal(
    columns: int, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    page = re.sub(r"\x1b\[[0-9;]*m", "", told(capsys, out))
    path, *lines = page.splitlines()
    assert [line for line in lines if len(line) > columns] == []
    assert "image/class/label" in page and "circle" in page


def test_from_a_bucket(
    out: Path, bucket: str, bucket_server: BucketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket_server.upload_folder(out, f"{bucket}/out")
    found, local = as_json(capsys, f"{bucket}/out"), as_json(capsys, out)
    assert {**found, "path": ""} == {**local, "path": ""}
    names = sorted(path.name for path in out.glob("*.tfrecord"))
    one = as_json(capsys, f"{bucket}/out", f"--record={names[1]}:1")
    assert one == as_json(capsys, out, f"--record={names[1]}:1")
    told(capsys, f"{bucket}/out/train-*", "--images", f"{bucket}/sheet.png", "--pictures=4")
    sheet = Image.open(io.BytesIO(bucket_server.get(f"{bucket}/sheet.png")))
    assert sheet.format == "PNG"
    assert "--images is 'gs://none/sheet.png'" in refused(capsys, out, "--images=gs://none/sheet.png")


def test_what_a_bucket_does_not_tell_is_estimated(
    out: Path,
    bucket: str,
    bucket_server: BucketServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = max(out.glob("*.tfrecord"), key=lambda path: path.stat().st_size)
    bucket_server.put(f"{bucket}/alone/x.tfrecord", shard.read_bytes())
    count = len((out / "index" / f"{shard.stem}.idx").read_text().splitlines())
    assert as_json(capsys, f"{bucket}/alone", "--sample=2")["records"] == {"count": count, "exact": True}
    monkeypatch.setattr(inspected, "_MOST_UNCOUNTED", 0)
    found = as_json(capsys, f"{bucket}/alone", "--sample=2")
    assert not found["records"]["exact"] and 2 <= found["records"]["count"] <= 2 * count
    assert found["files"][0]["records"]["by"] == "estimate"
    assert re.search(
        r"\n  records +about \d+, estimated from the size", told(capsys, f"{bucket}/alone", "--sample=2")
    )


def test_it_starts_with_no_more_than_it_needs() -> None:
    ours = "recordmill.transforms"
    heavy = {"apache_beam", "tensorflow", f"{ours}.sources.registry", f"{ours}.examples.registry"}
    code = f"import sys, recordmill.pipelines.inspection\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_interruption(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pipelines import inspection\n"
        "inspection.inspected = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(inspection.main(sys.argv[1:]))"
    )
    (tmp_path / "y.tfrecord").write_bytes(b"")
    call = [sys.executable, "-c", code, str(tmp_path / "y.tfrecord")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert "interrupted; nothing is written" in done.stderr and "Traceback" not in done.stderr
