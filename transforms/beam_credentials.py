"""Spares Beam's own files on gs:// the search for credentials that are not there."""

from __future__ import annotations

from recordmill.transforms.storage.file_system import file_system


def spare_search(path: str = "gs://") -> None:
    """Makes Beam send anonymous requests, in this process, where our own client does.

    Otherwise each process looks for credentials for 20 seconds, even with --no_auth.
    """
    if not file_system(path).is_anonymous():
        return
    try:
        from apache_beam.internal.gcp.auth import _Credentials
    except ImportError:
        return  # the parts of Beam for Google Cloud are not installed
    with _Credentials._credentials_lock:
        _Credentials._credentials_init = True
