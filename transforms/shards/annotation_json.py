"""Annotations beyond labels and free features, as compact JSON: equal bytes for equal annotations.

Where files lie is kept apart: the JSON has a file's place in the list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recordmill.transforms.records import (
    AnnotatedObject,
    Annotations,
    Box,
    ImageRecord,
    ImageRef,
    MaskImage,
    Part,
    Rle,
    Segment,
    Steps,
)

_RELATIVE, _UPRIGHT = 1, 2

Json = Any
Refer = Callable[[ImageRef], int]


def has_details(annotations: Annotations) -> bool:
    """Whether there is more than labels and free features."""
    return bool(
        annotations.objects
        or annotations.size
        or annotations.masks
        or annotations.captions
        or annotations.source_id
        or annotations.steps is not None
        or annotations.relative
        or annotations.upright
    )


def details(annotations: Annotations) -> tuple[dict[str, Json], list[ImageRef]]:
    """All but labels and free features as what JSON can hold, and the files that it speaks of."""
    refs: list[ImageRef] = []

    def refer(ref: ImageRef) -> int:
        refs.append(ref)
        return len(refs) - 1

    found: dict[str, Json] = {
        "objects": [_object(one, refer) for one in annotations.objects],
        "captions": list(annotations.captions),
        "masks": {name: _mask(mask, refer) for name, mask in sorted(annotations.masks.items())},
        "size": annotations.size and list(annotations.size),
        "flags": _RELATIVE * annotations.relative + _UPRIGHT * annotations.upright,
        "id": annotations.source_id,
        "steps": annotations.steps and _steps(annotations.steps, refer),
    }
    return {name: value for name, value in found.items() if value}, refs


def with_details(
    annotations: Annotations, found: Mapping[str, Json], refs: list[ImageRef], plain: Callable[[Json], Any]
) -> Annotations:
    """Annotations with what `details` made; `plain` undoes what JSON did to a scalar."""
    size = found.get("size")
    steps = found.get("steps")
    flags = found.get("flags", 0)
    return Annotations(
        annotations.labels,
        annotations.features,
        tuple(_read_object(one, refs, plain) for one in found.get("objects", ())),
        tuple(found.get("captions", ())),
        {name: _read_mask(mask, refs) for name, mask in found.get("masks", {}).items()},
        size and (size[0], size[1]),
        bool(flags & _RELATIVE),
        bool(flags & _UPRIGHT),
        found.get("id", ""),
        steps and _read_steps(steps, refs, plain),
    )


def files_of(record: ImageRecord) -> Iterator[ImageRef]:
    """The image of a record, and what its annotations speak of: frames and masks."""
    if record.image is not None:
        yield record.image
    annotations = record.annotations
    if annotations.steps is not None:
        yield from annotations.steps.frames
    for one in annotations.objects:
        if isinstance(one.mask, ImageRef):
            yield one.mask
    for mask in annotations.masks.values():
        yield mask.image


def ref_json(ref: ImageRef) -> list[Json]:
    """A reference to a file or a range of one."""
    return [ref.uri, ref.version, ref.offset, ref.length, ref.pixels, ref.wrapping]


def ref_identity(ref: ImageRef) -> list[Json]:
    """What tells one state of a file from all others: where it lies, unless its version is of its bytes."""
    if ref.version < 0:
        return [ref.version, ref.length, ref.pixels]
    return ref_json(ref)


def read_ref(packed: list[Json]) -> ImageRef:
    """The reference that `ref_json` made."""
    uri, version, offset, length, pixels, wrapping = packed
    return ImageRef(uri, offset, length, tuple(pixels) if pixels else None, version, wrapping)


def _object(one: AnnotatedObject, refer: Refer) -> list[Json]:
    packed: list[Json] = [
        one.label,
        one.box,
        _object_mask(one.mask, refer),
        one.keypoints or None,
        [[part.name, *part.box] for part in one.parts] or None,
        list(one.attributes.items()) or None,
    ]
    while packed[-1] is None:
        packed.pop()
    return packed


def _object_mask(mask: object, refer: Refer) -> Json:
    if isinstance(mask, Rle):
        return {"rle": [mask.height, mask.width, mask.counts]}
    return {"file": refer(mask)} if isinstance(mask, ImageRef) else mask


def _read_object(packed: list[Json], refs: list[ImageRef], plain: Callable[[Json], Any]) -> AnnotatedObject:
    label, box, mask, keypoints, parts, attributes = packed + [None] * (6 - len(packed))
    return AnnotatedObject(
        label,
        box and Box(*box),
        _read_object_mask(mask, refs),
        tuple((x, y, visibility) for x, y, visibility in keypoints or ()),
        tuple(Part(name, Box(*sides)) for name, *sides in parts or ()),
        {name: plain(value) for name, value in attributes or ()},
    )


def _read_object_mask(mask: Json, refs: list[ImageRef]) -> Any:
    if isinstance(mask, dict):
        if "file" in mask:
            return refs[mask["file"]]
        height, width, counts = mask["rle"]
        return Rle(height, width, counts if isinstance(counts, str) else tuple(counts))
    return mask and tuple(map(tuple, mask))


def _mask(mask: MaskImage, refer: Refer) -> list[Json]:
    segments = [[one.id, one.label, int(one.is_thing)] for one in mask.segments]
    return [refer(mask.image), mask.colors, segments]


def _read_mask(packed: list[Json], refs: list[ImageRef]) -> MaskImage:
    number, colors, segments = packed
    return MaskImage(
        refs[number],
        tuple((color, value) for color, value in colors),
        tuple(Segment(number, label, bool(is_thing)) for number, label, is_thing in segments),
    )


def _steps(steps: Steps, refer: Refer) -> list[Json]:
    lists = [[name, values] for name, values in steps.lists.items()]
    return [[refer(frame) for frame in steps.frames], steps.labels, lists]


def _read_steps(packed: list[Json], refs: list[ImageRef], plain: Callable[[Json], Any]) -> Steps:
    frames, labels, lists = packed
    return Steps(
        tuple(refs[number] for number in frames),
        tuple(map(tuple, labels)),
        {name: tuple(plain(value) for value in values) for name, values in lists},
    )
