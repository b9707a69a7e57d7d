"""What is gathered of datasets, ours and others': figures, failures, and pictures of records."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.examples.features import (
    build_example,
    build_sequence_example,
    bytes_feature,
    float_feature,
)
from recordmill.transforms.examples.tfrecord import RecordWriter
from recordmill.transforms.images.mask import encode_mask
from recordmill.transforms.reading.dataset import find_dataset
from recordmill.transforms.records import Failure
from recordmill.transforms.reporting import findings as gathering
from recordmill.transforms.reporting import samples as sampling
from recordmill.transforms.reporting.count import RecordLocation, count_records
from recordmill.transforms.reporting.findings import (
    Findings,
    gather,
    parse_report,
    read_failures,
    unpublished,
)
from recordmill.transforms.reporting.samples import LEAST, MOST, choose, spread
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.layout import REPORT_FORMAT_VERSION


def png(width: int, height: int, shade: int = 90) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), shade, np.uint8)).save(out, "PNG")
    return out.getvalue()


def labelled(key: str, label: int, name: str, width: int = 40, height: int = 30) -> bytes:
    return build_example(
        {
            "image/encoded": png(width, height),
            "image/filename": key,
            "image/class/label": label,
            "image/class/text": name,
        }
    )


def boxed(key: str, *names: str) -> bytes:
    """Objects by name alone, each in the left upper quarter."""
    count = len(names)
    features: dict[str, Any] = {"image/encoded": png(80, 40), "image/filename": key}
    for side, value in (("xmin", 0.0), ("ymin", 0.0), ("xmax", 0.5), ("ymax", 0.5)):
        features[f"image/object/bbox/{side}"] = float_feature([value] * count)
    return build_example({**features, "image/object/class/text": bytes_feature(names)})


def frame(payload: bytes) -> bytes:
    out = io.BytesIO()
    RecordWriter(out).write(payload)
    return out.getvalue()


def write(path: Path, payloads: list[bytes]) -> Path:
    data = b"".join(map(frame, payloads))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def gathered(path: Path) -> Findings:
    return gather(find_dataset(str(path)), None, None)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_foreign_records_are_counted(tmp_path: Path, ending: str) -> None:
    write(
        tmp_path / f"train-00000-of-00002.tfrecord{ending}",
        [labelled("a", 3, "cat", 64, 64), labelled("b", 5, "dog", 100, 25)],
    )
    write(tmp_path / f"train-00001-of-00002.tfrecord{ending}", [labelled("c", 3, "cat")])
    write(tmp_path / f"val.tfrecord{ending}", [labelled("d", 3, "cat")])
    found = gathered(tmp_path)
    assert found.name == tmp_path.name and found.manifest is None
    assert found.labels == {3: "cat", 5: "dog"}
    assert {name: one.records for name, one in found.statistics.items()} == {"train": 3, "val": 1}
    train = found.statistics["train"]
    assert train.labels == {3: 2, 5: 1} and train.widths == {12: 1, 13: 1, 11: 1}
    assert (train.least, train.most) == ((40, 30), (64, 64)) and not train.boxes_per_image
    assert [(shard.split, shard.records, shard.sha256) for shard in found.shards] == [
        ("train", 2, ""),
        ("train", 1, ""),
        ("val", 1, ""),
    ]
    shown = {(one.group, one.split) for one in found.samples}
    assert shown == {("cat", "train"), ("cat", "val"), ("dog", "train")}
    assert len(found.samples) == 4


def test_names_of_classes_beside_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "pets/1.0.0"
    folder.mkdir(parents=True)
    write(folder / "pets-train.tfrecord-00000-of-00001", [labelled("a", 1, "")])
    (folder / "label.labels.txt").write_text("cat\ndog\n")
    found = gathered(folder)
    assert (found.name, found.labels) == ("pets 1.0.0", {0: "cat", 1: "dog"})
    assert [one.group for one in found.samples] == ["dog"]


def test_classes_that_have_names_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [boxed("a", "dog", "cat", "dog"), boxed("b"), boxed("c", "cat")])
    found = gathered(path)
    statistics = found.statistics["train"]
    assert {found.labels[one]: count for one, count in statistics.objects.items()} == {"dog": 2, "cat": 2}
    assert statistics.boxes_per_image == {0: 1, 1: 1, 3: 1}
    assert statistics.box_sides == {-2: 4} and statistics.box_aspects == {4: 4}


def test_sequences(tmp_path: Path) -> None:
    steps = [png(20, 10), png(20, 10), png(20, 10)]
    payload = build_sequence_example(
        {"image/class/label": 1, "image/class/text": "walk"}, {"image/encoded": steps}
    )
    found = gathered(write(tmp_path / "x.tfrecord", [payload]))
    statistics = found.statistics["train"]
    assert (statistics.records, statistics.images, statistics.labels) == (1, 3, {1: 1})
    assert [(one.group, one.size) for one in found.samples] == [("walk", (10, 20))]


def masked(key: str, ids: Any, name: str = "image/segmentation/class/encoded") -> bytes:
    """A mask of classes, as a PNG or as raw bytes."""
    height, width = ids.shape
    mask = ids.tobytes() if name == "mask_raw" else encode_mask(ids)
    return build_example(
        {
            "image/encoded": png(width, height),
            "image/filename": key,
            "image/height": height,
            "image/width": width,
            name: mask,
        }
    )


@pytest.mark.parametrize(
    "name", ["image/segmentation/class/encoded", "image/panoptic/category/encoded", "mask_raw"]
)
def test_pixels_of_masks(tmp_path: Path, name: str) -> None:
    one, other = np.full((4, 6), 3, np.uint8), np.zeros((5, 5), np.uint8)
    one[0], other[1:3] = 255, 7
    write(
        tmp_path / "train.tfrecord", [masked("a", one, name), masked("b", other, name), labelled("c", 1, "x")]
    )
    write(tmp_path / "val.tfrecord", [masked("d", other, name)])
    found = gathered(tmp_path)
    train, val = found.statistics["train"], found.statistics["val"]
    assert train.pixels == {3: 18, 255: 6, 0: 15, 7: 10} and train.pixel_images == {3: 1, 255: 1, 0: 1, 7: 1}
    assert val.pixels == {0: 15, 7: 10} and not found.faults


def test_a_mask_that_cannot_be_decoded_is_a_fault(tmp_path: Path) -> None:
    broken = build_example(
        {"image/encoded": png(6, 4), "image/segmentation/class/encoded": png(6, 4), "image/class/label": 2}
    )
    found = gathered(write(tmp_path / "x.tfrecord", [broken, masked("b", np.ones((2, 3), np.uint8))]))
    [(reason, count)] = found.faults.items()
    assert count == 1 and found.statistics["train"].pixels == {1: 6}
    assert (found.statistics["train"].records, found.statistics["train"].labels) == (2, {2: 1})


def test_the_report_of_an_earlier_version_is_counted_again(tmp_path: Path) -> None:
    """Its figures have no pixels; its crops are shown."""
    name = "train-00000-of-00001.tfrecord"
    write(tmp_path / name, [masked("a", np.full((4, 6), 3, np.uint8))])
    figures = {split: one.as_json() for split, one in {"train": Statistics(records=9)}.items()}
    del figures["train"]["pixels"], figures["train"]["pixel_images"]
    crop = {"key": "a", "ssim": 0.9, "before": "AAAA", "after": "AAAA", "source_bytes": 9, "stored_bytes": 5}
    report = {"format_version": 1, "splits": figures, "crops": [crop]}
    found = gather(unpublished(str(tmp_path), manifest(tmp_path, name)), report, None)
    assert found.statistics["train"].pixels == {3: 24} and found.statistics["train"].records == 1
    assert [one.key for one in found.crops] == ["a"]


def test_what_cannot_be_understood_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [labelled("a", 1, "cat"), b"\xff\xff", labelled("b", 1, "cat")])
    found = gathered(path)
    assert dict(found.faults) == {"not a tf.train.Example": 1}
    assert found.statistics["train"].records == 3 and found.statistics["train"].images == 2
    assert len(found.samples) == 3 and all(one.picture for one in found.samples)


def test_damage_is_told_and_what_is_before_it_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tfrecord", [labelled(str(number), 1, "cat") for number in range(5)])
    data = bytearray(path.read_bytes())
    data[3 * len(data) // 5 + 60] ^= 1
    path.write_bytes(data)
    found = gathered(path)
    [(name, told)] = found.damages
    assert name == "x.tfrecord" and told.startswith("record 3 at byte ")
    assert found.shards[0].records == 3 and len(found.samples) == 3


def test_a_picture_shows_its_boxes(tmp_path: Path) -> None:
    [sample] = gathered(write(tmp_path / "x.tfrecord", [boxed("a", "dog")])).samples
    pixels = np.asarray(Image.open(io.BytesIO(sample.picture)).convert("RGB")).astype(int)
    assert pixels.shape[:2] == sample.pixels == (120, 240)  # by 3
    assert sample.size == (40, 80)
    colourful = np.abs(pixels - 90).max(axis=2) > 60
    assert colourful[:62, :122].any() and not colourful[70:].any() and not colourful[:, 130:].any()


def manifest(folder: Path, *names: str) -> dict[str, Any]:
    shards = [
        {"file": name, "records": 2, "bytes": (folder / name).stat().st_size, "sha256": "0" * 64}
        for name in names
    ]
    return {
        "format_version": 1,
        "config": {"name": "zoo", "rename": {}},
        "labels": {"1": "cat"},
        "features": {},
        "splits": {"train": {"records": 2, "shards": shards}},
    }


def test_a_dataset_that_is_not_published_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shards are there; its manifest and report are not; nothing is counted."""
    name = "train-00000-of-00001.tfrecord"
    payloads = [labelled("a", 1, "?"), labelled("b", 1, "?")]
    write(tmp_path / name, payloads)
    lengths = [len(frame(payload)) for payload in payloads]
    (tmp_path / "index").mkdir()
    (tmp_path / "index/train-00000-of-00001.idx").write_text(f"0 {lengths[0]}\n{lengths[0]} {lengths[1]}\n")
    statistics = Statistics()
    statistics.add([(7, 9)], [1])
    monkeypatch.setattr(gathering, "count_records", None)
    report = {"format_version": REPORT_FORMAT_VERSION, "splits": {"train": statistics.as_json()}, "crops": []}
    found = gather(unpublished(str(tmp_path), manifest(tmp_path, name)), json.loads(json.dumps(report)), None)
    assert found.name == "zoo" and found.statistics["train"] == statistics
    assert [(one.group, one.key) for one in found.samples] == [("cat", "a"), ("cat", "b")]
    assert found.shards[0].records == 2 and found.labels == {1: "cat"}
    (tmp_path / "index/train-00000-of-00001.idx").unlink()
    again = gather(unpublished(str(tmp_path), manifest(tmp_path, name)), report, None)
    assert again.samples == ()  # without its index, which the manifest promises


def test_failures_by_kind_the_first_of_many(tmp_path: Path) -> None:
    path = tmp_path / "failures.jsonl"
    lines = [{"key": f"{number:04}", "stage": "decode", "reason": "corrupt"} for number in range(80)]
    lines += [{"key": "x", "stage": "list", "reason": "hidden", "skipped": True, "detail": "d"}]
    lines += [{"key": "y", "stage": "annotations", "reason": "box clipped", "kept": True}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = read_failures(str(path))
    assert [one.key for one in found["failed"]] == [f"{number:04}" for number in range(50)]
    assert [(one.key, one.detail) for one in found["skipped"]] == [("x", "d")]
    assert [one.key for one in found["changed"]] == ["y"]
    for bad in ("{", "[]", '{"key": "a"}', "[" * 100_000):
        path.write_text(bad)
        with pytest.raises(ValueError, match="failures.jsonl' is damaged"):
            read_failures(str(path))


@pytest.mark.parametrize(
    "report",
    [
        {},
        [],
        {"format_version": "x"},
        {"format_version": REPORT_FORMAT_VERSION},
        {"format_version": REPORT_FORMAT_VERSION, "splits": []},
        {"format_version": REPORT_FORMAT_VERSION, "splits": {"train": {}}},
        {"format_version": REPORT_FORMAT_VERSION, "splits": {}, "crops": [{"key": "a"}]},
        {"format_version": 1, "crops": [{"key": "a"}]},
    ],
)
def test_a_damaged_report(report: Any) -> None:
    with pytest.raises(ValueError, match="report.json is damaged"):
        parse_report(report)


def places(count: int, split: str = "train") -> list[RecordLocation]:
    return [RecordLocation("x", split, number) for number in range(count)]


def test_each_class_gets_its_pictures() -> None:
    seen = [(place, frozenset({"common"})) for place in places(100)]
    seen[7] = (seen[7][0], frozenset({"common", "rare"}))
    seen[30] = (seen[30][0], frozenset({"seldom"}))
    seen[31] = (seen[31][0], frozenset({"seldom", "common"}))
    seen[99] = (seen[99][0], frozenset())
    chosen = choose(seen)
    assert len(chosen) == MOST and len({place for _, place in chosen}) == MOST
    groups = Counter(name for name, _ in chosen)
    assert groups == {"": 1, "rare": 1, "seldom": 2, "common": MOST - 4}
    assert [name for name, _ in chosen] == sorted(name for name, _ in chosen)
    assert chosen[0] == ("", seen[99][0]) and ("rare", seen[7][0]) in chosen


@pytest.mark.parametrize(("length", "count"), [(100 << 10, MOST), (300 << 10, 41), (5 << 20, LEAST)])
def test_few_pictures_of_large_records(length: int, count: int) -> None:
    seen = [(place._replace(offset=0, length=length), frozenset({"a"})) for place in places(100)]
    assert len(choose(seen)) == count


def test_splits_take_turns() -> None:
    seen = [(place, frozenset({"a"})) for place in (*places(100), *places(100, "val"))]
    assert Counter(place.split for _, place in choose(seen)) == {"train": MOST // 2, "val": MOST // 2}


def test_more_classes_than_pictures() -> None:
    seen = [(place, frozenset({f"{place.number}"})) for place in places(200)]
    assert len({name for name, _ in choose(seen)}) == MOST


@pytest.mark.parametrize(("count", "most"), [(0, 5), (3, 5), (5, 5), (1000, 7)])
def test_spread(count: int, most: int) -> None:
    found = spread(range(count), most)
    assert len(found) == min(count, most) and found == sorted(set(found))
    assert not found or (found[0] == 0 and found[-1] >= count - 1 - count // most)


@pytest.mark.parametrize(("extra", "looked_at", "shown"), [(0, 144, MOST), (400_000, 83, 32)])
def test_few_records_of_few_shards_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int, looked_at: int, shown: int
) -> None:
    """Of many shards not all are read, and no more than a bounded number of records and bytes."""
    payload = build_example({"label": 1, "label/text": "cat", "extra": bytes(extra)})
    size = len(frame(payload))
    names = [f"train-{number:05}-of-00060.tfrecord" for number in range(60)]
    (tmp_path / "index").mkdir()
    for name in names:
        write(tmp_path / name, [payload] * 20)
        index = "".join(f"{number * size} {size}\n" for number in range(20))
        (tmp_path / "index" / name.replace(".tfrecord", ".idx")).write_text(index)
    read: Counter[str] = Counter()
    record_at = sampling.record_at

    def counting(path: str, offset: int, length: int) -> bytes:
        read[path] += 1
        return record_at(path, offset, length)

    monkeypatch.setattr(sampling, "record_at", counting)
    report = {"format_version": REPORT_FORMAT_VERSION, "splits": {"train": Statistics().as_json()}}
    found = gather(unpublished(str(tmp_path), manifest(tmp_path, *names)), report, None)
    assert len(found.samples) == shown
    assert len(read) == 24 and sum(read.values()) == looked_at + shown


def test_places_of_many_records_are_spread(tmp_path: Path) -> None:
    payload = build_example({"label": 1})
    count = count_records(find_dataset(str(write(tmp_path / "x.tfrecord", [payload] * 3000))))
    numbers = [place.number for place in count.locations]
    assert numbers == list(range(0, 3000, 4)) and count.statistics["train"].labels == {1: 3000}


def test_failures_that_are_too_long_to_be_shown(tmp_path: Path) -> None:
    lines = [
        Failure(key, "load", "not found").to_json() for key in ("a", "b" * (1 << 20), "c" * (3 << 20), "d")
    ]
    path = tmp_path / "failures.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert [failure.key for failure in read_failures(str(path))["failed"]] == ["a", "d"]
