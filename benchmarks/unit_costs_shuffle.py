"""What it costs to shuffle references, from the survey to a shard's list of them, with Beam's own runner.

python -m benchmarks.unit_costs_shuffle RECORDS SHARDS

runs that for as many records, none of which has an image that is looked at.
"""

from __future__ import annotations

import sys

import apache_beam as beam

from benchmarks.measure import peak_memory
from benchmarks.unit_costs_cost import CPU, Cost, children_seconds
from benchmarks.unit_costs_lists import made_records
from recordmill.transforms import coders as _coders  # noqa: F401  (registers the coders)
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import ImageRecord, JobError
from recordmill.transforms.shards.plan import DatasetPlan, plan_dataset
from recordmill.transforms.shards.totals import total
from recordmill.transforms.survey import SurveyRecords
from recordmill.transforms.write_shards import AssignShards, ordered

_SHARDS = 64


def shuffle_costs(number: int) -> list[Cost]:
    """CPU and memory of `number` references more, beyond what a tenth of them takes."""
    found = []
    for records in (number // 10, number):
        arguments = ["-m", "benchmarks.unit_costs_shuffle", str(records), str(_SHARDS)]
        before = children_seconds()
        peak_memory(arguments[:-2] + ["10", "1"])  # compiles and caches what it imports
        before = children_seconds()
        memory = peak_memory(arguments).rss
        found.append((children_seconds() - before, memory))
    (few_seconds, few_bytes), (seconds, size) = found
    more = number - number // 10
    return [
        Cost("survey, shuffle and order, FnApiRunner", 1e6 * (seconds - few_seconds) / more, CPU, "image"),
        Cost("the same, memory", (size - few_bytes) / more, "bytes", "image"),
    ]


def main(records: int, shards: int) -> None:
    """Shuffles records."""
    config = DatasetConfig(num_shards=shards)
    plan = _plan(config)
    with beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner") as pipeline:
        surveyed = (
            pipeline
            | "Start" >> beam.Impulse()
            | "Make" >> beam.FlatMap(lambda _: made_records(0, records)).with_output_types(ImageRecord)
            | "SurveyRecords" >> SurveyRecords(config)
        )
        assigned = surveyed.references | "AssignShards" >> beam.ParDo(
            AssignShards(), plan, beam.pvalue.AsList(surveyed.repeated)
        ).with_output_types(tuple[int, bytes])
        _ = (
            assigned
            | "GroupByShard" >> beam.GroupByKey()
            | "Order" >> beam.MapTuple(lambda _, batches: len(ordered(batches, False)))
            | "Count" >> beam.CombineGlobally(sum)
            | "Check" >> beam.Map(_check, records)
        )


def _plan(config: DatasetConfig) -> DatasetPlan:
    """The plan of a few such records, whose images nobody has to have."""
    plain = [
        ImageRecord(record.key, None, record.split, record.annotations) for record in made_records(0, 100)
    ]
    return plan_dataset(total(plain), config)


def _check(found: int, records: int) -> None:
    if found != records:
        raise JobError(f"{found} references of {records} came through the shuffle")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
