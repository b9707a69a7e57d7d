"""One thing that a stored record has otherwise than its source, in words."""

from __future__ import annotations

import dataclasses
import hashlib

_LONGEST = 80


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is otherwise than the source says.

    Attributes:
        key: of the record.
        feature: that it is in, by its stored name; empty for the record as a whole, `split` for its place.
        expected: what the source asks for.
        found: what is stored.
        where: in the feature: a value, a step, a pixel; empty for all of it.
    """

    key: str
    feature: str
    expected: str
    found: str
    where: str = ""


def shown(value: bytes | int | float | str) -> str:
    """A value as people read it: numbers in full, texts shortened, other bytes by their digest."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _digest(value)
        if len(text) > _LONGEST and not text.isprintable():
            return _digest(value)
        value = text
    told = repr(value)
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}…"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _digest(data: bytes) -> str:
    return f"{counted(len(data), 'byte')} of SHA-256 {hashlib.sha256(data).hexdigest()[:16]}…"
