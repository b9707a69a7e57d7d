"""Makes deploy/metadata.json from the declared flags; `make reference` writes it."""

from __future__ import annotations

import json
import re
from typing import Any

from recordmill.pipelines.options.convert import Output
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import Flag, flags_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sources.config import SourceConfig

_BUCKET = "gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
# The type of a parameter that is a path, and the rest of its pattern.
_PATHS = {
    "input": ("TEXT", "(/.*)?"),
    "output": ("GCS_WRITE_FOLDER", "/[^/].*"),
    "file": ("GCS_READ_FILE", "/.+"),
    "folder": ("GCS_READ_FOLDER", "(/.*)?"),
}
# The one flag of Beam that every launch needs; others are fields of a launch's environment.
_WORKER_IMAGE = {
    "name": "sdk_container_image",
    "label": "Sdk container image",
    "helpText": "The image of this template, so that launcher and workers have the same code and packages.",
    "paramType": "TEXT",
    "regexes": ["^[a-z0-9][a-z0-9./:_-]*[:@][A-Za-z0-9._:-]+$"],
}


def metadata_text() -> str:
    """The file."""
    return f"{json.dumps(template_metadata(), indent=2, ensure_ascii=False)}\n"


def template_metadata() -> dict[str, Any]:
    """deploy/metadata.json: the parameters of the Flex Template, which are flags of `convert`."""
    # The other classes have flags about a terminal or one machine.
    classes = (SourceConfig, Output, DatasetConfig, ImagePolicy)
    parameters = [_parameter(one.of_commands()) for cls in classes for one in flags_of(cls)]
    required = [one for one in parameters if "isOptional" not in one]
    return {
        "name": "Recordmill",
        "description": "Turns image datasets into training-ready, sharded TFRecords.",
        "streaming": False,
        "parameters": [*required, _WORKER_IMAGE, *(one for one in parameters if one not in required)],
    }


def _parameter(one: Flag) -> dict[str, Any]:
    kind, pattern = _type(one)
    found: dict[str, Any] = {
        "name": one.name,
        "label": one.name.replace("_", " ").capitalize(),
        "helpText": _help(one),
        "paramType": kind,
    }
    if not one.required:
        found["isOptional"] = True
    if _default(one):
        found["defaultValue"] = _default(one)
    if one.choices:
        found["enumOptions"] = [{"value": value, "label": value} for value in one.choices]
    return {**found, "regexes": [f"^{pattern}$"]}


def _default(one: Flag) -> str:
    """The default, if giving it changes nothing: an image flag without effect is an error."""
    if one.is_switch:
        return "false"
    return "" if one.default_text or one.group == "images" else one.default_shown


def _help(one: Flag) -> str:
    text = re.sub(r"--([a-z_]+)", r"\1", one.help)
    sentences = [text[0].upper() + text[1:]]
    if one.default_shown and not _default(one):
        sentences.append(f"Default: {one.default_shown}")
    if one.is_repeatable:
        sentences.append("A template takes one value; the command line takes several")
    return "".join(f"{sentence}. " for sentence in sentences).rstrip()


def _type(one: Flag) -> tuple[str, str]:
    """The type of a parameter, and a regular expression that its text matches."""
    if one.path:
        kind, rest = _PATHS[one.path]
        return kind, _BUCKET + rest
    if one.is_switch:
        return "BOOLEAN", "([Tt]rue|[Ff]alse|TRUE|FALSE)"
    if one.choices:
        return "ENUM", f"({'|'.join(one.choices)})"
    if one.type in ("int", "float") and one.parse is None:
        return "NUMBER", one.pattern or ("0*[1-9][0-9]*" if one.at_least else "[+-]?[0-9]+")
    return "TEXT", one.pattern or ".+"
