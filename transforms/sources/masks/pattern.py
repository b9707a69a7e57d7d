"""`--mask_pattern`: where the mask of an image lies."""

from __future__ import annotations

import posixpath
import re

from recordmill.transforms.sources.names import name_stem

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = {"stem": "[^/]+", "name": "[^/]+", "folder": ".*"}


class MaskPattern:
    """A path below the input with `{stem}`, `{name}` and `{folder}` of the image.

    Raises:
        ValueError: it names no image, or something else than these, or leads out of the input.
    """

    def __init__(self, pattern: str) -> None:
        said = f"--mask_pattern is {pattern!r}"
        fields = set(_FIELD.findall(pattern))
        if unknown := sorted(fields - _FIELDS.keys()):
            raise ValueError(
                f"{said}, which has {{{unknown[0]}}}; it may have {{stem}}, {{name}}, {{folder}}"
            )
        if "{" in (rest := _FIELD.sub("", pattern)) or "}" in rest:
            raise ValueError(f"{said}, which has a brace without the other")
        if not fields & {"stem", "name"}:
            raise ValueError(f"{said}, which is the same for all images; put {{stem}} or {{name}} in it")
        if pattern.startswith("/") or "://" in pattern:
            raise ValueError(f"{said}; it is a path below --input, such as masks/{{stem}}.png")
        if ".." in pattern.replace("{folder}/../", "").split("/"):
            raise ValueError(f"{said}; .. may follow {{folder}}/ alone")
        self._pattern = pattern
        tokens = re.split(r"(\{folder\}/(?:\.\./)?|\{[^{}]*\})", pattern)
        self._regex = re.compile("".join(map(_token_regex, tokens)))

    def mask_of(self, key: str) -> str | None:
        """The key of the mask of an image; None where it would be outside the input."""
        folder, _, name = key.rpartition("/")
        values = {"stem": name_stem(key), "name": name, "folder": folder}
        path = _FIELD.sub(lambda match: values[match[1]], self._pattern).lstrip("/")
        found = posixpath.normpath(path)
        return None if found.startswith("../") else found

    def may_be_mask(self, key: str) -> bool:
        """Whether a file lies where masks do."""
        return bool(self._regex.fullmatch(key))


def _token_regex(token: str) -> str:
    if token.startswith("{folder}/"):
        return "(?:.*/)?"
    match = _FIELD.fullmatch(token)
    return _FIELDS[match[1]] if match else re.escape(token)
