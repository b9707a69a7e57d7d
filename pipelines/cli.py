"""The `recordmill` command.

recordmill convert --input photos/ --output out/
recordmill inspect out/
recordmill verify out/ --input photos/
recordmill report out/
recordmill schema out/
recordmill sweep --input photos/ --output sweep/
recordmill formats
recordmill convert --help
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import recordmill
from recordmill.pipelines.running import beam_import, interruption

if TYPE_CHECKING:
    from recordmill.pipelines.options.parser import Parser

# Module and purpose of each command.
_COMMANDS = {
    "convert": ("convert", "convert images to a TFRecord dataset"),
    "inspect": ("inspection", "show the contents of any TFRecord files"),
    "verify": ("verify", "read a dataset back completely, and compare it with its source"),
    "report": ("report", "write report.html, a page about a dataset"),
    "schema": ("schema_code", "print the code that parses a dataset, in plain TensorFlow"),
    "sweep": ("sweep", "measure the size, speed and quality of each image setting"),
    "formats": ("formats", "list the sources, the schemas and the image formats"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns its exit status."""
    if argv is None:
        beam_import.run_one_job()
    with interruption.stopping_at_once():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    # Imported late: interruptions are handled by now, and a command imports only what it needs.
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 2  # the call was wrong: it names no command
    # The subcommand parses the rest itself: unknown flags may be Beam's.
    args = parser.parse_args(arguments[:1])
    if args.version:
        print(f"recordmill {recordmill.__version__}")
        return 0
    if args.command is None:
        parser.error(f"no command is given; it may be {', '.join(_COMMANDS)}")
    command = args.command
    module = importlib.import_module(f"recordmill.pipelines.{_COMMANDS[command][0]}")
    status: int = module.main(arguments[1:], prog=f"recordmill {command}")
    return status


def _parser() -> Parser:
    from recordmill.pipelines.options.parser import Parser

    commands = "\n".join(f"  {name:<9} {does}" for name, (_, does) in _COMMANDS.items())
    parser = Parser(
        prog="recordmill",
        usage="recordmill COMMAND [FLAGS]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Converts image datasets to sharded TFRecords.",
        epilog=f"commands:\n{commands}\n\n`recordmill COMMAND --help` lists the flags of a command.",
    )
    parser.add_argument("command", nargs="?", choices=list(_COMMANDS), help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


if __name__ == "__main__":
    sys.exit(main())
