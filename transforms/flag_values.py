"""The values of flags, from text; a ValueError says in one line what is wrong. Imports nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_SIDES = re.compile(r"(\d{1,7})[xX×](\d{1,7})")
_SPLITS = ("train", "val", "test")
_Value = TypeVar("_Value")

PAIRS = "[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*"
"""What `renames` takes, as a regular expression for parameters of a template."""


def boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise ValueError(f"{text!r} is neither true nor false")
    return values[text.lower()]


def size(text: str) -> int:
    """Bytes: `128MiB`, `100MB` or a plain number."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 128MiB, 100MB or a number of bytes")
    number, prefix, binary = match.groups()
    power = " kmgt".index(prefix.lower() or " ")
    return int(float(number) * (1024 if binary else 1000) ** power)


def height_and_width(text: str) -> tuple[int, int]:
    """`224x320`: height, then width."""
    match = _SIDES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write HEIGHTxWIDTH in pixels, such as 224x320")
    return int(match[1]), int(match[2])


def shard_counts(text: str) -> int | dict[str, int]:
    """`16`, or `train=16,val=2`."""
    return _pairs(text, int) if "=" in text else _parsed(int, text)


def fractions(text: str) -> dict[str, float]:
    """`train=0.9,val=0.1`."""
    if "=" not in text:
        raise ValueError(f"{text!r} names no split; write {_named_fractions(text)}")
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
    return tuple(renames(text).items())


def names(text: str) -> tuple[str, ...]:
    """Names with commas between, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def numbers(kind: Callable[[str], _Value]) -> Callable[[str], tuple[_Value, ...]]:
    """A parser of numbers with commas between; `none` for no number."""

    def parsed(text: str) -> tuple[_Value, ...]:
        try:
            return () if text.strip().lower() == "none" else tuple(kind(item) for item in text.split(","))
        except ValueError as error:
            raise ValueError(
                f"{text!r} is no list of numbers; write them with commas between, or none"
            ) from error

    return parsed


def _pairs(text: str, kind: Callable[[str], _Value]) -> dict[str, _Value]:
    pairs: dict[str, _Value] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise ValueError(f"{item!r} in {text!r} is not of the form NAME=VALUE")
        if name.strip() in pairs:
            raise ValueError(f"{name.strip()!r} stands twice in {text!r}")
        pairs[name.strip()] = _parsed(kind, value.strip())
    return pairs


def _parsed(kind: Callable[[str], _Value], text: str) -> _Value:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error
