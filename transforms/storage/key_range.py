"""Ranges of keys: what one of several listings of a folder, side by side, is to list."""

from __future__ import annotations

from typing import NamedTuple


class KeyRange(NamedTuple):
    """The keys from one on, up to another one, in code-point order.

    Attributes:
        first: the lowest; may be empty, as `end`.
        end: the first that comes after them; empty where none does.
    """

    first: str = ""
    end: str = ""

    def has(self, key: str) -> bool:
        """Whether a key lies in the range."""
        return key >= self.first and not (self.end and key >= self.end)

    def meets(self, folder: str) -> bool:
        """Whether a key that a folder's, which ends in `/`, begins may lie in the range."""
        return (folder >= self.first or self.first.startswith(folder)) and not (
            self.end and folder >= self.end
        )

    def within(self, folder: str) -> KeyRange:
        """The range of names in a folder that it meets, which may be all."""
        return KeyRange(
            self.first[len(folder) :] if self.first.startswith(folder) else "",
            self.end[len(folder) :] if self.end.startswith(folder) else "",
        )


EVERYTHING = KeyRange()
"""All keys."""
