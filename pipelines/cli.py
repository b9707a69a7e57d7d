"""The `recordmill` command.

recordmill convert --input photos/ --output out/
recordmill sweep --input photos/ --output sweep/
recordmill formats
recordmill convert --help
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipelines import interruption


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns its exit status."""
    with interruption.stopping_at_once():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    # Imported once interruptions are heeded; none of it imports Beam: errors of the call come soon.
    from pipelines import convert, formats, sweep
    from pipelines.flag_parser import Parser

    parser = Parser(prog="recordmill", description="Image datasets to sharded TFRecords.")
    commands = {"convert": convert.main, "sweep": sweep.main, "formats": formats.main}
    told = (
        "convert: images to a published dataset; sweep: what each image setting costs and saves; "
        "formats: what is read and written"
    )
    parser.add_argument("command", choices=list(commands), help=told)
    # The subcommand parses the rest itself: unknown flags may be Beam's.
    command = parser.parse_args(arguments[:1]).command
    return commands[command](arguments[1:], prog=f"recordmill {command}")


if __name__ == "__main__":
    sys.exit(main())
