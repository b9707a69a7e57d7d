"""The second run of a few images: shards without a record, or with failures alone, and files in motion."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.transforms.write_shards import WriteShardsFn
from tests.buckets.server import BucketServer
from tests.pipelines.conversion import convert, digests, manifest
from tests.pipelines.versions.edits import picture
from tests.pipelines.versions.homes import NEXT, latest, versions, work


def put(folder: Path, *numbers: int) -> None:
    """Images of these numbers; those that are there and not named leave."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"{number}.bmp": picture(number, "x.bmp") for number in numbers}
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, data in wanted.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)


def version(tmp_path: Path, home: str, *flags: str, number: str = "auto") -> int:
    return convert(
        "--input", tmp_path / "in", "--output", tmp_path / home, *flags, f"--dataset_version={number}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 8])
def test_shards_without_a_record(shards: int, tmp_path: Path) -> None:
    flags = (f"--num_shards={shards}",)
    before: tuple[int, ...] = (0, 1, 2)
    put(tmp_path / "in", *before)
    for _ in range(2):
        assert version(tmp_path, "out", *flags) == 0
        assert versions(tmp_path / "out") == ["1.0.0"]
    # Less, more, one of them alone, and another one.
    for number, second in enumerate([(0, 1), (0, 1, 2, 3), (2,), (7,)], 1):
        put(tmp_path / "in", *second)
        assert version(tmp_path, "out", *flags) == 0
        assert version(tmp_path, f"scratch{number}", *flags) == 0
        made = tmp_path / f"out/1.0.{number}"
        assert latest(tmp_path / "out") == made.name
        assert digests(made) == digests(tmp_path / f"scratch{number}/1.0.0"), second
        assert work(made)[0] == len(set(second) - set(before)), second
        before = second
    assert version(tmp_path, "out", *flags) == 0
    assert versions(tmp_path / "out") == [f"1.0.{number}" for number in range(5)]


@pytest.mark.slow
def test_a_record_that_fails_and_counts_in_what_the_list_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(8):
        data = picture(number, "x.bmp") if number != 5 else b""
        (tmp_path / f"in/{number}.bmp").write_bytes(data)

    def rows(of_five: list[str]) -> None:
        labels: dict[int, list[str]] = {number: [("dog", "cat")[number % 2]] for number in range(8)}
        labels[5] = of_five
        lines = [json.dumps({"image": f"{at}.bmp", "label": label}) for at, label in labels.items()]
        (tmp_path / "in/m.jsonl").write_text("\n".join(lines))

    def run(home: str) -> None:
        args = ["--num_shards=50", "--max_failure_ratio=1", "--dataset_version=auto"]
        assert convert("--input", tmp_path / "in/m.jsonl", "--output", tmp_path / home, *args) == 0

    rows(["cat"])
    run("out")
    run("out")
    assert "Nothing has changed since version 1.0.0" in capsys.readouterr().out
    rows(["cat", "dog"])
    run("out")
    run("scratch")
    assert versions(tmp_path / "out") == ["1.0.0", NEXT]
    one, other = tmp_path / "out" / NEXT, tmp_path / "scratch/1.0.0"
    assert manifest(one)["features"] == manifest(other)["features"]
    assert manifest(one)["features"]["image/class/label"]["shape"] == [None]
    assert (one / "features.json").read_bytes() == (other / "features.json").read_bytes()
    assert digests(one) == digests(other)


def replaced_once_listed(monkeypatch: pytest.MonkeyPatch, replace: Callable[[], object]) -> None:
    """Replaces something once, between the listing and the first image that is read."""
    pending = [replace]
    start = WriteShardsFn.start_bundle

    def started(self: WriteShardsFn) -> None:
        while pending:
            pending.pop()()
        start(self)

    monkeypatch.setattr(WriteShardsFn, "start_bundle", started)


@pytest.mark.slow
def test_an_image_that_is_replaced_before_it_is_read_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in", *range(4))
    path = tmp_path / "in/2.bmp"
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    replaced_once_listed(monkeypatch, lambda: path.write_bytes(picture(99, "x.bmp")))
    flags = ("--num_shards=2", "--direct_num_workers=1")
    assert version(tmp_path, "out", *flags) == 0
    path.write_bytes(picture(2, "x.bmp"))
    os.utime(path, ns=times)
    assert version(tmp_path, "out", *flags) == 0
    assert version(tmp_path, "scratch", *flags) == 0
    assert latest(tmp_path / "out") == NEXT
    assert digests(tmp_path / "out" / NEXT) == digests(tmp_path / "scratch/1.0.0")
    assert work(tmp_path / "out" / NEXT)[:2] == (1, 1)
    assert version(tmp_path, "out", *flags) == 0
    assert versions(tmp_path / "out") == ["1.0.0", NEXT]


@pytest.mark.slow
def test_an_object_that_is_replaced_before_it_is_read_and_put_back(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("apache_beam.io.gcp.gcsfilesystem", reason="the extra gcp is not installed")

    def run(home: str) -> None:
        args = ["--num_shards=2", "--direct_num_workers=1", "--dataset_version=auto"]
        assert convert("--input", f"{bucket}/in", "--output", f"{bucket}/{home}", *args) == 0

    for number in range(4):
        bucket_server.put(f"{bucket}/in/{number}.bmp", picture(number, "x.bmp"))
    name = f"{bucket}/in/2.bmp"
    replaced_once_listed(monkeypatch, lambda: bucket_server.put(name, picture(99, "x.bmp")))
    run("out")
    bucket_server.put(name, picture(2, "x.bmp"))
    for home in ("out", "scratch", "out"):
        run(home)
    bucket_server.download(bucket, tmp_path)
    assert versions(tmp_path / "out") == ["1.0.0", NEXT]
    assert digests(tmp_path / "out" / NEXT) == digests(tmp_path / "scratch/1.0.0")
    assert work(tmp_path / "out" / NEXT)[:2] == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--dataset_version=1.0.0",), ()], ids=["version", "none"])
def test_finished_shards_of_images_without_a_time_are_not_kept(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    def state(first: int) -> None:
        put(tmp_path / "in")
        put(tmp_path / "in", *range(first, first + 6))
        for number in range(6):
            path = (tmp_path / f"in/{first + number}.bmp").rename(tmp_path / f"in/{number}.bmp")
            os.utime(path, ns=(0, 0))
        (tmp_path / "in/9.jpg").write_bytes(b"\xff\xd8\xff")

    args = ("--input", tmp_path / "in", "--num_shards=2", *flags)
    state(0)
    assert convert(*args, "--output", tmp_path / "out", "--max_failure_ratio=0") == 1
    state(100)
    for home in ("out", "scratch"):
        assert convert(*args, "--output", tmp_path / home, "--max_failure_ratio=1") == 0
    one, other = (tmp_path / home / ("1.0.0" if flags else "") for home in ("out", "scratch"))
    assert digests(one) == digests(other)
    assert manifest(one)["provenance"]["reused_shards"] == 0


@pytest.mark.slow
def test_another_name_takes_all_over_and_is_a_change(tmp_path: Path) -> None:
    put(tmp_path / "in", *range(5))
    assert version(tmp_path, "out", "--num_shards=2") == 0
    for _ in range(2):
        assert version(tmp_path, "out", "--num_shards=2", "--name=other") == 0
    assert versions(tmp_path / "out") == ["1.0.0", NEXT]
    assert digests(tmp_path / "out" / NEXT) == digests(tmp_path / "out/1.0.0")
    assert work(tmp_path / "out" / NEXT) == (0, 0, 0)
    names = [
        json.loads((tmp_path / "out" / number / "dataset_info.json").read_text())["name"]
        for number in ("1.0.0", NEXT)
    ]
    assert names == ["out", "other"]


def test_a_version_is_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "in", 0)
    assert version(tmp_path, "out") == 0
    assert version(tmp_path, "out/1.0.0") == 2
    assert "which is version 1.0.0 of a dataset, and those stay as they are; give the folder above it" in (
        " ".join(capsys.readouterr().err.split())
    )
