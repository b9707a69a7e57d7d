"""A bounded look at an input, for detection and checks: names in its first folders, and heads of some files.

Links are followed only into the input and the image roots. Within `cached_listings` each folder is listed
once for all looks.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from recordmill.transforms.flags import flag_with
from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.masks.match import image_path
from recordmill.transforms.sources.names import HIDDEN, extension_of, is_hidden, is_image_name, is_unicode
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.faults import may_pass
from recordmill.transforms.storage.file_system import Entry, file_system
from recordmill.transforms.storage.files import is_file, is_folder, open_file
from recordmill.transforms.storage.listing import entries
from recordmill.transforms.storage.local import not_regular, stat_of
from recordmill.transforms.storage.paths import absolute, real_path

_FOLDERS, _FOLDERS_REMOTE = 2_000, 16
_ALL_NAMES = 100_000  # no further folder is listed after so many
_NAMES, _NAMES_REMOTE = 20_000, 1_000  # of a folder
_LINKS = 200  # of a folder that are resolved
_DEPTH, _DEEPEST = 8, 50  # levels of folders that are listed: by default, and at most
FIRST = 1_000  # files
_NEAREST = 60  # folders that are searched for first files
_LIKELY = ("annotations", "panoptic")  # folders that come first
_HEAD = 1 << 14
_LOOKED_AT = 10_000  # names that are checked for files that cannot be read
_SHOWN = 3  # image roots that a message names


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """The names in one folder, in order, without hidden ones."""

    images: Sequence[str] = ()  # files that are images by name
    others: Sequence[str] = ()  # other files
    folders: Sequence[str] = ()  # without skipped ones


class Look:
    """A look at an input. The key of a file or folder is its path below the input.

    `level` and `walk` list a bounded number of folders, and a bounded number of names in each; all other
    folders count as empty.
    """

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self.root = real_path(config.input)
        self.outside: dict[str, str] = {}  # targets outside all roots, by path of the link
        self.is_complete = True  # no name was left out
        self.is_cut = False  # folders were left out: there are too many, or they lie too deep
        self.enters_roots = False  # a link leads out of the input, into an image root
        self.has_latency = file_system(self.root).has_latency
        self._left = _FOLDERS_REMOTE if self.has_latency else _FOLDERS
        self.confinement = Confinement((self.root, *config.image_roots))
        self._skip_dirs = frozenset(map(real_path, config.skip_dirs))
        self._names = 0
        self._last: tuple[str | None, list[Entry]] = (None, [])
        self._levels: dict[str, Level] = {}
        self._folders: dict[str, dict[str, str]] = {}
        self._stems: dict[str, set[str]] = {}
        self._heads: dict[tuple[str, int], bytes] = {}

    @functools.cached_property
    def is_folder(self) -> bool:
        return is_folder(self.root)

    @functools.cached_property
    def file_name(self) -> str:
        """The name of an input file, as the call spells it; empty for a folder."""
        return "" if self.is_folder or not is_file(self.root) else os.path.basename(self.config.input)

    def level(self, key: str) -> Level:
        """The names in a folder; the empty key is the input. Raises OSError if the input cannot be listed."""
        if key not in self._levels:
            if self._left <= 0 or self._names >= _ALL_NAMES:
                self.is_complete, self.is_cut = False, True
                return Level()
            self._left -= 1
            most = _NAMES_REMOTE if self.has_latency else _NAMES
            found = self._listed(self.path(key), most)
            self._names += len(found)
            self.is_complete = self.is_complete and len(found) < most
            self._levels[key] = self._level(key, found)
        return self._levels[key]

    def walk(self, key: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Level]]:
        """A folder and the folders up to `depth` levels below it, nearest first; deeper ones set `is_cut`."""
        waiting = collections.deque([(key, 0)])
        while waiting:
            inner, at = waiting.popleft()
            level = self.level(inner)
            yield inner, level
            if at < depth:
                waiting += [(joined(inner, name), at + 1) for name in level.folders]
            else:
                self.is_cut = self.is_cut or bool(level.folders)

    def holds_images(self, key: str, depth: int = _DEPTH) -> bool:
        """Whether a folder has an image by name, up to `depth` levels below it."""
        return any(level.images for _, level in self.walk(key, depth))

    def folders_with_images(self, key: str = "") -> Iterator[str]:
        return filter(self.holds_images, (joined(key, name) for name in self.level(key).folders))

    def path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def given(self, key: str) -> str:
        """As `path`, with the input as the call spells it."""
        return f"{self.config.input.rstrip('/')}/{key}" if key else self.config.input

    def file(self, key: str) -> str:
        """The real path of a file; for a link to the outside its own path, which `open_file` refuses."""
        return self.confinement.inner(self.path(key))

    def is_inside(self, key: str) -> bool:
        """Whether a file or folder lies in the input or an image root, links resolved."""
        return self.confinement.holds(self.path(key))

    def head(self, key: str, count: int = _HEAD) -> bytes:
        """The first bytes of a file; none if it cannot be read."""
        if (key, count) not in self._heads:
            try:
                with open_file(self.file(key)) as stream:
                    self._heads[key, count] = stream.read(count)
            except OSError:
                self._heads[key, count] = b""
        return self._heads[key, count]

    def names(self, key: str = "") -> list[str]:
        """All names in a folder, in order, without hidden ones; those of folders end in `/`."""
        return [entry.name for entry in self._entries(key)]

    def folders(self, key: str = "") -> dict[str, str]:
        """The names of all folders in a folder, without skipped ones, and their real paths."""
        if key not in self._folders:
            inner = ((entry, self._leads_to(entry)) for entry in self._entries(key) if entry.name[-1] == "/")
            self._folders[key] = {
                entry.basename: path for entry, path in inner if path and path not in self._skip_dirs
            }
        return self._folders[key]

    def first_files(self, extensions: Collection[str], most: int = 3, depth: int = 5) -> Iterator[str]:
        """Keys of the first `most` files of each folder with one of the extensions, in lower case.

        Lists some folders, up to `depth` levels below the input, the nearest first.
        """
        waiting = collections.deque([""])
        seen = {self.root}
        for _ in range(_NEAREST):
            if not waiting:
                return
            key = waiting.popleft()
            named = (entry for entry in self._entries(key) if extension_of(entry.name) in extensions)
            files = (entry.name for entry in named if self._leads_to(entry) is not None)
            yield from (joined(key, name) for name in itertools.islice(files, most))
            inner = self.folders(key) if bool(key) + key.count("/") < depth else {}
            for name in sorted(inner, key=lambda one: one.lower() not in _LIKELY):
                if inner[name] not in seen:
                    seen.add(inner[name])
                    waiting.append(joined(key, name))

    def files(self, folder: str = "") -> Iterator[TreeFile | Failure]:
        """The files below a folder in the order of their keys, as sources list them."""
        return Tree.of(self.config).files(f"{folder}/" if folder else "")

    @functools.cached_property
    def first(self) -> dict[str, str]:
        """The real paths of the first files by key, without hidden ones; empty for unreadable files."""
        if not self.is_folder:
            return {self.file_name: self.root} if self.file_name else {}
        found = itertools.islice(self.files(), FIRST)
        return {
            one.key: one.path if isinstance(one, TreeFile) else ""
            for one in found
            if isinstance(one, TreeFile) or one.reason != HIDDEN
        }

    def has_image(self, path: str, wanted: Collection[str]) -> bool:
        """Whether an image with one of the wanted names, without extensions, is in a usual folder.

        `path` is that of its annotation file without the folder of annotations: `train/1`.
        """
        parts = path.split("/")[:-1]
        folders = ["/".join(parts)]
        for at in range(len(parts) + 1):
            above = "/".join(parts[:at])
            images = (name for name in self.folders(above) if name.lower() in IMAGE_FOLDERS)
            folders += ["/".join(filter(None, (above, name, *parts[at:]))) for name in images]
        paths = (*map(real_path, self.config.image_roots), *map(self.path, folders))
        return any(not self._image_stems(one).isdisjoint(wanted) for one in paths)

    def _image_stems(self, path: str) -> set[str]:
        if path not in self._stems:
            names = (entry.name for entry in self._listed(path))
            self._stems[path] = {image_path(name) for name in names if is_image_name(name)}
        return self._stems[path]

    def _listed(self, path: str, most: int | None = None) -> list[Entry]:
        try:
            return entries(path, most)
        except OSError as error:
            if may_pass(error) or (path == self.root and self.is_folder):
                raise
            return []  # reading reports the fault

    def _entries(self, key: str) -> list[Entry]:
        """The entries of a folder without hidden ones; cached for the last folder."""
        if self._last[0] != key:
            self._last = (key, list(_visible(self._listed(self.path(key)))))
        return self._last[1]

    def _leads_to(self, entry: Entry) -> str | None:
        """The path of an entry; for a link its target, or None if that is outside the roots."""
        try:
            return self.confinement.resolve(entry.path, "list") if entry.is_link else entry.path
        except BadInput:
            self.outside[entry.path] = real_path(entry.path)
            return None

    def _level(self, key: str, found: Sequence[Entry]) -> Level:
        images: list[str] = []
        others: list[str] = []
        folders: list[str] = []
        links = 0
        for entry in _visible(found):
            name = entry.basename
            links += entry.is_link
            path: str | None = entry.path
            if entry.is_link and links <= _LINKS:
                path = self._leads_to(entry)
                if path is None:
                    continue
                self.enters_roots = self.enters_roots or not f"{path}/".startswith(f"{self.root}/")
            if entry.name[-1] != "/":
                (images if is_image_name(name) else others).append(name)
            elif path not in self._skip_dirs and not f"{self.path(key)}/".startswith(f"{path}/"):
                folders.append(name)
        self.is_complete = self.is_complete and links <= _LINKS
        return Level(images, others, folders)


def _visible(found: Iterable[Entry]) -> Iterator[Entry]:
    named = ((entry, entry.basename) for entry in found)
    return (entry for entry, name in named if name and not is_hidden(name) and is_unicode(name))


def joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def check_roots_used(config: SourceConfig, source: str) -> None:
    """Raises ValueError if no link leads into an image root, for a source that uses them only for links."""
    if not config.image_roots:
        return
    root = real_path(config.input)
    if root != absolute(config.input) and Confinement(config.image_roots).contains(root):
        return  # the input itself is such a link
    look = Look(config)
    if look.is_folder:
        collections.deque(look.walk(depth=_DEEPEST), maxlen=0)
        if look.enters_roots or not look.is_complete:
            return
    shown = ", ".join(config.image_roots)
    raise ValueError(
        f"--image_root is {shown!r}, which --source {source} uses only for links, "
        "and no link in the input leads there; remove it, or give another --source"
    )


def left_out(config: SourceConfig) -> str:
    """As `links_outside`, or else a clause about the first file that is not regular, or a broken link."""
    if links := links_outside(config):
        return links
    look = Look(config)
    if not (file_system(look.root).has_links and look.is_folder):
        return ""
    keys = (joined(key, name) for key, level in look.walk() for name in (*level.others, *level.images))
    for path in itertools.islice(map(look.path, keys), _LOOKED_AT):
        found = stat_of(path)
        unread = "it is a link to nothing, or may not be read"
        fault = not_regular(found.st_mode) if found is not None else unread
        if fault is not None:
            return f"; {path!r}: {fault}"
    return ""


def links_outside(config: SourceConfig) -> str:
    """A clause about the links that lead outside the input, with the remedy; empty if there are none."""
    look = Look(config)
    if look.is_folder:
        collections.deque(look.walk(), maxlen=0)
    if not look.outside:
        return ""
    link, leads_to = next(iter(look.outside.items()))
    targets = look.outside.values()
    roots = list(dict.fromkeys(one if is_folder(one) else os.path.dirname(one) for one in targets))
    shown = roots if len(roots) <= _SHOWN else [os.path.commonpath(roots)]
    flags = " ".join(flag_with("--image_root", one) for one in shown)
    return f"; {link!r} is a link to {leads_to!r}, outside the input: give {flags}"
