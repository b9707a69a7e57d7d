"""Source `archive`: plain .tar, .tar.gz and .zip files of images, whose folders tell split and label.

Nothing is extracted: references lead into the archives, but for gzip, which is unpacked once.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from recordmill.transforms.records import Annotations, BadInput, Failure, ImageRecord
from recordmill.transforms.sources.archives.members import Member
from recordmill.transforms.sources.archives.tar_members import DAMAGED, TarMember, is_gzip, tar_members
from recordmill.transforms.sources.archives.zip_members import zip_members
from recordmill.transforms.sources.config import (
    SourceConfig,
    check_input_exists,
    check_unused,
    readable,
)
from recordmill.transforms.sources.detection.archive_names import unread_member
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
from recordmill.transforms.sources.outline import check_roots_used, left_out
from recordmill.transforms.sources.pairs import (
    IMAGE_FOLDERS,
)
from recordmill.transforms.sources.selection import (
    EXCLUDED,
    Selection,
    check_selection,
    label_pattern,
)
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
    listing_faults,
)
from recordmill.transforms.sources.tree import Tree
from recordmill.transforms.storage.file_system import file_system
from recordmill.transforms.storage.files import is_file, status_of
from recordmill.transforms.storage.paths import real_path
from recordmill.transforms.storage.spool import Spool

NOT_AN_ARCHIVE = "not an archive by name"
_ARCHIVE = re.compile(r"(?P<stem>.+?)\.(?P<kind>tar|tar\.gz|tgz|zip)", re.IGNORECASE | re.DOTALL)
_SNIFFED_FILES = 1_000
_SNIFFED_MEMBERS = 200
_NAMED_IN_ZIP, _NAMED_IN_TAR = 20_000, 2_000
_SNIFFED_ARCHIVES = 8
_WRAPPERS = 3
_DEPTH = _WRAPPERS + 2  # levels of folders in an archive that matter: wrappers, the split and the label


class Archive(NamedTuple):
    """One archive of the input.

    Attributes:
        path: real path, or URI.
        prefix: what keys of its members start with: empty where it is the whole input.
        split: that its name, or a folder that it is in, names.
        version: of the whole archive, as of `Status`.
    """

    path: str
    prefix: str
    split: str | None
    version: int


class Layout(NamedTuple):
    """What the folders of an archive mean.

    Attributes:
        above: how many hold everything.
        has_splits: whether those below are splits.
    """

    above: int
    has_splits: bool


class ArchiveSource(Source):
    """Lists the images in archives."""

    name = "archive"
    description = Description(
        reads="images in `.tar`, `.tar.gz`, `.tgz` and `.zip` files, never extracted",
        label="the folder in the archive, below a split and below wrapper folders",
        split="the archive's name, or the folders in it that are named like splits",
        key="path in the archive, below the archive's own name where there are several",
        example="photos.zip\n  cat/\n    1.jpg\n  dog/\n    2.png",
    )

    def check(self, config: SourceConfig) -> None:
        check_archives(config, self.name, r".+", "label_column", "include_annotations")

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        return archive_splits(config, ".+")

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ()

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _items(config, scratch, archives(config))

    def parts(self, config: SourceConfig, most: int) -> Iterator[Archive | Failure]:
        with listing_faults():
            yield from archives(config)

    def part_items(self, config: SourceConfig, scratch: str, part: Archive | Failure) -> Items:
        yield from _items(config, scratch, (part,))


def archives(config: SourceConfig, kinds: str = ".+") -> Iterator[Archive | Failure]:
    """The archives of a call, and what else lies there.

    Args:
        config: of the source.
        kinds: regular expression of the extensions, in lower case, that are wanted.
    """
    if is_file(config.input):
        path = real_path(config.input)
        if _matches(path, kinds) is None:
            yield skipped(path.rpartition("/")[2], NOT_AN_ARCHIVE)
        else:
            yield Archive(path, "", _split_of(config.input.rpartition("/")[2]), status_of(path).version)
        return
    for file in Tree(config.input, config.image_roots, config.skip_dirs).files():
        if isinstance(file, Failure):
            yield file
        elif (match := _matches(file.key, kinds)) is None:
            yield skipped(file.key, NOT_AN_ARCHIVE)
        else:
            yield Archive(file.path, f"{match['stem']}/", _split_of(file.key), file.version)


def _matches(name: str, kinds: str) -> re.Match[str] | None:
    match = _ARCHIVE.fullmatch(name)
    return match if match and re.fullmatch(kinds, match["kind"].lower()) else None


def _split_of(key: str) -> str | None:
    """The split that a part of a file's name is, as in `imagenet-train-000000.tar`; else a folder's name."""
    *folders, name = key.split("/")
    named = splits_in(name)
    if len(named) == 1:
        return named.pop()
    return next(filter(None, map(split_named, reversed(folders))), None)


def first_archive(config: SourceConfig, kinds: str = ".+") -> Archive | None:
    """The first archive of an input; None where there is none among its first files, or images are, too."""
    first = None
    for item in itertools.islice(archives(config, kinds), _SNIFFED_FILES):
        if isinstance(item, Failure):
            if item.reason == NOT_AN_ARCHIVE and is_image_name(item.key):
                return None
        elif first is None:
            first = item
    return first


def check_all_read(config: SourceConfig) -> None:
    """Checks the names in the first archives of an input, and of the files next to them.

    Raises:
        ValueError: a name is that of annotations; the message gives the two alternatives.
    """
    names: dict[str, str] = {}
    archives_left = _SNIFFED_ARCHIVES
    for item in itertools.islice(archives(config), _SNIFFED_FILES):
        if isinstance(item, Failure):
            if item.reason == NOT_AN_ARCHIVE:
                names[item.key] = f"{item.key!r} lies next to archives"
        elif archives_left:
            archives_left -= 1
            for name in first_names(item, _most_names(item.path)):
                names.setdefault(item.prefix + name, f"the archive {item.path!r} holds {name!r}")
    if (found := unread_member(list(names))) is not None:
        raise ValueError(
            f"--input is {config.input!r}: {names[found]}, and annotations of archives are not read: "
            "unpack it and give the folder; or give --source archive, which reads images and folders only"
        )


def _most_names(path: str) -> int:
    """How many names of an archive are listed: more if listing does not read the members' bytes."""
    if path.lower().endswith(".zip"):
        return _NAMED_IN_ZIP
    return _SNIFFED_MEMBERS if is_gzip(path) or file_system(path).has_latency else _NAMED_IN_TAR


def first_names(archive: Archive, most: int = _SNIFFED_MEMBERS) -> list[str]:
    """Names of an archive's first members; none where it is no archive."""
    try:
        found = itertools.islice(_members(archive), most)
        return [item.name for item in found if not isinstance(item, Failure)]
    except BadInput:
        return []


def first_bytes(archive: Archive, name: str) -> bytes:
    """The bytes of one of the first members of a tar; empty if they cannot be read."""
    with contextlib.suppress(BadInput):
        for item in itertools.islice(_members(archive), _SNIFFED_MEMBERS):
            if isinstance(item, TarMember) and item.name == name:
                return item.data()
    return b""


def check_archives(config: SourceConfig, source: str, kinds: str, *unused: str) -> None:
    """Raises ValueError where a call for a source of archives is wrong, or there is none."""
    check_input_exists(config)
    flags = ("annotations", "image_column", "input_features", "mask_pattern", *unused)
    check_unused(config, source, *flags)
    check_roots_used(config, source)
    check_selection(config)
    with readable("--input", config.input):
        first = next((item for item in archives(config, kinds) if isinstance(item, Archive)), None)
        if first is None:
            wanted = ".tar, .tar.gz, .tgz or .zip" if kinds == ".+" else ".tar, .tar.gz or .tgz"
            raise ValueError(
                f"--input is {config.input!r}: no file there is called {wanted}{left_out(config)}"
            )
        if not is_file(config.input):
            return
        try:
            found = next((item for item in _members(first) if not _is_outside(item)), None)
        except BadInput as fault:
            raise ValueError(f"--input is {config.input!r}: {fault.reason} ({fault.detail})") from fault
    if found is None:
        raise ValueError(f"--input is {config.input!r}, an archive without a file in it")
    if isinstance(found, Failure) and found.reason == DAMAGED:
        raise ValueError(f"--input is {config.input!r}: {found.reason} ({found.detail})")


def _is_outside(item: Member | TarMember | Failure) -> bool:
    return isinstance(item, Failure) and item.reason != DAMAGED


def archive_splits(config: SourceConfig, kinds: str) -> tuple[str, ...] | None:
    """The splits that names of archives tell; None where members may tell them, too."""
    with readable("--input", config.input):
        found = [item.split for item in archives(config, kinds) if isinstance(item, Archive)]
    named = tuple(sorted({split for split in found if split is not None}))
    return named if kinds != ".+" or None not in found else None


def _members(archive: Archive) -> Iterator[Member | TarMember | Failure]:
    """The members of an archive, whose bytes are not asked for."""
    if archive.path.lower().endswith(".zip"):
        return zip_members(archive.path, archive.prefix)
    return tar_members(archive.path, archive.prefix)


def _items(
    config: SourceConfig, scratch: str, found: Iterable[Archive | Failure]
) -> Generator[ImageRecord | Failure, None, None]:
    listing = _Listing(config)
    for item in found:
        if isinstance(item, Failure):
            yield item
            continue
        try:
            yield from listing.items(item, scratch)
        except BadInput as fault:
            yield failed(item.prefix.rstrip("/") or item.path.rpartition("/")[2], fault)


class _Listing:
    """Makes members of archives into records."""

    def __init__(self, config: SourceConfig) -> None:
        self._selection = Selection(config)
        self._label_pattern = label_pattern(config)

    def items(self, archive: Archive, scratch: str) -> Iterator[ImageRecord | Failure]:
        """The records of one archive. Raises BadInput where it is none."""
        layout = layout_of(_members(archive))
        seen: set[str] = set()
        if not is_gzip(archive.path):
            for item in _members(archive):
                yield self._item(archive, layout, item, seen)
            return
        # By the key too: what is taken of an archive that has two, by a link, differs between them.
        with Spool(scratch, f"{archive.path}\0{archive.prefix}", archive.version) as spool:
            for packed in tar_members(archive.path, archive.prefix, spool):
                yield self._item(archive, layout, packed, seen)

    def _item(
        self, archive: Archive, layout: Layout, item: Member | TarMember | Failure, seen: set[str]
    ) -> ImageRecord | Failure:
        if isinstance(item, Failure):
            return item
        key = archive.prefix + item.name
        if not is_image_name(item.name):
            return skipped(key, "not an image by name")
        if not self._selection.takes(key):
            return skipped(key, EXCLUDED)
        if item.name in seen:
            fault = BadInput("list", "another member of the same name", archive.path)
            return failed(key, fault)
        seen.add(item.name)
        try:
            split, label = placed(item.name, layout)
            if self._label_pattern is not None:
                label = self._label_pattern.label(key)
            ref = item.ref()
        except BadInput as fault:
            return failed(key, fault)
        annotations = Annotations(() if label is None else (label,))
        origin = printable(archive.path.rpartition("/")[2])
        return ImageRecord(key, ref, archive.split or split, annotations, origin, item.size)


def layout_of(members: Iterator[Member | TarMember | Failure]) -> Layout:
    """What the folders of an archive mean, from all its images; holds the folders' names alone."""
    folders = collections.Counter(
        tuple(item.name.split("/")[:-1][:_DEPTH])
        for item in members
        if not isinstance(item, Failure) and is_image_name(item.name)
    )
    above = next(level for level in range(_WRAPPERS + 1) if not _is_wrapper(folders, level))
    first = {parts[above] for parts in folders if len(parts) > above}
    return Layout(above, bool(first) and all(map(is_split_name, first)))


def _is_wrapper(folders: Mapping[tuple[str, ...], int], level: int) -> bool:
    """Whether one folder at a level holds all images, and is neither a split nor a label.

    Such a folder holds folders and no image itself, or fewer images than folders with images, or it has a
    name such as `images`.

    Args:
        folders: number of images directly in each folder.
        level: of the folder.
    """
    names = {parts[level] if len(parts) > level else "" for parts in folders}
    if level == _WRAPPERS or len(names) != 1:
        return False
    name = names.pop()
    inner = {parts[level + 1] for parts in folders if len(parts) > level + 1}
    stray = sum(count for parts, count in folders.items() if len(parts) == level + 1)
    is_packed = name.lower() in IMAGE_FOLDERS or not stray or (len(inner) > 1 and stray < len(inner))
    return bool(name) and is_packed and not is_split_name(name)


def placed(name: str, layout: Layout) -> tuple[str | None, str | None]:
    """Split and label of a member, by its folders."""
    folders = name.split("/")[layout.above : -1]
    split = normal_split(folders.pop(0)) if layout.has_splits and folders else None
    return split, folders[0] if folders else None
