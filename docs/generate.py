"""Writes what the documents have from the code: `make reference`.

A generated part of a page is between `<!-- generated: NAME -->` and `<!-- end of generated -->`. The text
around it is written by hand.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import recordmill
from docs.features import schema_table
from docs.reasons import reasons
from docs.remedies import REMEDIES
from docs.template_metadata import metadata_text
from recordmill.pipelines import formats
from recordmill.pipelines.options.convert import CONVERT
from recordmill.pipelines.options.inspect import INSPECT
from recordmill.pipelines.options.parser import Command
from recordmill.pipelines.options.reading import FORMATS, REPORT, SCHEMA
from recordmill.pipelines.options.sweep import SWEEP
from recordmill.pipelines.options.verify import VERIFY
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.flags import Flag
from recordmill.transforms.images import png
from recordmill.transforms.images.reasons import MAX_PIXELS
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.storage import gcs, gcs_client, lock, reader
from recordmill.transforms.workers import pool, task

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (CONVERT, INSPECT, VERIFY, REPORT, SCHEMA, SWEEP, FORMATS)
ENVIRONMENT = {
    "RECORDMILL_NO_AUTH": "If set, requests to Cloud Storage have no credentials. "
    "The flag `--no_auth` sets this variable.",
    "STORAGE_EMULATOR_HOST": "URL of an emulator that replaces Cloud Storage.",
    "GOOGLE_APPLICATION_CREDENTIALS": "File with credentials for Google Cloud; Google's client reads it.",
    "TMPDIR": "Folder of temporary files: unfinished shards for a bucket, unpacked images, annotations. "
    "Python reads it; the default is `/tmp`.",
    "TF_CONFIG": "Cluster of `tf.distribute`. With several workers, `load_dataset` uses the "
    "same order on all of them.",
    "GCE_METADATA_TIMEOUT": "Timeout of the metadata server of Google Cloud, in seconds; default 1.",
    "GCE_METADATA_DETECT_RETRIES": "Number of attempts to reach the metadata server; default 1.",
    "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "`true` by default: Google's client does not "
    "request the metadata of buckets, which needs another permission.",
    "MALLOC_MMAP_THRESHOLD_": "glibc, in worker processes: 32 MiB by default, which makes encoding faster.",
    "MALLOC_TRIM_THRESHOLD_": "glibc, in worker processes: 256 MiB by default, for the same reason.",
    "AIP_MODEL_DIR": "Vertex AI: folder in which the [trainer](../../deploy/vertex/trainer/README.md) "
    "writes the model.",
    "AIP_CHECKPOINT_DIR": "Vertex AI: folder of the trainer's checkpoints.",
}
_OUTCOMES = {"failed": "fails", "skipped": "skipped", "kept": "kept"}
_STAGES = {
    "list": "Listing the input: files, folders and members of archives.",
    "manifest": "Reading a row of a table, a line of JSON, or a record of a TFRecord file.",
    "annotations": "Reading or mapping annotations: labels, boxes, masks, key points.",
    "load": "Reading the bytes of an image.",
    "decode": "Decoding the image.",
    "encode": "Encoding the image or its masks.",
    "map": "Running the function of `--map_image`.",
    "build": "Building the features of the record.",
}
# Reasons that are not constants of the code, by the stage in which they may appear.
_COMPUTED = [
    ("list", "fails", "not found", REMEDIES["not found"]),
    ("any", "fails", "permission denied", "Allow the account to read the file."),
    ("any", "fails", "name too long", "Rename the file."),
    ("any", "fails", "outside the input root", REMEDIES["outside the input root"]),
    (
        "any",
        "fails",
        "internal error: …",
        "An error of Recordmill. Please report it with the traceback of the log.",
    ),
    ("annotations", "fails", "mask …", "The mask cannot be decoded: `mask corrupt`, `mask truncated`, …"),
    ("annotations", "fails", "… without an …", "The entry of the COCO file lacks this id."),
    ("annotations", "fails", "… is not an object", "The entry of the COCO file is not a JSON object."),
    (
        "annotations",
        "fails",
        "…s do not match the frames",
        "The number of times or labels differs from that of the frames.",
    ),
    ("manifest", "fails", "row is not …", "The row is not valid in the encoding of the file, such as UTF-8."),
    (
        "manifest",
        "fails",
        "in quotes for more than … characters; a quote may be unclosed",
        "Close the quote.",
    ),
    ("list", "skipped", "not listed in manifest.json", "The TFRecord dataset does not list this shard."),
]


def documents() -> dict[Path, str]:
    """The text of each file that has generated parts."""
    pages = {path: path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
    filled = {path: _filled(text) for path, text in pages.items() if "<!-- generated: " in text}
    return {**filled, ROOT / "deploy/metadata.json": metadata_text()}


def _filled(page: str) -> str:
    def part(found: re.Match[str]) -> str:
        name, _, argument = found[1].partition(": ")
        made = PARTS[name](argument) if argument else PARTS[name]()
        return f"<!-- generated: {found[1]} -->\n\n{made}\n\n<!-- end of generated -->"

    return re.sub(r"<!-- generated: (.*?) -->\n.*?<!-- end of generated -->", part, page, flags=re.DOTALL)


def _table(columns: str, rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    names = columns.split("|")
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def flag_tables() -> str:
    """A table for each group of flags of each command."""
    return "\n".join(line for command in COMMANDS for line in _section(command)).rstrip()


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
    return f"| `{one.shown}` | {values} | {one.default_shown} | {_meaning(one)} |"


def _meaning(one: Flag) -> str:
    """The help of a flag for a cell of a table. Patterns are code: Markdown reads `{stem}_` otherwise."""
    return re.sub(r"[^\s,]*\{[^\s,]*", r"`\g<0>`", one.help.replace("|", r"\|"))


def source_table() -> str:
    """What each source reads."""
    table = formats.markdown(list(SOURCES.values()))
    return re.sub(r"^\| `(\w+)`", r"| [`\1`](#\1)", table, flags=re.MULTILINE)


def source_flags() -> str:
    """The flags that only some sources use."""
    rows = []
    for name, source in SOURCES.items():
        flags = [f"`--{flag}`" for flag in source.flags if flag != "include_annotations"]
        if source.searches_roots:
            flags.append("`--image_root`")
        kinds = ", ".join(f"`{kind}`" for kind in source.description.annotations)
        rows.append((f"[`{name}`](#{name})", ", ".join(sorted(flags)), kinds))
    return _table("source|flags|`--include_annotations`", rows)


def example(name: str) -> str:
    """The example tree of a source."""
    return textwrap.indent(SOURCES[name].description.example, "    ")


def schema(name: str) -> str:
    """The features of a schema."""
    summary = " ".join((type(SCHEMAS[name]).__doc__ or "").partition("\n\n")[0].split())
    return f"{summary}\n\n{schema_table(name)}"


def reason_tables() -> str:
    """A table of reasons for each stage."""
    found = {(one.stage, _OUTCOMES[one.outcome], one.reason) for one in reasons()}
    missing = {reason for _, _, reason in found} - set(REMEDIES)
    stale = set(REMEDIES) - {reason for _, _, reason in found}
    if missing or stale:
        raise SystemExit(
            f"docs/remedies.py lacks {sorted(missing)}, and has {sorted(stale)} that no code gives"
        )
    lines = []
    for stage, meaning in _STAGES.items():
        rows = {(reason, outcome): REMEDIES[reason] for at, outcome, reason in found if at == stage}
        rows |= {(reason, outcome): text for at, outcome, reason, text in _COMPUTED if at == stage}
        table = [
            (f"`{reason}`", outcome, text.format(pixels=MAX_PIXELS) if "{pixels" in text else text)
            for (reason, outcome), text in sorted(
                rows.items(), key=lambda row: (row[0][0].lower(), row[0][1])
            )
        ]
        lines += [f"### {stage}", meaning, _table("reason|the input|meaning and remedy", table)]
    anywhere = [(f"`{reason}`", outcome, text) for at, outcome, reason, text in _COMPUTED if at == "any"]
    lines += ["### Any stage", _table("reason|the input|meaning and remedy", anywhere)]
    return "\n\n".join(lines)


def limits() -> str:
    """Limits of time, memory and requests, from the constants of the code."""
    most = task.cpu_seconds(MAX_PIXELS)
    image = (
        f"{task.ITEM_CPU_SECONDS:g} s, and {task.CPU_SECONDS_PER_MEGAPIXEL:g} s for each megapixel: "
        f"at most {most:.0f} s"
    )
    return _table(
        "limit|value|if it is exceeded",
        [
            ("pixels of an image", f"{MAX_PIXELS:,}", "`too many pixels`"),
            ("processor time of an image", image, "`takes too long`"),
            ("time in which a codec must finish an image", f"{pool.ITEM_SECONDS:g} s", "`hangs the codec`"),
            ("both times, with `--optimize` or `--target_ssim`", "five times as long", "as above"),
            ("text of a PNG, per keyword", f"{png._LONGEST_TEXT >> 20} MiB", "ignored"),
            (
                "time since a job last renewed its lock, on a disk",
                f"{lock._LockFile.dead_seconds:g} s",
                "the job counts as dead",
            ),
            (
                "time since a job last renewed its lock, in a bucket",
                f"{lock._LockObject.dead_seconds:g} s",
                "the job counts as dead",
            ),
            (
                "interval in which a job renews its lock in a bucket",
                f"every {lock._LockObject.renew_seconds:g} s",
                "",
            ),
            (
                "time in which a request to a bucket is retried",
                f"{gcs_client._RETRY_SECONDS:g} s",
                "the job fails",
            ),
            ("simultaneous requests of a process", f"{gcs_client.CONNECTIONS}", "others wait"),
            (
                "images that a process reads ahead",
                f"{reader._IMAGES} images or {reader._BYTES >> 20} MB",
                "reading waits",
            ),
            (
                "size up to which a process copies a container from a bucket",
                f"{gcs._LARGEST_COPY >> 20} MB",
                "the process requests ranges of it",
            ),
        ],
    )


def manifest_fields() -> str:
    """The fields of manifest.json, from its JSON Schema."""
    text = (ROOT / "transforms/shards/manifest.schema.json").read_text("utf-8")
    root = json.loads(text)
    return _table("field|type|meaning", list(_fields(root, "", root["$defs"])))


def _fields(node: dict[str, Any], above: str, definitions: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, declared in node.get("properties", {}).items():
        field = {**definitions.get(declared.get("$ref", "").rpartition("/")[2], {}), **declared}
        required = "" if name in node.get("required", ()) else "; may be absent"
        yield f"`{above}{name}`", _type(field) + required, field.get("description", "")
        yield from _fields(field, f"{above}{name}.", definitions)
        for inner, mark in ((field.get("items"), "[]"), (field.get("additionalProperties"), ".*")):
            if isinstance(inner, dict):
                inner = {**definitions.get(inner.get("$ref", "").rpartition("/")[2], {}), **inner}
                yield from _fields(inner, f"{above}{name}{mark}.", definitions)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = field["type"]
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def parameter_table(name: str) -> str:
    """The parameters of a configuration class of the Python API."""
    rows = []
    cls = getattr(recordmill, name)
    required = {one.name for one in dataclasses.fields(cls) if _has_no_default(one)}
    for one in cls._declared_flags:
        flag = f"`--{one.name}`" if one.group else ""
        default = "required" if one.field in required else f"`{one.default!r}`"
        if dataclasses.is_dataclass(one.default):
            default = f"`{type(one.default).__name__}()`"
        kind = one.type + (" | None" if one.default is None and one.field not in required else "")
        kind = kind.replace("|", r"\|")
        rows.append((f"`{one.field}`", f"`{kind}`", default, flag, _meaning(one)))
    return _table("parameter|type|default|flag|meaning", rows)


def public_names() -> str:
    """What each name of the Python API is."""
    texts = {name: inspect.getdoc(getattr(recordmill, name)) or "" for name in recordmill.__all__}
    summaries = ((name, " ".join(text.partition("\n\n")[0].split())) for name, text in texts.items())
    return _table("name|meaning", [(f"`{name}`", text.replace("|", r"\|")) for name, text in summaries])


def feature_shapes() -> str:
    """The table of features in the documentation of `load_dataset`."""
    lines = (inspect.getdoc(recordmill.load_dataset) or "").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def environment_table() -> str:
    """The environment variables that are read."""
    return _table("variable|meaning", [(f"`{name}`", text) for name, text in ENVIRONMENT.items()])


PARTS: dict[str, Callable[..., str]] = {
    "flags": flag_tables,
    "sources": source_table,
    "source flags": source_flags,
    "example": example,
    "schema": schema,
    "reasons": reason_tables,
    "limits": limits,
    "manifest": manifest_fields,
    "parameters": parameter_table,
    "public names": public_names,
    "feature shapes": feature_shapes,
    "environment": environment_table,
}


def main() -> int:
    """Writes the files."""
    for path, text in documents().items():
        path.write_text(text, "utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
