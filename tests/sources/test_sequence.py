"""Source `sequence`: lines of context and lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recordmill.transforms.records import Failure, ImageRecord, Steps
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.detection.detect import detect
from recordmill.transforms.sources.source import Item
from recordmill.transforms.sources.tables.manifest_sources import SequenceSource
from tests.buckets.server import BucketServer
from tests.sources.sniffing import sniff

SOURCE = SequenceSource()


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


def listed(place: str, **options: object) -> list[Item]:
    config = SourceConfig("sequence", place, **options)  # type: ignore[arg-type]
    SOURCE.check(config)
    return list(SOURCE.read(config, "/nowhere"))


def records(items: list[Item]) -> list[ImageRecord]:
    return [item for item in items if isinstance(item, ImageRecord)]


def steps(record: ImageRecord) -> Steps:
    assert record.image is None and record.annotations.steps is not None
    return record.annotations.steps


LONG = {
    "context": {
        "id": 7,
        "label": "walk",
        "rates": [0.5, 2],
        "by": {"who": "x"},
        "none": None,
        "split": "val",
    },
    "feature_lists": {"words": ["a", "b"], "series": [[1.0, 2.0], [], [3]], "on": [True, 2], "empty": []},
}


def test_context_and_lists(tmp_path: Path) -> None:
    place = write(tmp_path / "s.jsonl", LONG, "", {"feature_lists": {"words": ["c"]}, "more": 1})
    first, second = records(listed(place))
    assert (first.key, first.split, first.annotations.labels) == ("s.jsonl:1", "val", ())
    assert first.origin == "s.jsonl, line 1"
    assert first.annotations.features == {"id": 7, "label": "walk", "rates": (0.5, 2), "by/who": "x"}
    lists = {"words": ("a", "b"), "series": ((1.0, 2.0), (), (3,)), "on": (True, 2), "empty": ()}
    assert steps(first) == Steps(lists=lists)
    assert (second.key, second.split, second.annotations.features) == ("s.jsonl:3", None, {"more": 1})
    config = SourceConfig("auto", place)
    assert detect(config)[:2] == ("sequence", f"the first line of {place!r} has feature_lists")
    assert SOURCE.schemas(config) == ("sequence",) and SOURCE.split_names(config) is None


def test_the_short_form(tmp_path: Path) -> None:
    place = write(tmp_path / "s.jsonl", {"who": "x", "series": [1, 2.5], "words": ["a"]})
    (record,) = records(listed(place))
    assert record.annotations.features == {"who": "x"}
    assert steps(record).lists == {"series": (1, 2.5), "words": ("a",)}
    assert detect(SourceConfig("auto", place))[0] == "jsonl"
    assert SOURCE.split_names(SourceConfig("sequence", place)) == ()


def test_labels_and_selection(tmp_path: Path) -> None:
    rows = [
        {"context": {"kind": kind}, "feature_lists": {"x": [1]}} for kind in ("a", 5, ["b", "c"], None, 0.5)
    ]
    place = write(tmp_path / "s.jsonl", *rows)
    items = listed(place, label_column="kind")
    found = records(items)
    assert [one.annotations.labels for one in found] == [("a",), (5,), ("b", "c"), ()]
    assert all(one.annotations.features == {} for one in found)
    (failure,) = (item for item in items if isinstance(item, Failure))
    assert (failure.key, failure.reason) == ("s.jsonl:5", "label is not text or an integer")
    kept = listed(place, include=("*:2",), label_pattern=r":(\d)")
    assert [one.annotations.labels for one in records(kept)] == [("2",)]
    assert sum(isinstance(item, Failure) and item.skipped for item in kept) == 4
    assert len(listed(place, limit=2)) == 2
    with pytest.raises(ValueError, match=r"--label_column is 'no'; no line of .* has 'no' in its context"):
        listed(place, label_column="no")
    with pytest.raises(ValueError, match="--image_column is 'x', and --source sequence does not use it"):
        listed(place, image_column="x")


def test_frames_are_images_inside_the_input(tmp_path: Path) -> None:
    (tmp_path / "in/photos").mkdir(parents=True)
    for name in ("in/photos/1.jpg", "in/photos/2.png", "out.jpg"):
        Image.new("RGB", (3, 2)).save(tmp_path / name)
    place = write(
        tmp_path / "in/s.jsonl",
        {"feature_lists": {"image/encoded": ["photos/2.png", "photos/1.jpg"], "t": [1, 2]}},
        {"feature_lists": {"frames": ["photos/1.jpg"]}},
        {"feature_lists": {"frames": ["photos/none.jpg"]}},
        {"feature_lists": {"frames": ["../out.jpg"]}},
        {"feature_lists": {"frames": ["words", "alone"]}},
        {"feature_lists": {"frames": ["photos/1.jpg"], "image/encoded": ["photos/1.jpg"]}},
    )
    items = listed(place, include=("s.jsonl:*",))
    first, second, fifth = records(items)
    found = [str(tmp_path / "in/photos" / name) for name in ("2.png", "1.jpg")]
    assert [frame.uri for frame in steps(first).frames] == found
    assert first.size == sum(Path(path).stat().st_size for path in found)
    assert steps(first).lists == {"t": (1, 2)}
    assert len(steps(second).frames) == 1 and steps(second).lists == {}
    assert steps(fifth) == Steps(lists={"frames": ("words", "alone")})
    assert [(item.key, item.reason) for item in items if isinstance(item, Failure)] == [
        ("s.jsonl:3", "not found"),
        ("s.jsonl:4", "outside the input root"),
        ("s.jsonl:6", "two lists of frames"),
    ]


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ({"feature_lists": {"x": [1, None]}}, "not a list of steps", "'x' has null in step 2"),
        ({"feature_lists": {"x": [[1], [[2]]]}}, "not a list of steps", "'x' has [2] in step 2"),
        ({"feature_lists": {"x": [1, "a"]}}, "not a list of steps", "'x' has text and numbers"),
        ({"feature_lists": {"x": [[1], ["a"]]}}, "not a list of steps", "'x' has text and numbers"),
        ({"feature_lists": {"x": [{"a": 1}]}}, "not a list of steps", "'x' has {\"a\": 1} in step 1"),
        ({"feature_lists": {"x": 5}}, "not a list of steps", "'x' is 5"),
        ({"feature_lists": {" ": [5]}}, "a value has no name", ""),
        ({"feature_lists": [1]}, "not a sequence", "feature_lists is [1], not an object"),
        ({"context": 5}, "not a sequence", "context is 5, not an object"),
        ({"context": {"a": 1}, "a": 2}, "two values have the same name", "a"),
        ({"context": {"a": 1}, "feature_lists": {"a": [2]}}, "a name in the context and in the lists", "a"),
        ("{", "not JSON", ""),
        ("[1]", "not a JSON object", ""),
    ],
)
def test_a_bad_line_fails_alone(tmp_path: Path, row: Any, reason: str, detail: str) -> None:
    items = listed(write(tmp_path / "s.jsonl", LONG, row, LONG))
    assert [one.key for one in records(items)] == ["s.jsonl:1", "s.jsonl:3"]
    (failure,) = (item for item in items if isinstance(item, Failure))
    assert (failure.key, failure.stage, failure.reason) == ("s.jsonl:2", "manifest", reason)
    assert detail in failure.detail


def test_files_that_are_no_sequences(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whose first objects have neither feature_lists nor a list"):
        listed(write(tmp_path / "a.jsonl", {"image": "a.jpg"}))
    with pytest.raises(ValueError, match="whose first lines are not JSON objects"):
        listed(write(tmp_path / "b.jsonl", "hello"))
    assert sniff(SOURCE, SourceConfig("auto", str(tmp_path / "b.jsonl"))) is None
    assert sniff(SOURCE, SourceConfig("auto", str(tmp_path))) is None


def test_several_files_are_splits_by_name(tmp_path: Path) -> None:
    row = {"feature_lists": {"x": [1]}}
    for name in ("train.jsonl", "test.jsonl"):
        write(tmp_path / name, row)
    options: dict[str, Any] = {"annotations": ("train.jsonl", "test.jsonl")}
    found = records(listed(str(tmp_path), **options))
    assert [(one.key, one.split) for one in found] == [("train.jsonl:1", "train"), ("test.jsonl:1", "test")]
    assert SOURCE.split_names(SourceConfig("sequence", str(tmp_path), **options)) == ("test", "train")


def test_a_bucket_gives_what_the_disk_gives(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "1.jpg")
    place = write(tmp_path / "s.jsonl", LONG, {"feature_lists": {"frames": ["1.jpg"]}})
    bucket_server.upload_folder(tmp_path, f"{bucket}/in")
    (first, second), (expected, _) = records(listed(f"{bucket}/in/s.jsonl")), records(listed(place))
    assert first == expected
    assert [frame.uri for frame in steps(second).frames] == [f"{bucket}/in/1.jpg"]
    assert detect(SourceConfig("auto", f"{bucket}/in/s.jsonl"))[0] == "sequence"
