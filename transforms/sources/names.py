"""What file and folder names tell."""

from __future__ import annotations

import re

_EXTENSIONS = """
    jpg jpeg jpe jfif jif jfi png apng gif bmp dib rle webp tif tiff avif avifs heic heif hif
    ppm pgm pbm pnm pfm tga icb vda vst jp2 j2k j2c jpc jpf jpx jpm jxl mpo ico cur icns psd pcx dcx
    sgi rgb rgba bw ras xbm xpm dds exr hdr qoi
"""
IMAGE_EXTENSIONS = frozenset(_EXTENSIONS.split())
"""Extensions, in lower case, of files that are images by name. Whether they are, decoding tells."""

SPLIT_NAMES = frozenset(("train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"))
"""Folder names, in lower case, that are splits where no other folder beside them holds images."""

_LITTER = frozenset(
    (
        "__MACOSX",
        "Thumbs.db",
        "thumbs.db",
        "desktop.ini",
        "Desktop.ini",
        "@eaDir",
        "lost+found",
        "$RECYCLE.BIN",
        "System Volume Information",
    )
)


def extension_of(name: str) -> str:
    """The extension of a file name or path, in lower case and without its dot; empty where there is none."""
    stem, _, extension = name.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem else ""


def is_image_name(name: str) -> bool:
    """Whether a file name has the extension of an image format."""
    return extension_of(name) in IMAGE_EXTENSIONS


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden (`.x`), or left behind by an operating system."""
    return name.startswith(".") or name in _LITTER


def is_split_name(name: str) -> bool:
    """Whether a folder is named like a split, whatever its case."""
    return name.lower() in SPLIT_NAMES


def is_unicode(text: str) -> bool:
    """Whether text can be stored as UTF-8: a name or line that was not UTF-8 has lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    r"""`text` itself, or with each byte that is not UTF-8 written as `\xff`."""
    if is_unicode(text):
        return text
    escaped = re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return escaped.encode("utf-8", "backslashreplace").decode()
