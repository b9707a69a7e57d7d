"""What a sample of records takes once it is encoded: the measure of a size estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from transforms.examples.tfrecord import FRAME_BYTES
from transforms.records import ImageRecord
from transforms.shards.packing import pack_reference
from transforms.shards.part import EncodeTask
from transforms.shards.pool import ProcessExecutor
from transforms.shards.record_encoder import RecordSettings

# Stops sampling large images: the estimate need not be exact.
_SAMPLE_BYTES = 16 << 20


class Measured(NamedTuple):
    """Records that could be encoded, the bytes of their images in the source, and of their frames."""

    records: int
    source_bytes: int
    encoded_bytes: int


def measure(sample: Iterable[ImageRecord], settings: RecordSettings) -> Measured:
    """Encodes a sample, in a process of its own: an image may crash its codec.

    Raises:
        JobError: the machine does not let it be done.
    """
    references = []
    read = 0
    for record in sample:
        if read > _SAMPLE_BYTES:
            break
        read += record.size
        references.append(pack_reference(record, seed=0))
    if not references:
        return Measured(0, 0, 0)
    # Kept images need no decoding to be measured.
    policy = dataclasses.replace(settings.policy, validate="header")
    executor = ProcessExecutor(dataclasses.replace(settings, policy=policy), _ignore, workers=1)
    try:
        batch = executor.submit(EncodeTask(references, sizes_only=True)).result()
    finally:
        executor.close()
    written = batch.stats.written
    return Measured(written, batch.stats.source_bytes, batch.payload_bytes + written * FRAME_BYTES)


def _ignore(records: int, source_bytes: int) -> None:
    """A sample is no progress."""
