"""Parts of what lies below a folder of a bucket, of about as many objects each, without listing it all."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from recordmill.transforms.storage.file_system import FileSystem, file_system


class KeyRange(NamedTuple):
    """The keys from `first` on, up to `end`, in code-point order; an empty one is no bound."""

    first: str = ""
    end: str = ""

    def has(self, key: str) -> bool:
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

# Of each part that is wanted, where the alphabet is large.
_MOST_REQUESTS = 16
_LOWEST, _HIGHEST = "\0", chr(0x10FFFF)
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"


def name_parts(uri: str, parts: int, is_entered: Callable[[str], bool]) -> list[KeyRange]:
    """Ranges that have all keys below a folder of a bucket, and no key twice.

    Names are looked at as a trie: prefixes of more names than a request lists are divided by their next
    character, until there are enough. So it is for names of any kind, dates, numbers or hashes, in one
    folder or in many.

    Args:
        uri: of the folder.
        parts: how many are wanted; there may be fewer, or ten times as many.
        is_entered: whether a folder, by its key with a `/` at the end, is looked into; no range begins or
            ends in one that is not.

    Raises:
        OSError: the folder may not be listed, or not now.
    """
    system = file_system(uri)
    firsts, large = {""}, [""]
    while large and len(firsts) < parts:
        # All prefixes of a length, for those that are not divided would be larger than all others.
        most = max(_MOST_REQUESTS * parts // len(large), parts)
        found = system.each(functools.partial(_divide, system, uri, most, is_entered), large)
        firsts.update(first for found_firsts, _ in found for first in found_firsts)
        large = [prefix for _, prefixes in found for prefix in prefixes]
    bounds = sorted(firsts)
    return [KeyRange(*bound) for bound in zip(bounds, [*bounds[1:], ""], strict=True)]


def _divide(
    system: FileSystem, uri: str, most: int, is_entered: Callable[[str], bool], prefix: str
) -> tuple[list[str], list[str]]:
    """Divides the names of a prefix by what follows it, with `most` requests.

    Returns:
        Where ranges begin, and the prefixes of those that may have more names than a request lists.
    """
    firsts: list[str] = []
    large: list[str] = []
    names, more = _names(system, uri, prefix)
    if not more:
        return [], []
    prefix = _longest(system, uri, prefix, names)
    if not _is_entered(prefix, is_entered):
        return [], []
    for _ in range(most):
        if not more:
            break
        last = names[-1][: len(prefix) + 1]
        first: str | None = f"{last}{_LOWEST}"
        if last != prefix:  # as an object may be called
            firsts.append(last)
            if _is_entered(last, is_entered):
                large.append(last)
            first = after(last)
        if first is None or not first.startswith(prefix):
            break
        names, more = _names(system, uri, prefix, first)
        if not names:
            break
        if names[0] < first:
            return [], []  # of a server that knows no offsets
        firsts.append(names[0][: len(prefix) + 1])
    return firsts, large


def _longest(system: FileSystem, uri: str, prefix: str, names: list[str]) -> str:
    """The longest common prefix of all names with `prefix`; `names` are the first. A few requests."""
    longest = os.path.commonprefix(names)
    known, most = len(prefix), len(longest)
    while known < most:
        tried = (known + most + 1) // 2
        beyond = after(longest[:tried])
        if beyond is None or not beyond.startswith(prefix):
            break
        if _names(system, uri, prefix, beyond, most=1)[0]:
            most = tried - 1
        else:
            known = tried
    return longest[:known]


def _names(
    system: FileSystem, uri: str, prefix: str, first: str = "", most: int = 1000
) -> tuple[list[str], bool]:
    found, more = system.list_page(uri, prefix, first, most)
    return [one.name for one in found], more


def _is_entered(prefix: str, is_entered: Callable[[str], bool]) -> bool:
    return all(is_entered(prefix[: at + 1]) for at, char in enumerate(prefix) if char == "/")


def after(prefix: str) -> str | None:
    """The first text after all that begin with a prefix, in code-point order; None where there is none."""
    kept = prefix.rstrip(_HIGHEST)
    if not kept:
        return None
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
