"""The tasks of report.html: an image that crashes its process loses only its picture.

The drawing modules are imported in the worker process, not in the process that submits the task.
"""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.images.picture import OpenedImage
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import BadInput
from recordmill.transforms.shards.record_encoder import RecordEncoder, RecordSettings
from recordmill.transforms.shards.references import reference_record
from recordmill.transforms.storage.reader import ImageReader
from recordmill.transforms.workers.task import Task, Worker

_TRIES, _WAIT_SECONDS = 3, 1.0

Crop = Mapping[str, Any]
"""What encoding has changed of one image, as report.json has it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeTask(Task[Worker, Crop | BadInput | None]):
    """Encodes the image of a record again, to the bytes that were stored.

    Attributes:
        reference: of the record.
        key: of the record; a function of `map_image` makes several of one reference.
        settings: of the encoding.
    """

    reference: bytes
    key: str
    settings: RecordSettings

    def run(self, worker: Worker) -> Crop | BadInput | None:
        """Encodes the image; None if the source is another image now."""
        with worker.item(0):
            try:
                return self._crop(worker)
            except OSError as error:
                raise BadInput("load", "cannot be read", str(error)) from error

    def lost(self, error: BadInput) -> BadInput:
        """Why there is no crop."""
        return error

    def _crop(self, worker: Worker) -> Crop | None:
        image = self._image(worker)
        part = None if image is None else _changed_part(image, self.settings.policy)
        return part and {"key": self.key, **part}

    def _image(self, worker: Worker) -> OpenedImage | None:
        """The image before it is stored: of the source, or as the function of `map_image` has made it."""
        from recordmill.transforms.images.opened import opened

        reader = ImageReader()
        record = reference_record(self.reference, reader.read)
        ref = record.image
        if ref is None:
            return None
        if self.settings.map_image is None:
            return opened(reader.read(ref), ref.pixels)
        made = RecordEncoder(self.settings, worker).mapped(record, ref)
        return next((one.image for one in made if one.record.key == self.key), None)


@dataclasses.dataclass(frozen=True, slots=True)
class PageTask(Task[Worker, str | BadInput]):
    """Draws the page of a dataset whose shards are complete; its text is not sealed."""

    output: str
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]
    failures_path: str

    def run(self, worker: Worker) -> str | BadInput:
        """Draws the page; retries after an error of the machine."""
        tries = 0
        while True:
            with worker.item(0):
                try:
                    return self.text()
                except OSError as error:
                    tries += 1
                    if tries == _TRIES:
                        raise BadInput("load", "cannot be read", str(error)) from error
            time.sleep(_WAIT_SECONDS)

    def lost(self, error: BadInput) -> BadInput:
        """Why the page could not be drawn."""
        return error

    def text(self, has_samples: bool = True) -> str:
        """The page."""
        from recordmill.transforms.reporting.findings import gather, unpublished
        from recordmill.transforms.reporting.page import html_text

        dataset = unpublished(self.output, self.manifest)
        return html_text(gather(dataset, self.report, self.failures_path, has_samples))


def _changed_part(image: OpenedImage, policy: ImagePolicy) -> dict[str, Any] | None:
    """The part that encoding has changed most; None if the source is another image now."""
    from recordmill.transforms.images.compare import luma
    from recordmill.transforms.images.similarity import (
        CROP_SIDE,
        cut,
        displayed_source,
        displayed_stored,
        most_changed,
        similarity,
    )
    from recordmill.transforms.images.store import store_opened

    stored = store_opened(image, policy)
    # Both are compared upright, in sRGB with 8 bits, and without alpha.
    seen = ImagePolicy("jpeg", exif=policy.exif, alpha="flatten", background=policy.background)
    names = ("max_side", "short_side", "size", "fit", "color")
    resized = dataclasses.replace(seen, **{name: getattr(policy, name) for name in names})
    before = displayed_source(image, resized)
    after, _ = displayed_stored(stored, seen)
    alike = similarity(before, after)
    if alike is None:
        return None
    box = most_changed(luma(before.pixels), luma(after.pixels), CROP_SIDE)
    return {
        "ssim": round(alike.ssim, 6),
        "before": base64.b64encode(cut(before, box)).decode("ascii"),
        "after": base64.b64encode(cut(after, box)).decode("ascii"),
        "source_bytes": len(image.data) or before.pixels.nbytes,
        "stored_bytes": len(stored.data),
    }
