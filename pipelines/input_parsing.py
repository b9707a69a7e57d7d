"""Serialised records to tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from recordmill.pipelines.input_plan import MASK_FILLS, Plan
from recordmill.transforms.examples.schema import FeatureSpec

Tensors = dict[str, Any]
"""Tensors by the name of their feature."""


def parsed(serialized: tf.Tensor, plan: Plan) -> tuple[Tensors, Tensors]:
    """The features of a record, and its feature lists.

    A mask, which a record may lack, is a list of one or none.
    """
    specs = plan.specs
    if not specs.feature_lists:
        features = {name: _of_example(_spec(name, spec, plan)) for name, spec in specs.features.items()}
        return tf.io.parse_single_example(serialized, features), {}
    context = {name: _of_context(_spec(name, spec, plan)) for name, spec in specs.features.items()}
    lists = {name: _of_list(spec) for name, spec in specs.feature_lists.items()}
    found, steps = tf.io.parse_single_sequence_example(serialized, context or None, lists)
    return dict(found), dict(steps)


def parsed_batch(serialized: tf.Tensor, plan: Plan) -> Tensors:
    """The features of a batch of records, (b,), one value of each that is needed."""
    features = {
        name: _of_example(spec)
        for name, spec in plan.specs.features.items()
        if name in plan.kept or name != plan.key
    }
    found: Tensors = tf.io.parse_example(serialized, features)
    return found


def _spec(name: str, spec: FeatureSpec, plan: Plan) -> FeatureSpec:
    return FeatureSpec(spec.dtype, (None,)) if plan.name(name) in MASK_FILLS else spec


def _of_example(spec: FeatureSpec) -> Any:
    if spec.shape == (None,):
        return tf.io.FixedLenSequenceFeature([], spec.dtype, allow_missing=True)
    return tf.io.FixedLenFeature(spec.shape, spec.dtype)


def _of_context(spec: FeatureSpec) -> Any:
    return (
        tf.io.RaggedFeature(spec.dtype)
        if spec.shape == (None,)
        else tf.io.FixedLenFeature(spec.shape, spec.dtype)
    )


def _of_list(spec: FeatureSpec) -> Any:
    if spec.shape == (None,):
        return tf.io.RaggedFeature(spec.dtype)
    return tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype)
