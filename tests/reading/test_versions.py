"""Readers of a folder of versions: they take the one that latest.json names, and say which that is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drawings import draw_folder
from recordmill.pipelines import cli
from recordmill.transforms.reading.against import failed_keys
from recordmill.transforms.reading.dataset import find_dataset, followed
from recordmill.transforms.reading.verify_dataset import open_dataset
from recordmill.transforms.storage.sealed import PLACEHOLDER, seal
from tests.buckets.fixtures import bucket as bucket
from tests.buckets.fixtures import bucket_server as bucket_server
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert, manifest

RECORDS = {"1.0.0": 12, "1.0.1": 6}
LINEAGE = "state/train-00001-of-00002.rows.gz"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """birds/: two versions, of twelve records and of six, the second of which latest.json names."""
    top = tmp_path_factory.mktemp("versions")
    home = top / "birds"
    home.mkdir()
    for version, each in (("1.0.0", 4), ("1.0.1", 2)):
        assert len(list(draw_folder(top / version / "photos", each=each))) == RECORDS[version]
        output = top / version / "birds"
        assert (
            convert(
                "--input",
                top / version / "photos",
                "--output",
                output,
                "--num_shards",
                2,
                "--direct_num_workers=1",
            )
            == 0
        )
        output.rename(home / version)
        assert manifest(home / version)["counts"]["written"] == RECORDS[version]
    set_latest(home, "1.0.1")
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "birds")
    return tmp_path / "birds"


def set_latest(home: Path, version: str) -> None:
    (home / "latest.json").write_text(json.dumps({"format_version": 1, "version": version}))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest, and seals it."""
    content = manifest(folder)
    change(content)
    content["seal"] = PLACEHOLDER
    (folder / "manifest.json").write_text(seal(json.dumps(content, indent=2) + "\n"))


def put_lineage(folder: Path) -> None:
    """What tells what a shard was made from, and the manifest of a version that has it."""
    import hashlib

    data = b"what the second shard was made from"
    (folder / "state").mkdir()
    (folder / LINEAGE).write_bytes(data)

    def listed(content: dict[str, Any]) -> None:
        content["version"] = folder.name
        content["files"] = sorted([*content["files"], LINEAGE])
        content["digests"][LINEAGE] = hashlib.sha256(data).hexdigest()

    change_manifest(folder, listed)


def command(*args: object) -> int:
    """Exit status of `recordmill`, in this process."""
    try:
        return cli.main(list(map(str, args)))
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        return stop.code


def test_the_latest_is_taken(home: Path) -> None:
    for path in (str(home), f"{home}/"):
        found = find_dataset(path)
        assert found.path == found.folder == str(home / "1.0.1")
        assert found.is_whole
        assert followed(path) == str(home / "1.0.1")
        assert sum(shard.records or 0 for shard in found.shards) == 6
    set_latest(home, "1.0.0")
    assert find_dataset(str(home)).folder == str(home / "1.0.0")
    assert find_dataset(str(home / "1.0.1")).folder == str(home / "1.0.1")
    assert [shard.records for shard in find_dataset(f"{home}/1.0.1/train-*").shards] == [3, 3]


def test_other_paths_are_followed_nowhere(home: Path, tmp_path: Path) -> None:
    for path in (
        home / "1.0.0",
        home / "1.0.0" / "train-00000-of-00002.tfrecord",
        tmp_path,
        tmp_path / "none",
    ):
        assert followed(str(path)) == str(path)


@pytest.mark.parametrize(
    ("latest", "told"),
    [
        (None, "{home!r} has no latest.json that names the version to read"),
        ("2.0.0", "{home}/latest.json' names the version 2.0.0, which is not there"),
        ("../birds", "{home}/latest.json' names no version, as {{"),
    ],
)
def test_without_a_latest_version_the_others_are_named(home: Path, latest: str | None, told: str) -> None:
    (home / "latest.json").unlink() if latest is None else set_latest(home, latest)
    (home / "1.0.2").mkdir()
    for read in (find_dataset, followed, open_dataset):
        with pytest.raises(ValueError) as raised:
            read(str(home))
        assert told.format(home=str(home)) in str(raised.value)
        assert str(raised.value).endswith("; give the folder of one: 1.0.0, 1.0.1")
    for name in ("inspect", "verify", "report", "schema"):
        assert command(name, home) == 2


def test_of_many_versions_the_last_are_named(home: Path) -> None:
    (home / "latest.json").unlink()
    for patch in range(2, 12):
        shutil.copytree(home / "1.0.1", home / f"1.0.{patch}")
    with pytest.raises(ValueError, match=r"of one: …, 1\.0\.7, 1\.0\.8, 1\.0\.9, 1\.0\.10, 1\.0\.11$"):
        find_dataset(str(home))


def test_no_version_is_left(home: Path) -> None:
    for version in RECORDS:
        shutil.rmtree(home / version)
    with pytest.raises(
        ValueError, match=r"names the version 1\.0\.1, which is not there; there is no version$"
    ):
        find_dataset(str(home))


def test_somebody_elses_latest_json_is_in_nobodys_way(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    shard = "train-00000-of-00002.tfrecord"
    shutil.copy(home / "1.0.0" / shard, folder / "one.tfrecord")
    (folder / "latest.json").write_text('{"step": 7}')
    (found,) = find_dataset(str(folder)).shards
    assert found.path == str(folder / "one.tfrecord")


@pytest.mark.slow
def test_tfds_takes_the_same(home: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    shutil.rmtree(home / "1.0.1")
    set_latest(home, "1.0.0")
    builder = tfds.builder("birds", data_dir=str(home.parent))
    assert str(builder.data_dir) == find_dataset(str(home)).folder
    assert str(builder.version) == "1.0.0"
    assert len(list(builder.as_dataset(split="train"))) == 12


def test_tfds_takes_the_highest(home: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    info = home / "1.0.1" / "dataset_info.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "version": "1.0.1"}))
    # What is being made, noted or removed is no version to it.
    shutil.copytree(home / "1.0.1", home / ".recordmill" / "1.0.2")
    builder = tfds.builder("birds", data_dir=str(home.parent))
    assert str(builder.data_dir) == find_dataset(str(home)).folder
    assert str(builder.version) == "1.0.1"
    assert len(list(builder.as_dataset(split="train"))) == 6


@pytest.mark.slow
def test_a_training_reads_the_latest(home: Path) -> None:
    pytest.importorskip("tensorflow")
    from recordmill.pipelines.input import dataset_info, load_dataset

    assert len(list(load_dataset(str(home)))) == 6
    assert dataset_info(str(home)).splits == {"train": 6}
    set_latest(home, "1.0.0")
    assert len(list(load_dataset(str(home)))) == 12
    assert dataset_info(str(home)).splits == {"train": 12}


def test_inspect_says_which_version_it_took(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_lineage(home / "1.0.1")
    assert command("inspect", home) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == str(home / "1.0.1")
    assert ["version", "1.0.1"] in [line.split() for line in lines]
    assert command("inspect", home, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(home / "1.0.1")
    assert told["dataset"]["version"] == "1.0.1"
    assert told["records"] == {"count": 6, "exact": True}
    assert command("inspect", home / "1.0.0") == 0
    assert "version" not in [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert command("inspect", home, "--record", 5) == 0
    assert command("inspect", home, "--record", 6) == 2


@pytest.mark.slow
def test_verify_says_which_version_it_took(
    made: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "verified.json"
    source = made.parent / "1.0.1" / "photos"
    for against in ((), ("--input", source)):
        assert command("verify", home, "--report", report, *against) == 0
        assert capsys.readouterr().out.splitlines()[0] == str(home / "1.0.1")
        told = json.loads(report.read_text())
        assert told["path"] == str(home / "1.0.1")
        assert told["checked"]["records"] == 6
    assert told["checked"]["compared"] == 6
    os.remove(home / "1.0.0" / "features.json")
    assert command("verify", home, "--quiet") == 0
    set_latest(home, "1.0.0")
    assert command("verify", home) == 1
    assert "features.json" in capsys.readouterr().out


@pytest.mark.slow
def test_a_source_that_holds_the_versions_is_compared_without_them(made: Path, home: Path) -> None:
    source = home.parent / "photos"
    shutil.copytree(made.parent / "1.0.1" / "photos", source)
    shutil.copy(next(source.rglob("*.jpg")), home / "sheet.jpg")
    home.rename(source / "birds")
    assert command("verify", source / "birds", "--input", source, "--quiet") == 0


def test_what_failed_is_read_of_the_latest(home: Path) -> None:
    (home / "1.0.1" / "failures.jsonl").write_text('{"key": "a.jpg"}\n{"key": "b.jpg", "kept": true}\n')
    assert list(failed_keys(str(home))) == ["a.jpg"]


@pytest.mark.slow
def test_a_damaged_manifest_of_the_latest_is_a_fault(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "1.0.1" / "manifest.json"
    path.write_text(path.read_text().replace('"recordmill"', '"recordmall"', 1))
    assert command("verify", home) == 1
    told = capsys.readouterr().out
    assert told.splitlines()[0] == str(home / "1.0.1")
    assert "its seal is not the SHA-256 of what it holds" in told


def faults(home: Path) -> list[tuple[str, str]]:
    """What is wrong beside the shards, and in them as files."""
    from recordmill.transforms.reading.verify_shard import scan_shard

    dataset, _, tally = open_dataset(str(home))
    for place, shard in enumerate(dataset.shards):
        tally.merge(scan_shard(shard, os.path.basename(shard.path), place)[0])
    return sorted((fault.kind, fault.file) for named in tally.named.values() for fault in named)


def test_the_lineage_of_a_shard_is_verified_with_it(home: Path) -> None:
    folder = home / "1.0.1"
    put_lineage(folder)
    lineage = folder / LINEAGE
    assert [shard.lineage for shard in find_dataset(str(home)).shards] == [None, LINEAGE]
    assert faults(home) == []
    data = lineage.read_bytes()
    lineage.write_bytes(data[:-1] + b"x")
    assert faults(home) == [("file was changed", LINEAGE)]
    (one,) = find_dataset(f"{folder}/train-00001-of-00002.tfrecord").shards
    assert one.lineage == LINEAGE
    lineage.unlink()
    assert faults(home) == [("file is missing", LINEAGE)]
    lineage.write_bytes(data)
    (folder / "state" / "train-00009-of-00010.rows.gz").write_bytes(b"")
    extra = "state/train-00009-of-00010.rows.gz"
    assert faults(home) == [("file that the manifest does not list", extra)]


def test_a_folder_called_state_beside_another_dataset_is_not_looked_into(home: Path) -> None:
    (home / "1.0.1" / "state").mkdir()
    (home / "1.0.1" / "state" / "mine.txt").write_text("mine")
    assert faults(home) == []


def test_the_page_and_the_code_are_of_the_latest(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "1.0.1" / "report.html").unlink()
    assert command("report", home) == 0
    assert capsys.readouterr().out == f"The page is {home}/1.0.1/report.html\n"
    assert (home / "1.0.1" / "report.html").is_file()
    assert command("schema", home) == 0
    assert f"{home}/1.0.1" in capsys.readouterr().out


@pytest.mark.slow
def test_a_bucket_is_followed_as_a_disk_is(
    home: Path, tmp_path: Path, bucket: str, bucket_server: BucketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket_server.upload_folder(home, f"{bucket}/birds")
    there = f"{bucket}/birds"
    for path in (there, f"{there}/"):
        found = find_dataset(path)
        assert found.path == found.folder == f"{there}/1.0.1"
        assert found.is_whole
    assert command("inspect", there, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], told["records"]["count"]) == (f"{there}/1.0.1", 6)
    assert command("verify", there) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{there}/1.0.1"
    (home / "latest.json").unlink()
    bucket_server.upload_folder(home, f"{bucket}/none")
    with pytest.raises(ValueError, match=r"has no latest\.json .* give the folder of one: 1\.0\.0, 1\.0\.1$"):
        find_dataset(f"{bucket}/none")
