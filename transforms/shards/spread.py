"""Cuts a dataset into small tasks, each a random part of its split: the work of the runner's own writer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from recordmill.transforms.config import MIB
from recordmill.transforms.shards.part import EncodeTask
from recordmill.transforms.shards.plan import DatasetPlan
from recordmill.transforms.shards.references import reference_record, reference_shard

# On average.
_GROUP_RECORDS = 64
_TASK_BYTES = 16 * MIB


def group_of_reference(reference: bytes, records: int) -> int:
    """The group that a reference of a split of `records` records falls into, by its hash.

    Records that are listed side by side are mostly alike; those of a group are not.
    """
    return reference_shard(reference, math.ceil(records / _GROUP_RECORDS))


def source_bytes_of_task(plan: DatasetPlan) -> int:
    """Source bytes of a task, at most, such that neither they nor what is made of them is much."""
    growth = plan.estimated_bytes / plan.source_bytes if plan.source_bytes else 1
    return int(_TASK_BYTES / max(growth, 1))


def encode_tasks(references: Iterable[bytes], most_bytes: int) -> Iterator[EncodeTask]:
    """The tasks of a group: in order of the hash, each of at most `most_bytes` of source, or one record."""
    task: list[bytes] = []
    source_bytes = 0
    for reference in sorted(references):
        size = reference_record(reference).size
        if task and source_bytes + size > most_bytes:
            yield EncodeTask(task)
            task, source_bytes = [], 0
        task.append(reference)
        source_bytes += size
    if task:
        yield EncodeTask(task)
