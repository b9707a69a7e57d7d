"""What a writer of shards yields, and Publish takes."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam

from recordmill.transforms.records import Failure
from recordmill.transforms.shards.report import ShardReport, WriteStats


class Written(NamedTuple):
    """Whole, unpublished shards.

    Attributes:
        reports: of the shards.
        encoded: (split, what its encoding came to), where the reports count records alone; else None.
        failures: the records that failed, where no file that a report names has them; else None.
    """

    reports: beam.PCollection[ShardReport]
    encoded: beam.PCollection[tuple[str, WriteStats]] | None = None
    failures: beam.PCollection[Failure] | None = None
