"""The parser of a command, built from the flags that dataclasses declare; an error is one line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from recordmill.transforms.flag_values import boolean
from recordmill.transforms.flags import Flag, as_flags, flags_of
from recordmill.transforms.storage.paths import expanded

PASSES = "All flags of Apache Beam are also accepted."

_T = TypeVar("_T")


class Parser(argparse.ArgumentParser):
    """Parses and checks flags; exits with status 2 and one line if one is wrong."""

    def __init__(self, prog: str, flags: Sequence[Flag] = (), **more: Any) -> None:
        super().__init__(prog=prog, allow_abbrev=False, **more)
        self.flags = tuple(flags)
        groups: dict[str, argparse._ArgumentGroup] = {}
        for one in self.flags:
            if one.positional:
                _add(self, one)
            else:
                if one.group not in groups:
                    groups[one.group] = self.add_argument_group(one.group)
                _add(groups[one.group], one)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse; `given` names the flags of the call. A flag or PATH is never the value of a switch."""
        given = list(sys.argv[1:] if args is None else args)
        has_positionals = any(not action.option_strings for action in self._actions)
        for index, (argument, after) in enumerate(zip(given[:-1], given[1:], strict=True)):
            action = self._option_string_actions.get(argument)
            is_switch = action is not None and action.nargs == "?" and action.const is True
            is_path = has_positionals and after.lower() not in ("true", "false")
            if is_switch and (after.startswith("--") or is_path):
                given[index] = f"{argument}=true"
        found, others = super().parse_known_args(given, namespace)
        values = vars(found)
        values.setdefault("given", frozenset(values))
        for one in self.flags:
            if isinstance(value := values.setdefault(one.name, one.default), list):
                values[one.name] = tuple(value)
            try:
                one.check(values[one.name])
            except ValueError as error:
                self.error(str(error))
        return found, others

    @contextlib.contextmanager
    def checking(self) -> Iterator[None]:
        """Prepares this process for inputs; ends it with one line if the block finds an error in the call."""
        from recordmill.transforms.workers import own_process  # imports PIL, which --help does not need

        own_process.set_up()
        try:
            yield
        except ValueError as error:
            self.error(str(error))
        except OSError as error:
            self.error(f"{error.filename!r}: {error.strerror}")

    def error(self, message: str) -> NoReturn:
        fail(self, message)


def fail(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Ends the program with status 2 and one line about the error in the call."""
    message = re.sub(r"^argument (--\w+): (?=\1 )", "", message)
    parser.exit(2, f"{parser.prog}: error: {as_flags(message)}\n")


def _add(group: argparse._ActionsContainer, one: Flag) -> None:
    """Adds a flag. Flags that are not given are not in the namespace; `Parser` adds their defaults."""
    more: dict[str, Any] = {"help": help_text(one).replace("%", "%%"), "default": argparse.SUPPRESS}
    if one.positional:
        more["metavar"] = one.metavar
    else:
        more["dest"] = one.name
        more["metavar"] = "true|false" if one.is_switch else _metavar(one)
    if one.is_switch:
        # A template's parameters arrive as text: --x, --x=true and --x=false.
        more.update(nargs="?", const=True)
    elif one.is_repeatable:
        more["action"] = "append"
    elif one.positional and not one.required:
        more["nargs"] = "?"
    group.add_argument(one.name if one.positional else f"--{one.name}", type=_converter(one), **more)


def _metavar(one: Flag) -> str:
    return one.metavar or f"{{{','.join(one.values or ())}}}"


def help_text(one: Flag) -> str:
    """The help of a flag, with its default."""
    text = f"{one.help} (repeatable)" if one.is_repeatable else one.help
    if one.required and not one.positional:  # the usage line shows every flag in brackets
        text += " (required)"
    return f"{text} (default: {one.default_shown})" if one.default_shown else text


def _converter(one: Flag) -> Callable[[str], Any]:
    parse = one.parse
    if one.is_switch:
        parse = boolean
    elif one.path:
        parse = expanded
    elif parse is None:
        parse = {"int": int, "float": float}.get(one.type, str)

    def converted(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            if parse in (int, float):
                wrong = f"{one.shown} is {text!r}; it may be {one.allowed}"
                raise argparse.ArgumentTypeError(wrong) from error
            message = str(error)
            named = repr(text) in message or not one.path
            raise argparse.ArgumentTypeError(message if named else f"{text!r}: {message}") from error

    return converted


def from_flags(cls: type[_T], args: argparse.Namespace, **others: Any) -> _T:
    """An instance of a dataclass that declares flags, from a parsed call; `others` override flags."""
    values = {one.field: getattr(args, one.name) for one in flags_of(cls) if one.name in vars(args)}
    return cls(**{**values, **others})


@dataclasses.dataclass(frozen=True)
class Command:
    """A command: its flags, as fields of dataclasses declare them, and the text of its help."""

    name: str
    description: str
    epilog: str
    declared: tuple[Flag, ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Its flags as on the command line, required flags first."""
        return tuple(sorted((one.of_commands() for one in self.declared), key=lambda one: not one.required))

    def parser(self, prog: str) -> Parser:
        """Its parser, which does not know the flags of Beam."""
        return Parser(prog, self.flags, description=self.description, epilog=self.epilog)
