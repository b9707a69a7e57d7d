"""State files of finished shards: written, found again, and refused where anything has changed."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.records import Failure, ImageRecord, ImageRef
from transforms.shards.packing import pack_reference
from transforms.shards.report import ShardFile, ShardReport, WriteStats
from transforms.shards.state import ShardState, shard_digest

STATS = WriteStats(
    written=2,
    failed=Counter({("decode", "truncated"): 1}),
    source_bytes=10,
    encoded_bytes=9,
    actions=Counter(kept=2),
    formats=Counter(jpeg=2),
    channels=Counter({3: 2}),
    dtypes=Counter(uint8=2),
    colorspaces=Counter(RGB=2),
)


def finished(folder: Path, failures: list[Failure] | None = None) -> tuple[ShardState, ShardReport]:
    """A shard whose state is written."""
    for ending, text in (("tfrecord", "records"), ("idx", "0 7\n")):
        (folder / f"train-00003-a.{ending}").write_text(text)
    failures_path = None
    if failures is not None:
        failures_path = str(folder / "train-00003-a.failures")
        Path(failures_path).write_text("".join(f"{failure.to_json()}\n" for failure in failures))
    file = ShardFile(
        str(folder / "train-00003-a.tfrecord"),
        str(folder / "train-00003-a.idx"),
        failures_path,
        7,
        "digest",
        STATS,
    )
    state = ShardState(str(folder), "train", 3, "right")
    state.write(file)
    return state, ShardReport("train", 3, file, reused=True)


def test_the_whole_report_comes_back(tmp_path: Path) -> None:
    state, report = finished(tmp_path, [Failure("a.jpg", "decode", "truncated")])
    assert state.reusable([]) == report
    assert json.loads(Path(state.path).read_text())["report"]["file"]["path"] == "train-00003-a.tfrecord"


def test_the_folder_may_have_been_moved(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    finished(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    report = ShardState(str(tmp_path / "after"), "train", 3, "right").reusable([])
    assert report is not None
    assert report.file.path == str(tmp_path / "after/train-00003-a.tfrecord")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train-00003-a.tfrecord", "record"),
        ("train-00003-a.tfrecord", None),
        ("train-00003-a.idx", None),
        ("train-00003-a.failures", None),
        ("train-00003.state.json", ""),
        ("train-00003.state.json", "[]"),
        ("train-00003.state.json", '{"format_version": 0}'),
        ("train-00003.state.json", '{"format_version": 1, "digest": "right", "report": {}}'),
        ("train-00003.state.json", None),
    ],
)
def test_what_is_not_whole_is_not_reused(tmp_path: Path, name: str, text: str | None) -> None:
    state, _ = finished(tmp_path, [])
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    assert state.reusable([]) is None
    state.discard()
    assert not Path(state.path).exists()


def test_another_digest_is_not_reused_and_all_of_it_removed(tmp_path: Path) -> None:
    finished(tmp_path, [])
    other = ShardState(str(tmp_path), "train", 3, "other")
    assert other.reusable([]) is None
    other.discard()
    assert list(tmp_path.iterdir()) == []
    other.discard()


def test_an_image_that_can_now_be_loaded_is_worth_another_try(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    references = [pack_reference(ImageRecord("a.jpg", ImageRef(str(path)), "train"), 0)]
    state, report = finished(tmp_path, [Failure("a.jpg", "load", "not found")])
    assert state.reusable(references) == report
    path.write_text("there again")
    assert state.reusable(references) is None
    # One that is there and cannot be decoded is not.
    state, report = finished(tmp_path, [Failure("a.jpg", "decode", "truncated")])
    assert state.reusable(references) == report


@given(st.lists(st.binary(max_size=6)), st.lists(st.binary(max_size=6)))
def test_digests_tell_references_and_their_order_apart(one: list[bytes], other: list[bytes]) -> None:
    assert (shard_digest("s", one) == shard_digest("s", other)) == (one == other)
    assert shard_digest("s", one) != shard_digest("t", one)
