"""Serialized tensors are TensorFlow's, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.images.tensor import tensor_bytes
from tests.lazy import tf


@given(st.integers(1, 300), st.integers(1, 140), st.integers(1, 4), st.sampled_from(["uint8", "uint16"]))
@settings(max_examples=40, deadline=None)
def test_equals_serialize_tensor(height: int, width: int, channels: int, dtype: str) -> None:
    pixels = np.arange(height * width * channels).astype(dtype).reshape(height, width, channels)
    data = tensor_bytes(pixels)
    assert data == tf.io.serialize_tensor(pixels).numpy()
    np.testing.assert_array_equal(tf.io.parse_tensor(data, dtype).numpy(), pixels)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_golden_bytes(dtype: str) -> None:
    head = {"uint8": "0804", "uint16": "0811"}[dtype]
    size = {"uint8": "2202", "uint16": "2204"}[dtype]
    content = {"uint8": "0102", "uint16": "01000200"}[dtype]
    pixels = np.array([[[1, 2]]], dtype)
    assert tensor_bytes(pixels).hex() == head + "120c" + "12020801" * 2 + "12020802" + size + content
