"""The `recordmill` command.

recordmill convert --input photos/ --output out/
recordmill convert --help
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

# Nothing here imports Beam: errors of the call and --help come at once.
from pipelines import convert
from pipelines.options import Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(prog="recordmill", description="Image datasets to sharded TFRecords.")
    parser.add_argument("command", choices=["convert"], help="convert: images to a published dataset")
    # The subcommand parses the rest itself: unknown flags may be Beam's.
    command = parser.parse_args(arguments[:1]).command
    commands = {"convert": convert.main}
    return commands[command](arguments[1:], prog=f"recordmill {command}")


if __name__ == "__main__":
    sys.exit(main())
