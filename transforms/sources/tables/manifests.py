"""Manifests: files of rows, each about one image. Finding and checking them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig, check_path, readable
from recordmill.transforms.sources.look import Look, links_outside
from recordmill.transforms.sources.names import (
    extension_of,
    is_hidden,
    is_image_name,
    printable,
    split_named,
    splits_in,
)
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.tables.text_rows import UTF16
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement, LocatedFile, not_local
from recordmill.transforms.storage.file_system import file_system, scheme_of
from recordmill.transforms.storage.files import is_folder, may_be_there, names_in, open_file
from recordmill.transforms.storage.paths import absolute, below, is_absolute, real_path

PEEKED = 100
"""Rows at the start of a manifest that show which columns there are, and their values."""

_LEVELS = 3  # of folders that are searched for manifests
_MOST_NAMED = 20  # manifests that a message names
_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_LISTED = 10_000  # names that are listed in a remote folder to find folders of images
_LOOKED_AT = 1_000  # names without an extension that are checked for folders
_HINTS = 100  # failed rows whose images are looked for in other folders
_SHOWN_ROOTS = 3  # folders that a message suggests for --image_root
_EXTENSIONS = (".jpg", ".png", ".jpeg")  # of images whose names in tables have none


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest."""

    path: str  # as given in the call
    name: str  # path below the input, or else the file name; starts keys and messages
    file: str  # the real path, which is opened

    def row_key(self, line: int) -> str:
        """The key of a row that has no image: unique among the rows of all manifests."""
        return f"{self.name}:{line}"

    def origin(self, line: int) -> str:
        """Where a row starts, for messages."""
        return f"{self.name}, line {line}"


def input_root(config: SourceConfig) -> str:
    """The folder that the paths of a manifest are relative to, next to the image roots."""
    return config.input if is_folder(config.input) else os.path.dirname(config.input) or "."


def manifests(config: SourceConfig) -> list[Manifest]:
    """The manifests of a call, in the order given; relative to the working directory, or else the input."""
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
    """The splits of several manifests, in the names of files (`train_labels.csv`) or folders, by path.

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
    """Raises ValueError if a manifest is missing, or its encoding is not one that the source reads."""
    if config.annotations and not is_folder(config.input):
        raise ValueError(
            f"--annotations is {', '.join(config.annotations)!r} and --input the file {config.input!r}; "
            "with --annotations, --input is the folder of the images"
        )
    if not config.annotations and is_folder(config.input):
        raise ValueError(
            f"--input is {config.input!r}, a folder; --source {source} reads a manifest: "
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
        for key, level in Look(config).walk(depth=_LEVELS)
        for name in sorted(level.others)
        if extension_of(name) in extensions
    ]
    if not paths:
        return ""
    more = f", and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    flags = " ".join(flag_with("--annotations", path) for path in paths[:_MOST_NAMED])
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
    fault = ""
    if start.startswith(_UTF32):
        fault = "is UTF-32; save it as UTF-8"
    elif start.startswith(UTF16):
        fault = "" if takes_utf16 else "is UTF-16; save it as UTF-8"
    elif len(start) > 2 and any(start[:64:2]) != any(start[1:64:2]):
        fault = "looks like UTF-16 without a byte order mark; save it as UTF-8"
    elif b"\0" in start[:64]:  # further on it is one bad row
        fault = "is not a text file"
    if fault:
        raise ValueError(f"{flag} is {manifest.path!r}, which {fault}")


def image_folders(path: str) -> list[str]:
    """The subfolder of a folder, or, of several, those with names such as `images` or names of splits."""
    try:
        names = sorted(names_in(path, _LISTED))
    except PermissionError:  # files in it may be readable
        return []
    names = [name for name in names if "." not in name and not is_hidden(name)]
    folders = [name for name in names[:_LOOKED_AT] if is_folder(f"{path}/{name}")]
    if len(folders) != 1:
        words = {name: re.split(r"[-_ ]", name.lower()) for name in folders}
        folders = [name for name in folders if splits_in(name) or IMAGE_FOLDERS.intersection(words[name])]
    return [f"{path}/{name}" for name in folders]


class ImageFinder:
    """Finds images by the paths of one manifest: next to it, in the input and in the image roots."""

    def __init__(self, config: SourceConfig, manifest: Manifest) -> None:
        self._config = config
        self._hints = _HINTS
        folder = os.path.dirname(real_path(manifest.path))
        root = real_path(input_root(config))
        roots = tuple(map(real_path, config.image_roots))
        self._copies = tuple(path for path in roots if not file_system(path).has_latency)
        self._bases = tuple(dict.fromkeys((folder, root, *roots)))
        self._confinement = Confinement((root, *roots, folder))
        parts = inside.split("/") if (inside := below(root, folder)) else []
        above = (os.path.join(root, *parts[:at]) for at in range(len(parts), 0, -1))
        self._near = tuple(dict.fromkeys((folder, *above, root, *roots)))

    @functools.cached_property
    def _folders(self) -> tuple[str, ...]:
        """Folders that may hold the images: next to or above the manifest, and in image roots."""
        skipped = set(map(real_path, self._config.skip_dirs))
        found = itertools.chain.from_iterable(map(image_folders, self._near))
        return tuple(folder for folder in found if real_path(folder) not in skipped)

    @functools.cached_property
    def _links_outside(self) -> str:
        return links_outside(self._config)

    def find_folder(self, images: Sequence[str]) -> str | None:
        """The only folder near the manifest with all images, if none is found at its path.

        From then on, images are also searched in that folder.
        """
        if not images or self._is_in(self._bases, images[0]):
            return None
        found = [one for one in self._folders if all(self._is_in((one,), image) for image in images)]
        if len(found) != 1 or any(self._is_in(self._bases, image) for image in images):
            return None
        self._bases = (*self._bases, *found)
        return found[0]

    def finds(self, images: Sequence[str]) -> bool:
        """Whether all images exist."""
        return all(self._is_in(self._bases, image) for image in images)

    def _is_in(self, bases: Sequence[str], image: str) -> bool:
        try:
            self._locate(image, bases)
        except BadInput:
            return False
        return True

    def find(self, image: str) -> LocatedFile:
        """The file of an image. Raises BadInput as `Confinement.find`; the first errors suggest a folder."""
        try:
            return self._locate(image, self._bases)
        except BadInput as fault:
            if fault.reason != "not found" or not self._hints:
                raise
            self._hints -= 1
            found = [folder for folder in self._folders if self._is_in((folder,), image)]
            flags = " or ".join(flag_with("--image_root", folder) for folder in found[:_SHOWN_ROOTS])
            hint = f"; {flags} finds it" if found else self._links_outside
            raise BadInput(fault.stage, fault.reason, fault.detail + hint) from fault

    def _locate(self, image: str, bases: Sequence[str]) -> LocatedFile:
        if not image or image.isspace():
            raise BadInput("manifest", "no image path")
        if "://" in image and (scheme := scheme_of(image)):
            return self._locate_uri(image, scheme, bases)
        try:
            return self._confinement.find(image, bases)
        except BadInput as fault:
            if fault.reason != "not found":
                raise
            if image != image.strip():
                return self._confinement.find(image.strip(), bases)
            for extension in () if is_image_name(image) else _EXTENSIONS:  # tables of ids name none
                try:
                    return self._confinement.find(image + extension, bases)
                except BadInput as other:
                    if other.reason != "not found":
                        raise
            raise

    def _locate_uri(self, uri: str, scheme: str, bases: Sequence[str]) -> LocatedFile:
        """An object in one of the roots, or its copy in an image root, at its path with or without bucket."""
        path = uri.partition("://")[2]
        if scheme == "file" and path.startswith("/"):
            return self._confinement.find(unquote(path), bases)
        fault = not_local(uri, "manifest")
        if is_absolute(read_uri := f"{scheme}://{path}"):
            try:
                return self._confinement.find(read_uri, ())
            except BadInput as error:
                if error.reason != OUTSIDE:
                    raise
                fault = error
        for copied in (path, path.partition("/")[2]):
            try:
                if copied and self._copies:
                    return self._confinement.find(copied.lstrip("/"), self._copies)
            except BadInput as error:
                if error.reason != "not found":
                    raise
        raise fault
