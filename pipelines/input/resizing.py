"""Resizes images; boxes, key points and parts of objects are adjusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from recordmill.pipelines.input.layout import BOXES, OBJECTS, PART_BOXES
from recordmill.pipelines.input.plan import Asked, Plan

Tensors = dict[str, Any]
"""Tensors by name."""

_PART = "image/object/part/"
_KEYPOINT = "image/object/keypoint/"
_X, _Y, _SEEN = _KEYPOINT + "x", _KEYPOINT + "y", _KEYPOINT + "visibility"


class Fit(NamedTuple):
    """The position of an image in one of another size.

    Attributes:
        content: height and width that the image is scaled to.
        offset: rows and columns before it; negative where it is cropped.
    """

    content: tuple[Any, Any]
    offset: tuple[Any, Any]
    target: tuple[int, int]


def fit_of(height: Any, width: Any, asked: Asked) -> Fit | None:
    """The fit of an image; None if its size is kept."""
    target = asked.target
    if target is None:
        return None
    if asked.resize == "stretch":
        return Fit(target, (0, 0), target)
    if asked.resize == "crop_or_pad":
        # as tf.image.resize_with_crop_or_pad has it
        offsets = [_half(goal - side) for goal, side in zip(target, (height, width), strict=True)]
        return Fit((height, width), (offsets[0], offsets[1]), target)
    # as tf.image.resize_with_pad has it, rounding included
    sides = [tf.cast(side, tf.float32) for side in (height, width)]
    ratio = tf.maximum(sides[1] / float(target[1]), sides[0] / float(target[0]))
    scaled = [side / ratio for side in sides]
    content = [tf.maximum(tf.cast(tf.floor(side), tf.int32), 1) for side in scaled]
    offsets = [
        tf.maximum(0, tf.cast(tf.floor((float(goal) - side) / 2), tf.int32))
        for goal, side in zip(target, scaled, strict=True)
    ]
    return Fit((content[0], content[1]), (offsets[0], offsets[1]), target)


def _half(room: Any) -> Any:
    """Half of the room, which is negative if the image is cut; rounded as TensorFlow does."""
    return tf.where(room >= 0, room // 2, -(-room // 2))


def fitted(image: tf.Tensor, fit: Fit | None, asked: Asked, fill: int | None = None) -> tf.Tensor:
    """An image (h, w, channels) in its new size; `fill` is the padding of a mask, None for other images."""
    if fit is None:
        return image
    channels = image.shape[-1]
    if asked.resize != "crop_or_pad":
        if fill is not None:
            image = tf.image.resize(image, fit.content, "nearest")
        else:
            scaled = tf.image.resize(image, fit.content, antialias=asked.antialias)
            image = tf.saturate_cast(tf.round(scaled), image.dtype)
    if asked.resize != "stretch":
        image = _placed(image, fit, fill or 0)
    image.set_shape([*fit.target, channels])
    return image


def _placed(image: tf.Tensor, fit: Fit, fill: int) -> tf.Tensor:
    cropped = [tf.maximum(0, -offset) for offset in fit.offset]
    image = image[cropped[0] :, cropped[1] :][: fit.target[0], : fit.target[1]]
    before = [tf.maximum(0, offset) for offset in fit.offset]
    after = [
        goal - side - offset
        for goal, side, offset in zip(fit.target, tf.unstack(tf.shape(image))[:2], before, strict=True)
    ]
    pads = [[before[0], after[0]], [before[1], after[1]], [0, 0]]
    return tf.pad(image, pads, constant_values=tf.cast(fill, image.dtype))


def moved(found: Tensors, fit: Fit, plan: Plan) -> Tensors:
    """The features of objects, whose boxes and key points are normalised by the image, after a fit.

    If the image was cropped, objects of which nothing is left are dropped, with their values in all lists.
    """
    by_ours = {plan.layout.ours.get(name, name): name for name in found}
    found = dict(found)
    for prefix in (BOXES, PART_BOXES):
        if prefix in by_ours:
            boxes = _moved(found[by_ours[prefix]], fit, (0, 1, 0, 1))
            found[by_ours[prefix]] = tf.clip_by_value(boxes, 0.0, 1.0)
    _move_keypoints(found, by_ours, fit)
    if plan.asked.resize == "crop_or_pad" and BOXES in by_ours:
        boxes = found[by_ours[BOXES]]
        _keep(found, by_ours, tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1))
    return found


def _moved(values: tf.Tensor, fit: Fit, axes: Sequence[int]) -> tf.Tensor:
    """Coordinates in the stored image as coordinates in the fitted one: 0 for rows, 1 for columns."""
    content, offset, target = (
        tf.cast(tf.stack([pair[axis] for axis in axes]), tf.float32)
        for pair in (fit.content, fit.offset, fit.target)
    )
    return (values * content + offset) / target


def _move_keypoints(found: Tensors, by_ours: dict[str, str], fit: Fit) -> None:
    """Key points that are outside the new image become 0, 0, not labelled."""
    if _X not in by_ours or _Y not in by_ours:
        return
    x_name, y_name = by_ours[_X], by_ours[_Y]
    x, y = _moved(found[x_name], fit, (1,)), _moved(found[y_name], fit, (0,))
    inside = tf.logical_and(tf.logical_and(x >= 0, x <= 1), tf.logical_and(y >= 0, y <= 1))
    if _SEEN in by_ours:
        seen = found[by_ours[_SEEN]]
        inside = tf.logical_and(inside, seen > 0)
        found[by_ours[_SEEN]] = tf.where(inside, seen, tf.zeros_like(seen))
    found[x_name], found[y_name] = (tf.where(inside, one, tf.zeros_like(one)) for one in (x, y))


def _keep(found: Tensors, by_ours: dict[str, str], keep: tf.Tensor) -> None:
    """Drops objects."""
    count = tf.size(keep)
    _keep_parts(found, by_ours, keep)
    for ours, name in by_ours.items():
        if not ours.startswith(OBJECTS) or ours.startswith(_PART):
            continue
        values = found[name]
        if ours.startswith(_KEYPOINT):
            each = tf.size(values) // tf.maximum(count, 1)
            found[name] = tf.boolean_mask(values, tf.repeat(keep, each))
        else:
            found[name] = _kept(values, keep)
        found[name].set_shape(values.shape)


def _kept(values: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """The values of kept objects; a list without a value for each object is not changed."""
    is_listed = tf.shape(values)[0] == tf.size(keep)
    return tf.cond(is_listed, lambda: tf.boolean_mask(values, keep), lambda: values)


def _keep_parts(found: Tensors, by_ours: dict[str, str], keep: tf.Tensor) -> None:
    owner = by_ours.get(_PART + "object")
    if owner is None:
        return
    owners = tf.cast(found[owner], tf.int32)
    kept = tf.gather(keep, owners)
    found[owner] = tf.cast(tf.gather(tf.cumsum(tf.cast(keep, tf.int32)) - 1, owners), tf.int64)
    for ours, name in by_ours.items():
        if ours.startswith(_PART):
            found[name] = tf.boolean_mask(found[name], kept)
