"""Paths of files and folders: plain paths, and URIs such as `gs://bucket/folder`."""

from __future__ import annotations

import os
import re

from recordmill.transforms.storage.file_system import file_system

UNTIDY = re.compile(r"//|/\.{1,2}(?:/|$)|/$")
"""What a path has that is not in its shortest form."""


def expanded(path: str) -> str:
    """A path whose `~` or `~user` is replaced by the home folder. Raises ValueError for an unknown user."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        user = path[1:].partition("/")[0]
        raise ValueError(f"there is no user {user!r}; a file or folder of that name is ./{path}")
    return found


def absolute(path: str) -> str:
    """The path from the root, `~` expanded, or the URI; without a `/` at its end. Raises as `expanded`."""
    try:
        return file_system(path).absolute(expanded(path))
    except ValueError as error:
        raise ValueError(f"{path!r}: {error}") from error


def is_absolute(path: str) -> bool:
    """Whether a path begins with `/`, or is a URI."""
    return path.startswith("/") or bool(file_system(path).scheme)


def real_path(path: str) -> str:
    """As `FileSystem.real_path`. Raises ValueError if no file can have this path."""
    return file_system(path).real_path(path)


def tidy_uri(uri: str) -> str:
    """A URI without empty parts, `.` and `..`. Raises ValueError if it leads out of its bucket."""
    scheme, _, rest = uri.partition("://")
    if not UNTIDY.search(rest):
        return uri
    bucket, *parts = rest.split("/")
    kept = [bucket]
    for part in parts:
        if part == ".." and len(kept) == 1:
            raise ValueError(f"{uri!r} leads out of its bucket")
        if part == "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return f"{scheme}://{'/'.join(kept)}"


def below(root: str, path: str) -> str | None:
    """The part of `path` after `root`, both real paths; None where it does not lie below."""
    prefix = root if root.endswith("/") else f"{root}/"
    return path[len(prefix) :] if path.startswith(prefix) else None
