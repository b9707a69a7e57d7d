"""The encoded size of a sample of records, for estimates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import NamedTuple

from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.checkpoint import shard_digest
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import pack_reference
from recordmill.transforms.shards.tasks import EncodeTask, encoder_pool
from recordmill.transforms.storage import files
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.workers.task import no_progress

# Stops sampling large images: the estimate need not be exact.
_SAMPLE_BYTES = 16 << 20
# An image that takes longer is left out.
_IMAGE_SECONDS = 10.0


class Measured(NamedTuple):
    """Records that could be encoded, the bytes of their images in the source, and of their frames."""

    records: int
    source_bytes: int
    encoded_bytes: int


def measure(sample: Iterable[ImageRecord], settings: RecordSettings, cache: str | None = None) -> Measured:
    """Encodes a sample, in a process of its own: an image may crash its codec.

    Args:
        sample: the records.
        settings: of their encoding.
        cache: path of a file that keeps the result for the next call with the same sample and settings.

    Raises:
        JobError: the machine does not let it be done.
    """
    references = _first(sample)
    if not references:
        return Measured(0, 0, 0)
    digest = shard_digest(settings.digest(), references)
    measured = _cached(cache, digest)
    if measured is None:
        measured = _encoded(references, settings)
        if cache is not None:
            with naming_faults(cache):
                write_file(cache, json.dumps([digest, *measured]))
    return measured


def _first(sample: Iterable[ImageRecord]) -> list[bytes]:
    """References of the first records of the sample, within its limit of bytes."""
    references = []
    read = 0
    for record in sample:
        if read > _SAMPLE_BYTES:
            break
        read += record.size
        references.append(pack_reference(record, seed=0))
    return references


def _cached(cache: str | None, digest: str) -> Measured | None:
    if cache is None:
        return None
    try:
        found, *numbers = json.loads(files.read_bytes(cache))
        return Measured(*numbers) if found == digest else None
    except (OSError, ValueError, TypeError):
        return None


def _encoded(references: list[bytes], settings: RecordSettings) -> Measured:
    # Kept images need no decoding to be measured; optimising some would take longer than all is worth.
    policy = dataclasses.replace(settings.policy, validate="header", optimize="none")
    settings = dataclasses.replace(settings, policy=policy)
    with encoder_pool(settings, no_progress, 1, _IMAGE_SECONDS, tries=1) as pool:
        batch = pool.submit(EncodeTask(references, sizes_only=True)).result()
    written = batch.stats.written
    return Measured(written, batch.stats.source_bytes, batch.payload_bytes + written * FRAME_BYTES)
