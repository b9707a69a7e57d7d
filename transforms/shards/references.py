"""References: the records as they are held in memory, hashed, shuffled and compared.

A reference is the hash that orders it, the digest of the inputs of its record's bytes, and the record. The
hashes are salted: the same on every machine, whatever the order of listing.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import zstandard
from msgspec.structs import replace

from recordmill.transforms.annotations.mapping import OF_CLASSES, OF_OBJECTS
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import (
    SPLIT_NAME,
    Annotations,
    BadInput,
    FeatureValue,
    ImageRecord,
    ImageRef,
)
from recordmill.transforms.storage.spool import Spool

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
    return _hash64(key, _shard_salt(seed))


@functools.lru_cache
def _shard_salt(seed: int) -> bytes:
    return b"%s/%d" % (_SHARD_SALT, seed)


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

    `IdentifyImages` chooses the splits of groups by content.

    Raises:
        BadInput: no group, or the name of the split cannot be part of a shard's name.
    """
    if config.groups_by_content:  # any of them, until the images are identified
        split = record.split if record.split in config.splits else next(iter(config.splits))
    elif config.splits:
        split = split_of(group_of(record, config.group_by, pattern), config.splits)
    else:
        split = record.split or DEFAULT_SPLIT
        if not _is_split_name(split):
            detail = f"{split!r}; letters, digits, _ and - make one (--splits overrides the source's own)"
            raise BadInput("manifest", "not a split name", detail, record.key)
    if split == record.split:
        return record
    return replace(record, split=split)


@functools.lru_cache
def _is_split_name(split: str) -> bool:
    return SPLIT_NAME.fullmatch(split) is not None


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


BATCH_BYTES = 64 << 10
HELD_BYTES = 256 << 20
"""The most bytes of all open batches: with very many keys, they are yielded before they are full."""

_DIGEST_BYTES = 16
_START = HASH_BYTES + _DIGEST_BYTES
_LENGTH = struct.Struct("<I")
_LEVEL = 1
# Replaces the key at the end of a URI. No path contains a NUL.
_KEY = "\0"
# Annotations of more bytes are spooled.
_HELD = 192
_NO_ANNOTATIONS = Annotations()
_NO_FILE = ImageRef("")
_PLAIN = (bool, int, float, str, bytes)
_PLAIN_TYPES = frozenset(_PLAIN)

K = TypeVar("K", bound=Hashable)
Read = Callable[[ImageRef], bytes]


class Batches(Generic[K]):
    """Collects items by key in batches, because a runner's cost is per element.

    Batches are compressed: a runner on one machine holds several copies of all that it shuffles.
    """

    def __init__(self) -> None:
        self._open: dict[K, bytearray] = {}
        self._held = 0

    @property
    def full(self) -> bool:
        """Whether so much is held that `rest` should be called."""
        return self._held >= HELD_BYTES

    def add(self, key: K, item: bytes) -> bytes | None:
        """Adds an item; returns the key's batch if it is full."""
        batch = self._open.setdefault(key, bytearray())
        batch += _LENGTH.pack(len(item))
        batch += item
        self._held += _LENGTH.size + len(item)
        if len(batch) < BATCH_BYTES:
            return None
        del self._open[key]
        self._held -= len(batch)
        return _compressed(batch)

    def rest(self) -> Iterator[tuple[K, bytes]]:
        """Yields and removes the batches that are not full."""
        opened, self._open, self._held = self._open, {}, 0
        for key, batch in opened.items():
            yield key, _compressed(batch)


def batch_of(several: Iterable[bytes]) -> bytes:
    """One batch of some items."""
    return _compressed(b"".join(part for item in several for part in (_LENGTH.pack(len(item)), item)))


def _compressed(batch: bytes | bytearray) -> bytes:
    return zstandard.compress(batch, _LEVEL)


def items(batches: Iterable[bytes]) -> Iterator[bytes]:
    """The items of batches."""
    for batch in map(zstandard.decompress, batches):
        end = 0
        while end < len(batch):
            start = end + _LENGTH.size
            end = start + _LENGTH.unpack_from(batch, end)[0]
            yield batch[start:end]


def plain_value(value: Any) -> FeatureValue:
    """A feature, which may be of numpy, an enum or a list, as one of the types of `FeatureValue`.

    Raises:
        TypeError: no feature can hold it.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(plain_value(item) for item in value)  # type: ignore[misc]
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)  # type: ignore[arg-type]
    raise TypeError(f"a feature of type {type(value).__name__}; it may be text, bytes, a number or a list")


_encode = msgspec.msgpack.Encoder(enc_hook=plain_value).encode


def encode(value: object) -> bytes:
    """A record, or a part of one, as msgpack: equal bytes for equal values.

    Raises:
        BadInput: an integer of more than 64 bits.
        UnicodeEncodeError: a text with lone surrogates.
    """
    try:
        return _encode(value)
    except OverflowError as error:
        raise BadInput("build", "number out of range", "an integer does not fit int64") from error


def plain_record(record: ImageRecord) -> ImageRecord:
    """`record` with free features and attributes of plain types: itself if they all are.

    Raises:
        TypeError: names the record and the feature.
    """
    annotations = record.annotations
    objects = annotations.objects
    if _are_plain(annotations.features) and (
        not objects or all(_are_plain(one.attributes) for one in objects)
    ):
        return record
    objects = tuple(replace(one, attributes=_plain_values(record, one.attributes)) for one in objects)
    features = _plain_values(record, annotations.features)
    return replace(record, annotations=replace(annotations, features=features, objects=objects))


def _are_plain(values: Mapping[str, Any]) -> bool:
    return _PLAIN_TYPES.issuperset(map(type, values.values()))


def _plain_values(record: ImageRecord, values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = plain_value(value)
        except TypeError as error:
            raise TypeError(f"record {record.key!r}, feature {name!r}: {error}") from error
    return plain


def digest_of(data: bytes) -> bytes:
    """A hash of 16 bytes."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def files_of(record: ImageRecord) -> list[ImageRef]:
    """The image of a record, its frames and its masks."""
    files = _annotation_files(record.annotations)
    return files if record.image is None else [record.image, *files]


def has_details(annotations: Annotations) -> bool:
    """Whether there is more than labels and free features."""
    return annotations != Annotations(annotations.labels, annotations.features)


def is_versioned(record: ImageRecord) -> bool:
    """Whether every file of a record has a version."""
    return 0 not in [ref.version for ref in files_of(record)]


def listed_content(record: ImageRecord) -> bytes:
    """The content of a record as listed, without the locations of its files and of its listing."""
    return encode((record.key, record.split, record.size, _without_files(record.annotations)))


def source_fingerprint(record: ImageRecord) -> str:
    """Identifies the images of a record and their versions; empty if it has none, or one is unknown."""
    refs = [record.image] if record.image is not None else []
    if record.annotations.steps is not None:
        refs += record.annotations.steps.frames
    if not refs or any(ref.version == 0 for ref in refs):
        return ""
    return digest_of(encode((record.key, record.size, _identities(refs)))).hex()


def annotations_fingerprint(
    record: ImageRecord, labels: LabelMap, needs: frozenset[str], mask_map: str
) -> str:
    """Identifies the inputs of a record's masks, without its image; empty if a version is unknown.

    Args:
        record: the record.
        labels: ids of classes.
        needs: the fields of `Mapped` that are needed.
        mask_map: identifies the ids that the values of masks are stored as.
    """
    annotations = record.annotations
    refs = _annotation_files(annotations)
    if any(ref.version == 0 for ref in refs):
        return ""
    ids: list[object] = []
    if needs - OF_OBJECTS:
        used = {one.label for one in annotations.objects}
        used |= {segment.label for mask in annotations.masks.values() for segment in mask.segments}
        ids += sorted((type(label).__name__, str(label), _id_in_masks(labels, label)) for label in used)
        if background := labels.in_masks(0):
            ids.append(("background", background))
    if "class" in annotations.masks and needs & OF_CLASSES:
        ids.append(mask_map)
    drawn = replace(_without_files(annotations), labels=(), features={})
    return digest_of(encode((drawn, _identities(refs), ids, sorted(needs)))).hex()


def _id_in_masks(labels: LabelMap, label: str | int) -> int | None:
    number = labels.ids.get(label)
    return None if number is None else labels.in_masks(number)


def _identities(refs: Iterable[ImageRef]) -> list[ImageRef]:
    """References without their locations where the version is a hash of the bytes: spools lie elsewhere."""
    return [ref if ref.version >= 0 else replace(ref, uri="", offset=0) for ref in refs]


def _annotation_files(annotations: Annotations) -> list[ImageRef]:
    if not annotations.objects and not annotations.masks and annotations.steps is None:
        return []
    files = [one.mask for one in annotations.objects if isinstance(one.mask, ImageRef)]
    if annotations.steps is not None:
        files += annotations.steps.frames
    return files + [mask.image for mask in annotations.masks.values()]


def _without_files(annotations: Annotations) -> Annotations:
    if not _annotation_files(annotations):
        return annotations
    steps = annotations.steps
    return replace(
        annotations,
        objects=tuple(
            replace(one, mask=_NO_FILE) if isinstance(one.mask, ImageRef) else one
            for one in annotations.objects
        ),
        masks={name: replace(mask, image=_NO_FILE) for name, mask in annotations.masks.items()},
        steps=steps and replace(steps, frames=(_NO_FILE,) * len(steps.frames)),
    )


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """A record, and the location of its annotations if they are spooled."""

    record: ImageRecord
    spooled: ImageRef | None = None


_decode = msgspec.msgpack.Decoder(_Packed).decode


def with_packed_split(packed: bytes, split: str) -> bytes:
    """A record of `pack_record` with another split."""
    found = _decode(packed)
    return encode(replace(found, record=replace(found.record, split=split)))


_decode_annotations = msgspec.msgpack.Decoder(Annotations).decode


def pack_record(record: ImageRecord) -> bytes:
    """`record` as about 80 bytes and its key; the same bytes for equal records. Raises as `encode`."""
    return encode(_Packed(_without_key(record)))


def spool_annotations(record: ImageRecord, packed: bytes, spool: Spool | None) -> bytes:
    """`packed`, the packed `record`, with its annotations in `spool` if they are large and there is one."""
    if spool is None or len(packed) <= _HELD:
        return packed
    annotations = encode(record.annotations)
    if len(annotations) <= _HELD:
        return packed
    shortened = replace(_without_key(record), annotations=_NO_ANNOTATIONS)
    return encode(_Packed(shortened, spool.add(annotations)))


def _without_key(record: ImageRecord) -> ImageRecord:
    """`record` without its key at the end of the image's URI."""
    image = record.image
    if image is None or not image.uri.endswith(record.key):
        return record
    return replace(record, image=replace(image, uri=image.uri[: -len(record.key)] + _KEY))


def unpack_record(packed: bytes, read: Read | None = None) -> ImageRecord:
    """The inverse of `pack_record`; `read` reads spooled annotations, which are left out without it.

    Raises:
        TypeError: a value of the record is not of the type that it is declared to have.
    """
    try:
        found = _decode(packed)
    except msgspec.ValidationError as error:
        key = msgspec.msgpack.decode(packed)[0][0]
        raise TypeError(f"record {key!r} has a value of the wrong type: {error}") from error
    record, image = found.record, found.record.image
    if image is not None and image.uri.endswith(_KEY):
        record = replace(record, image=replace(image, uri=image.uri[:-1] + record.key))
    if found.spooled is not None and read is not None:
        record = replace(record, annotations=_decode_annotations(read(found.spooled)))
    _restore_tuples(record.annotations)
    return record


def _restore_tuples(annotations: Annotations) -> None:
    """Makes values that are lists, once decoded, tuples again."""
    _restore_in(annotations.features)
    for one in annotations.objects:
        _restore_in(one.attributes)
    if annotations.steps is not None:
        lists: Any = annotations.steps.lists
        for name, values in lists.items():
            lists[name] = tuple(tuple(value) if type(value) is list else value for value in values)


def _restore_in(values: Any) -> None:
    if list in map(type, values.values()):
        values.update({name: tuple(value) for name, value in values.items() if type(value) is list})


class ListedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as it was listed, in the encoded parts that its reference is made of.

    Attributes:
        packed: the record, as of `pack_record`.
        spooled: the same, with its annotations in a spool; empty if they are small or there is no spool.
        content: its `listed_content`.
        files: its files in their versions.
    """

    packed: bytes
    spooled: bytes
    content: bytes
    files: bytes

    @classmethod
    def of(cls, record: ImageRecord, spool: Spool | None = None) -> ListedRecord:
        """The parts of `record`; its annotations go into `spool` if they are large. Raises as `encode`."""
        packed = pack_record(record)
        held = spool_annotations(record, packed, spool)
        files = encode(_identities(files_of(record)))
        return cls(packed, b"" if held is packed else held, listed_content(record), files)

    def reference(self, key: str, seed: int) -> bytes:
        """The reference of the record, whose key this is. `seed` shuffles the order of references."""
        return order_hash(key, seed) + digest_of(self.content + self.files) + (self.spooled or self.packed)


def pack_reference(record: ImageRecord, seed: int) -> bytes:
    """The reference of a record. Raises as `encode`."""
    return ListedRecord.of(record).reference(record.key, seed)


def reference_shard(reference: bytes, num_shards: int) -> int:
    """The shard of a reference within its split."""
    return shard_of(reference[:HASH_BYTES], num_shards)


def reference_digest(reference: bytes) -> bytes:
    """The digest of the inputs of a record's bytes: its `listed_content`, and its files in their versions."""
    return reference[HASH_BYTES:_START]


def reference_record(reference: bytes, read: Read | None = None) -> ImageRecord:
    """The record of a reference; `read` as in `unpack_record`."""
    return unpack_record(reference[_START:], read)
