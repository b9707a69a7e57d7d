"""The values of flags, from text; what is no such value is said in one line.

What knows every source and every schema takes a while to import, and many commands have no flag for it.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from typing import TypeVar

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_SIDES = re.compile(r"(\d{1,7})[xX×](\d{1,7})")
_SPLITS = ("train", "val", "test")
_Value = TypeVar("_Value")


def path(text: str) -> str:
    """A path, or a URI; `~` is the home folder."""
    from recordmill.transforms.storage.paths import expanded

    try:
        return expanded(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def boolean(text: str) -> bool:
    """true or false, in any case."""
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return values[text.lower()]


def positive(text: str) -> int:
    """An integer from 1."""
    value = _parsed(int, text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def count(text: str) -> int:
    """An integer from 0."""
    value = _parsed(int, text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below 0")
    return value


def size(text: str) -> int:
    """Bytes: `128MiB`, `100MB` or a plain number."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 128MiB, 100MB or a number of bytes")
    number, prefix, binary = match.groups()
    power = " kmgt".index(prefix.lower() or " ")
    return int(float(number) * (1024 if binary else 1000) ** power)


def height_and_width(text: str) -> tuple[int, int]:
    """`224x320`: height, then width."""
    match = _SIDES.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write HEIGHTxWIDTH in pixels, as 224x320")
    return int(match[1]), int(match[2])


def color(text: str) -> tuple[int, int, int]:
    """`white`, `#fff` or `#ffffff`."""
    from recordmill.transforms.images.color import parse_color

    try:
        return parse_color(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def shard_counts(text: str) -> int | dict[str, int]:
    """`16`, or `train=16,val=2`."""
    return _pairs(text, int) if "=" in text else _parsed(int, text)


def fractions(text: str) -> dict[str, float]:
    """`train=0.9,val=0.1`."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} names no split; write {_named_fractions(text)}")
    return _pairs(text, float)


def _named_fractions(text: str) -> str:
    """The value that was probably meant: `train=0.8,val=0.2` for `80/20`."""
    parts = re.split(r"\s*[/:,-]\s*", text.strip().replace("%", ""))
    numbers = [float(part) for part in parts if re.fullmatch(r"\d+(\.\d+)?|\.\d+", part)]
    if len(numbers) != len(parts) or not 2 <= len(numbers) <= 3 or not all(numbers):
        return "train=0.8,val=0.2"
    shares = [round(number / sum(numbers), 4) for number in numbers]
    shares[0] = 1 - sum(shares[1:])
    return ",".join(f"{name}={share:.4g}" for name, share in zip(_SPLITS, shares, strict=False))


def renames(text: str) -> dict[str, str]:
    """`OLD=NEW,…`."""
    return _pairs(text, str)


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    """`OLD=NEW,…`, in order."""
    return tuple(renames(text).items())


def names_of(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of some of the `allowed` names, with commas between."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        for name in found:
            if name not in allowed:
                known = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
                raise argparse.ArgumentTypeError(
                    f"{name!r} in {text!r}; it may be {known}, or several with commas between"
                )
        return found

    return names


def source(text: str) -> str:
    """`auto`, or the name of a source."""
    from recordmill.transforms.sources.registry import SOURCES

    if text != "auto" and text not in SOURCES:
        near = difflib.get_close_matches(text, SOURCES, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise argparse.ArgumentTypeError(f"{text!r}{meant}; it may be auto, {', '.join(SOURCES)}")
    return text


def schemas(text: str) -> str:
    """`auto`, or names of schemas with commas between."""
    from recordmill.transforms.examples.registry import named_schemas

    if text == "auto":
        return text
    try:
        return ",".join(schema.name for schema in named_schemas(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _pairs(text: str, kind: Callable[[str], _Value]) -> dict[str, _Value]:
    pairs: dict[str, _Value] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise argparse.ArgumentTypeError(f"{item!r} in {text!r} is not of the form NAME=VALUE")
        if name.strip() in pairs:
            raise argparse.ArgumentTypeError(f"{name.strip()!r} stands twice in {text!r}")
        pairs[name.strip()] = _parsed(kind, value.strip())
    return pairs


def _parsed(kind: Callable[[str], _Value], text: str) -> _Value:
    try:
        return kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
