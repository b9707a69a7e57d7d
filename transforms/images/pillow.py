"""Converts Pillow's errors to BadInput, and silences libtiff."""

from __future__ import annotations

import ctypes
import struct
import zlib

from PIL import Image, _imaging

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


def silence_libtiff() -> None:
    """Turns off libtiff's error handler for the whole process.

    It prints errors to standard error; Pillow raises them too.
    """
    # Not found if libtiff is linked statically into Pillow, or missing.
    set_handler = getattr(ctypes.CDLL(_imaging.__file__), "TIFFSetErrorHandler", None)
    if set_handler is not None:
        set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
        set_handler(None)


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
