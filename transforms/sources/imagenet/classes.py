"""The classes of ImageNet: lists of synsets, whose order makes the ids, and the words for them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from recordmill.transforms.sources.imagenet.layout import SYNSET, Layout
from recordmill.transforms.sources.imagenet.meta_mat import MatClass, read_meta_mat
from recordmill.transforms.storage.files import open_file

_LISTS = (
    "imagenet_lsvrc_2015_synsets.txt",
    "synsets.txt",
    "imagenet_synsets.txt",
    "loc_synset_mapping.txt",
    "synset_words.txt",
    "wnids.txt",
)
_WORDS = ("loc_synset_mapping.txt", "synset_words.txt", "imagenet_metadata.txt", "words.txt")
_ILSVRC_ORDER = "map_clsloc.txt"
_META = "meta.mat"
_LONGEST_META = 16 << 20
_LONGEST_LINE = 1 << 16


def class_files(layout: Layout) -> list[str]:
    """Keys of the files that tell classes and words."""
    names = {*_WORDS, _ILSVRC_ORDER, _META} & layout.files.keys()
    if (listed := _list_name(layout)) is not None:
        names.add(listed)
    return sorted(layout.files[name] for name in names)


def read_classes(layout: Layout) -> tuple[str, ...]:
    """The classes in the order of their list; none where there is no list.

    Raises:
        ValueError: the list cannot be used.
        OSError: it cannot be read.
    """
    name = _list_name(layout)
    if name is None:
        return ()
    key = layout.files[name]
    classes = tuple(synset for synset, _ in _lines(layout, key))
    if len(set(classes)) < len(classes) or not classes:
        raise ValueError(f"{key!r} names {'a class twice' if classes else 'no class'}")
    return classes


def read_words(layout: Layout, classes: Sequence[str]) -> dict[str, str]:
    """What people call the classes, by synset; the first file that tells counts.

    Raises:
        ValueError: a file cannot be used.
        OSError: it cannot be read.
    """
    wanted = set(classes)
    words: dict[str, str] = {}
    for name in _WORDS:
        if name in layout.files:
            found = {one: text for one, text in _lines(layout, layout.files[name]) if one in wanted and text}
            words = {**found, **words}
    if _ILSVRC_ORDER in layout.files:
        for synset, text in _lines(layout, layout.files[_ILSVRC_ORDER]):
            if synset in wanted and (word := text.partition(" ")[2]):
                words.setdefault(synset, word.replace("_", " "))
    for one in _meta(layout):
        if one.synset in wanted and one.words:
            words.setdefault(one.synset, one.words)
    return words


def ilsvrc_order(layout: Layout) -> tuple[str, ...]:
    """The synsets in the order of ILSVRC's ids, from 1: that of the development kit, not of the alphabet.

    The kit's `map_clsloc.txt` (`n02119789 1 kit_fox`) or `meta.mat` tells, or a list that is not sorted.

    Raises:
        ValueError: nothing tells.
        OSError: a file cannot be read.
    """
    if _ILSVRC_ORDER in layout.files:
        key = layout.files[_ILSVRC_ORDER]
        return _by_id([(_id_of(text, key), synset) for synset, text in _lines(layout, key)], key)
    if _META in layout.files:
        return _by_id([(one.number, one.synset) for one in _meta(layout)], layout.files[_META])
    classes = read_classes(layout)
    if not classes or list(classes) == sorted(classes):
        raise ValueError(
            "the ground truth has ILSVRC's ids, which are not in the order of the alphabet; put beside it "
            "meta.mat or map_clsloc.txt of the development kit, or take a ground truth of synsets "
            "(imagenet_2012_validation_synset_labels.txt)"
        )
    return classes


def _by_id(found: list[tuple[int, str]], key: str) -> tuple[str, ...]:
    """Synsets in the order of their ids."""
    if sorted(number for number, _ in found) != list(range(1, len(found) + 1)):
        raise ValueError(f"{key!r} has not the ids 1 to {len(found)}, each once")
    return tuple(synset for _, synset in sorted(found))


def _meta(layout: Layout) -> list[MatClass]:
    """The classes in meta.mat; none where there is no such file."""
    key = layout.files.get(_META)
    if key is None:
        return []
    with open_file(layout.file(key)) as stream:
        data = stream.read(_LONGEST_META)
    try:
        return read_meta_mat(data)
    except ValueError as error:
        raise ValueError(f"{key!r}: {error}") from error


def _id_of(text: str, key: str) -> int:
    number = text.partition(" ")[0]
    if not number.isdecimal():
        raise ValueError(f"{key!r} has {text[:50]!r} behind a synset, not an id and a name")
    return int(number)


def _list_name(layout: Layout) -> str | None:
    others = sorted(name for name in layout.files if name.startswith("synsets") and name.endswith(".txt"))
    return next((name for name in (*_LISTS, *others) if name in layout.files), None)


def _lines(layout: Layout, key: str) -> Iterator[tuple[str, str]]:
    """The lines of a file: the synset, and what follows it; or a name that is no synset."""
    for line in text_lines(layout.file(key), key):
        if not (line := line.strip()):
            continue
        first, *rest = line.split(maxsplit=1)
        yield (first, rest[0] if rest else "") if SYNSET.fullmatch(first) else (line, "")


def text_lines(path: str, key: str) -> Iterator[str]:
    """The lines of a text file.

    Args:
        path: real path.
        key: for messages.

    Raises:
        ValueError: it is not UTF-8, or has a line that is none.
        OSError: it cannot be read.
    """
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as stream:
            while line := stream.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"{key!r} has a line of more than {_LONGEST_LINE} characters")
                yield line
    except UnicodeDecodeError as error:
        raise ValueError(f"{key!r} is not UTF-8: {error.reason}") from error
