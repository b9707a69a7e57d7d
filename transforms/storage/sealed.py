"""Files that show whether they have changed.

A text has a seal: its SHA-256 within the text itself, counted as if its own digits were zeros. Before
binary contents, there is their SHA-256.
"""

from __future__ import annotations

import hashlib
import re

_DIGEST_BYTES = hashlib.sha256().digest_size
PLACEHOLDER = "0" * 64
"""What stands for the seal in a text that is not sealed yet."""

# Of manifest.json (a key) and of pages (a comment). Texts of the data are escaped in both: none looks so.
_SEAL = re.compile(rb'(?:"seal": "|<!-- seal: )([0-9a-f]{64})(?="| -->)')


def seal(text: str) -> str:
    """`text` with its last placeholder, as manifest.json and pages have it, replaced by the seal.

    Raises:
        ValueError: there is none.
    """
    data = text.encode()
    found = _last(data)
    if found is None or data[found.start(1) : found.end(1)] != PLACEHOLDER.encode():
        raise ValueError('the text has no placeholder of a seal: `"seal": "000…"` or `<!-- seal: 000… -->`')
    return (data[: found.start(1)] + _digest(data, found) + data[found.end(1) :]).decode()


def with_digest(data: bytes) -> bytes:
    """`data` after its SHA-256, for `without_digest`."""
    return hashlib.sha256(data).digest() + data


def without_digest(data: bytes) -> bytes:
    """The contents of a file that `with_digest` made. Raises ValueError if a byte of it has changed."""
    digest, contents = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(contents).digest() != digest:
        raise ValueError("the file does not have the SHA-256 at its start")
    return contents


def is_sealed(data: bytes) -> bool:
    """Whether a file is unchanged since it was sealed."""
    found = _last(data)
    return found is not None and found[1] == _digest(data, found)


def is_sealed_page(data: bytes) -> bool:
    """Whether a file is an unchanged sealed page. A sealed manifest is not a page."""
    found = _last(data)
    return found is not None and found[0].startswith(b"<!--") and is_sealed(data)


def _last(data: bytes) -> re.Match[bytes] | None:
    every = list(_SEAL.finditer(data))
    return every[-1] if every else None


def _digest(data: bytes, found: re.Match[bytes]) -> bytes:
    hashed = hashlib.sha256(data[: found.start(1)])
    hashed.update(PLACEHOLDER.encode())
    hashed.update(data[found.end(1) :])
    return hashed.hexdigest().encode()
