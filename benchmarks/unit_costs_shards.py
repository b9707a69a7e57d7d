"""What a shard costs those who plan and publish: lists of shards, reports, the manifest."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator

from benchmarks.unit_costs_cost import CPU, Cost, cpu_of
from benchmarks.unit_costs_lists import made_records
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.publish import file_moves
from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.manifest import Provenance, manifest_json, manifest_text, metadata_names
from recordmill.transforms.shards.plan import DatasetPlan, plan_dataset
from recordmill.transforms.shards.reconcile import Reconciled, reconcile
from recordmill.transforms.shards.report import ShardFile, ShardReport, WriteStats
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.layout import Run

_CLASSES = 1000
_RECORDS = 1000  # a shard


def shard_costs(shards: int) -> list[Cost]:
    """Of `shards` shards, an eighth of them first: what does not grow in proportion shows."""
    costs = []
    for number in (shards // 8, shards):
        plan, config = planned(number)
        found, seconds = cpu_of(lambda plan=plan: reconcile(plan, reports(plan), (), 0.0))  # type: ignore[misc]
        each = f"shard, of {number:,}"
        costs += [
            Cost("reports added up", 1e6 * seconds / number, CPU, each),
            *_publication_costs(found, config, number, each),
        ]
    size = len(pickle.dumps(next(reports(plan))))
    costs.append(Cost(f"a report, {_CLASSES:,} classes, a side input", size, "bytes", "shard"))
    return costs


def _publication_costs(found: Reconciled, config: DatasetConfig, number: int, each: str) -> list[Cost]:
    """What is done by the one worker that publishes."""
    run = Run("gs://my-records/photographs", "0" * 64, "token")
    provenance = Provenance.start({"kind": "folder", "input": "gs://in"}, "0" * 64, "DataflowRunner", "job")

    def listed() -> tuple[int, str]:
        moves = file_moves(found, run, f"{run.folder}/failures.jsonl")
        manifest = manifest_json(found, config, provenance, metadata_names(found, config))
        return len(moves), manifest_text(manifest, {})

    (_, text), seconds = cpu_of(listed)
    return [
        Cost("moves and manifest.json", 1e6 * seconds / number, CPU, each),
        Cost("manifest.json", len(text.encode()) / number, "bytes", each),
    ]


def planned(shards: int) -> tuple[DatasetPlan, DatasetConfig]:
    """A plan for records that are features alone, and its configuration."""
    config = DatasetConfig(num_shards=shards)
    records = [
        ImageRecord(record.key, None, record.split, record.annotations)
        for record in made_records(0, _CLASSES)
    ]
    totals = total(records)
    totals.splits["train"].records = shards * _RECORDS
    return plan_dataset(totals, config), config


def reports(plan: DatasetPlan) -> Iterator[ShardReport]:
    """A report of each shard, with records of all classes."""
    labels = Counter(range(_CLASSES))
    for split, shard in plan.shards():
        shape = Counter({16: _RECORDS})
        statistics = Statistics(
            _RECORDS, _RECORDS, widths=shape, heights=shape.copy(), aspects=shape.copy(), labels=labels.copy()
        )
        stats = WriteStats(_RECORDS, actions=Counter({"kept": _RECORDS}), statistics=statistics)
        path = f"gs://my-records/photographs/.recordmill/0000000000000000/shards/{split}-{shard:05d}-000000000000"
        yield ShardReport(split, shard, ShardFile(path, f"{path}.idx", None, 1 << 27, "0" * 64, stats))
