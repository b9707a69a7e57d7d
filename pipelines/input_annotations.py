"""Objects of images: boxes, key points, parts and masks, moved along with their image."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from recordmill.pipelines.input_images import Fit, fitted, png_values
from recordmill.pipelines.input_parsing import Tensors
from recordmill.pipelines.input_plan import OBJECTS, SIDES, Plan

_PART = "image/object/part/"
_PART_SIDES = tuple(_PART + side.removeprefix(OBJECTS) for side in SIDES)
_KEYPOINT = "image/object/keypoint/"
_X, _Y, _SEEN = _KEYPOINT + "x", _KEYPOINT + "y", _KEYPOINT + "visibility"


def object_masks(data: tf.Tensor, height: Any, width: Any, fit: Fit | None, plan: Plan) -> tf.Tensor:
    """Masks of objects, (n, h, w): 1 where the object is. One that is empty is 0 all over."""
    sides = list(fit.target) if fit is not None else [height, width]
    shape = list(fit.target) if fit is not None else [None, None]

    def one(png: tf.Tensor) -> tf.Tensor:
        mask = tf.cond(
            tf.strings.length(png) > 0,
            lambda: tf.cast(png_values(png, tf.uint8) > 0, tf.uint8),
            lambda: tf.zeros([height, width, 1], tf.uint8),
        )
        mask.set_shape([None, None, 1])
        return fitted(mask, fit, plan.asked, fill=0)[..., 0]

    masks = tf.cond(
        tf.size(data) > 0,
        lambda: tf.map_fn(one, data, fn_output_signature=tf.TensorSpec(shape, tf.uint8)),
        lambda: tf.zeros([0, *sides], tf.uint8),
    )
    masks.set_shape([None, *shape])
    return masks


def moved(found: Tensors, fit: Fit, plan: Plan) -> Tensors:
    """The features of objects, whose boxes and key points are shares of the image, after a fit.

    Where the image was cropped, objects of which nothing is left are dropped, with their values in all lists.
    """
    by_ours = {plan.name(name): name for name in found}
    found = dict(found)
    for sides in (SIDES, _PART_SIDES):
        for axis, pair in ((1, sides[:2]), (0, sides[2:])):
            for side in pair:
                if side in by_ours:
                    name = by_ours[side]
                    found[name] = tf.clip_by_value(_share(found[name], fit, axis), 0.0, 1.0)
    _move_keypoints(found, by_ours, fit)
    if plan.asked.resize == "crop_or_pad" and all(side in by_ours for side in SIDES):
        xmin, xmax, ymin, ymax = (found[by_ours[side]] for side in SIDES)
        _keep(found, by_ours, tf.logical_and(xmax > xmin, ymax > ymin))
    return found


def _share(values: tf.Tensor, fit: Fit, axis: int) -> tf.Tensor:
    """Shares of the stored image as shares of the fitted one, along an axis."""
    content, offset = (tf.cast(pair[axis], tf.float32) for pair in (fit.content, fit.offset))
    return (values * content + offset) / float(fit.target[axis])


def _move_keypoints(found: Tensors, by_ours: dict[str, str], fit: Fit) -> None:
    """Those that are not in the image any more become 0, 0, not labelled."""
    if _X not in by_ours or _Y not in by_ours:
        return
    names = by_ours[_X], by_ours[_Y]
    x, y = _share(found[names[0]], fit, 1), _share(found[names[1]], fit, 0)
    inside = tf.logical_and(tf.logical_and(x >= 0, x <= 1), tf.logical_and(y >= 0, y <= 1))
    if _SEEN in by_ours:
        seen = found[by_ours[_SEEN]]
        inside = tf.logical_and(inside, seen > 0)
        found[by_ours[_SEEN]] = tf.where(inside, seen, tf.zeros_like(seen))
    found[names[0]], found[names[1]] = (tf.where(inside, one, tf.zeros_like(one)) for one in (x, y))


def _keep(found: Tensors, by_ours: dict[str, str], keep: tf.Tensor) -> None:
    """Drops the objects that are not to be kept."""
    count = tf.size(keep)
    _keep_parts(found, by_ours, keep)
    for ours, name in by_ours.items():
        if not ours.startswith(OBJECTS) or ours.startswith(_PART):
            continue
        values = found[name]
        if ours.startswith(_KEYPOINT):
            each = tf.size(values) // tf.maximum(count, 1)
            kept = tf.repeat(keep, each)
            found[name] = tf.boolean_mask(values, kept)
        else:
            found[name] = _kept_if_listed(values, keep, count)
        found[name].set_shape(values.shape)


def _kept_if_listed(values: tf.Tensor, keep: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The values of kept objects, of a list that has one for each."""
    return tf.cond(tf.shape(values)[0] == count, lambda: tf.boolean_mask(values, keep), lambda: values)


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
