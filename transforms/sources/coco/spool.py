"""The annotations of COCO files on disk, between reading the files and reading them image by image."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.scratch import scratch_folder

_BUFFER = 1 << 20


class Spooled(NamedTuple):
    """One annotation, read back.

    Attributes:
        file: number of the annotation file among those of the index.
        value: of it, as far as it was kept.
    """

    file: int
    value: dict[str, Any]


class AnnotationSpool:
    """Annotations in a file.

    Args:
        file: empty, to be written and read.

    Attributes:
        size: bytes that were added.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def add(self, text: str) -> int:
        """Takes the JSON of one; its number of bytes."""
        data = text.encode()
        with naming_faults(scratch_folder()):
            self._file.write(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Makes what was added ready to be read."""
        with naming_faults(scratch_folder()):
            self._file.flush()

    def read(self, offset: int, length: int) -> dict[str, Any]:
        """One annotation."""
        value: dict[str, Any] = json.loads(os.pread(self._file.fileno(), length, offset))
        return value


@contextlib.contextmanager
def annotation_spool() -> Iterator[AnnotationSpool]:
    """A spool in a file that has no name, and is gone at the end, however that comes."""
    with naming_faults(scratch_folder()):
        descriptor, path = tempfile.mkstemp(prefix="annotations-", dir=scratch_folder())
        os.remove(path)
    with os.fdopen(descriptor, "w+b", buffering=_BUFFER) as file:
        yield AnnotationSpool(file)
