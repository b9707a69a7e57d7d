"""Splits, shards and order from salted hashes: the same on every machine, whatever the order of listing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

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
    """The 63-bit hash by which equal keys are found: it fits Beam's coder of integers, which are signed."""
    return int.from_bytes(_hash64(key, b"recordmill/key"), "big") >> 1


def order_hash(key: str, seed: int) -> bytes:
    """8 bytes, big-endian, that decide a record's shard and its place in it; `seed` shuffles anew."""
    return _hash64(key, b"%s/%d" % (_SHARD_SALT, seed))


def shard_of(hashed: bytes, num_shards: int) -> int:
    """The shard of a record: each shard is one range of the hash, all equally wide."""
    return int.from_bytes(hashed, "big") * num_shards // _HASH_SPACE


def split_of(group: str, fractions: Mapping[str, float]) -> str:
    """The split of a group: a place in [0, 1) from its hash, against the running sum of `fractions`.

    No seed: a record stays in its split whatever else is asked for.
    """
    place = int.from_bytes(_hash64(group, _SPLIT_SALT), "big") / _HASH_SPACE
    edge = 0.0
    name = ""
    for name, fraction in fractions.items():
        edge += fraction
        if place < edge:
            return name
    return name  # fractions that add up to 0.999… by rounding


def with_split(record: ImageRecord, config: DatasetConfig, pattern: re.Pattern[str] | None) -> ImageRecord:
    """`record` with the split that it goes into; `pattern` is `config.group_pattern`, compiled.

    Raises:
        BadInput: no group to tell the split by, or a split whose name no shard could carry.
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
    return ImageRecord(record.key, record.image, split, record.annotations, record.origin, record.size)


def group_of(record: ImageRecord, field: str | None, pattern: re.Pattern[str] | None) -> str:
    """What must stay in one split: the field's value, the pattern's match in the key, or the key itself.

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
