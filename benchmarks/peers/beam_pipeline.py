"""A plain Beam pipeline on the in-process DirectRunner: Create, Reshuffle, Map, WriteToTFRecord.

python -m benchmarks.peers.beam_pipeline WORK INPUT OUTPUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam
from apache_beam.io import WriteToTFRecord
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.peers.items import Item, Row, list_items, read_rows
from benchmarks.peers.records import image_example, row_example


def example(item: Item | Row, work: str) -> bytes:
    """The Example of an image or of a row."""
    return row_example(item) if isinstance(item, Row) else image_example(item, work)


def main(work: str, source: str, output: str) -> None:
    """Converts an input."""
    items = list(read_rows(Path(source))) if work == "rows" else list_items(Path(source))
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        (
            pipeline
            | "List" >> beam.Create(items)
            | "Spread" >> beam.Reshuffle()
            | "BuildExample" >> beam.Map(example, work).with_output_types(bytes)
            | "Write" >> WriteToTFRecord(f"{output}/train", file_name_suffix=".tfrecord", num_shards=16)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
