"""Process-wide settings of the command and of spawned writers.

They are not changed where recordmill is imported as a library.
"""

from __future__ import annotations

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
    from recordmill.transforms.images.pillow import silence_libtiff

    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", module=r"PIL(\..*)?$")
    warnings.filterwarnings("ignore", message=_PYTHON_2_HEADER)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    logging.getLogger("google.auth").setLevel(logging.ERROR)
    silence_libtiff()
