"""The progress of the job in this process: written by the transforms, read by a progress display."""

from __future__ import annotations

import dataclasses
import threading
import time


@dataclasses.dataclass
class ProgressState:
    """Counts of one job; all zero at its start.

    Attributes:
        listed: records and failures that the source has yielded.
        hashed: images read to find identical ones, before any is written.
        hashed_bytes: of those.
        records: to write or verify; 0 until they are counted.
        writing_since: `time.monotonic` of the last change of `records`.
        notes: messages for the user, in order.
        verb: the action on records, in the past tense.
    """

    listed: int = 0
    hashed: int = 0
    hashed_bytes: int = 0
    records: int = 0
    source_bytes: int = 0
    done_records: int = 0
    done_bytes: int = 0
    writing_since: float = 0.0
    notes: tuple[str, ...] = ()
    verb: str = "wrote"


_lock = threading.Lock()
_state = ProgressState()


def snapshot() -> ProgressState:
    with _lock:
        return dataclasses.replace(_state)


def reset(verb: str = "wrote") -> None:
    """Starts a new job; `verb` as in `ProgressState`."""
    global _state
    with _lock:
        _state = ProgressState(verb=verb)


def add_listed(count: int) -> None:
    with _lock:
        _state.listed += count


def add_hashed(images: int, image_bytes: int) -> None:
    with _lock:
        _state.hashed += images
        _state.hashed_bytes += image_bytes


def set_totals(records: int, source_bytes: int) -> None:
    """Sets the number and bytes of the records to write."""
    with _lock:
        _state.records = records
        _state.source_bytes = source_bytes
        _state.writing_since = time.monotonic()


def add_total(records: int) -> None:
    """Adds the records of another shard that is verified."""
    with _lock:
        _state.records += records
        _state.writing_since = time.monotonic()


def add_done(records: int, source_bytes: int) -> None:
    with _lock:
        _state.done_records += records
        _state.done_bytes += source_bytes


def add_note(text: str) -> None:
    """Adds a message for the user, once."""
    with _lock:
        if text not in _state.notes:
            _state.notes += (text,)
