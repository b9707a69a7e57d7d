"""The second run: what has not changed is not read again, and the bytes are those of starting over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.pipelines.conversion import convert, digests, failures, manifest
from tests.pipelines.versions.annotated import mask, masks
from tests.pipelines.versions.edits import picture, pictures, put, spoil
from tests.pipelines.versions.homes import (
    NEXT,
    Rerun,
    assert_same_version,
    latest,
    roll_back,
    snapshot,
    taken_over,
    versions,
    work,
)

NOTHING = "Nothing has changed since version 1.0.0"


def test_the_second_run_gives_the_bytes_of_starting_over(photos: Rerun, tmp_path: Path) -> None:
    put(photos.input, photos.edit.after)
    plain = tmp_path / "plain/out"
    assert convert("--input", photos.input, "--output", plain, *photos.edit.flags) == 0
    home = photos.home(tmp_path)
    before = snapshot(home / "1.0.0")
    photos.edited()
    assert photos.convert(home) == 0
    assert digests(home / NEXT) == digests(plain)
    for name in ("features.json", "image.class.label.labels.txt", "failures.jsonl"):
        assert (home / NEXT / name).read_bytes() == (plain / name).read_bytes()
    for name in ("counts", "bytes", "actions", "labels", "features", "splits", "config", "config_digest"):
        assert manifest(home / NEXT)[name] == manifest(plain)[name], name
    assert_same_version(home / NEXT, photos.scratch)
    assert snapshot(home / "1.0.0") == before
    assert (latest(home), versions(home)) == (NEXT, ["1.0.0", NEXT])
    assert manifest(home / NEXT)["version"] == NEXT
    assert "version" not in manifest(plain)
    assert manifest(home / "1.0.0")["provenance"]["taken_over"] is None
    assert work(home / "1.0.0") == (200, 200, 0)
    assert work(home / NEXT) == (7, 7, 0)
    # The new class sorts first: no shard is as it was.
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 195, "shards": 0, "reason": ""}


@pytest.mark.slow
def test_shards_without_a_change_are_taken_over_whole(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    put(some.input, {**some.edit.before, "a/00.jpg": picture(1000, ".jpg")})
    spoil(some.input, [path for path in some.edit.before if path != "a/00.jpg"])
    assert some.convert(home) == 0
    assert work(home / NEXT) == (1, 1, 0)
    assert taken_over(home / NEXT) == {"from": "1.0.0", "records": 29, "shards": 3, "reason": ""}
    same = digests(home / "1.0.0").items() & digests(home / NEXT).items()
    assert len([name for name, _ in same if name.endswith(".tfrecord")]) == 3
    linked = [path for path in (home / NEXT).glob("*.tfrecord") if path.stat().st_nlink == 2]
    assert len(linked) == 3


@pytest.mark.slow
def test_versions_follow_each_other(some: Rerun, tmp_path: Path) -> None:
    """Each of what the one before it left; and back to the first state at the end."""
    home = some.home(tmp_path)
    states = [some.edit.after, {**some.edit.after, "z/0.jpg": picture(1, ".jpg")}, some.edit.before]
    for state in states:
        put(some.input, state)
        assert some.convert(home) == 0
    assert versions(home) == ["1.0.0", "1.0.1", "1.0.2", "1.0.3"]
    assert latest(home) == "1.0.3"
    assert_same_version(home / "1.0.1", some.scratch)
    assert digests(home / "1.0.3") == digests(home / "1.0.0")
    assert work(home / "1.0.2") == (1, 1, 0)
    # What has left comes back: 1.0.2 did not have it.
    assert work(home / "1.0.3") == (2, 2, 0)


@pytest.mark.slow
def test_nothing_has_changed(some: Rerun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = some.home(tmp_path)
    put(some.input, some.edit.before)
    spoil(some.input, some.edit.before)
    before = snapshot(home)
    assert some.convert(home) == 0
    assert NOTHING in capsys.readouterr().out
    assert snapshot(home) == before
    assert versions(home) == ["1.0.0"]
    assert some.convert(home, "--quiet") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_an_image_that_was_only_touched(some: Rerun, tmp_path: Path) -> None:
    """Its time says that it may have changed: it is read, and the shards are the same bytes."""
    home = some.home(tmp_path)
    put(some.input, some.edit.before)
    spoil(some.input, [path for path in some.edit.before if path != "a/00.jpg"])
    os.utime(some.input / "a/00.jpg", ns=(1, 1_800_000_000_000_000_000))
    assert some.convert(home) == 0
    put(some.input, {})
    assert versions(home) == ["1.0.0", NEXT]
    assert work(home / NEXT) == (1, 1, 0)
    assert digests(home / NEXT) == digests(home / "1.0.0")


@pytest.mark.slow
def test_images_that_were_only_renamed_are_others(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    before = dict(some.edit.before)
    put(some.input, {"e/renamed.jpg" if path == "e/04.jpg" else path: data for path, data in before.items()})
    assert some.convert(home, version="2.3.4") == 0
    assert (latest(home), versions(home)) == ("2.3.4", ["1.0.0", "2.3.4"])
    assert work(home / "2.3.4") == (1, 1, 0)
    assert some.convert(tmp_path / "scratch/out", version="2.3.4") == 0
    assert_same_version(home / "2.3.4", tmp_path / "scratch/out/2.3.4")


BROKEN = ("--max_failure_ratio=0.2",)


@pytest.mark.slow
def test_failures_are_tried_again(some: Rerun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Still broken, nothing is published; mended behind our back, it is found out."""
    data = some.edit.before["a/05.jpg"]
    broken = {**some.edit.before, "a/05.jpg": data[: len(data) // 2]}
    put(some.input, broken)
    home = tmp_path / "out"
    assert some.convert(home, *BROKEN) == 0
    assert [line["key"] for line in failures(home / "1.0.0")] == ["a/05.jpg"]
    before = snapshot(home)
    capsys.readouterr()
    assert some.convert(home, *BROKEN) == 0
    assert NOTHING in capsys.readouterr().out
    assert snapshot(home) == before
    put(some.input, some.edit.before)
    spoil(some.input, [path for path in some.edit.before if path != "a/05.jpg"])
    assert some.convert(home, *BROKEN) == 0
    assert failures(home / NEXT) == []
    assert work(home / NEXT) == (1, 1, 0)
    assert digests(home / NEXT) == digests(some.first / "1.0.0")


@pytest.mark.slow
def test_a_failure_that_heals_without_a_trace_is_tried_again(some: Rerun, tmp_path: Path) -> None:
    """Same size and same time as before: only trying tells."""
    data = some.edit.before["a/05.jpg"]
    put(some.input, some.edit.before)
    status = (some.input / "a/05.jpg").stat()
    spoil(some.input, ["a/05.jpg"])
    home = tmp_path / "out"
    assert some.convert(home, *BROKEN) == 0
    assert [line["key"] for line in failures(home / "1.0.0")] == ["a/05.jpg"]
    (some.input / "a/05.jpg").write_bytes(data)
    os.utime(some.input / "a/05.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    spoil(some.input, [path for path in some.edit.before if path != "a/05.jpg"])
    assert some.convert(home, *BROKEN) == 0
    assert (versions(home), failures(home / NEXT)) == (["1.0.0", NEXT], [])
    assert digests(home / NEXT) == digests(some.first / "1.0.0")


@pytest.mark.slow
def test_an_image_that_breaks_leaves(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    broken = {**some.edit.before, "a/05.jpg": b"\xff\xd8\xff nothing of the kind"}
    put(some.input, broken)
    assert some.convert(home, *BROKEN) == 0
    assert [line["key"] for line in failures(home / NEXT)] == ["a/05.jpg"]
    assert some.convert(tmp_path / "scratch/out", *BROKEN, version=NEXT) == 0
    assert_same_version(home / NEXT, tmp_path / "scratch/out" / NEXT)


@pytest.mark.slow
def test_above_the_ratio_nothing_is_published_and_the_same_call_goes_on(some: Rerun, tmp_path: Path) -> None:
    home = some.home(tmp_path)
    before = snapshot(home / "1.0.0")
    put(some.input, {**some.edit.before, "a/05.jpg": b"\xff\xd8\xff nothing of the kind"})
    assert some.convert(home, "--max_failure_ratio=0") == 1
    assert (latest(home), snapshot(home / "1.0.0")) == ("1.0.0", before)
    assert not (home / NEXT).exists()
    assert some.convert(home, *BROKEN) == 0
    # Three are those of 1.0.0; the fourth was finished before.
    assert manifest(home / NEXT)["provenance"]["reused_shards"] == 1
    assert taken_over(home / NEXT)["shards"] == 3
    assert [line["key"] for line in failures(home / NEXT)] == ["a/05.jpg"]
    assert versions(home) == ["1.0.0", NEXT]


@pytest.mark.slow
def test_the_number_of_shards_stays(some: Rerun, tmp_path: Path) -> None:
    """Half of the input leaves, and a conversion from scratch would make fewer shards of it."""
    put(some.input, some.edit.before)
    call = ["--input", str(some.input), "--image_format=jpeg", "--jpeg_quality=80"]
    sized = [*call, "--shard_size=4KiB"]
    home = tmp_path / "out"
    assert convert(*sized, "--output", home, "--dataset_version=auto") == 0
    shards = len(list((home / "1.0.0").glob("*.tfrecord")))
    assert shards > 4
    put(some.input, dict(list(some.edit.before.items())[::2]))
    assert convert(*sized, "--output", home, "--dataset_version=auto") == 0
    assert work(home / NEXT) == (0, 0, 0)
    assert convert(*call, "--output", tmp_path / "plain/out", f"--num_shards={shards}") == 0
    assert digests(home / NEXT) == digests(tmp_path / "plain/out")


@pytest.mark.slow
def test_a_version_that_was_rolled_back_to_is_the_one_that_is_taken_over(some: Rerun, tmp_path: Path) -> None:
    """Numbers go on from the highest."""
    home = some.home(tmp_path)
    put(some.input, some.edit.after)
    assert some.convert(home) == 0
    roll_back(home, "1.0.0")
    assert some.convert(home) == 0
    assert (latest(home), versions(home)) == ("1.0.2", ["1.0.0", NEXT, "1.0.2"])
    assert taken_over(home / "1.0.2")["from"] == "1.0.0"
    assert digests(home / "1.0.2") == digests(some.scratch)


@pytest.mark.slow
def test_another_name_of_the_home_is_another_dataset_only_by_name(some: Rerun, tmp_path: Path) -> None:
    """A home that is moved goes on where it was, but for the name that TFDS knows it by."""
    home = Path(shutil.copytree(some.first, tmp_path / "moved"))
    some.edited()
    assert some.convert(home, "--name=out") == 0
    assert work(home / NEXT) == (2, 2, 0)
    assert_same_version(home / NEXT, some.scratch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "number"),
    [("none\nroad\ncar\ntram\n", NEXT), ("none\nroad\nlorry\n", NEXT), ("none\nroad\ncar\n", "1.0.0")],
)
def test_the_name_of_a_class_is_a_change(names: str, number: str, tmp_path: Path) -> None:
    """No record has it in its bytes; the files that name the classes do."""
    edit = masks()
    put(tmp_path / "in", edit.before)
    call = ("--input", tmp_path / "in", "--dataset_version=auto", *edit.flags)
    home = tmp_path / "out"
    assert convert(*call, "--output", home) == 0
    put(tmp_path / "in", {**edit.before, "classes.txt": names.encode()})
    assert convert(*call, "--output", home) == 0
    assert latest(home) == number
    assert convert(*call, "--output", tmp_path / "scratch/out", f"--dataset_version={number}") == 0
    assert_same_version(home / number, tmp_path / "scratch/out" / number)


@pytest.mark.slow
def test_a_class_that_leaves_again(tmp_path: Path) -> None:
    """Its pixels are no class any more, though all others are what they were before it came."""
    before = dict(masks().before)
    more = {**before, "classes.txt": before["classes.txt"] + b"tram\n", "masks/12.png": mask(12, 4)}
    less = {**more, "classes.txt": before["classes.txt"]}
    call = ("--input", tmp_path / "in", "--max_failure_ratio=0.5", *masks().flags)
    home = tmp_path / "out"
    for state in (before, more, less):
        put(tmp_path / "in", state)
        assert convert(*call, "--output", home, "--dataset_version=auto") == 0
    assert convert(*call, "--output", tmp_path / "plain/out") == 0
    assert [line["key"] for line in failures(tmp_path / "plain/out")] == ["images/12.jpg"]
    assert latest(home) == "1.0.2"
    assert digests(home / "1.0.2") == digests(tmp_path / "plain/out")


@pytest.mark.slow
def test_images_whose_state_is_not_known_are_made_anew(tmp_path: Path) -> None:
    """As of files that were unpacked without a time: nothing tells one of the same size from another."""
    folder = tmp_path / "in"

    def put_timeless(contents: Mapping[str, bytes]) -> None:
        put(folder, contents)
        for name in contents:
            os.utime(folder / name, ns=(0, 0))

    before = pictures(f"{name}/{number}.bmp" for name in "ab" for number in range(6))
    call = ("--input", folder, "--num_shards=3", "--image_format=png")
    put_timeless(before)
    assert convert(*call, "--output", tmp_path / "out", "--dataset_version=auto") == 0
    put_timeless({**before, "a/3.bmp": picture(100, ".bmp")})
    assert convert(*call, "--output", tmp_path / "out", "--dataset_version=auto") == 0
    assert convert(*call, "--output", tmp_path / "plain/out") == 0
    assert latest(tmp_path / "out") == NEXT
    assert digests(tmp_path / "out" / NEXT) == digests(tmp_path / "plain/out")


@pytest.mark.slow
def test_splits_come_and_go(tmp_path: Path) -> None:
    train = pictures(f"train/{name}/{number}.jpg" for name in "ab" for number in range(8))
    val = pictures((f"val/a/{number}.jpg" for number in range(4)), 500)
    folder, home, last = tmp_path / "in", tmp_path / "out", train
    call = ("--input", folder, "--image_format=jpeg", "--jpeg_quality=80", "--num_shards=3")
    put(folder, train)
    assert convert(*call, "--output", home, "--dataset_version=auto") == 0
    for number, (state, images) in enumerate(
        [({**train, **val}, 4), (train, 0), ({**train, **val}, 4), (val, 0)]
    ):
        put(folder, state)
        plain = tmp_path / f"plain{number}/out"
        assert convert(*call, "--output", plain) == 0
        spoil(folder, [path for path in state if path in last])
        assert convert(*call, "--output", home, "--dataset_version=auto") == 0
        version = home / f"1.0.{number + 1}"
        assert digests(version) == digests(plain)
        assert work(version) == (images, images, 0)
        last = state
