"""Source `archive`: plain .tar, .tar.gz and .zip files of images, whose folders are splits and labels.

References point into the archives; only gzip is unpacked, once.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord
from recordmill.transforms.sources.archives.members import DAMAGED, Member, is_gzip, tar_members, zip_members
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.look import left_out
from recordmill.transforms.sources.names import (
    failed,
    is_image_name,
    is_split_name,
    normal_split,
    printable,
    skipped,
    split_named,
    splits_in,
)
from recordmill.transforms.sources.pairs import IMAGE_FOLDERS
from recordmill.transforms.sources.selection import Selection
from recordmill.transforms.sources.source import Description, Items, Source
from recordmill.transforms.sources.tree import input_files
from recordmill.transforms.storage.files import is_file
from recordmill.transforms.storage.spool import Spool

NOT_AN_ARCHIVE = "not an archive by name"
_ARCHIVE = re.compile(r"(?P<stem>.+?)\.(?P<kind>tar|tar\.gz|tgz|zip)", re.IGNORECASE | re.DOTALL)
_FIRST_MEMBERS = 200
_WRAPPERS = 3
_DEPTH = _WRAPPERS + 2  # levels of folders in an archive that matter: wrappers, the split and the label


class Archive(NamedTuple):
    """One archive of the input."""

    path: str  # a real path, or a URI
    prefix: str  # of the keys of its members; empty if it is the input
    split: str | None  # in its name, or in the names of folders around it
    version: int  # as of `Status`

    @property
    def name(self) -> str:
        """Its file name, the origin of its records."""
        return printable(self.path.rpartition("/")[2])

    def members(self, spool: Spool | None = None) -> Iterator[Member | Failure]:
        """The files in it, in its order, and failures. Raises BadInput if it is not a ZIP file.

        References to the members of a gzip archive require a spool.
        """
        if self.path.lower().endswith(".zip"):
            return zip_members(self.path, self.prefix)
        return tar_members(self.path, self.prefix, spool)


class ArchivesSource(Source):
    """A source of images in archives: subclasses define `records`."""

    kinds: ClassVar[str] = ".+"  # regular expression of the extensions, in lower case
    flags = ("label_pattern",)

    @abc.abstractmethod
    def records(
        self, config: SourceConfig, archive: Archive, members: Iterator[Member | Failure]
    ) -> Iterator[ImageRecord | Failure]:
        """The records of one archive. Raises BadInput if it cannot be read."""

    def check_input(self, config: SourceConfig) -> None:
        first = next((item for item in archives(config, self.kinds) if isinstance(item, Archive)), None)
        if first is None:
            kinds = ".tar, .tar.gz, .tgz or .zip" if self.kinds == ".+" else ".tar, .tar.gz or .tgz"
            raise ValueError(
                f"--input is {config.input!r}: no file there is called {kinds}{left_out(config)}"
            )
        if not is_file(config.input):
            return
        try:
            members = (one for one in first.members() if isinstance(one, Member) or one.reason == DAMAGED)
            found = next(members, None)
        except BadInput as fault:
            found = failed("", fault)
        if found is None:
            raise ValueError(f"--input is {config.input!r}, an archive without a file in it")
        if isinstance(found, Failure):
            raise ValueError(f"--input is {config.input!r}: {found.reason} ({found.detail})")

    def splits(self, config: SourceConfig) -> set[str | None] | None:
        found = {item.split for item in archives(config, self.kinds) if isinstance(item, Archive)}
        return None if self.kinds == ".+" and None in found else found  # members may name splits, too

    def parts(self, config: SourceConfig, most: int) -> Iterator[Archive | Failure]:
        return archives(config, self.kinds)

    def part_items(self, config: SourceConfig, scratch: str, part: Archive | Failure) -> Items:
        if isinstance(part, Failure):
            yield part
            return
        # With the prefix: a link can give an archive two, of which different members may be selected.
        name = f"{part.path}\0{part.prefix}"
        spool = Spool(scratch, name, part.version) if is_gzip(part.path) else None
        with spool or contextlib.nullcontext():
            try:
                yield from self.records(config, part, part.members(spool))
            except BadInput as fault:
                yield failed(part.prefix.rstrip("/") or part.name, fault)


class ArchiveSource(ArchivesSource):
    """Lists the images in archives."""

    name = "archive"
    description = Description(
        reads="images in `.tar`, `.tar.gz`, `.tgz` and `.zip` files, never extracted",
        label="the folder in the archive, below a split and below wrapper folders",
        split="the name of the archive, or folders in it that are named like splits",
        key="path in the archive; the name of the archive comes first if there are several",
        example="photos.zip\n  cat/\n    1.jpg\n  dog/\n    2.png",
    )

    def records(
        self, config: SourceConfig, archive: Archive, members: Iterator[Member | Failure]
    ) -> Iterator[ImageRecord | Failure]:
        selection = Selection(config)
        above, has_splits = _layout(archive.members())
        seen: set[str] = set()

        def record(key: str, member: Member) -> ImageRecord:
            if member.name in seen:
                raise BadInput("list", "another member of the same name", archive.path)
            seen.add(member.name)
            folders = member.name.split("/")[above:-1]
            split = normal_split(folders.pop(0)) if has_splits and folders else None
            labels = selection.labels(key, tuple(folders[:1]))
            split = archive.split or split
            return ImageRecord(key, member.ref(), split, Annotations(labels), archive.name, member.size)

        for item in members:
            if isinstance(item, Failure):
                yield item
                continue
            key = archive.prefix + item.name
            if is_image_name(item.name):
                yield selection.item(key, functools.partial(record, key, item))
            else:
                yield skipped(key, "not an image by name")


def archives(config: SourceConfig, kinds: str = ".+") -> Iterator[Archive | Failure]:
    """The archives of a call whose extensions match `kinds`, and failures for other files."""
    input_name = config.input.rpartition("/")[2] if is_file(config.input) else ""
    for file in input_files(config):
        if isinstance(file, Failure):
            yield file
        elif (match := _matches(file.key, kinds)) is None:
            yield skipped(file.key, NOT_AN_ARCHIVE)
        else:
            prefix = "" if input_name else f"{match['stem']}/"
            yield Archive(file.path, prefix, _split_of(input_name or file.key), file.version)


def _matches(name: str, kinds: str) -> re.Match[str] | None:
    match = _ARCHIVE.fullmatch(name)
    return match if match and re.fullmatch(kinds, match["kind"].lower()) else None


def _split_of(key: str) -> str | None:
    """The split in a file's name, such as `imagenet-train-000000.tar`, or else in a folder's name."""
    *folders, name = key.split("/")
    named = splits_in(name)
    if len(named) == 1:
        return named.pop()
    return next(filter(None, map(split_named, reversed(folders))), None)


def first_names(archive: Archive, most: int = _FIRST_MEMBERS) -> list[str]:
    """Names of an archive's first members; none if it cannot be read."""
    with contextlib.suppress(BadInput):
        return [item.name for item in itertools.islice(archive.members(), most) if isinstance(item, Member)]
    return []


def first_bytes(archive: Archive, name: str) -> bytes:
    """The bytes of one of the first members of a tar; empty if they cannot be read."""
    with contextlib.suppress(BadInput):
        for item in itertools.islice(archive.members(), _FIRST_MEMBERS):
            if isinstance(item, Member) and item.name == name:
                return item.data()
    return b""


def _layout(members: Iterator[Member | Failure]) -> tuple[int, bool]:
    """The number of wrapper folders around all images, and whether the folders in them are splits."""
    folders = collections.Counter(
        tuple(item.name.split("/")[:-1][:_DEPTH])
        for item in members
        if isinstance(item, Member) and is_image_name(item.name)
    )
    above = next(level for level in range(_WRAPPERS + 1) if not _is_wrapper(folders, level))
    first = {parts[above] for parts in folders if len(parts) > above}
    return above, bool(first) and all(map(is_split_name, first))


def _is_wrapper(folders: Mapping[tuple[str, ...], int], level: int) -> bool:
    """Whether one folder at a level holds all images, and is neither a split nor a label.

    It has no images of its own, or fewer than folders with images, or a name such as `images`. `folders` has
    the number of images directly in each folder.
    """
    names = {parts[level] if len(parts) > level else "" for parts in folders}
    if level == _WRAPPERS or len(names) != 1:
        return False
    name = names.pop()
    inner = {parts[level + 1] for parts in folders if len(parts) > level + 1}
    stray = sum(count for parts, count in folders.items() if len(parts) == level + 1)
    is_packed = name.lower() in IMAGE_FOLDERS or not stray or (len(inner) > 1 and stray < len(inner))
    return bool(name) and is_packed and not is_split_name(name)
