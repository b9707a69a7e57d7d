"""What the sources that unpack share: names of members, and bytes that leave their container."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from recordmill.transforms.records import BadInput, Failure, ImageRef
from recordmill.transforms.sources.names import HIDDEN, is_hidden, is_unicode, printable, skipped

_OUTWARD = re.compile(r"^/|^[A-Za-z]:|[\\\0]")


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: path in the archive, with `/` between parts.
        size: bytes, unpacked.
        ref: where its bytes are; asked before the next member is.
    """

    name: str
    size: int
    ref: Callable[[], ImageRef]


def member_name(name: str) -> str:
    """The path of a member, tidied.

    Raises:
        BadInput: stage `list`; `outside the archive` or `name is not UTF-8`.
    """
    parts = name.split("/")
    if not name or _OUTWARD.search(name) or ".." in parts:
        raise BadInput("list", "outside the archive", f"a member is called {printable(name)!r}")
    if not is_unicode(name):
        raise BadInput("list", "name is not UTF-8", "rename the member")
    return "/".join(part for part in parts if part not in ("", "."))


def has_hidden_part(name: str) -> bool:
    """Whether a member, or a folder that it is in, is hidden, or left behind by an operating system."""
    return any(map(is_hidden, name.split("/")))


def hidden(key: str) -> Failure:
    """A hidden file."""
    return skipped(key, HIDDEN)
