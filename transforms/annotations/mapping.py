"""Maps annotations into the stored image: turned, scaled, padded and cropped as it was."""

from __future__ import annotations

import numpy as np

from recordmill.transforms.annotations.boxes import BoxRule
from recordmill.transforms.annotations.decoded import Read
from recordmill.transforms.annotations.frame import frame_of
from recordmill.transforms.annotations.masks import ClassIds, MaskBuilder
from recordmill.transforms.annotations.objects import Kept, ObjectMapper
from recordmill.transforms.annotations.shapes import Shapes
from recordmill.transforms.images.mask import encode_mask
from recordmill.transforms.records import BOXES, AnnotatedObject, Annotations, BadInput, Mapped, StoredImage

OF_OBJECTS = frozenset({"objects", "object_masks"})
"""The fields of `Mapped` that are made from objects."""

OF_CLASSES = frozenset({"class_png", "class_raw"})
"""The masks of `Mapped` that are made from the values of a mask of classes, if there is one."""

OF_CLASS_IDS = OF_CLASSES | {"panoptic_category_png"}
"""The masks of `Mapped` whose pixels are ids of classes."""


def map_annotations(
    annotations: Annotations, image: StoredImage, needs: frozenset[str], boxes: str, read: Read, ids: ClassIds
) -> Mapped:
    """The annotations of an image in the coordinates of the stored image.

    Args:
        annotations: as the source has them.
        image: as it is stored.
        needs: the parts of `Mapped` that are needed: `objects`, `object_masks`, and names of masks.
        boxes: one of `BOXES`: `clip` clips boxes to the image, `drop` drops those partly outside; both drop
            boxes without area. `fail` fails the record in all these cases.
        read: reads the bytes of a mask.
        ids: of classes.

    Raises:
        BadInput: an annotation is invalid, or a box does not fit and `boxes` is `fail`.
    """
    if boxes not in BOXES:
        raise ValueError(f"boxes is {boxes!r}; it may be {', '.join(BOXES)}")
    frame = frame_of(annotations, image)
    shapes = Shapes(frame, annotations.relative, read)
    notes: list[tuple[str, str]] = []
    kept: list[Kept] = []
    if needs & OF_OBJECTS:
        kept = ObjectMapper(BoxRule(boxes, frame, notes), shapes).mapped(annotations.objects)
    object_masks = (_object_mask(shapes, *one) for one in (kept if "object_masks" in needs else ()))
    masks = _encoded(MaskBuilder(annotations, frame, shapes, read, ids), needs)
    return Mapped(tuple(one for _, one in kept), masks, tuple(object_masks), tuple(notes))


def _object_mask(shapes: Shapes, source: AnnotatedObject, stored: AnnotatedObject) -> bytes:
    """The PNG of one object; its box filled if it has no mask."""
    if source.mask is not None:
        return encode_mask(shapes.stored_mask(source.mask))
    if stored.box is None:
        raise ValueError("a mapped object has a box")
    return encode_mask(shapes.filled_box(stored.box))


def _encoded(masks: MaskBuilder, needs: frozenset[str]) -> dict[str, bytes]:
    """The masks that are needed; no instances if the image has none."""
    found: dict[str, bytes] = {}
    if needs & OF_CLASSES:
        classes = masks.classes()
        if "class_png" in needs:
            found["class_png"] = encode_mask(classes)
        if "class_raw" in needs:
            if classes.dtype != np.uint8:
                detail = f"class id {int(classes.max())}; mask_raw holds a byte a pixel"
                raise BadInput("annotations", "class id too large for mask_raw", detail)
            found["class_raw"] = classes.tobytes()
    if "instance_png" in needs and (instances := masks.instances()) is not None:
        found["instance_png"] = encode_mask(instances)
    if "panoptic_category_png" in needs:
        category, instance = masks.panoptic()
        found["panoptic_category_png"] = encode_mask(category)
        found["panoptic_instance_png"] = encode_mask(instance)
    return found
