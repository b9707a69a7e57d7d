"""What is published to be looked at: report.json, figures and parts of images; report.html, the page."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recordmill.transforms.records import BadInput
from recordmill.transforms.reporting.tasks import ChangeTask, PageTask
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.statistics import MOST_REENCODED, Statistics
from recordmill.transforms.storage.layout import REPORT_FORMAT_VERSION
from recordmill.transforms.storage.sealed import seal
from recordmill.transforms.workers.pool import ITEM_SECONDS, ProcessExecutor, worker_itself
from recordmill.transforms.workers.position import SLOW_FACTOR
from recordmill.transforms.workers.task import Worker, no_progress

_LOGGER = logging.getLogger(__name__)


def report_json(statistics: Mapping[str, Statistics], settings: RecordSettings) -> dict[str, Any]:
    """The contents of report.json: figures of each split, and crops of a few re-encoded images.

    The same for the same records, whichever runner has written them, in any order.
    """
    splits = {name: split.as_json() for name, split in statistics.items()}
    for split in splits.values():
        del split["reencoded"]  # where images lie in the source
    return {
        "format_version": REPORT_FORMAT_VERSION,
        "splits": splits,
        "crops": list(reencoded_crops(statistics.values(), settings)),
    }


def report_text(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def report_page(
    output: str,
    manifest: Mapping[str, Any],
    report: Mapping[str, Any],
    failures_path: str,
) -> str:
    """The text of report.html, sealed; without pictures of records where they cannot be drawn."""
    task = PageTask(output, manifest, report, failures_path)
    with _worker() as pool:
        found = pool.submit(task).result()
    if isinstance(found, str):
        return seal(found)
    message = "report.html is without pictures of records (%s: %s); `recordmill report` rebuilds it"
    _LOGGER.warning(message, found.reason, found.detail)
    return seal(task.text(has_samples=False))


def reencoded_crops(
    statistics: Iterable[Statistics], settings: RecordSettings
) -> Iterator[Mapping[str, Any]]:
    """The most changed part of each remembered image, before and after its encoding.

    An image that cannot be read any more is left out: the dataset is complete without it.
    """
    remembered = sorted((reference, key) for split in statistics for key, reference in split.reencoded)
    if not remembered:
        return
    with _worker() as pool:
        for reference, key in remembered[:MOST_REENCODED]:
            found = pool.submit(ChangeTask(reference, settings.policy)).result()
            if isinstance(found, BadInput):
                _LOGGER.info("no picture of %r before and after its encoding: %s", key, found.detail)
            elif found is not None:
                yield found


def _worker() -> ProcessExecutor[Worker]:
    return ProcessExecutor(worker_itself, no_progress, 1, ITEM_SECONDS * SLOW_FACTOR)
