"""Splits, shards and order from salted hashes: the same on every machine, whatever the order of listing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from msgspec.structs import replace

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import SPLIT_NAME, BadInput, ImageRecord

DEFAULT_SPLIT = "train"
_SPLIT_SALT = b"recordmill/split"
_SHARD_SALT = b"recordmill/shard"
HASH_BYTES = 8
_HASH_SPACE = 1 << 8 * HASH_BYTES


def _hash64(text: str, salt: bytes) -> bytes:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=HASH_BYTES, key=salt).digest()


def key_digest(key: str) -> int:
    """The 63-bit hash that finds equal keys; it fits Beam's coder of signed integers."""
    return int.from_bytes(_hash64(key, b"recordmill/key"), "big") >> 1


def order_hash(key: str, seed: int) -> bytes:
    """8 bytes, big-endian, that determine a record's shard and its position in it; `seed` shuffles."""
    return _hash64(key, b"%s/%d" % (_SHARD_SALT, seed))


def shard_of(hashed: bytes, num_shards: int) -> int:
    """The shard of a record: each shard is one range of the hash, all equally wide."""
    return int.from_bytes(hashed, "big") * num_shards // _HASH_SPACE


def split_of(group: str, fractions: Mapping[str, float]) -> str:
    """The split of a group: its hash as a number in [0, 1), compared with the running sum of `fractions`.

    There is no seed: a record stays in its split whatever the flags are.
    """
    number = int.from_bytes(_hash64(group, _SPLIT_SALT), "big") / _HASH_SPACE
    edge = 0.0
    name = ""
    for name, fraction in fractions.items():
        edge += fraction
        if number < edge:
            return name
    return name  # fractions that add up to 0.999… by rounding


def with_split(record: ImageRecord, config: DatasetConfig, pattern: re.Pattern[str] | None) -> ImageRecord:
    """`record` with the split that it goes into; `pattern` is `config.group_pattern`, compiled.

    Raises:
        BadInput: no group, or the name of the split cannot be part of a shard's name.
    """
    if config.splits:
        split = split_of(group_of(record, config.group_by, pattern), config.splits)
    else:
        split = record.split or DEFAULT_SPLIT
        if not SPLIT_NAME.fullmatch(split):
            detail = f"{split!r}; letters, digits, _ and - make one (--splits overrides the source's own)"
            raise BadInput("manifest", "not a split name", detail, record.key)
    if split == record.split:
        return record
    return replace(record, split=split)


def group_of(record: ImageRecord, field: str | None, pattern: re.Pattern[str] | None) -> str:
    """The group of a record, which stays in one split: a field's value, a match in the key, or the key.

    Raises:
        BadInput: a record without the field, or a key that the pattern does not match.
    """
    if field is not None:
        value = record.annotations.features.get(field)
        if value is None:
            raise BadInput(
                "build", "no value to group by", f"--group_by={field}: the record has none", record.key
            )
        return str(value)
    if pattern is not None:
        match = pattern.search(record.key)
        group = match and match.group(match.re.groups and 1)
        if group is None:
            detail = f"--group_pattern={pattern.pattern!r} does not match the key"
            raise BadInput("build", "no value to group by", detail, record.key)
        return str(group)
    return record.key
