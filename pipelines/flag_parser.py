"""The parser of a command line: what is wrong is said in one line; booleans may have a value."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from recordmill.pipelines import flag_values
from recordmill.transforms.flags import as_flags


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and exits with status 2."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, but a switch alone never takes for its value the flag after it, or a PATH."""
        given = list(sys.argv[1:] if args is None else args)
        has_places = any(not action.option_strings for action in self._actions)
        for place, (argument, after) in enumerate(zip(given[:-1], given[1:], strict=True)):
            action = self._option_string_actions.get(argument)
            is_switch = action is not None and action.nargs == "?" and action.const is True
            is_path = has_places and after.lower() not in ("true", "false")
            if is_switch and (after.startswith("--") or is_path):
                given[place] = f"{argument}=true"
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """One line to stderr."""
        self.exit(2, f"{self.prog}: error: {as_flags(message)}\n")


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default in ([], {})
        return action.help if nothing else super()._get_help_string(action)


def add_switch(group: argparse._ArgumentGroup, flag: str, text: str, dest: str | None = None) -> None:
    """A boolean as --x, --x=true or --x=false: a template's parameters arrive as text."""
    group.add_argument(
        flag,
        dest=dest or flag.strip("-"),
        nargs="?",
        const=True,
        default=False,
        type=flag_values.boolean,
        metavar="true|false",
        help=text,
    )
