"""Prints the formats: each source with an example tree, the schemas, the image formats.

recordmill formats
recordmill formats coco
recordmill formats --markdown
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from recordmill.pipelines.options.reading import FORMATS
from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.examples.registry import SCHEMAS
from recordmill.transforms.images.policy import IMAGE_FORMATS
from recordmill.transforms.sources.names import IMAGE_EXTENSIONS
from recordmill.transforms.sources.registry import SOURCES
from recordmill.transforms.sources.source import Source

_WIDTH = 100
_COLUMNS = ("source", "reads", "label", "split", "key")


def main(argv: Sequence[str] | None = None, prog: str = "python -m recordmill.pipelines.formats") -> int:
    """Prints the formats; returns the exit status."""
    parser = FORMATS.parser(prog)
    args = parser.parse_args(sys.argv[1:] if argv is None else argv)
    if args.source is not None and args.source not in SOURCES:
        parser.error(f"SOURCE is {args.source!r}; it may be {', '.join(SOURCES)}")
    sources = [SOURCES[args.source]] if args.source else list(SOURCES.values())
    text = markdown(sources) if args.markdown else _described(sources, is_all=args.source is None)
    plain_console(soft_wrap=True).print(text)
    return 0


def markdown(sources: Sequence[Source]) -> str:
    """The sources as a table in Markdown."""
    rows = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for source in sources:
        facts = source.description
        rows.append(f"| `{source.name}` | {facts.reads} | {facts.label} | {facts.split} | {facts.key} |")
    return "\n".join(rows)


def _described(sources: Sequence[Source], is_all: bool) -> str:
    parts = [_source(source) for source in sources]
    if is_all:
        schemas = [
            f"  {name:<15} {(type(schema).__doc__ or '').splitlines()[0]}" for name, schema in SCHEMAS.items()
        ]
        parts.append("\n".join(["SCHEMAS (--schema; several are separated by commas)", *schemas]))
        extensions = _wrapped("  ", ", ".join(sorted(IMAGE_EXTENSIONS)))
        parts.append(f"IMAGES by name (the format is detected from the bytes)\n{extensions}")
        parts.append(f"STORED AS (--image_format)\n  {', '.join(IMAGE_FORMATS)}")
    return "\n\n".join(parts)


def _source(source: Source) -> str:
    described = source.description
    facts = {name: getattr(described, name) for name in _COLUMNS[1:]}
    if described.annotations:
        facts["also"] = f"{', '.join(described.annotations)}, with --include_annotations"
    lines = [source.name, *(_wrapped(f"  {name:<5}  ", fact) for name, fact in facts.items()), ""]
    return "\n".join(lines) + "\n" + textwrap.indent(described.example, "    ")


def _wrapped(heading: str, text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=heading,
        subsequent_indent=" " * len(heading),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main())
