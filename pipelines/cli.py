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

import importlib
import sys
from collections.abc import Sequence

from pipelines import interruption

# Module and purpose of each command.
_COMMANDS = {
    "convert": ("convert", "images to a published dataset"),
    "inspect": ("inspection", "what is in TFRecords, anyone's"),
    "verify": ("verify", "reads a dataset back, whole, and proves it against its source"),
    "report": ("report", "report.html of a dataset, to look at"),
    "schema": ("schema_code", "the code that parses it, in plain TensorFlow"),
    "sweep": ("sweep", "what each image setting costs and saves"),
    "formats": ("formats", "what is read and written"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns its exit status."""
    with interruption.stopping_at_once():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    # Imported once interruptions are heeded, and no more than is asked for: errors of the call come soon.
    from pipelines.flag_parser import Parser

    parser = Parser(prog="recordmill", description="Image datasets to sharded TFRecords.")
    told = "; ".join(f"{name}: {does}" for name, (_, does) in _COMMANDS.items())
    parser.add_argument("command", choices=list(_COMMANDS), help=told)
    # The subcommand parses the rest itself: unknown flags may be Beam's.
    command = parser.parse_args(arguments[:1]).command
    module = importlib.import_module(f"pipelines.{_COMMANDS[command][0]}")
    status: int = module.main(arguments[1:], prog=f"recordmill {command}")
    return status


if __name__ == "__main__":
    sys.exit(main())
