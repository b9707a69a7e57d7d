"""Converts Pillow's errors to BadInput."""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from recordmill.transforms.images.reasons import (
    CORRUPT,
    NOT_SUPPORTED,
    TOO_MANY_PIXELS,
    TRUNCATED,
    undecodable,
)
from recordmill.transforms.records import BadInput

# Errors that Pillow's readers raise on bad data. MemoryError is left out: its cause is the machine.
DECODER_ERRORS = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def named(error: BaseException) -> BadInput:
    """The BadInput for an error of a decoder."""
    detail = str(error) or type(error).__name__
    if detail.lstrip("-").isdigit():
        detail = f"decoder error {detail}"
    if isinstance(error, Image.DecompressionBombError):
        return undecodable(TOO_MANY_PIXELS, detail)
    if isinstance(error, NotImplementedError):
        return undecodable(NOT_SUPPORTED, detail)
    text = detail.lower()
    if isinstance(error, EOFError) or "truncat" in text or "unexpected end" in text or "not enough" in text:
        return undecodable(TRUNCATED, detail)
    return undecodable(CORRUPT, detail)
