"""Finds the images that the rows of a manifest name."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_hidden, is_image_name, splits_in
from recordmill.transforms.sources.outline import links_outside
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.tables.manifests import Manifest, input_root
from recordmill.transforms.storage.confinement import OUTSIDE, Confinement, LocatedFile, not_local
from recordmill.transforms.storage.file_system import file_system, scheme_of
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import below, is_absolute, real_path

_LISTED = 10_000  # names that are listed to find folders of images, where calls wait for a service
_LOOKED_AT = 1_000  # names without an extension that are checked for folders
_HINTS = 100  # failed rows whose images are looked for in other folders
_SHOWN_ROOTS = 3  # folders that a message suggests for --image_root
_EXTENSIONS = (".jpg", ".png", ".jpeg")  # of images that are named without


def image_folders(path: str) -> list[str]:
    """The only folder in a folder, or else those with names such as `images` or of splits."""
    try:
        names = sorted(names_in(path, _LISTED))
    except PermissionError:  # files in it may be readable
        return []
    names = [name for name in names if "." not in name and not is_hidden(name)]
    folders = [name for name in names[:_LOOKED_AT] if is_folder(f"{path}/{name}")]
    if len(folders) != 1:
        folders = [name for name in folders if splits_in(name) or _is_usual(name)]
    return [f"{path}/{name}" for name in folders]


def _is_usual(name: str) -> bool:
    return not IMAGE_FOLDERS.isdisjoint(re.split(r"[-_ ]", name.lower()))


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
        """The only folder near the manifest that holds all images, if none lies at its path.

        From then on, images are also looked for in that folder.
        """
        if not images or any(self._is_in(self._bases, image) for image in images):
            return None
        fitting = [
            folder for folder in self._folders if all(self._is_in((folder,), image) for image in images)
        ]
        if len(fitting) != 1:
            return None
        self._bases = (*self._bases, *fitting)
        return fitting[0]

    def is_anywhere(self, image: str) -> bool:
        """Whether an image exists at its path, or in one of the folders near the manifest."""
        return any(self._is_in(bases, image) for bases in (self._bases, *((one,) for one in self._folders)))

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
        """The file of an image. The first faults suggest the folder that holds it.

        Raises:
            BadInput: stage `manifest`: `no image path`, or as `Confinement.find`.
        """
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
        """An object in one of the roots; or a copy of a remote image, by its bucket and path, or its path."""
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
