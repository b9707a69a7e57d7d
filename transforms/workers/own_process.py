"""Process-wide settings of the command and of worker processes.

They are not changed where recordmill is imported as a library.
"""

from __future__ import annotations

import ctypes
import logging
import os
import warnings

_ENVIRONMENT = {
    # Google's client looks for its metadata server once, for one second: machines elsewhere have none.
    "GCE_METADATA_TIMEOUT": "1",
    "GCE_METADATA_DETECT_RETRIES": "1",
    # Otherwise Beam's client requests each bucket's metadata for traces, which needs another permission.
    "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
}
_PYTHON_2_HEADER = "Reading `.npy` or `.npz` file required"


def set_up() -> None:
    """Silences the image libraries and Google's client. Call it once, before the process has threads.

    Failures report what is wrong with an image. `warnings.catch_warnings` around each decode would not be
    safe in threads.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", module=r"PIL(\..*)?$")
    warnings.filterwarnings("ignore", message=_PYTHON_2_HEADER)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    logging.getLogger("google.auth").setLevel(logging.ERROR)
    _silence_libtiff()


def _silence_libtiff() -> None:
    """Turns off libtiff's error handler, which prints errors to standard error; Pillow raises them too."""
    from PIL import _imaging

    # Not found if libtiff is built into Pillow, or left out of it.
    set_handler = getattr(ctypes.CDLL(_imaging.__file__), "TIFFSetErrorHandler", None)
    if set_handler is not None:
        set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
        set_handler(None)
