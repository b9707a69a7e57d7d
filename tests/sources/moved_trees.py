"""Trees of files that a test lays out: paths, and the real files or the bytes that they hold."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

Tree = Mapping[str, Path | bytes]
"""Files by their path below the tree's root."""


def files_of(folder: Path, below: str = "") -> dict[str, Path]:
    """The files of a folder, under `below`."""
    return {f"{below}{path.relative_to(folder).as_posix()}": path for path in _files(folder)}


def below(tree: Tree, prefix: str) -> dict[str, Path | bytes]:
    """The tree in a folder, or in several: `prefix` ends in `/`."""
    return {f"{prefix}{path}": content for path, content in tree.items()}


def without(tree: Tree, *pieces: str) -> dict[str, Path | bytes]:
    """The tree without some files, and without folders, whose names end in `/`.

    Raises:
        ValueError: a piece is not in the tree.
    """
    for piece in pieces:
        if not any(_is_of(path, piece) for path in tree):
            raise ValueError(f"{piece!r} is not in the tree of {', '.join(list(tree)[:5])}, …")
    return {path: content for path, content in tree.items() if not any(_is_of(path, one) for one in pieces)}


def _is_of(path: str, piece: str) -> bool:
    return path.startswith(piece) if piece.endswith("/") else path == piece


def lay_out(tree: Tree, root: Path) -> Path:
    """Writes the tree; files of the corpus become hard links or copies."""
    for path, content in tree.items():
        target = _made(root / path)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            _hard_link(content, target)
    return root


def link_files(store: Path, root: Path) -> Path:
    """A folder with the folders of `store`, and a symbolic link for each of its files."""
    for path in _files(store):
        _made(root / path.relative_to(store)).symlink_to(path)
    return root


def pack(folder: Path, archive: Path, inside: str = "") -> Path:
    """A ZIP or tar, by its name, of a folder; `inside` stands before the names in it."""
    names = [(path, inside + path.relative_to(folder).as_posix()) for path in _files(folder)]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(_made(archive), "w") as packed:
            for path, name in names:
                packed.write(path, name)
    else:
        with tarfile.open(_made(archive), "w") as tar:
            for path, name in names:
                tar.add(path, name)
    return archive


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _hard_link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        target.write_bytes(source.read_bytes())
