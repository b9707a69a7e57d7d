"""The steps that find identical images, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apache_beam.pvalue import TaggedOutput

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.identify import DropCopies, PackFn, PartCopies, UnpackFn
from recordmill.transforms.records import Annotations, ClassNames, Failure, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.identity import Identity
from recordmill.transforms.shards.references import batch_of, items, pack_record

GROUPED = DatasetConfig(splits={"a": 0.5, "b": 0.5}, group_by="content")
BY_KEY = DatasetConfig(splits={"a": 0.5, "b": 0.5}, duplicates="drop")


def record(key: str, split: str | None = None, **features: Any) -> ImageRecord:
    return ImageRecord(key, ImageRef(f"/{key}"), split, Annotations(features=features))


def item(one: ImageRecord, hashed: int, size: int = 9) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in Identity(hashed, size)) + pack_record(one)


def unpacked(elements: Any) -> list[Any]:
    step = UnpackFn()
    step.start_bundle()
    found = [entry for element in elements for entry in step.process(element)]
    step.finish_bundle()
    return found


def packed(config: DatasetConfig, entries: list[Any], scratch: str | None = None) -> list[Any]:
    step = PackFn(config, scratch, "job")
    step.start_bundle()
    found = [element for entry in entries for element in step.process(entry)]
    return found + [one.value for one in step.finish_bundle()]


def test_records_are_packed_in_their_splits_and_everything_else_passes(tmp_path: Path) -> None:
    others = [Failure("x", "list", "not an image", skipped=True), ClassNames({0: "cat"})]
    entries = [*others, *(record(f"{number}", text="t" * number) for number in range(600))]
    found = packed(BY_KEY, entries, str(tmp_path / "scratch"))
    assert [one.value for one in found if isinstance(one, TaggedOutput)] == others
    batches = [one for one in found if isinstance(one, bytes)]
    assert [len(list(items([batch]))) for batch in batches[1:-1]] == [256] * (len(batches) - 2)
    # Annotations that are spooled can be read as soon as their batch is there.
    again = unpacked(batch_of(bytes(16) + one for one in items([batch])) for batch in batches)
    assert [(one.key, one.annotations) for one in again] == [
        (one.key, one.annotations) for one in entries[2:]
    ]
    assert {one.split for one in again} == {"a", "b"}


@pytest.mark.parametrize("bad", [record("bad", split="no split/"), record("no text: \ud800")])
def test_a_record_that_the_survey_fails_is_no_copy(bad: ImageRecord) -> None:
    (found,) = packed(DatasetConfig(duplicates="drop"), [bad])
    assert (found.tag, found.value) == ("others", bad)


def test_splits_by_content_replace_those_of_the_source() -> None:
    entries = [record("1", split="no split/"), record("2", split="b"), record("3")]
    (batch,) = packed(GROUPED, entries)
    found = unpacked([batch_of(bytes(16) + one for one in items([batch]))])
    assert [one.split for one in found] == ["a", "b", "a"]


def test_a_feature_called_content_is_refused() -> None:
    with pytest.raises(JobError, match="record 'x' has a feature 'content'; give that feature another name"):
        packed(GROUPED, [record("x", content=1)])
    assert len(packed(BY_KEY, [record("x", content=1)])) == 1


def dropped(*members: ImageRecord) -> tuple[list[str], dict[str, str]]:
    """The keys that are kept, and those that are dropped with their details."""
    found = unpacked(DropCopies().process(((7, 9), [item(one, 7) for one in members])))
    details = {one.key: one.detail for one in found if isinstance(one, Failure) and one.skipped}
    return [one.key for one in found if isinstance(one, ImageRecord)], details


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_by_key_that_is_not_in_train_is_kept(order: int) -> None:
    members = [record("a", "train"), record("b", "val"), record("c", "test"), record("d", "train")]
    detail = "the same bytes as 'b', which is kept"
    assert dropped(*members[::order]) == (["b"], dict.fromkeys("acd", detail))
    assert dropped(*[members[0], members[3]][::order])[0] == ["a"]
    assert dropped(*[record("a", "training"), members[1]][::order])[0] == ["b"]
    assert dropped(members[3]) == (["d"], {})
    assert dropped(record("x", "val"), record("x", "val"))[0] == ["x", "x"]  # the survey refuses the key


def test_only_images_whose_hash_is_repeated_leave_their_batch() -> None:
    step = PartCopies()
    step.start_bundle()
    every = [item(record(str(hashed)), hashed) for hashed in (0, 1, 2, 3, 2**63 - 1, 0)]
    repeated = [number.to_bytes(8, "little") for number in (3, 1, 2**63 - 1)]
    batch, *members = step.process(batch_of(every), repeated)
    assert list(items([batch])) == [every[0], every[2], every[5]]
    assert [one.value for one in members] == [
        ((n, 9), every[at]) for at, n in ((1, 1), (3, 3), (4, 2**63 - 1))
    ]
    step.start_bundle()
    assert list(step.process(batch_of(every), [])) == [batch_of(every)]
