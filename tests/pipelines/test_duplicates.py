"""Duplicates of a dataset: exact counts of planted copies, whatever runs the job, and --duplicates=fail."""

import csv
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawings import draw
from tests.buckets.server import BucketServer
from tests.lazy import jsonschema
from tests.patched import patched_site
from tests.pipelines.conversion import command, convert, convert_call, digests, duplicates, examples, manifest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "transforms/shards/manifest.schema.json"
SLOW = pytest.mark.slow
SHARDS = "--num_shards=train=3,test=2"
Q90 = ("--image_format=jpeg", "--jpeg_quality=90", "--reencode=always")


# Kills the job when so many records are encoded, once.
_KILLING = """
import os, pathlib, signal, time
def patch(module):
    encode = module.RecordEncoder.encode
    def killing(self, *args):
        encoded = pathlib.Path(os.environ["ENCODED"])
        with encoded.open("a+") as file:
            file.write("x")
            if file.tell() == 60:  # the sample of sizes takes up to 40
                deadline = time.monotonic() + 60
                while not list(encoded.parent.rglob("*.state")) and time.monotonic() < deadline:
                    time.sleep(0.01)
                os.kill(os.getppid(), signal.SIGKILL)
        return encode(self, *args)
    module.RecordEncoder.encode = killing
"""


def noise(seed: int, size: int = 16) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8))


def plant(folder: Path, each: int = 12, size: int = 16) -> Path:
    """Two splits of two classes, and copies: in and across splits, renamed, relabelled, in other formats."""
    for number in range(4 * each):
        path = folder / ("train", "test")[number % 4 == 3] / ("cat", "dog")[number % 2] / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(number, size).save(path)
    copies = {
        "train/cat/copy.png": "train/cat/00000.png",
        "train/cat/copy of a copy.png": "train/cat/00000.png",
        "test/cat/leak.png": "train/cat/00002.png",
        "test/cat/relabelled leak.png": "train/dog/00005.png",
        "train/cat/relabelled.png": "train/dog/00001.png",
    }
    (folder / "test/cat").mkdir(exist_ok=True)
    for copy, original in copies.items():
        shutil.copy(folder / original, folder / copy)
    with Image.open(folder / "train/cat/00004.png") as image:
        image.save(folder / "train/cat/same pixels.bmp")
        image.save(folder / "test/dog/other pixels.jpg", quality=90)
    return folder


def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def decoded(path: Path) -> str:
    with Image.open(path) as image:
        return hashlib.sha256(np.asarray(image.convert("RGB")).tobytes()).hexdigest()


def expected(folder: Path, identity: Callable[[Path], str]) -> list[dict[str, Any]]:
    """The groups of a folder of splits and classes, by comparing all files; without their locations."""
    groups: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.*")):
        groups[identity(path)].append(path.relative_to(folder))
    found = [
        {
            "across_splits": len({path.parts[0] for path in same}) > 1,
            "different_labels": len({path.parts[1] for path in same}) > 1,
            "bytes_equal": len({content(folder / path) for path in same}) == 1,
            "records": [
                {"key": str(path), "split": path.parts[0], "labels": [path.parts[1]]} for path in same
            ],
        }
        for same in groups.values()
        if len(same) > 1
    ]
    order = ("across_splits", "different_labels")
    return sorted(found, key=lambda one: (*(not one[name] for name in order), one["records"][0]["key"]))


def counts(groups: Iterable[dict[str, Any]]) -> dict[str, int]:
    every = list(groups)
    return {
        "groups": len(every),
        "records": sum(len(one["records"]) for one in every),
        "across_splits": sum(one["across_splits"] for one in every),
        "different_labels": sum(one["different_labels"] for one in every),
    }


def listed(output: Path) -> list[dict[str, Any]]:
    """The lines of duplicates.jsonl."""
    return [json.loads(line) for line in (output / "duplicates.jsonl").read_text("utf-8").splitlines()]


def assert_located(output: Path) -> None:
    """The records lie where duplicates.jsonl says, as TensorFlow reads them."""
    names = {
        (split, shard): [
            one["image/filename"][0].decode() for one in examples(output, f"{split}-{shard:05}-*")
        ]
        for split, number in (("train", 3), ("test", 2))
        for shard in range(number)
    }
    for group in listed(output):
        for one in group["records"]:
            assert names[one["split"], one["shard"]][one["record"]] == one["key"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("planted") / "in")


@pytest.fixture(scope="module")
def kept(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("kept") / "out"
    assert convert("--input", planted, "--output", output, SHARDS) == 0
    return output


def test_copies_are_counted_and_listed_and_shown(planted: Path, kept: Path) -> None:
    wanted = expected(planted, content)
    assert counts(wanted) == {"groups": 4, "records": 9, "across_splits": 2, "different_labels": 2}
    assert duplicates(kept) == wanted
    assert_located(kept)
    made = manifest(kept)
    jsonschema.validate(made, json.loads(SCHEMA.read_text("utf-8")))
    assert made["duplicates"] == counts(wanted)
    assert [one["kind"] for one in made["warnings"]] == ["images_across_splits"]
    assert made["warnings"][0]["found"].startswith(
        "2 images are in more than one split, such as 'test/cat/relabelled leak.png' (test: cat), "
        "'train/dog/00005.png' (train: dog)"
    )
    assert made["digests"]["duplicates.jsonl"] == content(kept / "duplicates.jsonl")
    assert "duplicates.jsonl" in made["files"]
    assert not list(kept.rglob("*.gz"))
    page = (kept / "report.html").read_text("utf-8")
    _, _, section = page.partition('<section id="duplicates">')
    section, _, _ = section.partition("</section>")
    assert section.count('<figure><img src="data:image/jpeg;base64,') == 4
    assert section.index("relabelled leak.png") < section.index("leak.png") < section.index("copy.png")


@SLOW
@pytest.mark.parametrize("writer", ["shards", "beam"])
@pytest.mark.parametrize("policy", [(), ("--validate=header",), Q90, ("--max_side=12",)])
def test_all_ways_to_write_find_them(
    planted: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str, policy: tuple[str, ...]
) -> None:
    output = tmp_path / "out"
    flags = (f"--writer={writer}", SHARDS)
    assert convert("--input", planted, "--output", output, *flags, *policy) == 0
    is_decoded = policy in (Q90, ("--max_side=12",))
    wanted = expected(planted, decoded if is_decoded else content)
    assert counts(wanted)["groups"] == (5 if is_decoded else 4)
    assert (writer == "shards") == ("shard" in listed(output)[0]["records"][0])
    assert duplicates(output) == wanted
    assert manifest(output)["duplicates"] == counts(wanted)
    said = capfd.readouterr().out
    assert "relabelled leak.png' (test: cat)" in said and "WARNING: 2 images are in more" in said
    assert "data:image/jpeg" in (output / "report.html").read_text("utf-8")


def test_without_copies_there_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        draw("circle", number, 20, 20).save(folder / f"{number}.png")
    assert convert("--input", folder, "--output", tmp_path / "out", "--duplicates=fail") == 0
    assert not (tmp_path / "out/duplicates.jsonl").exists()
    assert manifest(tmp_path / "out")["duplicates"] == counts([])
    assert 'id="duplicates"' not in (tmp_path / "out/report.html").read_text("utf-8")


@SLOW
def test_a_leak_is_refused_and_the_shards_are_kept(
    planted: Path, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    call = ("--input", planted, "--output", output, SHARDS, "--name=out")
    assert convert(*call, "--duplicates=fail") == 1
    said = capfd.readouterr().err
    (path,) = output.glob(".recordmill/*/duplicates.jsonl")
    line = next(line for line in said.splitlines() if "error:" in line)
    assert "2 images are in more than one split, such as 'test/cat/relabelled leak.png' (test: cat)" in line
    assert f"and --duplicates is 'fail'; nothing is published, {path} names each" in line
    assert path.read_bytes() == (kept / "duplicates.jsonl").read_bytes()
    assert {entry.name for entry in output.iterdir()} == {".recordmill", "failures.jsonl"}
    assert convert(*call) == 0
    assert manifest(output)["provenance"]["reused_shards"] == 5
    assert digests(output) == digests(kept)
    assert (output / "duplicates.jsonl").read_bytes() == (kept / "duplicates.jsonl").read_bytes()
    assert "duplicates" not in manifest(output)["config"]
    # A dataset without copies replaces it: their list goes.
    (output.parent / "one").mkdir()
    noise(1).save(output.parent / "one/1.png")
    assert convert("--input", output.parent / "one", "--output", output, "--overwrite") == 0
    assert not (output / "duplicates.jsonl").exists()


@SLOW
def test_a_killed_job_lists_the_same(planted: Path, kept: Path, tmp_path: Path) -> None:
    site = patched_site(tmp_path, "recordmill.transforms.shards.record_encoder", _KILLING)
    call = [*convert_call(planted, tmp_path / "out", SHARDS, "--direct_num_workers=1"), "--progress=none"]
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "ENCODED": str(tmp_path / "encoded")}
    for status in (-signal.SIGKILL, 0):
        done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, start_new_session=True)
        assert done.returncode == status, done.stderr.decode()
    assert 1 <= manifest(tmp_path / "out")["provenance"]["reused_shards"] <= 4
    assert (tmp_path / "out/duplicates.jsonl").read_bytes() == (kept / "duplicates.jsonl").read_bytes()
    assert manifest(tmp_path / "out")["duplicates"] == manifest(kept)["duplicates"]


@SLOW
def test_copies_in_one_split_are_not_refused(tmp_path: Path) -> None:
    folder = plant(tmp_path / "in")
    for path in folder.glob("test/cat/*leak.png"):
        path.unlink()
    for writer in ("shards", "beam"):
        call = ("--input", folder, "--output", tmp_path / writer, f"--writer={writer}")
        assert convert(*call, "--duplicates=fail", "--strict") == 0
        assert manifest(tmp_path / writer)["duplicates"]["groups"] == 2
    assert convert("--input", folder, "--output", tmp_path / "other", "--writer=beam") == 0


@SLOW
def test_neither_the_listing_nor_the_processes_change_a_byte(planted: Path, tmp_path: Path) -> None:
    rows = [
        (path.relative_to(planted), path.parent.name, path.relative_to(planted).parts[0])
        for path in sorted(planted.rglob("*.*"))
    ]
    made = set()
    for turn in range(3):
        source = tmp_path / f"{turn}.csv"
        random.Random(turn).shuffle(rows)
        with open(source, "w", newline="") as file:
            csv.writer(file).writerows([("path", "label", "split"), *rows])
        output = tmp_path / f"out{turn}"
        flags = (SHARDS, f"--image_root={planted}", f"--direct_num_workers={turn + 1}", *Q90)
        assert convert("--input", source, "--output", output, *flags) == 0
        made.add((output / "duplicates.jsonl").read_bytes())
    assert len(made) == 1 and next(iter(made)).count(b"\n") == 5


@SLOW
@pytest.mark.parametrize("policy", [(), Q90])
def test_versions_are_as_from_scratch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], policy: tuple[str, ...]
) -> None:
    folder, home = plant(tmp_path / "in"), tmp_path / "home/out"
    flags = (SHARDS, "--dataset_version=auto", *policy)

    def converted(name: str) -> Path:
        assert convert("--input", folder, "--output", home, *flags) == 0
        scratch = tmp_path / name / "out"
        assert convert("--input", folder, "--output", scratch, *flags) == 0
        version = sorted(home.glob("*.*.*"))[-1]
        assert digests(version) == digests(scratch / "1.0.0")
        assert manifest(version)["duplicates"] == manifest(scratch / "1.0.0")["duplicates"]
        wanted = scratch / "1.0.0/duplicates.jsonl"
        assert (version / "duplicates.jsonl").read_bytes() == wanted.read_bytes()
        return version

    first = manifest(converted("first"))["duplicates"]
    shutil.copy(folder / "train/cat/00006.png", folder / "test/dog/another.png")
    added = converted("added")
    assert manifest(added)["provenance"]["work"]["images"] == 1
    groups = (first["groups"], first["across_splits"])
    now = manifest(added)["duplicates"]
    assert (now["groups"], now["across_splits"]) == (groups[0] + 1, groups[1] + 1)
    (folder / "test/dog/another.png").unlink()
    removed = converted("removed")
    assert manifest(removed)["duplicates"] == first
    assert manifest(removed)["provenance"]["work"]["images"] == 0
    assert convert("--input", folder, "--output", home, *flags) == 0
    assert "Nothing has changed since version 1.0.2" in capfd.readouterr().out
    # What is published stays, and its leaks are refused all the same.
    assert convert("--input", folder, "--output", home, *flags, "--duplicates=fail") == 1
    assert len(list(home.glob("*.*.*"))) == 3


@SLOW
def test_verify_and_report_read_the_list(
    planted: Path, kept: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = Path(shutil.copytree(kept, tmp_path / "out"))
    assert command("verify", output, "--quiet") == 0
    page = (output / "report.html").read_bytes()
    assert command("report", output) == 0
    assert (output / "report.html").read_bytes() == page
    (output / "duplicates.jsonl").write_text("nonsense\n")
    capfd.readouterr()
    assert command("verify", output) == 1
    assert "duplicates.jsonl" in capfd.readouterr().out
    command("report", output)
    assert "duplicates.jsonl' is damaged" in capfd.readouterr().err
    assert '<section id="duplicates">' in (output / "report.html").read_text("utf-8")


@SLOW
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_a_bucket_is_as_good_as_a_disk(
    planted: Path, kept: Path, bucket: str, bucket_server: BucketServer, tmp_path: Path, writer: str
) -> None:
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")
    bucket_server.upload_folder(planted, f"{bucket}/in")
    bucket_server.clear()
    call = ("--input", f"{bucket}/in", "--output", f"{bucket}/out", SHARDS, f"--writer={writer}")
    assert convert(*call, "--duplicates=fail") == 1
    assert convert(*call) == 0
    bucket_server.download(f"{bucket}/out", tmp_path / "out")
    assert duplicates(tmp_path / "out") == expected(planted, content)
    assert manifest(tmp_path / "out")["duplicates"] == manifest(kept)["duplicates"]
    if writer == "shards":
        assert (tmp_path / "out/duplicates.jsonl").read_bytes() == (kept / "duplicates.jsonl").read_bytes()
        assert digests(tmp_path / "out") == digests(kept)


@SLOW
def test_detection_compares_the_classes_of_objects(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    buffer = io.BytesIO()
    noise(1, 32).save(buffer, "PNG")
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for name, classes in (("a", "cat dog"), ("b", "dog cat dog"), ("c", "cat")):
        (folder / f"{name}.png").write_bytes(buffer.getvalue())
        rows += [f"{name}.png,32,32,{label},1,1,9,9" for label in classes.split()]
    (folder / "boxes.csv").write_text("\n".join(rows))
    assert convert("--input", folder / "boxes.csv", "--output", tmp_path / "out") == 0
    (group,) = listed(tmp_path / "out")
    assert [one["labels"] for one in group["records"]] == [["cat", "dog"], ["cat", "dog"], ["cat"]]
    assert group["different_labels"] and not group["across_splits"]
    assert not manifest(tmp_path / "out")["warnings"]
