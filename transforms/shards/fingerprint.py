"""What stored images and masks were made from, as short hashes: equal ones need not be made anew."""

from __future__ import annotations

import hashlib
import json

from recordmill.transforms.annotations.place import OF_CLASSES, OF_OBJECTS
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import ImageRecord
from recordmill.transforms.shards.annotation_json import details, files_of, ref_identity

_BYTES = 16
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode


def source_fingerprint(record: ImageRecord) -> str:
    """Of the images of a record: which, and in which state; empty where it has none, or that is unknown."""
    refs = [record.image] if record.image is not None else []
    if record.annotations.steps is not None:
        refs += record.annotations.steps.frames
    if not refs or any(ref.version == 0 for ref in refs):
        return ""
    return _hashed([record.key, record.size, [ref_identity(ref) for ref in refs]])


def is_known(record: ImageRecord) -> bool:
    """Whether the state is known of every file that a record is made from."""
    return all(ref.version for ref in files_of(record))


def annotations_fingerprint(
    record: ImageRecord, labels: LabelMap, needs: frozenset[str], mask_map: str
) -> str:
    """Of the masks of a record, beside its images: its annotations, and the ids that its classes have.

    Empty where the state of a file that they speak of is unknown.

    Args:
        record: the record.
        labels: ids of classes.
        needs: what of `Placed` is wanted.
        mask_map: tells which ids the values of masks are stored as.
    """
    annotations = record.annotations
    found, refs = details(annotations)
    if any(ref.version == 0 for ref in refs):
        return ""
    ids: list[object] = []
    if needs - OF_OBJECTS:
        used = {one.label for one in annotations.objects}
        used |= {segment.label for mask in annotations.masks.values() for segment in mask.segments}
        ids += sorted((type(label).__name__, str(label), labels.ids.get(label)) for label in used)
    if "class" in annotations.masks and needs & OF_CLASSES:
        ids.append(mask_map)
    return _hashed([found, [ref_identity(ref) for ref in refs], ids, sorted(needs)])


def _hashed(parts: list[object]) -> str:
    return hashlib.blake2b(_encode(parts).encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()
