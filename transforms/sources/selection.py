"""Selects records by their keys, and reads labels from keys, for all sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, skipped

_T = TypeVar("_T")
_Labels = tuple[str | int, ...]

EXCLUDED = "excluded by --include/--exclude"
NO_LABEL = "label pattern does not match"


def glob_regex(pattern: str) -> str:
    """The regular expression of a glob over keys; it is case-sensitive.

    `*` and `?` match within a part of the key, `**` across parts, `**/` also no part at all; `[a-z]` and
    `[!a-z]` are sets. A pattern without `/` matches the last part, the file name.
    """
    text = pattern if "/" in pattern else f"**/{pattern}"
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", text.lstrip("/"), re.DOTALL)
    return "".join(map(_token_regex, tokens))


def _token_regex(token: str) -> str:
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in wildcards:
        return wildcards[token]
    if len(token) > 1:
        inner = token[1:-1]
        negated = inner.startswith("!")
        members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[negated:])
        return f"(?!/)[{'^' if negated else ''}{members}]"
    return re.escape(token)


class Selection:
    """`--include`, `--exclude` and `--label_pattern`, compiled. Raises ValueError if one is not valid."""

    def __init__(self, config: SourceConfig) -> None:
        self._include = _globs_regex("--include", config.include)
        self._exclude = _globs_regex("--exclude", config.exclude)
        self._label = None if config.label_pattern is None else _label_regex(config.label_pattern)

    def takes(self, key: str) -> bool:
        """Whether a record with this key is selected."""
        if self._include is not None and not self._include.fullmatch(key):
            return False
        return self._exclude is None or not self._exclude.fullmatch(key)

    def item(self, key: str, make: Callable[[], _T]) -> _T | Failure:
        """The record that `make` returns; a failure if the key is not selected or `make` raises BadInput."""
        if not self.takes(key):
            return skipped(key, EXCLUDED)
        try:
            return make()
        except BadInput as fault:
            return failed(fault.key or key, fault)

    def left_out(self, key: str, reason: str, detail: str = "") -> Failure:
        """The failure of an input that is skipped for a reason, or because its key is not selected."""
        return skipped(key, reason, detail) if self.takes(key) else skipped(key, EXCLUDED)

    def labels(self, key: str, found: _Labels) -> _Labels:
        """The label in the key if there is a label pattern, else the labels found. Raises BadInput."""
        if self._label is None:
            return found
        match = self._label.search(key)
        if match is None or not (label := match[self._label.groupindex.get("label", 1)]):
            raise BadInput("list", NO_LABEL, f"--label_pattern {self._label.pattern!r}", key)
        return (label,)


def _globs_regex(flag: str, globs: tuple[str, ...]) -> re.Pattern[str] | None:
    for glob in globs:
        try:
            re.compile(glob_regex(glob))
        except re.error as error:
            raise ValueError(f"{flag} is {glob!r}, which is not a glob: {error}") from error
    return re.compile("|".join(map(glob_regex, globs)), re.DOTALL) if globs else None


def _label_regex(pattern: str) -> re.Pattern[str]:
    try:
        regex = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"--label_pattern is {pattern!r}, not a regular expression: {error}") from error
    if not regex.groups:
        remedy = "put the label in parentheses, as in '([a-z]+)_'"
        raise ValueError(f"--label_pattern is {pattern!r}, which has no group; {remedy}")
    return regex
