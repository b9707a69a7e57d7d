"""Short hashes of the inputs of records, images and masks, which are reused if the hashes are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec.structs import replace

from recordmill.transforms.annotations.mapping import OF_CLASSES, OF_OBJECTS
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.records import Annotations, ImageRecord, ImageRef
from recordmill.transforms.shards.plain_values import encode

DIGEST_BYTES = 16
_NO_FILE = ImageRef("")


def digest_of(data: bytes) -> bytes:
    """A hash of `DIGEST_BYTES` bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def files_of(record: ImageRecord) -> list[ImageRef]:
    """The image of a record, its frames and its masks."""
    files = _annotation_files(record.annotations)
    return files if record.image is None else [record.image, *files]


def has_details(annotations: Annotations) -> bool:
    """Whether there is more than labels and free features."""
    return annotations != Annotations(annotations.labels, annotations.features)


def is_versioned(record: ImageRecord) -> bool:
    """Whether every file that a record is made from has a version."""
    return all(ref.version for ref in files_of(record))


def listed_content(record: ImageRecord) -> bytes:
    """The content of a record as listed, without the locations of its files and of its listing."""
    return encode((record.key, record.split, record.size, _without_files(record.annotations)))


def record_digest(record: ImageRecord, content: bytes) -> bytes:
    """The hash of what determines a record's bytes: its `listed_content`, and its files in their versions."""
    return digest_of(content + encode(_identities(files_of(record))))


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
        ids += sorted((type(label).__name__, str(label), labels.ids.get(label)) for label in used)
    if "class" in annotations.masks and needs & OF_CLASSES:
        ids.append(mask_map)
    drawn = replace(_without_files(annotations), labels=(), features={})
    return digest_of(encode((drawn, _identities(refs), ids, sorted(needs)))).hex()


def _identities(refs: Iterable[ImageRef]) -> list[ImageRef]:
    """References without their locations where the version is a hash of the bytes: spools lie elsewhere."""
    return [ref if ref.version >= 0 else replace(ref, uri="", offset=0) for ref in refs]


def _annotation_files(annotations: Annotations) -> list[ImageRef]:
    files = [one.mask for one in annotations.objects if isinstance(one.mask, ImageRef)]
    if annotations.steps is not None:
        files += annotations.steps.frames
    return files + [mask.image for mask in annotations.masks.values()]


def _without_files(annotations: Annotations) -> Annotations:
    """Annotations whose frames and masks are no particular files."""
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
