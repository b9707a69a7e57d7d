"""`recordmill verify` from end to end: what is sound, what is damaged, and what is refused."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from recordmill.pipelines.options.reading import check_output_file
from recordmill.pipelines.options.verify import parse_verify
from recordmill.transforms.examples.framing import read_records
from recordmill.transforms.reading.verify_report import is_report
from recordmill.transforms.shards import progress
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import command, convert


def verify(*args: object) -> int:
    """Exit status of `recordmill verify`."""
    return command("verify", *args, "--progress=none", "--direct_num_workers=1")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four JPEGs and a PNG, in folders of labels."""
    folder = tmp_path_factory.mktemp("input") / "photos"
    for shape in ("circle", "square"):
        (folder / shape).mkdir(parents=True)
        for number in range(2):
            draw(shape, number, 64, 48).save(folder / shape / f"{number}.jpg", quality=95)
    draw("circle", 7, 64, 48).save(folder / "circle" / "7.png")
    return folder


@pytest.fixture(scope="module")
def published(photos: Path) -> Path:
    """Their JPEGs at quality 60, in two shards."""
    output = photos.parent / "out"
    flags = ("--image_format=jpeg", "--jpeg_quality=60", "--num_shards=2", "--quiet")
    assert convert("--input", photos, "--output", output, *flags) == 0
    return output


@pytest.fixture
def out(published: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(published, tmp_path / "out"))


def payloads(path: Path) -> list[bytes]:
    with open(path, "rb") as file:
        return list(read_records(file))


def report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@pytest.mark.slow
def test_a_sound_dataset(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    assert verify(published, "--report", tmp_path / "found.json") == 0
    said = capsys.readouterr().out
    assert "nothing is wrong" in said and "5 records, 5 keys, 5 images" in said
    found = report(tmp_path / "found.json")
    assert found["sound"] and found["faults"] == {} and found["checked"]["records"] == 5
    assert before == {path: path.read_bytes() for path in published.rglob("*") if path.is_file()}
    assert verify(published, "--quiet") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("against", [False, True], ids=["dataset", "against its source"])
def test_progress_ends_at_all_records(against: bool, photos: Path, published: Path) -> None:
    """The records that the source lists are not records to verify."""
    assert verify(published, "--quiet", *(("--input", photos) if against else ())) == 0
    state = progress.snapshot()
    sizes = [len(payload) for path in published.glob("*.tfrecord") for payload in payloads(path)]
    assert (state.records, state.done_records, state.done_bytes) == (5, 5, sum(sizes))
    assert state.verb == "verified"


def test_damage_is_named_and_the_status_is_1(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = sorted(out.glob("*.tfrecord"))
    data = bytearray(one.read_bytes())
    data[100] ^= 4
    one.write_bytes(data)
    (out / "features.json").write_text("{}")
    (out / "index" / f"{other.stem}.idx").unlink()
    assert verify(out, "--report", tmp_path / "found.json") == 1
    said = capsys.readouterr().out
    found = report(tmp_path / "found.json")
    named = {fault["file"] for fault in found["named"]}
    assert named == {one.name, "features.json", f"index/{other.stem}.idx"}
    assert not found["sound"] and found["faults"]["damaged record"] == 1
    for name in named:
        assert name in said
    assert f"{one.name}, record 0 at byte 0" in said
    assert verify(out, "--quiet") == 1
    quiet = capsys.readouterr()
    assert quiet.out == "" and f"error: {out} has faults: damaged record, 1; " in quiet.err


def test_a_damaged_manifest_is_a_fault_and_the_shards_are_read_all_the_same(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = out / "manifest.json"
    for damaged in (path.read_text().replace("circle", "square"), "{"):
        path.write_text(damaged)
        assert verify(out) == 1
        said = capsys.readouterr().out
        assert "manifest.json" in said and "5 images" in said


@pytest.mark.slow
def test_a_key_that_is_there_twice(out: Path, tmp_path: Path) -> None:
    shard = max(out.glob("*.tfrecord"), key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes() * 2)
    assert verify(out, "--report", tmp_path / "found.json") == 1
    found = report(tmp_path / "found.json")
    records = sum(fault["kind"] == "key that another record has" for fault in found["named"])
    assert records == found["faults"]["key that another record has"] >= 3
    assert found["faults"]["wrong number of records"] == found["faults"]["wrong SHA-256"] == 1


def test_records_against_their_source(published: Path, photos: Path, tmp_path: Path) -> None:
    from skimage.metrics import structural_similarity

    assert verify(published, "--input", photos, "--report", tmp_path / "found.json") == 0
    found = report(tmp_path / "found.json")
    assert found["checked"]["compared"] == found["checked"]["images lossy"] == 5
    worst = found["likeness"]["worst"]
    assert sorted(one["key"] for one in worst) == sorted(
        str(path.relative_to(photos)) for path in photos.rglob("*.*")
    )
    assert [one["ssim"] for one in worst] == sorted(one["ssim"] for one in worst)
    for one in worst:
        stored = next(image for image in stored_images(published / one["file"], one["record"]))
        with Image.open(photos / one["key"]) as source:
            pair = [np.asarray(image.convert("L")) for image in (source, Image.open(io.BytesIO(stored)))]
        likeness = structural_similarity(  # type: ignore[no-untyped-call]
            *pair, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255
        )
        assert one["ssim"] == pytest.approx(likeness, abs=2e-3)
    assert found["likeness"]["ssim"]["least"] == pytest.approx(worst[0]["ssim"], abs=1e-4)


def stored_images(shard: Path, record: int) -> list[bytes]:
    """The JPEGs in a record."""
    with shard.open("rb") as file:
        payload = list(read_records(file))[record]
    start = payload.index(b"\xff\xd8\xff")
    return [payload[start : payload.rindex(b"\xff\xd9") + 2]]


@pytest.mark.slow
def test_a_source_that_is_another_now(published: Path, photos: Path, tmp_path: Path) -> None:
    source = tmp_path / "photos"
    shutil.copytree(photos, source)
    (source / "circle" / "0.jpg").rename(source / "circle" / "new.jpg")
    shutil.copy(source / "square" / "1.jpg", source / "square" / "0.jpg")
    assert verify(published, "--input", source, "--report", tmp_path / "found.json") == 1
    found = {fault["kind"]: fault for fault in report(tmp_path / "found.json")["named"]}
    assert found["record missing from the source"]["key"] == "circle/0.jpg"
    assert found["input that is neither in the dataset nor in failures.jsonl"]["key"] == "circle/new.jpg"
    likeness = report(tmp_path / "found.json")["likeness"]
    assert likeness["worst"][0]["key"] == "square/0.jpg" and likeness["worst"][0]["ssim"] < 0.9


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nowhere",), "nowhere' is not there"),
        (("",), "PATH is empty"),
        (("{out}", "--report", "nowhere/x.json"), "--report is 'nowhere/x.json'"),
        (("{out}", "--image_root", "x"), "--annotations and --image_root belong to --input"),
        (("{out}/train-00000-of-00002.tfrecord", "--input", "{photos}"), "--input is given, and PATH"),
        (("{out}", "--runner=FlinkRunner"), "--report must be given"),
        (("{out}", "--quiet", "--verbose"), "--verbose and --quiet"),
        (("{out}", "--inputs", "x"), "--inputs is not a flag; did you mean --input?"),
    ],
)
def test_a_wrong_call_is_one_line(
    args: tuple[str, ...], told: str, published: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    assert verify(*(arg.format(out=published, photos=photos) for arg in args)) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("{out}", "--temp_location", "gs://pictures/tmp"),
        ("--temp_location", "gs://pictures/tmp", "{out}"),
        ("--temp_location", "{out}", "--runner=DirectRunner", "{out}", "--project=a"),
    ],
)
def test_flags_of_beam_stand_before_the_path_or_behind(args: tuple[str, ...], published: Path) -> None:
    words = [arg.format(out=published) for arg in args]
    options = parse_verify(words, "verify")
    assert options.path == str(published)
    at = words.index("--temp_location")
    begin = options.beam_args.index("--temp_location")
    assert options.beam_args[begin : begin + 2] == tuple(words[at : at + 2])


def test_the_value_of_a_flag_of_beam_is_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify("--temp_location", "gs://pictures/tmp") == 2
    assert "PATH is not given" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bucket(
    published: Path,
    photos: Path,
    bucket: str,
    bucket_server: BucketServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bucket_server.upload_folder(published, f"{bucket}/out")
    bucket_server.upload_folder(photos, f"{bucket}/in")
    assert verify(f"{bucket}/out", "--input", f"{bucket}/in", "--report", f"{bucket}/found.json") == 0
    assert json.loads(bucket_server.get(f"{bucket}/found.json"))["checked"]["compared"] == 5
    name = next(iter(published.glob("*.tfrecord"))).name
    data = bytearray(bucket_server.get(f"{bucket}/out/{name}"))
    data[-1] ^= 1
    bucket_server.put(f"{bucket}/out/{name}", bytes(data))
    assert verify(f"{bucket}/out") == 1
    assert f"{name}, record" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("{bucket}/out", ", which is a folder; give a file"),
        ("{bucket}/out/mine.json", ", a file that recordmill did not write"),
        ("gs://none/found.json", ", and there is no bucket 'none'"),
        ("gs:///found.json", ": it names no bucket"),
        ("s3://bucket/found.json", ": local paths and gs:// URIs are read"),
        ("{folder}", ", which is a folder; give a file"),
        ("{folder}/mine.json", ", a file that recordmill did not write"),
        ("{folder}/none/found.json", "; give a file in an existing folder"),
    ],
)
def test_where_no_report_can_be_written(
    report: str, message: str, tmp_path: Path, bucket: str, bucket_server: BucketServer
) -> None:
    (tmp_path / "mine.json").write_text("{}")
    bucket_server.put(f"{bucket}/out/mine.json", b"{}")
    report = report.format(folder=tmp_path, bucket=bucket)
    with pytest.raises(ValueError) as raised:
        check_output_file("--report", report, is_report)
    assert str(raised.value).startswith(f"--report is {report!r}{message}")
