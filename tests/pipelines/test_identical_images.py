"""Identical images: left out by --duplicates=drop, kept in one split by --group_by=content."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from google.cloud import storage

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord, ImageRef
from recordmill.transforms.shards import identity, references
from recordmill.transforms.write import WriteDataset
from tests.buckets.server import BucketServer
from tests.patched import patched_site
from tests.pipelines.conversion import (
    by_key,
    command,
    convert,
    convert_call,
    digests,
    examples,
    failures,
    manifest,
)
from tests.sources.small_inputs import INPUTS, picture

ROOT = Path(__file__).parents[2]
DROP = "--duplicates=drop"
# By path, the number of the picture: equal numbers are copies.
SPLIT = {
    "train/cat/a.png": 1,
    "train/cat/b.png": 1,
    "train/cat/c.png": 2,
    "train/dog/d.png": 3,
    "train/dog/e.png": 4,
    "test/dog/w.png": 5,
    "test/cat/x.png": 3,
    "val/cat/y.png": 3,
    "val/dog/z.png": 5,
    "val/dog/zz.png": 6,
}
KEPT = {"train": {"cat/a", "cat/c", "dog/e"}, "test": {"dog/w", "cat/x"}, "val": {"dog/zz"}}
COPIES = {
    "train/cat/b.png": "train/cat/a.png",
    "train/dog/d.png": "test/cat/x.png",
    "val/cat/y.png": "test/cat/x.png",
    "val/dog/z.png": "test/dog/w.png",
}


def put(folder: Path, files: dict[str, int]) -> Path:
    """Pictures, by path and number."""
    for name, number in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(number))
    return folder


def many(copies: int = 3) -> dict[str, int]:
    """200 paths in four classes, of which each tenth picture has copies in other classes."""
    names = [f"{'abcd'[at % 4]}/{at:03d}.png" for at in range(200)]
    return {name: at // 10 * 10 if at % 10 < copies else at for at, name in enumerate(names)}


def splits_of(output: Path) -> dict[bytes, Counter[str]]:
    """The splits of each stored image, with the number of its records, read by TensorFlow."""
    found: dict[bytes, Counter[str]] = {}
    for split in manifest(output)["splits"]:
        for example in examples(output, f"{split}-*"):
            image = hashlib.sha256(example["image/encoded"][0]).digest()
            found.setdefault(image, Counter())[split] += 1
    return found


def skipped(output: Path) -> dict[str, str]:
    """The detail of each copy, by key."""
    lines = [line for line in failures(output) if line["reason"] == "duplicate image"]
    assert all((line["stage"], line["skipped"]) == ("list", True) for line in lines)
    return {line["key"]: line["detail"] for line in lines}


@pytest.fixture
def read_images(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each image that is read to be identified, from here on."""
    found: list[int] = []
    hashed = identity.version_of_bytes

    def counting(data: bytes) -> int:
        found.append(len(data))
        return hashed(data)

    monkeypatch.setattr(identity, "version_of_bytes", counting)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["shards", "beam"])
def test_drop_keeps_one_record_of_each_image(writer: str, tmp_path: Path) -> None:
    source, output = put(tmp_path / "in", SPLIT), tmp_path / "out"
    assert convert("--input", source, "--output", output, DROP, f"--writer={writer}", "--num_shards=2") == 0
    for split, names in KEPT.items():
        expected = {f"{split}/{name}.png": SPLIT[f"{split}/{name}.png"] for name in names}
        found = {key: one["image/encoded"] for key, one in by_key(output, f"{split}-*").items()}
        assert found == {key: [picture(number)] for key, number in expected.items()}
    assert skipped(output) == {
        key: f"the same bytes as {kept!r}, which is kept" for key, kept in COPIES.items()
    }
    found = manifest(output)
    assert found["counts"] == {"read": 10, "written": 6, "failed": 0, "skipped": 4}
    assert found["config"]["duplicates"] == "drop"


@pytest.mark.slow
def test_verify_drops_the_same_copies(tmp_path: Path) -> None:
    source, output = put(tmp_path / "in", SPLIT), tmp_path / "out"
    (source / "train/bird").mkdir()  # a class that only a copy has
    (source / "train/bird/only.png").write_bytes(picture(6))
    report = tmp_path / "report.json"
    assert convert("--input", source, "--output", output, DROP) == 0
    assert manifest(output)["labels"] == {"0": "cat", "1": "dog"}
    verify = ("verify", output, "--input", source, "--report", report, "--progress=none", "--quiet")
    assert command(*verify) == 0
    # A new copy, before the others by key, is what the source would keep now.
    put(source, {"train/cat/Z.png": 4})
    assert command(*verify) == 1
    faults = {(one["kind"], one["key"]) for one in json.loads(report.read_text())["named"]}
    missing = "input that is neither in the dataset nor in failures.jsonl"
    assert faults == {("record missing from the source", "train/dog/e.png"), (missing, "train/cat/Z.png")}


@pytest.mark.slow
def test_group_by_content_splits_no_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = put(tmp_path / "in", many()), tmp_path / "out"
    splits = {"train": 0.5, "val": 0.3, "test": 0.2}
    flags = ("--splits=train=0.5,val=0.3,test=0.2", "--group_by=content", "--num_shards=1")
    assert convert("--input", source, "--output", output, *flags) == 0
    found = splits_of(output)
    assert sum(map(Counter.total, found.values())) == 200
    assert [image for image, of in found.items() if len(of) > 1] == []
    expected: Counter[str] = Counter()
    for number in many().values():
        group = f"{identity.version_of_bytes(picture(number)):x}"
        expected[references.split_of(group, splits)] += 1
    assert expected == sum(found.values(), Counter())
    assert command("verify", output, "--input", source, "--progress=none", "--quiet") == 0
    # By key, some are.
    other = tmp_path / "by key"
    assert convert("--input", source, "--output", other, flags[0], "--num_shards=1") == 0
    assert [image for image, of in splits_of(other).items() if len(of) > 1] != []
    # The hashes are stored, so that a plan needs no reading, and is exact.
    capsys.readouterr()
    assert convert("--input", source, "--output", output, *flags, "--plan", "--overwrite") == 0
    printed = capsys.readouterr().out
    assert "200 were read by an earlier job" in printed.replace("\n             ", "")
    for split, count in expected.items():
        assert f"split {split}" in printed and f"{count} records in 1 shard" in printed


@pytest.mark.slow
def test_group_by_content_ignores_the_splits_of_the_source(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": 1, "b.png": 1, "c.png": 2})
    (tmp_path / "m.csv").write_text("image,split\na.png,my split\nb.png,train\nc.png,other/split\n")
    flags = ("--splits=train=1", "--group_by=content")
    assert convert("--input", tmp_path / "m.csv", "--output", tmp_path / "out", *flags) == 0
    assert splits_of(tmp_path / "out") == {
        hashlib.sha256(picture(number)).digest(): Counter(train=count) for number, count in ((1, 2), (2, 1))
    }


@pytest.mark.slow
def test_drop_and_group_by_content_together(tmp_path: Path) -> None:
    source, output = put(tmp_path / "in", many()), tmp_path / "out"
    flags = (DROP, "--splits=train=0.6,val=0.4", "--group_by=content")
    assert convert("--input", source, "--output", output, *flags) == 0
    first = {number: name for name, number in sorted(many().items(), reverse=True)}
    assert set(by_key(output)) == set(first.values())
    assert all(of.total() == 1 for of in splits_of(output).values())


def test_a_plan_reads_no_image(
    tmp_path: Path, read_images: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    source = put(tmp_path / "in", SPLIT)
    size = sum(path.stat().st_size for path in source.rglob("*.png"))
    assert convert("--input", source, "--output", tmp_path / "out", DROP, "--plan") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"10 images ({size / 1000:.1f} kB) to read before writing" in printed
    assert "0 have a hash in the listing, 0 were read by an earlier job" in printed
    assert "this plan treats each image that has to be read as if it had no copy" in printed
    assert read_images == []
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_copies_in_files_archives_and_spools_are_found(tmp_path: Path) -> None:
    """A member that is unpacked has the hash of one that is read in place, and that of a file."""
    source, output = tmp_path / "in", tmp_path / "out"
    for name, number in {"tar": 0, "tar.gz": 1}.items():
        (source / f"{number}").mkdir(parents=True)
        for path, data in INPUTS[name].files([1, 2 + number]).items():
            (source / f"{number}" / path).write_bytes(data)
    (source / "0/a.tar").rename(source / "a.tar")
    (source / "1/a.tar.gz").rename(source / "b.tar.gz")
    assert convert("--input", source, "--output", output, "--source=archive", DROP) == 0
    assert list(skipped(output).values()) == ["the same bytes as 'a/cat/0.png', which is kept"]
    assert sorted(one["image/encoded"][0] for one in examples(output)) == sorted(map(picture, (1, 2, 3)))


def written(records: list[Any], output: Path, **options: Any) -> Path:
    """The dataset of some records, made by a pipeline of one's own."""
    config = DatasetConfig(num_shards=2, max_failure_ratio=1, **options)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create(records) | WriteDataset(str(output), config)
    return output


def record(folder: Path, key: str, number: int, **options: Any) -> ImageRecord:
    path = put(folder.resolve(), {f"files/{number}.png": number}) / f"files/{number}.png"
    return ImageRecord(key, ImageRef(str(path)), **options)


@pytest.mark.slow
def test_unreadable_images_fail_as_before(tmp_path: Path) -> None:
    missing = ImageRef(str(tmp_path.resolve() / "missing.png"))
    records = [ImageRecord("1", missing), ImageRecord("2", missing)]
    records += [record(tmp_path, "3", 7), record(tmp_path, "4", 7), ImageRecord("5", None)]
    output = written(records, tmp_path / "out", duplicates="drop")
    found = [(line["key"], line["reason"], line.get("skipped")) for line in failures(output)]
    assert found[:2] == [("1", "not found", None), ("2", "not found", None)]
    assert found[2] == ("4", "duplicate image", True)
    more = [*records[:4], *(record(tmp_path, f"{number}", number % 10) for number in range(20, 50))]
    splits = {"train": 0.5, "val": 0.5}
    grouped = written(more, tmp_path / "grouped", splits=splits, group_by="content")
    assert {line["key"] for line in failures(grouped)} == {"1", "2"}
    assert {len(of) for of in splits_of(grouped).values()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize(("order", "in_memory"), [(1, True), (-1, True), (-1, False)])
def test_the_result_depends_on_nothing_else(order: int, in_memory: bool, tmp_path: Path) -> None:
    """Neither on the order of records, nor on the number of workers, nor on how the runner shuffles."""
    files = many(4)
    records = [
        ImageRecord(name, ImageRef(str(tmp_path.resolve() / name)), annotations=Annotations((name[0],)))
        for name in files
    ]
    put(tmp_path, files)
    large = ImageRecord("large", None, annotations=Annotations(features={"text": "x" * 5000}))
    splits = {"train": 0.5, "val": 0.5}
    output = written(
        [large, *records][::order],
        tmp_path / "out",
        workers=1 + in_memory,
        shuffles_in_memory=in_memory,
        duplicates="drop",
        splits=splits,
    )
    by_split: dict[int, list[tuple[bool, str]]] = {}
    for name, number in files.items():
        split = references.split_of(name, splits)
        by_split.setdefault(number, []).append((split == "train", name))
    kept = {min(members)[1] for members in by_split.values()}
    assert set(by_key(output)) - {"large"} == kept
    assert set(skipped(output)) == files.keys() - kept
    # As if the copies had never been there.
    remaining = [large, *(one for one in records if one.key in kept)]
    assert digests(output) == digests(written(remaining, tmp_path / "without", splits=splits))


@pytest.mark.slow
def test_the_next_job_reads_only_what_has_changed(tmp_path: Path, read_images: list[int]) -> None:
    source, output = put(tmp_path / "in", SPLIT), tmp_path / "out"
    call = ("--input", source, "--output", output, DROP)
    assert convert(*call) == 0
    assert len(read_images) == 10
    (stored,) = (output / ".recordmill/hashes").glob("*.hashes")
    size = stored.stat().st_size
    read_images.clear()
    put(source, {"train/cat/b.png": 2, "train/cat/new.png": 3})
    assert convert(*call, "--overwrite") == 0
    assert sorted(read_images) == sorted(len(picture(number)) for number in (2, 3))
    expected = COPIES.keys() - {"train/cat/b.png"} | {"train/cat/c.png", "train/cat/new.png"}
    assert skipped(output).keys() == expected
    # The hashes of the earlier job are gone, and this one has all.
    (new,) = (output / ".recordmill/hashes").glob("*.hashes")
    assert new.name != stored.name and new.stat().st_size == size + 32
    assert command("verify", output, "--progress=none", "--quiet") == 0


_SLOW_SITE = """
import sys, time
def patch(module):
    hashed = module.version_of_bytes
    def slowly(data):
        time.sleep(0.05)
        return hashed(data)
    module.version_of_bytes = slowly
    sys.modules[module.HashCache.__module__]._SECONDS = 0.0
"""


@pytest.mark.slow
def test_a_killed_job_is_resumed(
    tmp_path: Path, read_images: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = put(tmp_path / "in", many()), tmp_path / "out"
    site = patched_site(tmp_path, identity.__name__, _SLOW_SITE)
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}"}
    call = convert_call(source, output, DROP, "--num_shards=2", "--progress=none")
    with subprocess.Popen(call, env=environment) as job:
        while len(list(output.glob(".recordmill/hashes/*.hashes"))) < 30:
            assert job.poll() is None
        job.send_signal(signal.SIGKILL)
    stored = len(list(output.glob(".recordmill/hashes/*.hashes")))
    assert convert("--input", source, "--output", output, DROP, "--num_shards=2") == 0
    assert len(read_images) == 200 - stored
    scratch = tmp_path / "scratch"
    assert convert("--input", source, "--output", scratch, DROP, "--num_shards=2") == 0
    assert digests(output) == digests(scratch)
    assert failures(output) == failures(scratch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("train/aaa.png", 4),  # a copy of a picture of train, before it by key: it is kept now
        ("test/cat/a.png", 2),  # a copy of another one of train, which is dropped
        ("train/cat/new.png", 3),  # another copy to drop
        ("test/cat/x.png", None),  # the one that was kept is removed
        ("train/cat/b.png", None),  # one that was dropped is removed
    ],
)
def test_the_next_version_is_as_from_scratch(
    name: str, number: int | None, tmp_path: Path, read_images: list[int]
) -> None:
    source, home = put(tmp_path / "in", SPLIT), tmp_path / "home"
    flags = (DROP, "--num_shards=2", "--source=folder")
    assert convert("--input", source, "--output", home, "--dataset_version=auto", *flags) == 0
    read_images.clear()
    if number is None:
        (source / name).unlink()
    else:
        put(source, {name: number})
    assert convert("--input", source, "--output", home, "--dataset_version=auto", *flags) == 0
    assert len(read_images) == (number is not None)
    scratch = tmp_path / "scratch"
    assert convert("--input", source, "--output", scratch, "--dataset_version=1.0.1", *flags) == 0
    assert digests(home / "1.0.1") == digests(scratch / "1.0.1")
    listed = [(folder / "1.0.1/failures.jsonl").read_bytes() for folder in (home, scratch)]
    assert listed[0] == listed[1]
    # Nothing has changed: nothing is published.
    assert convert("--input", source, "--output", home, "--dataset_version=auto", *flags) == 0
    assert not (home / "1.0.2").exists()


@pytest.fixture
def bucket_of_pictures(bucket: str, bucket_server: BucketServer, tmp_path: Path) -> str:
    bucket_server.upload_folder(put(tmp_path / "in", SPLIT), f"{bucket}/in")
    return bucket


@pytest.mark.slow
def test_a_listing_with_hashes_needs_no_reading(
    bucket_of_pictures: str, bucket_server: BucketServer, tmp_path: Path, read_images: list[int]
) -> None:
    bucket, output, local = bucket_of_pictures, tmp_path / "out", tmp_path / "local"
    call = ("--input", f"{bucket}/in", "--num_shards=1")
    assert convert(*call, "--output", output, DROP) == 0
    assert read_images == []
    assert convert("--input", tmp_path / "in", "--output", local, "--num_shards=1", DROP) == 0
    assert digests(output) == digests(local)
    assert failures(output) == failures(local)
    # An object that is composed of others has no hash, and is read.
    read_images.clear()
    client = storage.Client.create_anonymous_client()
    handle = client.bucket(bucket.removeprefix("gs://"))
    first, rest = picture(1)[:50], picture(1)[50:]
    bucket_server.put(f"{bucket}/parts/1", first)
    bucket_server.put(f"{bucket}/parts/2", rest)
    handle.blob("in/train/cat/aa.png").compose([handle.blob("parts/1"), handle.blob("parts/2")])
    again = tmp_path / "again"
    assert convert(*call, "--output", again, DROP) == 0
    assert len(read_images) == 1
    assert skipped(again).keys() == {*COPIES, "train/cat/aa.png"}
    assert digests(again) == digests(local)
    # From a bucket into a bucket.
    assert convert(*call, "--output", f"{bucket}/out", DROP) == 0
    bucket_server.download(f"{bucket}/out", tmp_path / "found")
    assert digests(tmp_path / "found") == digests(local)
    # A manifest names objects, which are listed.
    rows = "".join(f"{name},{name.split('/')[0]}\n" for name in SPLIT)
    bucket_server.put(f"{bucket}/in/m.csv", f"image,split\n{rows}".encode())
    read_images.clear()
    assert convert("--input", f"{bucket}/in/m.csv", "--output", tmp_path / "csv", DROP) == 0
    assert (read_images, skipped(tmp_path / "csv")) == ([], skipped(local))
