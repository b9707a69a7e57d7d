"""The names in the first folders of an input, for detection. Their number is bounded.

Each folder is listed once. Links are followed as in reading: only into the input and the image roots.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_hidden, is_image_name, is_unicode
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.faults import may_pass
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_folder
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.local import not_regular, stat_of
from recordmill.transforms.storage.paths import absolute, real_path

_FOLDERS, _FOLDERS_REMOTE = 2_000, 16
_ALL_NAMES = 100_000  # after which no further folder is listed
_NAMES, _NAMES_REMOTE = 20_000, 1_000  # of a folder
_LINKS = 200  # of a folder that are resolved
_DEPTH, _DEEPEST = 8, 50  # levels of folders that are listed: by default, and at most
_LOOKED_AT = 10_000  # files that may be none
_SHOWN = 3  # image roots that a message names


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """The names in one folder, in order, without hidden ones.

    Attributes:
        images: files that are images by name.
        others: other files.
        folders: folders that are read, too.
    """

    images: Sequence[str] = ()
    others: Sequence[str] = ()
    folders: Sequence[str] = ()


class Outline:
    """The folders of an input. Above a number of folders, the others count as empty.

    Attributes:
        outside: links that lead outside all roots, and where each leads, by the link's path.
        is_whole: whether no name was left out.
        is_cut: whether folders were left out, because there are too many or they lie too deep.
        enters_roots: whether a link leads out of the input, into an image root.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._root = real_path(config.input)
        self._left = _FOLDERS_REMOTE if file_system(self._root).has_latency else _FOLDERS
        self._confinement = Confinement((self._root, *config.image_roots))
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        self._names = 0
        self._levels: dict[str, Level] = {}
        self.outside: dict[str, str] = {}
        self.is_whole = True
        self.is_cut = False
        self.enters_roots = False

    def level(self, key: str) -> Level:
        """The names in a folder, by its key; the empty key is the input.

        Raises:
            OSError: the input cannot be listed, or a transient fault has lasted.
        """
        if key not in self._levels:
            if self._left <= 0 or self._names >= _ALL_NAMES:
                self.is_whole = False
                self.is_cut = True
                return Level()
            self._left -= 1
            try:
                self._levels[key] = self._listed(key)
            except OSError as error:
                if not key or may_pass(error):
                    raise
                self._levels[key] = Level()  # reading reports the fault
        return self._levels[key]

    def walk(self, key: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Level]]:
        """A folder and the folders up to `depth` levels below it, the nearest first."""
        waiting = collections.deque([(key, 0)])
        while waiting:
            place, at = waiting.popleft()
            level = self.level(place)
            yield place, level
            if at < depth:
                waiting += [(joined(place, name), at + 1) for name in level.folders]
            else:
                self.is_cut = self.is_cut or bool(level.folders)

    def path(self, key: str) -> str:
        """The path of a file or folder by its key."""
        return f"{self._root}/{key}" if key else self._root

    def file(self, key: str) -> str:
        """The real path of a file by its key; of a link to the outside its own, which `open_file` refuses."""
        return self._confinement.inner(self.path(key))

    def holds_images(self, key: str, depth: int = _DEPTH) -> bool:
        """Whether a file in a folder, or up to `depth` levels below it, has the name of an image."""
        return any(level.images for _, level in self.walk(key, depth))

    def _listed(self, key: str) -> Level:
        path = self.path(key)
        images: list[str] = []
        others: list[str] = []
        folders: list[str] = []
        links = 0
        most = _NAMES_REMOTE if file_system(path).has_latency else _NAMES
        found = entries(path, most)
        self._names += len(found)
        self.is_whole = self.is_whole and len(found) < most
        for name, full, is_linked, _ in found:
            is_folder_name = name[-1] == "/"
            bare = name[:-1] if is_folder_name else name
            if not bare or is_hidden(bare) or not is_unicode(bare):
                continue
            if not is_folder_name and not is_linked:
                (images if is_image_name(bare) else others).append(bare)
                continue
            links += is_linked
            leads_to = full
            if is_linked and links <= _LINKS:
                try:
                    leads_to = self._confinement.resolve(leads_to, "list")
                except BadInput:
                    self.outside[full] = real_path(full)
                    continue
                self.enters_roots = self.enters_roots or not f"{leads_to}/".startswith(f"{self._root}/")
            self.is_whole = self.is_whole and links <= _LINKS
            if not is_folder_name:
                (images if is_image_name(bare) else others).append(bare)
            elif leads_to not in self._skip_dirs and not f"{path}/".startswith(f"{leads_to}/"):
                folders.append(bare)
        return Level(images, others, folders)


def joined(folder: str, name: str) -> str:
    """The key of a name in a folder."""
    return f"{folder}/{name}" if folder else name


def check_roots_used(config: SourceConfig, source: str) -> None:
    """Raises ValueError if a source uses image roots only for links, and no link leads into one."""
    if not config.image_roots:
        return
    place = real_path(config.input)
    if place != absolute(config.input) and Confinement(config.image_roots).contains(place):
        return  # the input itself is such a link
    if is_folder(config.input):
        outline = Outline(config)
        collections.deque(outline.walk(depth=_DEEPEST), maxlen=0)
        if outline.enters_roots or not outline.is_whole:
            return
    shown = ", ".join(config.image_roots)
    raise ValueError(
        f"--image_root is {shown!r}, and --source {source} uses it only for links; "
        "no link in the input leads there"
    )


def left_out(config: SourceConfig) -> str:
    """As `links_outside`, or else a clause about what is no file, or a link to nothing."""
    return links_outside(config) or _no_file(config)


def _no_file(config: SourceConfig) -> str:
    if not file_system(config.input).has_links or not is_folder(config.input):
        return ""
    outline = Outline(config)
    keys = (joined(key, name) for key, level in outline.walk() for name in (*level.others, *level.images))
    for path in itertools.islice(map(outline.path, keys), _LOOKED_AT):
        found = stat_of(path)
        unread = "it is a link to nothing, or may not be read"
        fault = not_regular(found.st_mode) if found is not None else unread
        if fault is not None:
            return f"; {path!r}: {fault}"
    return ""


def links_outside(config: SourceConfig) -> str:
    """A clause about links that lead outside the input, with the remedy; empty if there are none."""
    if not is_folder(config.input):
        return ""
    outline = Outline(config)
    collections.deque(outline.walk(), maxlen=0)
    if not outline.outside:
        return ""
    link, leads_to = next(iter(outline.outside.items()))
    roots = dict.fromkeys(one if is_folder(one) else os.path.dirname(one) for one in outline.outside.values())
    shown = list(itertools.islice(roots, _SHOWN + 1))
    if len(shown) > _SHOWN:
        shown = [os.path.commonpath(list(roots))]
    flags = " ".join(flag_with("--image_root", one) for one in shown)
    return f"; {link!r} is a link to {leads_to!r}, outside the input: give {flags}"
