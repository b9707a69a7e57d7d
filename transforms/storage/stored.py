"""An object of Google Cloud Storage, as the service tells of it without its bytes."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple


class StoredObject(NamedTuple):
    """An object as it is listed.

    Attributes:
        uri: `gs://bucket/name`.
        size: bytes.
        generation: number of this state of it.
        crc32c: of its bytes, in base64.
        updated: seconds since 1970, by the service's clock.
        md5: of its bytes, in base64; empty where it was composed of others.
    """

    uri: str
    size: int
    generation: int
    crc32c: str
    updated: float
    md5: str = ""

    @property
    def version(self) -> int:
        """Tells one state of its bytes from another, 1 to 2**63 - 1.

        The same bytes that are written again have it again: where there is an MD5.
        """
        if self.md5:
            return content_version(self.md5, self.size)
        return hash63(f"{self.generation} {self.crc32c}".encode())


def content_version(md5: str, size: int) -> int:
    """The version of an object of which an MD5, in base64, and the size are known."""
    return hash63(f"{md5} {size}".encode())


def stored_object(container: str, found: Any) -> StoredObject:
    """What the client knows of an object.

    Args:
        container: its bucket.
        found: the client's handle of it.
    """
    return StoredObject(
        f"gs://{container}/{found.name}",
        int(found.size or 0),
        int(found.generation or 0),
        found.crc32c or "",
        found.updated.timestamp() if found.updated else 0.0,
        found.md5_hash or "",
    )


def hash63(data: bytes) -> int:
    """A number from 1 to 2**63 - 1 that other bytes have not."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1 or 1
