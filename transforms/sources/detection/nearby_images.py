"""Looks for the images of annotation files by name, in the usual folders."""

from __future__ import annotations

from collections.abc import Collection

from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.masks.match import image_path
from recordmill.transforms.sources.names import is_hidden, is_image_name
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
    root_of,
)
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_folder, names_in
from recordmill.transforms.storage.paths import real_path

_NAMES = 10_000  # of a folder, where calls wait for a service


class NearbyImages:
    """A cache of the names in folders of an input. Links are followed as `Tree` follows them."""

    def __init__(self, config: SourceConfig) -> None:
        self.root = root_of(config)
        self._roots = list(map(real_path, config.image_roots))
        self._confinement = Confinement((self.root, *self._roots))
        self._folders: dict[str, list[str]] = {}
        self._stems: dict[str, set[str]] = {}

    def file(self, key: str) -> str:
        """The real path of a file by its key; of a link to the outside its own, which `open_file` refuses."""
        return self._confinement.inner(f"{self.root}/{key}")

    def folders(self, place: str) -> list[str]:
        """The names of the folders in a folder, in order."""
        if place not in self._folders:
            names = (name for name in sorted(names_in(place, _NAMES)) if "." not in name)
            self._folders[place] = [
                name for name in names if not is_hidden(name) and self._is_inside(f"{place}/{name}")
            ]
        return self._folders[place]

    def has_image(self, path: str, wanted: Collection[str]) -> bool:
        """Whether there is an image of one of the wanted names.

        Args:
            path: of the annotation file below the input, without the folder of annotations: `train/1`.
            wanted: names without extension.
        """
        folders = path.split("/")[:-1]
        places = [*self._roots, "/".join((self.root, *folders))]
        for at in range(len(folders) + 1):
            parent = "/".join((self.root, *folders[:at]))
            if not is_folder(parent):
                break
            places += [
                "/".join((parent, one, *folders[at:]))
                for one in self.folders(parent)
                if one.lower() in IMAGE_FOLDERS
            ]
        return any(not self._stems_in(place).isdisjoint(wanted) for place in places)

    def _is_inside(self, path: str) -> bool:
        """Whether a path is a folder that is read, and not a link to the outside."""
        found = self._confinement.followed(path)
        return found is not None and is_folder(found)

    def _stems_in(self, place: str) -> set[str]:
        """The names of the images in a folder, without extensions; empty if it is no folder."""
        if place not in self._stems:
            names = names_in(place, _NAMES) if is_folder(place) else []
            self._stems[place] = {image_path(one) for one in names if is_image_name(one)}
        return self._stems[place]
