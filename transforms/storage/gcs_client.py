"""The client of Google Cloud Storage: one a process, and what its errors mean.

Every call is tried again with exponential backoff on 408, 429, 5xx and broken connections; what is left is an
OSError, as of any other file system.
"""

from __future__ import annotations

import errno
import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from recordmill.transforms.records import JobError
from recordmill.transforms.storage.file_system import ChangedError

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Bucket, Client

CONNECTIONS = 16
"""How many requests of one process are under way at a time, at most."""

NO_AUTH = "RECORDMILL_NO_AUTH"
"""The environment variable that makes a process ask without credentials."""

# Shorter than the time that a writer waits for one image, so that the fault itself is reported.
_RETRY_SECONDS = 90.0
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 16.0
# To connect, and between two bytes of an answer.
_TIMEOUT = (10.0, 60.0)
# Beside the client's own, which do not cover a body that does not match its checksum, an upload that broke
# off and cannot be gone on with, or the body of an error that is cut short.
_ATTEMPTS = 4
_FINAL = (401, 403, 404, 412)
_LOG_IN = "no credentials were found: log in with `gcloud auth application-default login`"
_ALLOW = "allow it to the account that asks"

_T = TypeVar("_T")


def split_uri(uri: str) -> tuple[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return bucket, name


def is_anonymous() -> bool:
    """Whether requests of this process carry no credentials: an emulator's, or none are to be found."""
    return _credentials() is None


def bucket(name: str) -> Bucket:
    return client().bucket(name)


def blob(uri: str, generation: int | None = None) -> Blob:
    """The handle of an object; makes no request."""
    container, name = split_uri(uri)
    return bucket(container).blob(name, generation=generation)


def client() -> Client:
    return _client(os.environ.get("STORAGE_EMULATOR_HOST", ""), os.environ.get(NO_AUTH, ""))


def called(
    uri: str, function: Callable[..., _T], *args: Any, within: float | None = None, **options: Any
) -> _T:
    """The result of a function of the client, whose errors are OSErrors about `uri`.

    With `within`, it is called once, and has so many seconds to answer; else with the usual time-outs and
    retries.

    Raises:
        FileNotFoundError, PermissionError, ChangedError: by the status of the answer.
        OSError: a fault that may pass, and has not; or an unexpected one.
        JobError: the credentials are invalid.
    """
    from http.client import HTTPException

    from google.api_core.exceptions import RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.exceptions import GoogleCloudError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from urllib3.exceptions import HTTPError

    settings = {"timeout": within or _TIMEOUT, "retry": _retry() if within is None else None}
    last: Exception
    for attempt in range(_ATTEMPTS if within is None else 1):
        if attempt:
            time.sleep(_FIRST_WAIT_SECONDS * attempt)
        try:
            return function(*args, **options, **settings)
        except InvalidResponse as error:
            last = _os_error(uri, error.response.status_code, _said_in(error.response) or str(error))
            if error.response.status_code in _FINAL:
                raise last from error
        except GoogleCloudError as error:
            raise _os_error(uri, error.code, _said(error)) from error
        except GoogleAuthError as error:
            raise JobError(
                f"{uri}: {_in_one_line(error)}; log in with `gcloud auth application-default login`"
            ) from error
        except RetryError as error:  # of the client, whose time is over
            said = _in_one_line(error.cause or error)
            raise OSError(errno.EIO, f"no good answer in {_RETRY_SECONDS:g} s: {said}", uri) from error
        except (DataCorruption, HTTPError, HTTPException) as error:
            last = OSError(errno.EIO, _in_one_line(error), uri)
        except OSError as error:  # those of requests have no number
            last = OSError(error.errno or errno.EIO, error.strerror or _in_one_line(error), uri)
    raise last


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads that make requests side by side."""
    return ThreadPoolExecutor(CONNECTIONS, "recordmill-cloud")


def _os_error(uri: str, status: int | None, message: str) -> OSError:
    message = _in_one_line(message)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object, or no such bucket", uri)
    if status in (401, 403):
        return PermissionError(errno.EACCES, f"{message}; {_LOG_IN if is_anonymous() else _ALLOW}", uri)
    if status == 412:
        return ChangedError(errno.EEXIST, "it is of another generation", uri)
    return OSError(errno.EIO, f"HTTP {status}: {message}", uri)


def _said(error: Any) -> str:
    """The service's message, without the request."""
    errors = [one.get("message") for one in error.errors if isinstance(one, dict)]
    return str(next(filter(None, errors), None) or _said_in(error.response) or error.message)


def _said_in(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])
    except Exception:  # no JSON, another shape, or no body that can be read any more
        return ""


def _in_one_line(text: object) -> str:
    return " ".join(str(text).split())


@functools.cache
def _retry() -> Any:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY.with_delay(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, 2.0).with_timeout(
        _RETRY_SECONDS
    )


@functools.lru_cache(maxsize=1)
def _client(emulator: str, no_auth: str) -> Client:
    from google.cloud import storage
    from requests.adapters import HTTPAdapter

    found = _credentials()
    if found is None:
        made = storage.Client.create_anonymous_client()
    else:
        credentials, project = found
        made = storage.Client(project=project or "<none>", credentials=credentials)
    # Otherwise the client requests each bucket's metadata for traces, which needs another permission.
    made._bucket_metadata_cache = None
    # As many connections as threads: else the pool throws some away after each request.
    adapter = HTTPAdapter(pool_connections=4, pool_maxsize=2 * CONNECTIONS)
    for scheme in ("https://", "http://"):
        made._http.mount(scheme, adapter)
    return made


def _credentials() -> tuple[Any, str | None] | None:
    """Credentials and project of the environment; None for an emulator, or where there are none."""
    if os.environ.get("STORAGE_EMULATOR_HOST") or os.environ.get(NO_AUTH):
        return None
    return _found_credentials()


@functools.cache
def _found_credentials() -> tuple[Any, str | None] | None:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        credentials, project = google.auth.default(
            scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
        )
    except DefaultCredentialsError:
        return None
    return credentials, project


def _forget() -> None:
    """In a forked child: connections and threads are the parent's."""
    _client.cache_clear()
    pool.cache_clear()


os.register_at_fork(after_in_child=_forget)
