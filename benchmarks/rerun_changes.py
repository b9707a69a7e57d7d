"""What changes in a folder of drawn images between two conversions."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.inputs import TEN, with_comment

NEW_CLASS = "arrow"
"""Before the others in order: every record of every class gets another id."""
_PART = 100


@dataclasses.dataclass(frozen=True)
class Change:
    """A change; `apply` makes it in a folder of classes with JPEGs."""

    name: str
    apply: Callable[[Path], None]


def link_tree(source: Path, target: Path) -> None:
    """The files of a folder once more, with the same times, without copying a byte."""
    shutil.copytree(source, target, copy_function=os.link)


def change_hundredths(photos: Path) -> None:
    """1 % of the images changed, 1 % new, 1 % deleted; a tenth of the new ones are a new class."""
    files = sorted(photos.rglob("*.jpg"))
    some = max(len(files) // _PART, 1)
    step = len(files) // (2 * some)
    chosen = files[:: max(step, 1)][: 2 * some]
    for path in chosen[0::2]:
        replace(path, with_comment(path.read_bytes(), b"changed"))
    for path in chosen[1::2]:
        path.unlink()
    (photos / NEW_CLASS).mkdir()
    for number, path in enumerate(chosen[0::2]):
        folder = photos / NEW_CLASS if number % TEN == 0 else path.parent
        (folder / f"added-{path.name}").write_bytes(with_comment(path.read_bytes(), b"new"))


def add_new(photos: Path, number: int) -> None:
    """New images, in classes that are there."""
    for path in sorted(photos.rglob("*.jpg"))[:number]:
        (path.parent / f"new-{path.name}").write_bytes(with_comment(path.read_bytes(), b"new"))


def replace(path: Path, data: bytes) -> None:
    """Other bytes under a name whose file others may have under another name."""
    path.unlink()
    path.write_bytes(data)


HUNDREDTHS = Change("1 % changed, 1 % new, 1 % deleted, one new class", change_hundredths)
TEN_NEW = Change("ten new", lambda photos: add_new(photos, TEN))
ONE_NEW = Change("one new", lambda photos: add_new(photos, 1))
NOTHING = Change("nothing", lambda photos: None)
