"""A plain Beam pipeline for the same files: Create, Reshuffle, Map, WriteToTFRecord.

python -m benchmarks.beam_baseline PHOTOS OUTPUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import apache_beam as beam
from apache_beam.io import WriteToTFRecord
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.process_loop import list_photos, photo_example


def main(photos: str, output: str) -> None:
    """Converts on the in-process DirectRunner, with its defaults."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        (
            pipeline
            | "List" >> beam.Create(list_photos(Path(photos)))
            | "Spread" >> beam.Reshuffle()
            | "BuildExample" >> beam.Map(photo_example).with_output_types(bytes)
            | "Write" >> WriteToTFRecord(f"{output}/train", file_name_suffix=".tfrecord", num_shards=4)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
