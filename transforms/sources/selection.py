"""Which of the listed records are taken, and labels read from their keys: alike for every source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from recordmill.transforms.records import BadInput, Failure
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import failed, skipped

_T = TypeVar("_T")
_Labels = tuple[str | int, ...]

EXCLUDED = "excluded by --include/--exclude"
NO_LABEL = "label pattern does not match"


def glob_regex(pattern: str) -> str:
    """The regular expression that a glob over keys means.

    `*` and `?` stay within a part of the key, `**` crosses parts, `**/` is also no part at all, and
    `[a-z]` and `[!a-z]` are sets. A pattern without `/` is about the last part alone, the file's
    name. Case counts.
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
    """`--include`, `--exclude` and `--label_pattern`, compiled.

    Raises:
        ValueError: a glob or pattern that has no meaning, named with its flag.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._include = _compile("--include", config.include)
        self._exclude = _compile("--exclude", config.exclude)
        self._label_pattern = label_pattern(config)

    def takes(self, key: str) -> bool:
        """Whether a record with this key is wanted."""
        if self._include is not None and not self._include.fullmatch(key):
            return False
        return self._exclude is None or not self._exclude.fullmatch(key)

    def item(self, key: str, make: Callable[[], _T]) -> _T | Failure:
        """The record of a key as `make` returns it; or why there is none: not selected, or a BadInput."""
        if not self.takes(key):
            return skipped(key, EXCLUDED)
        try:
            return make()
        except BadInput as fault:
            return failed(fault.key or key, fault)

    def left_out(self, key: str, reason: str, detail: str = "") -> Failure:
        """The input of a key that is skipped for a reason, unless it is not selected in the first place."""
        return skipped(key, reason, detail) if self.takes(key) else skipped(key, EXCLUDED)

    def labels(self, key: str, found: _Labels) -> _Labels:
        """The labels of a record: that in its key where there is a label pattern, else those found.

        Raises:
            BadInput: as `LabelPattern.label`.
        """
        return found if self._label_pattern is None else (self._label_pattern.label(key),)


def _compile(flag: str, globs: tuple[str, ...]) -> re.Pattern[str] | None:
    for glob in globs:
        try:
            re.compile(glob_regex(glob))
        except re.error as error:
            raise ValueError(f"{flag} is {glob!r}, which is not a glob: {error}") from error
    return re.compile("|".join(map(glob_regex, globs)), re.DOTALL) if globs else None


class LabelPattern:
    """`--label_pattern`, compiled.

    Raises:
        ValueError: it is not a regular expression, or has no group.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        try:
            self._regex = re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"--label_pattern is {pattern!r}, which is not a regular expression: {error}"
            ) from error
        if not self._regex.groups:
            raise ValueError(
                f"--label_pattern is {pattern!r}, which has no group; "
                "put the label in parentheses, as in '([a-z]+)_'"
            )
        self._group = self._regex.groupindex.get("label", 1)

    def label(self, key: str) -> str:
        """The label in a key.

        Raises:
            BadInput: stage `list`, `label pattern does not match`: nothing, or the empty string, was found.
        """
        match = self._regex.search(key)
        label = match[self._group] if match else None
        if not label:
            raise BadInput("list", NO_LABEL, f"--label_pattern {self._pattern!r}", key)
        return str(label)


def label_pattern(config: SourceConfig) -> LabelPattern | None:
    """The label pattern of a call, if it has one. Raises ValueError where that is wrong."""
    return None if config.label_pattern is None else LabelPattern(config.label_pattern)


def check_selection(config: SourceConfig) -> None:
    """Raises ValueError where `--include`, `--exclude` or `--label_pattern` has no meaning."""
    Selection(config)


def why_nothing(config: SourceConfig, reasons: Mapping[str, int], example: str) -> str | None:
    """The flag that leaves no record, with its value and an example key; None if no flag is the reason.

    Args:
        config: of the source.
        reasons: counts of the failures.
        example: a key that such a flag left out.
    """
    if count := reasons.get(NO_LABEL, 0):
        flag = f"--label_pattern is {config.label_pattern!r}"
        return f"{flag}, which matches none of {count} keys, such as {example!r}"
    if count := reasons.get(EXCLUDED, 0):
        globs = {"--include": config.include, "--exclude": config.exclude}
        given = [f"{flag} is {', '.join(map(repr, values))}" for flag, values in globs.items() if values]
        return f"{' and '.join(given)}, which leaves out all {count} images, such as {example!r}"
    return None
