"""Process-wide settings of a process that is ours: a command, or a spawned writer.

Importing recordmill as a library changes none of them.
"""

from __future__ import annotations

import logging
import os
import warnings

_ENVIRONMENT = {
    # Google's client then looks for a metadata server for one second, once: other machines have none.
    "GCE_METADATA_TIMEOUT": "1",
    "GCE_METADATA_DETECT_RETRIES": "1",
    # Beam's client otherwise requests each bucket's metadata, for traces, which takes a permission more.
    "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
}
_PYTHON_2_HEADER = "Reading `.npy` or `.npz` file required"


def set_up() -> None:
    """Silences the image libraries and Google's client. Called once, before the process has threads.

    What is wrong with an image is in its failure. `warnings.catch_warnings` around each decode is no
    alternative: it is not safe in threads.
    """
    from transforms.images.pillow import silence_libtiff

    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", module=r"PIL(\..*)?$")
    warnings.filterwarnings("ignore", message=_PYTHON_2_HEADER)
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    logging.getLogger("google.auth").setLevel(logging.ERROR)
    silence_libtiff()
