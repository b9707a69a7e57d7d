"""Serialises pixels as a TensorProto."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# DataType numbers of tensorflow/core/framework/types.proto.
_DTYPES = {"uint8": 4, "uint16": 17}


def tensor_bytes(pixels: npt.NDArray[Any]) -> bytes:
    """The bytes that tf.io.serialize_tensor makes of `pixels`, for tf.io.parse_tensor.

    A TensorProto (tensorflow/core/framework/tensor.proto): dtype = 1, tensor_shape = 2 (TensorShapeProto:
    dim = 2, with size = 1), tensor_content = 4, little-endian.

    Args:
        pixels: uint8 or uint16, any shape without empty axes.
    """
    little = np.ascontiguousarray(pixels, dtype=pixels.dtype.newbyteorder("<"))
    shape = b"".join(_field(2, b"\x08" + varint(size)) for size in pixels.shape)
    head = b"\x08" + varint(_DTYPES[pixels.dtype.name]) + _field(2, shape)
    return head + _field(4, little.tobytes())


def _field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    """A varint of protocol buffers."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
