"""What is published to be looked at: report.json, figures and parts of images; report.html, the page."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recordmill.transforms.reporting.tasks import ChangedImage, ChangeTask, DrawnPage, PageTask
from recordmill.transforms.shards.beacon import SLOW_TIMES
from recordmill.transforms.shards.guarded import IMAGE_SECONDS, GuardedWriter
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.statistics import MOST_REENCODED, Statistics
from recordmill.transforms.storage.layout import REPORT_FORMAT_VERSION
from recordmill.transforms.storage.sealed import seal

_LOGGER = logging.getLogger(__name__)


def report_json(statistics: Mapping[str, Statistics], settings: RecordSettings) -> dict[str, Any]:
    """The contents of report.json: figures of each split, and what encoding has done to a few images.

    The same for the same records, whoever has written them, and in whatever order.

    Args:
        statistics: by split.
        settings: that records were encoded by.
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
    """The text of report.json."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def report_page(
    output: str,
    manifest: Mapping[str, Any],
    report: Mapping[str, Any],
    failures_path: str,
    settings: RecordSettings,
) -> str:
    """The text of report.html, sealed; without pictures of records where they cannot be drawn.

    Args:
        output: folder whose shards are all there.
        manifest: that will be published.
        report: of `report_json`.
        failures_path: of failures.jsonl.
        settings: that records were encoded by.
    """
    task = PageTask(output=output, manifest=manifest, report=report, failures_path=failures_path)
    with _writer(settings) as writer:
        found = _result(writer, task)
    for failure in found.failures if found else ():
        told = "report.html is without pictures of records (%s: %s); `recordmill report` makes it anew"
        _LOGGER.warning(told, failure.reason, failure.detail)
    text = found.text if isinstance(found, DrawnPage) else ""
    return seal(text or task.text(has_samples=False))


def reencoded_crops(
    statistics: Iterable[Statistics], settings: RecordSettings
) -> Iterator[Mapping[str, Any]]:
    """The part that encoding has changed most, of each image that is remembered, before and after it.

    One that cannot be read any more is left out: the dataset is whole without.
    """
    remembered = sorted((reference, key) for split in statistics for key, reference in split.reencoded)
    if not remembered:
        return
    with _writer(settings) as writer:
        for reference, key in remembered[:MOST_REENCODED]:
            found = _result(writer, ChangeTask([reference], policy=settings.policy))
            for failure in found.failures if found else ():
                _LOGGER.info("no picture of %r before and after its encoding: %s", key, failure.detail)
            if isinstance(found, ChangedImage) and found.crop is not None:
                yield found.crop


def _result(writer: GuardedWriter, task: EncodeTask) -> EncodedBatch | None:
    """What a task has come to; None where it was wrong itself, for which no dataset is lost."""
    try:
        found = writer.run(task)
    except RuntimeError:
        _LOGGER.exception("a picture of report.html is left out")
        return None
    assert isinstance(found, EncodedBatch)
    return found


@contextlib.contextmanager
def _writer(settings: RecordSettings) -> Iterator[GuardedWriter]:
    """A process that images may crash; one that is idle, where there is one."""
    writer = GuardedWriter(settings, lambda *_: None, IMAGE_SECONDS * SLOW_TIMES)
    idle = False
    try:
        yield writer
        idle = True
    finally:
        writer.close(idle)
