"""Spools images that records bring as bytes, and large annotations."""

from __future__ import annotations

import os
import uuid

from msgspec.structs import replace

from recordmill.transforms.records import ImageRecord
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.owner import make_marked_folder
from recordmill.transforms.storage.spool import Spool
from recordmill.transforms.storage.zip_member import check_size


class RecordSpool:
    """The spool of one bundle. Each bundle has its own files, because it may be retried or run twice.

    Args:
        scratch: folder of the run; None if there is none: records cannot bring images then.
        job: name of the folder in `scratch` that only this job uses.

    Attributes:
        annotations: spool for large annotations; None if `scratch` is not a folder of this machine, because
            other runners shuffle on disks.
    """

    def __init__(self, scratch: str | None, job: str) -> None:
        self._scratch = scratch
        self._job = job
        self._spool: Spool | None = None
        is_here = scratch is not None and file_system(scratch).working_folder(scratch) is not None
        self.annotations = self._opened() if is_here else None

    def with_reference(self, record: ImageRecord) -> ImageRecord:
        """The record with a reference to the bytes that it brings, if it brings any.

        Raises:
            BadInput: the image is too large.
        """
        if not record.data:
            return record
        check_size(len(record.data), "ImageRecord.data")
        image = self._opened().add(record.data)
        return replace(record, image=image, size=len(record.data), data=b"")

    def close(self) -> None:
        """Finishes the files."""
        if self._spool is not None:
            self._spool.close()

    def discard(self) -> None:
        """Removes the unfinished file of a bundle that has failed."""
        if self._spool is not None:
            self._spool.discard()

    def _opened(self) -> Spool:
        if self._spool is None:
            assert self._scratch is not None
            folder = os.path.join(self._scratch, self._job)
            with naming_faults(folder):
                make_marked_folder(self._scratch)
                file_system(folder).make_folder(folder)
            self._spool = Spool(folder, uuid.uuid4().hex, 0)
        return self._spool
