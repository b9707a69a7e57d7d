"""Spares Beam's own files on gs:// the search for credentials that are not there."""

from __future__ import annotations

from recordmill.transforms.storage import cloud


def spare_search() -> None:
    """Makes Beam ask anonymously, in this process, where our own client does.

    Else each process tries for 20 seconds to find some, and --no_auth does not spare it that.
    """
    if not cloud.is_anonymous():
        return
    try:
        from apache_beam.internal.gcp.auth import _Credentials
    except ImportError:
        return  # the parts of Beam for Google Cloud are not installed
    with _Credentials._credentials_lock:
        _Credentials._credentials_init = True
