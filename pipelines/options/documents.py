"""Writes docs/reference/flags.md and deploy/metadata.json of a checkout from the declared flags.

python -m recordmill.pipelines.options.documents
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordmill.pipelines.options.convert import CONVERT, Output
from recordmill.pipelines.options.inspect import INSPECT
from recordmill.pipelines.options.parser import Command
from recordmill.pipelines.options.reading import FORMATS, REPORT, SCHEMA
from recordmill.pipelines.options.sweep import SWEEP
from recordmill.pipelines.options.verify import VERIFY
from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.flags import Flag, flags_of
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.sources.config import SourceConfig

COMMANDS = (CONVERT, INSPECT, VERIFY, REPORT, SCHEMA, SWEEP, FORMATS)

_ROOT = Path(__file__).resolve().parents[2]
_HEADER = """# Flags

<!-- Generated: python -m recordmill.pipelines.options.documents -->

A boolean alone means true: `--plan` is `--plan=true`. `recordmill COMMAND --help` prints the same as here.
"""
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


def documents() -> dict[Path, str]:
    """The text of each generated file."""
    metadata = json.dumps(template_metadata(), indent=2, ensure_ascii=False)
    return {_ROOT / "docs/reference/flags.md": flags_page(), _ROOT / "deploy/metadata.json": f"{metadata}\n"}


def flags_page() -> str:
    """docs/reference/flags.md: a table for each group of flags of each command."""
    return "\n".join([_HEADER, *(line for command in COMMANDS for line in _section(command))])


def _section(command: Command) -> Iterator[str]:
    yield f"## {command.name}\n\n{command.description}\n"
    for group in dict.fromkeys(one.group for one in command.flags):
        yield f"### {command.name}: {group}\n\n| flag | values | default | meaning |\n|---|---|---|---|"
        yield from (_row(one) for one in command.flags if one.group == group)
        yield ""


def _row(one: Flag) -> str:
    values = ", ".join(f"`{value}`" for value in one.choices) or one.metavar.replace("|", r"\|")
    if one.is_switch:
        values = "`true`, `false`"
    values += ", repeatable" if one.is_repeatable else ", required" if one.required else ""
    return f"| `{one.shown}` | {values} | {one.default_shown} | {one.help} |"


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


def main() -> int:
    """Writes the files."""
    for path, text in documents().items():
        path.write_text(text, "utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
