"""Groups and tasks of the records of a split."""

import dataclasses
from collections import Counter

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.encode import encode_tasks, group_of_reference, source_bytes_of_task
from recordmill.transforms.records import ImageRecord, ImageRef
from recordmill.transforms.shards.references import pack_reference, reference_record
from tests.shards.planned import plan, records

MIB = 1 << 20


def references(sizes: list[int]) -> list[bytes]:
    return [
        pack_reference(ImageRecord(str(number), ImageRef(f"/{number}"), size=size), 0)
        for number, size in enumerate(sizes)
    ]


def test_groups_are_of_like_size_and_mix_what_is_listed_side_by_side() -> None:
    groups: dict[int, list[int]] = {}
    for number, record in enumerate(records(6400)):
        groups.setdefault(group_of_reference(pack_reference(record, 0), 6400), []).append(number)
    assert sorted(groups) == list(range(100))
    for numbers in groups.values():
        assert 30 < len(numbers) < 110
        # Of the first half of the list, and of the second.
        assert min(numbers) < 3200 < max(numbers)
    assert {group_of_reference(pack_reference(record, 0), 1) for record in records(5)} == {0}


def test_tasks_hold_each_reference_once_and_few_source_bytes() -> None:
    given = references([10, 90, 300, 1, 2, 3, 99, 100, 0, 50] * 6)
    tasks = list(encode_tasks(iter(given), 100))
    assert Counter(reference for task in tasks for reference in task.references) == Counter(given)
    sizes = [[reference_record(one).size for one in task.references] for task in tasks]
    assert all(sum(task) <= 100 or task == [300] for task in sizes)
    # No two neighbours would have been one.
    assert all(sum(task) + after[0] > 100 for task, after in zip(sizes, sizes[1:], strict=False))
    # The same whatever the order in which references came.
    assert list(encode_tasks(reversed(given), 100)) == tasks
    assert list(encode_tasks([], 100)) == []


def test_a_task_is_smaller_where_records_are_larger_than_their_source() -> None:
    made = plan(DatasetConfig())
    split = made.splits["train"]
    for source_bytes, estimated, most in [(100, 100, 16), (100, 50, 16), (100, 800, 2), (0, 800, 16)]:
        grown = dataclasses.replace(
            made,
            source_bytes=source_bytes,
            splits={"train": dataclasses.replace(split, estimated_bytes=estimated)},
        )
        assert source_bytes_of_task(grown) == most * MIB
