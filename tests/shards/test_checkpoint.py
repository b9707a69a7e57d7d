"""Checkpoints of finished shards: written, found again, and refused where anything has changed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Failure,
    ImageRecord,
    ImageRef,
    MaskImage,
    Steps,
)
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.report import Checkpoint, ShardFile, ShardReport, WriteStats, shard_digest
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.sealed import with_digest, without_digest
from tests.shards.planned import sizes

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
    statistics=Statistics(
        records=2,
        images=2,
        widths=Counter({19: 2}),
        least=(4, 5),
        most=(6, 7),
        labels=Counter({-1: 1, 3: 1}),
        pixels=Counter({0: 20, 255: 22}),
        pixel_images=Counter({0: 2, 255: 1}),
        reencoded=[("a.jpg", b"\0\xff")],
    ),
)


def finished(folder: Path, failures: list[Failure] | None = None) -> tuple[Checkpoint, ShardReport]:
    """A shard whose checkpoint is written."""
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
    checkpoint = Checkpoint(str(folder), "train", 3, "right")
    checkpoint.write(file, [Path(path).stat().st_size for path in file.paths])
    return checkpoint, ShardReport("train", 3, file, reused=True)


def test_the_whole_report_comes_back(tmp_path: Path) -> None:
    checkpoint, report = finished(tmp_path, [Failure("a.jpg", "decode", "truncated")])
    assert checkpoint.reusable([], sizes(checkpoint.folder)) == report
    contents = without_digest(Path(checkpoint.path).read_bytes())
    assert msgspec.msgpack.decode(contents)["file"]["path"] == "train-00003-a.tfrecord"


def test_the_folder_may_have_been_moved(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    finished(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    checkpoint = Checkpoint(str(tmp_path / "after"), "train", 3, "right")
    report = checkpoint.reusable([], sizes(checkpoint.folder))
    assert report is not None
    assert report.file.path == str(tmp_path / "after/train-00003-a.tfrecord")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train-00003-a.tfrecord", "record"),
        ("train-00003-a.tfrecord", None),
        ("train-00003-a.idx", None),
        ("train-00003-a.failures", None),
        ("train-00003.state", ""),
        ("train-00003-a.idx", "0 8"),
        ("train-00003-a.failures", "{}"),
        ("train-00003.state", "[]"),
        ("train-00003.state", "\x11" * 100_000),
        ("train-00003.state", '{"format_version": 6, "digest": "right", "report": {}}'),
        ("train-00003.state", None),
    ],
)
def test_what_is_not_complete_is_not_reused(tmp_path: Path, name: str, text: str | None) -> None:
    checkpoint, _ = finished(tmp_path, [])
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    assert checkpoint.reusable([], sizes(checkpoint.folder)) is None
    checkpoint.discard(sizes(checkpoint.folder))
    assert not Path(checkpoint.path).exists()


def test_no_cut_or_changed_checkpoint_is_reused(tmp_path: Path) -> None:
    checkpoint, _ = finished(tmp_path)
    good = Path(checkpoint.path).read_bytes()
    for at in range(len(good)):
        Path(checkpoint.path).write_bytes(good[:at])
        assert checkpoint.reusable([], sizes(checkpoint.folder)) is None
        Path(checkpoint.path).write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        assert checkpoint.reusable([], sizes(checkpoint.folder)) is None


@pytest.mark.parametrize("changes", [{"format_version": 8}, {"format_version": 10}])
def test_a_checkpoint_of_another_format_is_not_reused(tmp_path: Path, changes: dict[str, int]) -> None:
    checkpoint, _ = finished(tmp_path)
    edit(checkpoint, **changes)
    assert checkpoint.reusable([], sizes(checkpoint.folder)) is None


def edit(checkpoint: Checkpoint, **changes: object) -> None:
    """Writes a checkpoint with other values."""
    noted = msgspec.msgpack.decode(without_digest(Path(checkpoint.path).read_bytes()))
    Path(checkpoint.path).write_bytes(with_digest(msgspec.msgpack.encode({**noted, **changes})))


@pytest.mark.slow
def test_equal_checkpoints_are_equal_bytes(tmp_path: Path) -> None:
    """In fresh processes, whatever their hash seeds and the order of counting."""
    code = """
import os, random, sys
from collections import Counter
from recordmill.transforms.shards.reuse import header_of, write_lineage
from recordmill.transforms.shards.report import ShardFile, WriteStats
from recordmill.transforms.shards.report import Checkpoint
stats = WriteStats(written=3)
names = list({f"{name}" for name in ("kept", "reencoded", "resized", "turned")})
random.Random(sys.argv[2]).shuffle(names)
for name in names:
    stats.actions[name] += len(name)
    stats.failed["decode", name] += 1
    stats.statistics.labels[len(name)] += 1
file = ShardFile("x.tfrecord", "x.idx", None, 7, "digest", stats)
Checkpoint(sys.argv[1], "train", 0, "right").write(file, [7, 4])
write_lineage(f"{sys.argv[1]}/x.rows.gz", header_of(file, "right", "stamp", "index", []), os.devnull)
"""
    written = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path), seed], env=environment, check=True)
        written.add((tmp_path / "train-00000.state").read_bytes() + (tmp_path / "x.rows.gz").read_bytes())
    assert len(written) == 1


def test_another_digest_is_not_reused_and_all_of_it_removed(tmp_path: Path) -> None:
    finished(tmp_path, [])
    other = Checkpoint(str(tmp_path), "train", 3, "other")
    assert other.reusable([], sizes(other.folder)) is None
    other.discard(sizes(other.folder))
    assert list(tmp_path.iterdir()) == []
    other.discard(sizes(other.folder))


def test_an_image_that_can_now_be_loaded_is_worth_another_try(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    references = [pack_reference(ImageRecord("a.jpg", ImageRef(str(path)), "train"), 0)]
    checkpoint, report = finished(tmp_path, [Failure("a.jpg", "load", "not found")])
    assert checkpoint.reusable(references, sizes(checkpoint.folder)) == report
    path.write_text("there again")
    assert checkpoint.reusable(references, sizes(checkpoint.folder)) is None
    # So with frames and masks: what is there is not what could not be loaded.
    for annotations in (
        Annotations(steps=Steps((ImageRef(str(path)), ImageRef(str(tmp_path / "b.png"))))),
        Annotations(masks={"class": MaskImage(ImageRef(str(tmp_path / "b.png")))}),
    ):
        image = ImageRef(str(path)) if annotations.masks else None
        references = [pack_reference(ImageRecord("a.jpg", image, "train", annotations), 0)]
        assert checkpoint.reusable(references, sizes(checkpoint.folder)) == report
        (tmp_path / "b.png").write_text("there again")
        assert checkpoint.reusable(references, sizes(checkpoint.folder)) is None
        (tmp_path / "b.png").unlink()
    # One that is there and cannot be decoded is not.
    checkpoint, report = finished(tmp_path, [Failure("a.jpg", "decode", "truncated")])
    assert checkpoint.reusable(references, sizes(checkpoint.folder)) == report


@pytest.mark.parametrize("path", [None, "", ".", "..", "../x", "/x", "a\0", 7])
def test_a_checkpoint_that_names_other_files_is_none(tmp_path: Path, path: object) -> None:
    checkpoint, _ = finished(tmp_path)
    (tmp_path.parent / "x").write_text("mine")
    noted = msgspec.msgpack.decode(without_digest(Path(checkpoint.path).read_bytes()))
    edit(checkpoint, file={**noted["file"], "index_path": path}, sizes={**noted["sizes"], str(path): 4})
    assert checkpoint.reusable([], sizes(checkpoint.folder)) is None
    checkpoint.discard(sizes(checkpoint.folder))
    assert (tmp_path.parent / "x").read_text() == "mine"


def test_a_row_on_another_line_is_the_same_and_any_other_difference_is_not() -> None:
    image = ImageRef("/in/a.jpg", version=5)
    record = ImageRecord("a.jpg", image, "train", Annotations(("x",), {"n": 1}), 'm.csv, "line" 2,"', 9)
    digest = shard_digest("", [pack_reference(record, 0)])
    moved = msgspec.structs.replace(record, origin="m.csv, line 3")
    assert shard_digest("", [pack_reference(moved, 0)]) == digest
    for other in (
        msgspec.structs.replace(record, key="b.jpg"),
        msgspec.structs.replace(record, size=8),
        msgspec.structs.replace(record, image=msgspec.structs.replace(image, version=6)),
        msgspec.structs.replace(record, image=msgspec.structs.replace(image, uri="/in/b.jpg")),
        msgspec.structs.replace(record, image=msgspec.structs.replace(image, offset=1)),
        msgspec.structs.replace(record, annotations=Annotations(("y",), {"n": 1})),
        msgspec.structs.replace(record, annotations=Annotations(("x",), {"n": 2})),
    ):
        assert shard_digest("", [pack_reference(other, 0)]) != digest


_KEYS = st.lists(st.text("ab", min_size=1, max_size=3))


@given(_KEYS, _KEYS)
def test_digests_tell_references_and_their_order_apart(one: list[str], other: list[str]) -> None:
    mine, theirs = ([pack_reference(ImageRecord(key, None), 0) for key in keys] for keys in (one, other))
    assert (shard_digest("s", mine) == shard_digest("s", theirs)) == (one == other)
    assert shard_digest("s", mine) != shard_digest("t", mine)


def test_what_a_spool_holds_is_the_same_wherever_the_spool_lies() -> None:
    def digest(folder: str, version: int, offset: int) -> str:
        ref = ImageRef(f"/{folder}/0", offset, 9, version=version)
        masks = Annotations(objects=(AnnotatedObject("cat", mask=ref),), masks={"class": MaskImage(ref)})
        return shard_digest("", [pack_reference(ImageRecord("a", ref, annotations=masks), 0)])

    assert digest("run1", -5, 0) == digest("run2", -5, 70)
    assert digest("run1", -5, 0) != digest("run1", -6, 0)
    assert digest("run1", 5, 0) != digest("run2", 5, 0)
