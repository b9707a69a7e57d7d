"""Manifests: files of rows, each about one image. Finding and checking them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from recordmill.transforms.flags import flag_with
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_path,
    readable,
)
from recordmill.transforms.sources.names import extension_of, printable, split_named, splits_in
from recordmill.transforms.sources.outline import Look
from recordmill.transforms.sources.tables.text_rows import UTF16
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder, may_be_there, open_file
from recordmill.transforms.storage.paths import absolute, below, is_absolute, real_path

PEEKED = 100
"""Rows at the start of a manifest that tell which columns there are, and what is in them."""

_LOOKED_INTO = 3  # levels of folders that are searched for manifests
_SHOWN = 20  # manifests that a message names
_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest.

    Attributes:
        path: of the file, as the call has it.
        name: below the input, where it lies there; else its file name. Keys and messages start with it.
        file: the real path, which is opened.
    """

    path: str
    name: str
    file: str

    def row_key(self, line: int) -> str:
        """The key of a row that has no image: unique among the rows of all manifests."""
        return f"{self.name}:{line}"

    def origin(self, line: int) -> str:
        """Where a row starts, for messages."""
        return f"{self.name}, line {line}"


def input_root(config: SourceConfig) -> str:
    """The folder that images of a manifest lie in, unless an `--image_root` says otherwise."""
    return config.input if is_folder(config.input) else os.path.dirname(config.input) or "."


def manifests(config: SourceConfig) -> list[Manifest]:
    """The manifests of a call, in the order given: below the working directory, or else the input."""
    if not config.annotations:
        return [Manifest(config.input, printable(os.path.basename(config.input)), real_path(config.input))]
    folder = input_root(config)
    root = real_path(folder)
    found = []
    for given in config.annotations:
        inside = os.path.join(config.input, given)
        is_inside = not is_absolute(given) and not may_be_there(given) and may_be_there(inside)
        path = inside if is_inside else given
        name = (
            below(root, file := real_path(path))
            or below(absolute(folder), absolute(path))  # a link that leads out of the input
            or os.path.basename(path)
        )
        found.append(Manifest(path, printable(name), file))
    return found


def splits_by_name(config: SourceConfig) -> dict[str, str]:
    """The splits of several manifests, by path: in the file name (`train_labels.csv`), or its folder.

    Empty if a manifest has no split, or two.
    """
    found = manifests(config) if len(config.annotations) > 1 else []
    splits = {}
    for manifest in found:
        stem = os.path.splitext(os.path.basename(manifest.path))[0]
        folder = manifest.name.rpartition("/")[0].rpartition("/")[2]
        named = splits_in(stem) or set(filter(None, (split_named(folder),)))
        if len(named) != 1:
            return {}
        splits[manifest.path] = named.pop()
    return splits


def flag_of(config: SourceConfig) -> str:
    """The flag that names the manifests, for messages."""
    return "--annotations" if config.annotations else "--input"


def check_manifests(
    config: SourceConfig, source: str, extensions: Sequence[str] = (), takes_utf16: bool = True
) -> None:
    """Raises ValueError if a manifest is missing, or is not text in an encoding that the source reads."""
    if config.annotations and not is_folder(config.input):
        raise ValueError(
            f"--annotations is {', '.join(config.annotations)!r} and --input the file {config.input!r}; "
            "with --annotations, --input is the folder of the images"
        )
    if not config.annotations and is_folder(config.input):
        raise ValueError(
            f"--input is {config.input!r}, a folder; --source {source} wants the manifest: "
            f"{_call_for(config, extensions) or 'name it with --annotations, or as --input itself'}"
        )
    names: dict[str, str] = {}
    for manifest in manifests(config):
        _check_text(manifest, flag_of(config), takes_utf16)
        if (other := names.setdefault(manifest.name, manifest.path)) != manifest.path:
            raise ValueError(f"--annotations has {other!r} and {manifest.path!r}, which have the same name")


def _call_for(config: SourceConfig, extensions: Sequence[str]) -> str:
    """The flags that read the manifests in and below the input; empty if there are none."""
    paths = [
        os.path.join(config.input, key, name)
        for key, level in Look(config).walk(depth=_LOOKED_INTO)
        for name in sorted(level.others)
        if extension_of(name) in extensions
    ]
    if not paths:
        return ""
    more = f", and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    flags = " ".join(flag_with("--annotations", path) for path in paths[:_SHOWN])
    return f"give {flag_with('--input', config.input)} {flags}{more}"


def _check_text(manifest: Manifest, flag: str, takes_utf16: bool) -> None:
    with readable(flag, manifest.path):
        check_path(flag, manifest.path)
        if not file_system(manifest.path).is_there(manifest.path):
            raise ValueError(f"{flag} is {manifest.path!r}: there is no such file")
        with open_file(manifest.file) as stream:
            start = stream.read(1 << 16)
    if not start.strip():
        raise ValueError(f"{flag} is {manifest.path!r}, which is empty")
    if start.startswith(_UTF32):
        raise ValueError(f"{flag} is {manifest.path!r}, which is UTF-32; save it as UTF-8")
    if start.startswith(UTF16):
        if takes_utf16:
            return
        raise ValueError(f"{flag} is {manifest.path!r}, which is UTF-16; save it as UTF-8")
    if len(start) > 2 and any(start[:64:2]) != any(start[1:64:2]):
        raise ValueError(
            f"{flag} is {manifest.path!r}, which looks like UTF-16 without a byte order mark; "
            "save it as UTF-8"
        )
    if b"\0" in start[:64]:  # further on it is one bad row
        raise ValueError(f"{flag} is {manifest.path!r}, which is not a text file")
