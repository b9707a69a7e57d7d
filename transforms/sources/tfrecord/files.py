"""Files of TFRecords: their names, what splits those tell, and how they are opened."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence

from recordmill.transforms.framing import HEAD_BYTES, Readable, is_head
from recordmill.transforms.records import Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import split_named
from recordmill.transforms.sources.tree import Tree, TreeFile
from recordmill.transforms.storage.confinement import Confinement
from recordmill.transforms.storage.files import is_file, open_file, status_of
from recordmill.transforms.storage.layout import LATEST
from recordmill.transforms.storage.paths import absolute, real_path
from recordmill.transforms.storage.versions import latest_version, version_folder

_EXTENSION = r"\.(?:tfrecords?|tfrec|record)"
_SHARD = r"-\d{5}-of-\d{5}"
_PACKED = r"(?:\.(?:gz|gzip|zlib|zz))?"
_NAME = re.compile(
    rf"(?P<stem>.+?)(?:{_EXTENSION}{_PACKED}(?:{_SHARD})?{_PACKED}|{_SHARD}(?:{_EXTENSION})?{_PACKED})",
    re.IGNORECASE,
)
_CHUNK = 1 << 16
_ANY_HEADER = 32 + zlib.MAX_WBITS  # gzip's or zlib's


def is_tfrecord_name(name: str) -> bool:
    """Whether a file is called like TFRecords."""
    return _NAME.fullmatch(name) is not None


def split_of(key: str) -> str | None:
    """The split that a file's path tells: by its own name, else by the nearest folder called like a split."""
    *folders, name = key.split("/")
    match = _NAME.fullmatch(name)
    stem = re.sub(f"{_SHARD}$", "", match["stem"]) if match else name
    parts = re.split(r"[-_. ]", stem)
    within = list(filter(split_named, parts))  # flowers_train_00000-of-00005
    tried = (stem, parts[-1], parts[0], *within[: len(within) == 1], *reversed(folders))
    return next(filter(None, map(split_named, tried)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Inputs:
    """What there is to read.

    Attributes:
        files: of TFRecords, in the order of their keys.
        beside: other files by key: they may hold names of labels.
        failures: of the folder's listing.
    """

    files: tuple[TreeFile, ...]
    beside: dict[str, TreeFile]
    failures: tuple[Failure, ...]


_BESIDE = ("manifest.json", "label_map.pbtxt", "image.class.label.labels.txt", "label.labels.txt")


def inputs(config: SourceConfig) -> Inputs:
    """The files of an input: those below a folder, or the one that it is and what lies beside that.

    Of a folder of versions, those of the latest.
    """
    if is_file(config.input):
        return _one_file(config.input, config.image_roots)
    files, beside, failures = [], {}, []
    for item in Tree(_latest(config), config.image_roots, config.skip_dirs).files():
        if isinstance(item, Failure):
            failures.append(item)
        elif is_tfrecord_name(item.key.rpartition("/")[2]):
            files.append(item)
        else:
            beside[item.key] = item
    return Inputs(tuple(files), beside, tuple(failures))


def _latest(config: SourceConfig) -> str:
    """The folder of the latest version, or the input. Raises OSError where a link to it leads outside."""
    folder, within = config.input, Confinement((config.input, *config.image_roots))
    with contextlib.suppress(ValueError):  # a latest.json that is somebody else's
        if within.holds(f"{folder}/{LATEST}") and (version := latest_version(folder)) is not None:
            return within.leads_to(version_folder(folder, version))
    return folder


def _one_file(path: str, image_roots: Sequence[str]) -> Inputs:
    folder, name = os.path.split(absolute(path))
    beside = {}
    confinement = Confinement((folder, os.path.dirname(real_path(path)), *image_roots))
    for other in _BESIDE:
        if is_file(f"{folder}/{other}") and confinement.holds(f"{folder}/{other}"):
            beside[other] = _tree_file(other, confinement.leads_to(f"{folder}/{other}"))
    return Inputs((_tree_file(name, real_path(path)),), beside, ())


def _tree_file(key: str, path: str) -> TreeFile:
    status = status_of(path)
    return TreeFile(key, path, status.size, status.version)


class Inflated:
    """A gzip or zlib stream, unpacked as it is read; streams one after the other are one."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._left = b""
        self._stream = zlib.decompressobj(_ANY_HEADER)
        self._begun = False

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end.

        Raises:
            EOFError: it is cut off.
            zlib.error: it is damaged.
        """
        while size > 0:
            if self._stream.eof:
                self._left = self._stream.unused_data
                self._stream = zlib.decompressobj(_ANY_HEADER)
                self._begun = False
            self._left = self._left or self._packed.read(_CHUNK)
            if not self._left and not self._begun:
                break
            data = self._stream.decompress(self._left, size)
            if not self._left and not data and not self._stream.eof:
                raise EOFError("the compressed file is cut off")
            self._begun, self._left = True, self._stream.unconsumed_tail
            if data:
                return data
        return b""


def unpacked(stored: io.BufferedReader) -> tuple[Readable, bool]:
    """An open file of TFRecords, unpacked, and whether it is compressed."""
    head = stored.read(HEAD_BYTES)
    stored.seek(0)
    # a length whose checksum is right is no chance, and may look like a compressed file's first bytes
    if not is_head(head) and _is_packed(head):
        return Inflated(stored), True
    return stored, False


@contextlib.contextmanager
def opened_input(path: str) -> Iterator[tuple[Readable, bool]]:
    """As `open_file`, and then `unpacked`."""
    with open_file(path) as stored:
        yield unpacked(stored)


def looks_framed(path: str) -> bool:
    """Whether a file begins as TFRecords do; the path is a real one."""
    with opened_input(path) as (file, _):
        head = b""
        try:
            while len(head) < HEAD_BYTES and (more := file.read(HEAD_BYTES - len(head))):
                head += more
        except (EOFError, zlib.error):
            return False
    return is_head(head)


def _is_packed(head: bytes) -> bool:
    if head[:2] == b"\x1f\x8b":
        return True
    return len(head) > 1 and head[0] == 0x78 and (head[0] << 8 | head[1]) % 31 == 0
