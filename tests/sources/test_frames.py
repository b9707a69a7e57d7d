"""Source `frames`: clips, their order, times and labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from recordmill.transforms.records import Failure, ImageRecord, Steps
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.frames import FramesSource
from recordmill.transforms.sources.source import Item
from tests.buckets.server import BucketServer

SOURCE = FramesSource()


def tree(root: Path, files: dict[str, str | None]) -> str:
    """Writes a file each: images where there is no text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            Image.new("RGB", (4, 2)).save(path)
        else:
            path.write_text(text)
    return str(root)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("frames", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def clips(items: list[Item]) -> dict[str, ImageRecord]:
    return {item.key: item for item in items if isinstance(item, ImageRecord)}


def steps(record: ImageRecord) -> Steps:
    assert record.image is None and record.annotations.steps is not None
    return record.annotations.steps


def names(record: ImageRecord) -> list[str]:
    return [os.path.basename(frame.uri) for frame in steps(record).frames]


def times(record: ImageRecord) -> tuple[object, ...]:
    return steps(record).lists["image/timestamp"]


def failures(items: list[Item]) -> list[tuple[str, str, bool]]:
    return [(item.key, item.reason, item.skipped) for item in items if isinstance(item, Failure)]


def test_all_clips_are_read_if_only_some_have_times(tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        f"{clip}/{at}.png": None for clip in ("x/a", "x/b", "y/c") for at in (1, 2)
    }
    for timed in ({"x/a"}, {"x/a", "y/c"}):
        place = tree(
            tmp_path / str(len(timed)), files | {f"{clip}/timestamps.txt": "1\n2\n" for clip in timed}
        )
        found = detect(SourceConfig("frames", place))
        assert found.input == place
        assert sorted(clips(listed(found.input))) == ["x/a", "x/b", "y/c"]


def test_clips_with_splits_and_labels(tmp_path: Path) -> None:
    place = tree(
        tmp_path,
        {
            "train/run/one/frame_10.jpg": None,
            "train/run/one/frame_9.jpg": None,
            "train/run/one/notes.md": "x",
            "train/run/two/b.png": None,
            "train/run/two/a.png": None,
            "train/run/two/inner/1.png": None,
            "train/run/two/z.png": None,
            "test/three/07.jpg": None,
            "test/timestamps.txt": "1",
        },
    )
    items = listed(place)
    found = clips(items)
    assert {key: (one.split, one.annotations.labels) for key, one in found.items()} == {
        "train/run/one": ("train", ("run",)),
        "train/run/two": ("train", ("run",)),
        "train/run/two/inner": ("train", ("two",)),
        "test/three": ("test", ()),
    }
    assert names(found["train/run/one"]) == ["frame_9.jpg", "frame_10.jpg"]
    assert times(found["train/run/one"]) == (9, 10)
    assert names(found["train/run/two"]) == ["a.png", "b.png", "z.png"]
    assert times(found["train/run/two"]) == (0, 1, 2)
    assert times(found["test/three"]) == (7,)
    one = [tmp_path / "train/run/one" / name for name in ("frame_9.jpg", "frame_10.jpg")]
    assert found["train/run/one"].size == sum(path.stat().st_size for path in one)
    assert failures(items) == [
        ("test/timestamps.txt", "neither a frame nor times or labels by name", True),
        ("train/run/one/notes.md", "neither a frame nor times or labels by name", True),
    ]
    config = SourceConfig("frames", place)
    assert SOURCE.split_names(config) == ("test", "train")
    assert SOURCE.schemas(config) == ("sequence",)


def test_one_clip(tmp_path: Path) -> None:
    place = tree(tmp_path / "walk", {"1.jpg": None, "1_1.jpg": None, "3.jpg": None})
    (record,) = listed(f"{place}/")
    assert isinstance(record, ImageRecord)
    assert (record.key, record.split, record.annotations.labels) == ("walk", None, ())
    assert names(record) == ["1.jpg", "1_1.jpg", "3.jpg"] and times(record) == (0, 1, 2)


FRAMES: dict[str, str | None] = {"c/f_1.jpg": None, "c/f_2.jpg": None, "c/f_10.jpg": None}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("timestamps.txt", "0\n0.04\n1\n", (0, 40_000, 1_000_000)),
        ("timestamps.txt", "0\r\n40\r\n80", (0, 40, 80)),
        ("timestamps.txt", "-0.0000005\n0.0000015\n1e3\n", (0, 2, 10**9)),
        ("timestamps.csv", "frame,timestamp\nf_10.jpg,3\nf_1,1\n2,2\n", (1, 2, 3)),
        ("timestamps.csv", "\ufefftimestamp,Frame\n1.5,1\n2,2\n\n3,10\n", (1_500_000, 2_000_000, 3_000_000)),
    ],
)  # fmt: skip
def test_times(tmp_path: Path, name: str, text: str, expected: tuple[int, ...]) -> None:
    items = listed(tree(tmp_path, {**FRAMES, f"c/{name}": text}))
    assert times(clips(items)["c"]) == expected and failures(items) == []
    assert names(clips(items)["c"]) == ["f_1.jpg", "f_2.jpg", "f_10.jpg"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("labels.txt", "up\n\nvery low\n", (("up",), (), ("very low",))),
        ("labels.csv", 'frame,label\n1,up\nf_10.jpg,"a, b"\n1,low\n', (("up", "low"), (), ("a, b",))),
    ],
)
def test_labels_of_frames(
    tmp_path: Path, name: str, text: str, expected: tuple[tuple[str, ...], ...]
) -> None:
    items = listed(tree(tmp_path, {**FRAMES, f"c/{name}": text}))
    assert steps(clips(items)["c"]).labels == expected


@pytest.mark.parametrize(
    ("files", "reason", "detail"),
    [
        ({"timestamps.txt": "1\n2\n"}, "timestamps do not match the frames",
         "c/timestamps.txt has 2 timestamps, the clip 3 frames"),
        ({"labels.txt": "a\nb\nc\nd\n"}, "labels do not match the frames",
         "c/labels.txt has 4 labels, the clip 3 frames"),
        ({"timestamps.txt": "1\n2\nx\n"}, "file does not fit the frames", "'x' is not a number"),
        ({"timestamps.txt": "1\n2\nnan\n"}, "file does not fit the frames", "not finite"),
        ({"timestamps.txt": "1\n2\n1e99999999\n"}, "file does not fit the frames", "too large"),
        ({"timestamps.csv": "frame,timestamp\n1,1\n1,2\n2,2\n"}, "file does not fit the frames", "twice"),
        ({"timestamps.csv": "frame,timestamp\n1,1\n"}, "timestamps do not match the frames", "1 timestamps"),
        ({"labels.csv": "frame,label\n4,a\n"}, "file does not fit the frames", "line 2 is of '4'"),
        ({"labels.csv": "a,b\n"}, "file does not fit the frames", "its first line is not frame,label"),
        ({"labels.csv": "frame,label\n1\n"}, "file does not fit the frames", "line 2 has 1 cells of 2"),
        ({"labels.csv": 'frame,label\n1,"a\n'}, "file does not fit the frames", "line 2: "),
        ({"labels.csv": "frame,label\n", "labels.txt": "a\nb\nc"}, "two files of one meaning", "delete one"),
    ],
)  # fmt: skip
def test_a_bad_file_fails_its_clip_alone(
    tmp_path: Path, files: dict[str, str | None], reason: str, detail: str
) -> None:
    beside = {f"c/{name}": text for name, text in files.items()}
    items = listed(tree(tmp_path, {**FRAMES, **beside, "d/1.jpg": None}))
    (failure,) = (item for item in items if isinstance(item, Failure))
    assert (failure.key, failure.stage, failure.reason, failure.skipped) == (
        "c",
        "annotations",
        reason,
        False,
    )
    assert detail in failure.detail
    assert list(clips(items)) == ["d"]


def test_flags(tmp_path: Path) -> None:
    place = tree(tmp_path, {"a/x1/1.jpg": None, "a/x2/1.jpg": None, "b/y/1.jpg": None, "b/.h.jpg": None})
    assert sorted(failures(listed(place, exclude=("a/*",)))) == [
        ("a/x1", "excluded by --include/--exclude", True),
        ("a/x2", "excluded by --include/--exclude", True),
        ("b/.h.jpg", "hidden", True),
    ]
    assert list(clips(listed(place, limit=2))) == ["a/x1", "a/x2"]
    found = clips(listed(place, label_pattern="([xy])"))
    assert [one.annotations.labels for one in found.values()] == [("x",), ("x",), ("y",)]
    assert list(clips(listed(place, skip_dirs=(f"{place}/a",)))) == ["b/y"]
    with pytest.raises(ValueError, match="--mask_pattern is 'm', and --source frames does not use it"):
        listed(place, mask_pattern="m")
    with pytest.raises(ValueError, match="there is no image in it"):
        listed(tree(tmp_path / "none", {"a/timestamps.txt": "1"}))
    with pytest.raises(ValueError, match=r"1.jpg', a file; --source frames reads a folder"):
        listed(f"{place}/a/x1/1.jpg")


def test_only_folders_with_times_are_taken_for_clips(tmp_path: Path) -> None:
    place = tree(tmp_path, {"a/1.jpg": None, "a/timestamps.txt": "1", "b/1.jpg": None})
    with pytest.raises(ValueError, match=f"--input {place}/a --source frames; --input {place}/b"):
        detect(SourceConfig("auto", place))
    tree(tmp_path, {"b/timestamps.csv": "frame,timestamp\n1,1"})
    assert detect(SourceConfig("auto", place))[:2] == (
        "frames",
        "every folder of images has times, such as 'a/1.jpg' in 'timestamps.txt'",
    )


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    place = tree(
        tmp_path, {**FRAMES, "c/timestamps.txt": "1\n2\n3", "c/labels.txt": "a\nb\nc", "d/1.jpg": None}
    )
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    here, there = clips(listed(place)), clips(listed(f"{bucket}/in"))
    assert here.keys() == there.keys() == {"c", "d"}
    for key, one in here.items():
        assert (names(one), times(one), steps(one).labels, one.size) == (
            names(there[key]),
            times(there[key]),
            steps(there[key]).labels,
            there[key].size,
        )
    assert steps(there["c"]).frames[0].uri == f"{bucket}/in/c/f_1.jpg"


@pytest.mark.corpus
def test_real_frames(corpus: Path) -> None:
    items = listed(f"{corpus}/layouts/cvat_dataset/for_video")
    (record,) = clips(items).values()
    assert (record.key, times(record)) == ("images", (10, 13, 16))
    assert names(record) == ["frame_000010.png", "frame_000013.png", "frame_000016.png"]
