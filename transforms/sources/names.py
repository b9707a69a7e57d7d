"""Reads extensions, splits and other facts from file and folder names; prepares names for messages."""

from __future__ import annotations

import contextlib
import functools
import re

from recordmill.transforms.records import BadInput, Failure, without_addresses

_EXTENSIONS = """
    jpg jpeg jpe jfif jif jfi png apng gif bmp dib rle webp tif tiff avif avifs heic heif hif
    ppm pgm pbm pnm pfm tga icb vda vst jp2 j2k j2c jpc jpf jpx jpm jxl mpo ico cur icns psd pcx dcx
    sgi rgb rgba bw ras xbm xpm dds exr hdr qoi
"""
IMAGE_EXTENSIONS = frozenset(_EXTENSIONS.split())
"""Extensions of image files, in lower case."""

SPLIT_NAMES = frozenset(("train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"))
"""Names of splits, in lower case and without a year."""

_YEAR = re.compile(r"[-_]?(?:19|20)[0-9]{2}\Z")
_YEARS = ("", *(f"{sign}{century}##" for sign in ("", "-", "_") for century in ("19", "20")))  # `#`: a digit

_LITTER = frozenset(
    ("__MACOSX", "Thumbs.db", "thumbs.db", "desktop.ini", "Desktop.ini")
    + ("@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information")
)

IDX_NAME = re.compile(r"(?P<set>.*?)[-_.]?(?P<part>images|labels)[-_.]idx\d-[a-z0-9]+(?:\.gz)?")
"""Names of IDX files."""

_LONGEST = 200  # characters of a text in a message

HIDDEN = "hidden"
NOT_AN_IMAGE = "not an image by name"
"""Reasons for which files are skipped."""


def extension_of(name: str) -> str:
    """The extension of a file name or path, in lower case and without its dot; empty if it has none."""
    stem, _, extension = name.rpartition(".")
    return "" if not stem or stem[-1] == "/" or "/" in extension else extension.lower()


def stem_of(key: str) -> str:
    """A key or path without the extension of its last part."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def name_stem(key: str) -> str:
    """The file name in a key, without folders and extension."""
    return stem_of(key.rpartition("/")[2])


def folder_of(key: str) -> str:
    """The folder in a key: empty, or ending in `/`."""
    return key[: key.rfind("/") + 1]


def is_image_name(name: str) -> bool:
    """Whether a file name has the extension of an image format."""
    stem, _, extension = name.rpartition(".")
    is_image = extension in IMAGE_EXTENSIONS or extension.lower() in IMAGE_EXTENSIONS
    return is_image and bool(stem) and stem[-1] != "/"


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden (`.x`), or left behind by an operating system."""
    return name.startswith(".") or name in _LITTER


def split_named(name: str) -> str | None:
    """The split that a name denotes, in lower case and without a year; None if it is not a split's name."""
    if name in SPLIT_NAMES:  # fast path: most rows of a table
        return name
    split = without_year(name).lower()
    return split if split in SPLIT_NAMES else None


def is_split_name(name: str) -> bool:
    """Whether a name denotes a split, in any case and with or without a year: `train`, `Val2017`."""
    return split_named(name) is not None


def normal_split(name: str) -> str:
    """The split that a name denotes; any other name unchanged."""
    return split_named(name) or name


def split_of_folders(key: str) -> str | None:
    """The split of the first folder in a path that is named like one; None if there is none."""
    folder = key.rpartition("/")[0]
    return _split_of_folder(folder) if folder else None


@functools.lru_cache(maxsize=1024)
def _split_of_folder(path: str) -> str | None:
    return next(filter(None, map(split_named, path.split("/"))), None)


def splits_in(name: str) -> set[str]:
    """The splits that parts of a file's name denote: `test` for `x-Test2017.tar`."""
    return set(filter(None, map(split_named, re.split(r"[-_.]", name))))


def without_year(name: str) -> str:
    """A name without a year at its end: `train` for `train2017`."""
    return _YEAR.sub("", name)


def next_in_split_name(start: str) -> set[str]:
    """The characters that can follow `start` in the name of a split with `/` at its end."""
    forms = (f"{name}{year}/" for name in SPLIT_NAMES for year in _YEARS)
    pattern = re.sub("[0-9]", r"[\g<0>#]", re.escape(start.lower())) + "(.)"
    following = {match[1] for match in map(re.compile(pattern).match, forms) if match}
    digits = set("0123456789") if "#" in following else set()
    return {spelled for char in following - {"#"} for spelled in (char, char.upper())} | digits


def is_unicode(text: str) -> bool:
    """Whether text can be stored as UTF-8: a name or line that was not UTF-8 has lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(error: BaseException) -> str:
    """The message of an exception without addresses in memory, shortened and in one line; or its type."""
    return clipped(" ".join(without_addresses(str(error)).split())) or type(error).__name__


def clipped(text: str, most: int = _LONGEST) -> str:
    """A text of the input, shortened and in one line, for a message."""
    shown = printable(text if len(text) <= most else f"{text[:most]}…")
    return shown if shown.isprintable() else repr(shown)


def printable(text: str) -> str:
    r"""`text` itself, or with each byte that is not UTF-8 written as `\xff`."""
    if is_unicode(text):
        return text
    with contextlib.suppress(UnicodeEncodeError):
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    escaped = re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return escaped.encode("utf-8", "backslashreplace").decode()


def failed(key: str, fault: BadInput) -> Failure:
    """The failure of a key, which may not be UTF-8."""
    return Failure(printable(key), fault.stage, fault.reason, printable(fault.detail))


def skipped(key: str, reason: str, detail: str = "") -> Failure:
    """The failure of an input that is skipped on purpose; its key may not be UTF-8."""
    return Failure(printable(key), "list", reason, printable(detail), skipped=True)
