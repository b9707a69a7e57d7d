"""What a writer process does for report.html: its images may crash it, which costs their pictures alone.

What draws is imported by that process, not by the one that hands out the task.
"""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import BadInput
from recordmill.transforms.shards.part import EncodedBatch, EncodeTask
from recordmill.transforms.shards.record_encoder import Progress, RecordEncoder
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.shards.report import WriteStats
from recordmill.transforms.storage.reader import ImageReader

_TRIES, _WAIT_SECONDS = 3, 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class ChangedImage(EncodedBatch):
    """What encoding has changed of one image, as report.json has it; None where it cannot be told."""

    crop: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask(EncodeTask):
    """Encodes the only image of `references` once more, which gives the bytes that were stored.

    Attributes:
        policy: that it was stored by.
    """

    policy: ImagePolicy

    def run(self, encoder: RecordEncoder, progress: Progress) -> ChangedImage:
        """Encodes; a source that cannot be read any more has no crop."""
        with encoder.beacon.at_the_image():
            try:
                return ChangedImage([], 0, WriteStats(), [], _crop(self.references[0], self.policy))
            except BadInput as error:
                return self.lost(error)
            except OSError as error:
                return self.lost(BadInput("load", "cannot be read", str(error)))

    def lost(self, error: BadInput) -> ChangedImage:
        """The result of an image without a crop."""
        failure = error.failure(reference_record(self.references[0]).key)
        return ChangedImage([], 0, WriteStats(), [failure])


@dataclasses.dataclass(frozen=True, slots=True)
class DrawnPage(EncodedBatch):
    """The text of report.html, not sealed; none where it could not be drawn."""

    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageTask(EncodeTask):
    """Draws the page of a dataset whose shards are all there.

    Attributes:
        references: one, which says nothing.
        output: folder of the dataset.
        manifest: that will be published.
        report: what report.json holds.
        failures_path: of failures.jsonl.
    """

    references: Sequence[bytes] = (b"",)
    output: str
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]
    failures_path: str

    def run(self, encoder: RecordEncoder, progress: Progress) -> DrawnPage:
        """Draws; what may pass is tried again."""
        for left in reversed(range(_TRIES)):
            with encoder.beacon.at_the_image():
                try:
                    return DrawnPage([], 0, WriteStats(), [], self.text())
                except OSError as error:
                    fault = BadInput("load", "cannot be read", str(error))
            if left:
                time.sleep(_WAIT_SECONDS)
        return self.lost(fault)

    def lost(self, error: BadInput) -> DrawnPage:
        """No page."""
        return DrawnPage([], 0, WriteStats(), [error.failure(self.output)])

    def text(self, has_samples: bool = True) -> str:
        """The page."""
        from recordmill.transforms.reporting.findings import gather
        from recordmill.transforms.reporting.page import html_text

        return html_text(
            gather(self.output, self.manifest, self.report, self.failures_path, has_samples=has_samples)
        )


def _crop(reference: bytes, policy: ImagePolicy) -> dict[str, Any] | None:
    """The part that encoding has changed most; None where the source is another one by now."""
    from recordmill.transforms.images.compare import luma
    from recordmill.transforms.images.likeness import likeness
    from recordmill.transforms.sweeping.crops import CROP_SIDE, cut, most_changed
    from recordmill.transforms.sweeping.measure import Original, seen_as_stored, seen_of

    reader = ImageReader()
    record = reference_record(reference, reader.read)
    if record.image is None:
        return None
    original = Original(reader.read(record.image), record.image.pixels)
    stored = original.stored(policy)
    before = seen_of(original, _resized_as(policy))
    after, _ = seen_as_stored(stored, _seen_by(policy))
    alike = likeness(before, after)
    if alike is None:
        return None
    box = most_changed(luma(before.pixels), luma(after.pixels), CROP_SIDE)
    return {
        "key": record.key,
        "ssim": round(alike.ssim, 6),
        "before": base64.b64encode(cut(before, box)).decode("ascii"),
        "after": base64.b64encode(cut(after, box)).decode("ascii"),
        "source_bytes": len(original.data),
        "stored_bytes": len(stored.data),
    }


def _seen_by(policy: ImagePolicy) -> ImagePolicy:
    """Makes the pixels that are compared: upright, in sRGB, 8 bits, on the background."""
    return ImagePolicy("jpeg", exif=policy.exif, alpha="flatten", background=policy.background)


def _resized_as(policy: ImagePolicy) -> ImagePolicy:
    """The same for a source, in the size and the colours that it is stored in."""
    return dataclasses.replace(
        _seen_by(policy),
        max_side=policy.max_side,
        short_side=policy.short_side,
        size=policy.size,
        fit=policy.fit,
        color=policy.color,
    )
