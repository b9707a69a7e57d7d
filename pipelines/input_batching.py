"""Batches of elements whose lists differ in length."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import tensorflow as tf

Lists = Literal["ragged", "padded"]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How elements are batched; see `load_dataset`."""

    batch_size: int | None
    drop_remainder: bool
    lists: Lists

    def __post_init__(self) -> None:
        if self.lists not in get_args(Lists):
            raise ValueError(f"lists is {self.lists!r}; it may be 'ragged' or 'padded'")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size!r}; it may be a number from 1, or None")
        if self.batch_size is None and self.drop_remainder:
            raise ValueError("drop_remainder is True, and there are no batches; give batch_size too")


def batched(dataset: tf.data.Dataset, batching: Batching) -> tf.data.Dataset:
    """The dataset in batches; lists ragged, or padded with -1, 0.0 and empty bytes, masks with 0."""
    if batching.batch_size is None:
        return dataset
    size, drop = batching.batch_size, batching.drop_remainder
    specs = tf.nest.flatten(dataset.element_spec)
    if all(isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() for spec in specs):
        return dataset.batch(size, drop)
    if batching.lists == "ragged":
        return dataset.ragged_batch(size, drop)
    dataset = dataset.map(_dense, num_parallel_calls=tf.data.AUTOTUNE)
    shapes = tf.nest.map_structure(lambda spec: spec.shape, dataset.element_spec)
    values = tf.nest.map_structure(_padding, dataset.element_spec)
    return dataset.padded_batch(size, shapes, values, drop)


def _dense(*element: Any) -> Any:
    """An element without ragged tensors."""
    found = tf.nest.map_structure(
        lambda one: one.to_tensor(_padding(one)) if isinstance(one, tf.RaggedTensor) else one, element
    )
    return found if len(found) > 1 else found[0]


def _padding(spec: Any) -> Any:
    value = {tf.int64: -1, tf.string: b""}.get(spec.dtype, 0)
    return tf.constant(value, spec.dtype)
