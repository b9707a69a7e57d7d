"""Turns Pillow's errors into failures."""

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

# What Pillow's readers are known to raise on bad data. MemoryError is not among them: it is the machine's.
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
    """A decoder's error as the BadInput that it means."""
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
