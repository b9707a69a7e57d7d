"""Inputs before and after somebody has worked on them: what is new, changed, deleted, and what is not."""

from __future__ import annotations

import dataclasses
import io
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

Contents = Mapping[str, bytes]
_EPOCH_NS = 1_700_000_000_000_000_000
_EXIF_ORIENTATION = 0x112


@dataclasses.dataclass(frozen=True)
class Edit:
    """An input in two states, and what converting the second costs where the first has been converted.

    Attributes:
        before: bytes of each file by its path.
        after: likewise.
        input: path that --input names; empty for the folder of all.
        records: of the second state.
        images: that are encoded anew: an image each, a frame each of a sequence.
        reads: files that are read for them and for masks, where they are not as many.
        made: records that they are in, where they are not as many.
        masks: that are made anew.
        flags: of the conversion.
        is_sealed: of a path, whether the file is one that listing looks into.
    """

    before: Contents
    after: Contents
    records: int
    images: int
    input: str = ""
    reads: int | None = None
    made: int | None = None
    masks: int = 0
    flags: tuple[str, ...] = ()
    is_sealed: Callable[[str], bool] = lambda path: False

    @property
    def edited(self) -> list[str]:
        """Paths of the files that are new, or not what they were."""
        return sorted(path for path, data in self.after.items() if self.before.get(path) != data)

    @property
    def unchanged_images(self) -> list[str]:
        """Paths of the images that nothing has happened to."""
        edited = {*self.edited}
        names = (path for path in self.after if path.endswith((".jpg", ".png", ".bmp")))
        return sorted(path for path in names if path not in edited and not self.is_sealed(path))


def put(folder: Path, contents: Contents) -> None:
    """Makes a folder hold these files and no others; one that it holds already is not touched.

    The time of a file is decided by its bytes, so that a state that is put once more is the same state.
    """
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in contents:
            path.unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
    for name, data in contents.items():
        path = folder / name
        stamp = _EPOCH_NS + zlib.crc32(data) * 1000
        if not path.is_file() or path.stat().st_mtime_ns != stamp or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, ns=(stamp, stamp))


def spoil(folder: Path, paths: Iterable[str]) -> None:
    """Overwrites files with rubbish of the same size and time: whoever reads them fails."""
    for name in paths:
        status = (folder / name).stat()
        (folder / name).write_bytes(b"\xa5" * status.st_size)
        os.utime(folder / name, ns=(status.st_atime_ns, status.st_mtime_ns))


def pixels(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """A soft picture in colours."""
    colours = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), np.uint8)
    return Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)


def picture(seed: int, name: str, size: tuple[int, int] = (40, 30), orientation: int = 1) -> bytes:
    """The bytes of an image file of a name."""
    return encoded(pixels(seed, *size), name, orientation)


def encoded(image: Image.Image, name: str, orientation: int = 1) -> bytes:
    """An image as a file of a name, in the format that this tells."""
    stream = io.BytesIO()
    if name.endswith(".jpg"):
        exif = Image.Exif()
        exif[_EXIF_ORIENTATION] = orientation
        image.save(stream, "JPEG", quality=95, **({"exif": exif} if orientation != 1 else {}))
    else:
        image.save(stream, name.rpartition(".")[2].upper())
    return stream.getvalue()


def pictures(names: Iterable[str], seed: int = 0) -> dict[str, bytes]:
    """A picture each, by path."""
    return {name: picture(seed + number, name) for number, name in enumerate(names)}
