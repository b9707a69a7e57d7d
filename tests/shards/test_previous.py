"""The version before: which of its shards may hold what a shard needs, and what may not be taken over."""

import bisect
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.shards.previous import (
    SETTINGS,
    MaskMap,
    PreviousSplit,
    PreviousVersion,
    Recipe,
    find_previous,
    settings_text,
)
from recordmill.transforms.shards.references import shard_of
from recordmill.transforms.storage.sealed import PLACEHOLDER, seal

MASKS = MaskMap(None, 0, "m")
# As version 0.1 wrote it.
OLD_SETTINGS = """{
 "format_version": 1,
 "config": {"schema": "auto"},
 "versions": {"pillow": "12.1"},
 "source": {"kind": "folder", "input": "/in"},
 "edges": {},
 "masks": {"ids": null, "offset": 0, "name": "0441877c47062ef5"}
}
"""
CODECS = {"pillow": "12.1"}
SOURCE = {"kind": "folder", "input": "/in"}


def previous(num_shards: int, edges: tuple[str, ...] = ()) -> PreviousVersion:
    split = PreviousSplit(9, num_shards, 90, edges)
    return PreviousVersion("1.0.0", "/out/1.0.0", {"train": split}, {}, True, MASKS)


def numbers(found: list[Any]) -> list[int]:
    """Of shards, by their paths."""
    return [int(Path(shard.records_path).name.split("-")[1]) for shard in found]


@given(st.integers(1, 40), st.integers(1, 40), st.binary(min_size=8, max_size=8))
def test_a_record_is_looked_for_where_it_was(before: int, now: int, hashed: bytes) -> None:
    found = numbers(previous(before).overlapping("train", shard_of(hashed, now), now))
    assert shard_of(hashed, before) in found
    assert len(found) <= before // now + 2


@given(st.sets(st.text(max_size=2)), st.sets(st.text(max_size=2)), st.text(max_size=2))
def test_so_is_one_in_the_order_of_keys(before: set[str], now: set[str], key: str) -> None:
    old, new = sorted(before), sorted(now)
    shards = previous(len(old) + 1, tuple(old))
    found = numbers(shards.overlapping("train", bisect.bisect_right(new, key), len(new) + 1, new))
    assert bisect.bisect_right(old, key) in found
    assert found == sorted(found)


def test_a_new_split_has_no_shards_before() -> None:
    assert previous(3).overlapping("val", 0, 1) == []


def test_files_of_a_shard() -> None:
    assert previous(3).paths("train", 1) == (
        "/out/1.0.0/train-00001-of-00003.tfrecord",
        "/out/1.0.0/index/train-00001-of-00003.idx",
        "/out/1.0.0/state/train-00001-of-00003.rows.gz",
        "",
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policy": ImagePolicy(exif="ignore")}, '--exif was "apply", is "ignore"'),
        ({"splits": {"train": 0.5, "val": 0.5}}, '--splits was {}, is {"train": 0.5, "val": 0.5}'),
        ({"seed": 3}, "--seed was 0, is 3"),
        ({"label_names": ("a", "b")}, ""),
        ({"num_shards": 3}, ""),
        ({"max_failure_ratio": 0.5, "keep_versions": 2, "dataset_version": "2.0.0"}, ""),
    ],
)
def test_what_differs_is_told(change: dict[str, Any], told: str) -> None:
    before = Recipe.of(DatasetConfig(dataset_version="auto"), CODECS, SOURCE)
    now = Recipe.of(DatasetConfig(**{"dataset_version": "auto", **change}), CODECS, SOURCE)
    assert now.difference(before) == told


def test_codecs_and_sources_differ_too() -> None:
    before = Recipe.of(DatasetConfig(), CODECS, SOURCE)
    now = Recipe.of(DatasetConfig(), {"pillow": "12.2", "webp": "1"}, {**SOURCE, "limit": 5})
    assert (
        now.difference(before)
        == 'pillow was "12.1", is "12.2"; webp was null, is "1"; --limit was null, is 5'
    )


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ({}, {}, True),
        ({"num_shards": 4}, {}, True),
        ({"num_shards": 4}, {"num_shards": 4}, True),
        ({}, {"num_shards": 4}, False),
        ({"num_shards": 4}, {"num_shards": {"train": 4}}, False),
        ({"shard_size": 5}, {"reader_hosts": 2}, False),
    ],
)
def test_the_number_of_shards_stays_unless_it_is_asked_for(
    then: dict[str, Any], now: dict[str, Any], same: bool
) -> None:
    recipes = [Recipe.of(DatasetConfig(**config), CODECS, SOURCE) for config in (now, then)]
    assert recipes[0].asks_for_same_shards(recipes[1]) is same


def labels(mask_ids: dict[int, int] | None, offset: int = 0) -> LabelMap:
    return LabelMap({}, {}, offset, {}, mask_ids)


def test_masks_stay_where_classes_are_added_alone() -> None:
    first = MaskMap.of(labels({1: 1}), None)
    more = MaskMap.of(labels({1: 1, 2: 2}), first)
    assert more.name == first.name
    less = MaskMap.of(labels({1: 1}), more)
    assert less.name not in ("", first.name)
    assert MaskMap.of(labels({1: 3, 2: 2}), more).name != more.name
    assert MaskMap.of(labels(None), more).name != more.name
    plain = MaskMap.of(labels(None, 1), None)
    assert MaskMap.of(labels(None, 1), plain) == plain
    assert MaskMap.of(labels(None, 2), plain).name != plain.name
    assert msgspec.json.decode(msgspec.json.encode(more), type=MaskMap) == more


def test_masks_of_other_values_are_other_masks() -> None:
    first = MaskMap.of(labels({1: 1, 2: 2}), None)
    ignored = replace(labels({1: 1, 2: 2}), mask_values={2: 255})
    assert MaskMap.of(ignored, first).name != first.name
    assert MaskMap.of(ignored, MaskMap.of(ignored, None)) == MaskMap.of(ignored, None)
    more = MaskMap.of(replace(ignored, mask_values={2: 255, 34: 255}), MaskMap.of(ignored, None))
    assert more.name == MaskMap.of(ignored, None).name
    plain = MaskMap.of(labels(None), None)
    changed = MaskMap.of(replace(labels(None), mask_values={2: 255}), plain)
    assert changed.name != plain.name
    assert MaskMap.of(replace(labels(None), mask_values={2: 255}), changed) == changed
    assert msgspec.json.decode(msgspec.json.encode(changed), type=MaskMap) == changed
    assert MaskMap.of(labels(None), changed).name not in (changed.name, plain.name)


def home(folder: Path, manifest: str | None = None, settings: str | None = None) -> str:
    """A folder with a version 1.0.0 of which latest.json tells."""
    shard = {"file": "train-00000-of-00001.tfrecord", "records": 4, "bytes": 70, "sha256": ""}
    recipe = Recipe.of(DatasetConfig(), CODECS, SOURCE)
    published = settings_text(recipe, {"train": ("k",)}, MASKS)
    whole = {
        "format_version": 1,
        "splits": {"train": {"records": 4, "shards": [shard]}},
        "digests": {"failures.jsonl": "f", SETTINGS: hashlib.sha256(published.encode()).hexdigest()},
        "seal": PLACEHOLDER,
    }
    version = folder / "1.0.0"
    (version / "state").mkdir(parents=True)
    (folder / "latest.json").write_text('{"format_version": 1, "version": "1.0.0"}')
    (version / "manifest.json").write_text(manifest or seal(json.dumps(whole)))
    if settings != "":
        (version / SETTINGS).write_text(settings or published)
    return str(folder)


def test_the_version_before_is_found(tmp_path: Path) -> None:
    found, version, reason = find_previous(home(tmp_path), Recipe.of(DatasetConfig(), CODECS, SOURCE))
    assert (version, reason) == ("1.0.0", "")
    splits = {"train": PreviousSplit(4, 1, 70, ("k",))}
    assert found == PreviousVersion(
        "1.0.0", str(tmp_path / "1.0.0"), splits, {"failures.jsonl": "f"}, True, MASKS
    )


@pytest.mark.parametrize(("name", "old", "new"), [("manifest.json", "70", "71"), (SETTINGS, '"k"', '"j"')])
def test_one_that_has_changed_is_not_reused(name: str, old: str, new: str, tmp_path: Path) -> None:
    path = Path(home(tmp_path), "1.0.0", name)
    path.write_text(path.read_text().replace(old, new))
    found, version, reason = find_previous(str(tmp_path), Recipe.of(DatasetConfig(), CODECS, SOURCE))
    assert (found, version) == (None, "1.0.0")
    assert reason == f"{path} is damaged (it has changed since it was published)"


def test_the_first_version_has_none_before(tmp_path: Path) -> None:
    assert find_previous(str(tmp_path), Recipe.of(DatasetConfig(), CODECS, SOURCE)) == (None, "", "")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"manifest": "{"}, "manifest.json is damaged (Input data was truncated)"),
        ({"manifest": "[" * 100_000}, "manifest.json is damaged"),
        ({"manifest": '{"format_version": 9}'}, "manifest.json (format 9, not 1)"),
        ({"settings": "[]"}, "settings.json is damaged (Expected `object`, got `array`)"),
        ({"settings": '{"format_version": 2}'}, "settings.json is damaged (Object missing required field"),
        ({"settings": OLD_SETTINGS}, "another version of recordmill wrote "),
        ({"settings": OLD_SETTINGS}, "settings.json (format 1, not 2)"),
        ({"settings": ""}, "settings.json is not there"),
    ],
)
def test_one_that_cannot_be_read_is_not_taken_over(damage: dict[str, str], told: str, tmp_path: Path) -> None:
    found, version, reason = find_previous(
        home(tmp_path, **damage), Recipe.of(DatasetConfig(), CODECS, SOURCE)
    )
    assert (found, version) == (None, "1.0.0")
    assert told in reason
