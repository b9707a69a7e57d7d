"""Flags: each is declared once, as a field of a dataclass; and flags in messages.

A field holds the values, default, help and group of its flag. The parser of the command line, its help,
the page of flags, deploy/metadata.json, the checks of values and the docstrings of the Python API derive
from it.

Messages are written with flags. `JobError` and the constructors of the API replace flags by parameters, for
Python callers. The commands replace parameters by flags again when they print a message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

# Modules whose dataclasses are the Python API: flags in messages are replaced by their parameters.
_API = ("recordmill.transforms.config", "recordmill.transforms.sources.config")
_FLAG = re.compile(r"(?<![\w/.-])--([a-z_]+)(?![\w-])")
_PARAMETER = re.compile(r"(?<![\w.])[A-Z]\w+(?:\.\w+|\(\w+=True\))")

REQUIRED: Any = dataclasses.MISSING
"""The default of a field that must be given."""

_GROUP_OF_CLASS = "."
_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag, or a parameter of the Python API that has none.

    Attributes:
        help: its effect, worded for the command line.
        group: heading of its help; empty for a parameter without a flag.
        name: of the flag, without `--`; that of the field unless given.
        at_least: lower bound of a number, or of each number.
        above: lower bound that is not allowed itself.
        at_most: upper bound.
        parse: converts a text to the value; None to derive it from the type of the field.
        auto: the command line also has `auto`, and has it as the default.
        default_text: the default in words, where the value itself does not say it.
        positional: it is an argument without a name.
        required: a call without it is wrong.
        path: `input`, `output`, `file` or `folder`: what a path names.
        pattern: regular expression of the text, for parameters of a template.
        determines_bytes: the shards of a dataset depend on it.
        only_if_set: manifest.json leaves out the default, so that digests of other datasets stay the same.
    """

    help: str
    group: str = ""
    name: str = ""
    values: tuple[str, ...] | None = None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    parse: Callable[[str], Any] | None = None
    metavar: str = ""
    auto: bool = False
    default_text: str = ""
    positional: bool = False
    required: bool = False
    path: str = ""
    pattern: str = ""
    determines_bytes: bool = True
    only_if_set: bool = False
    field: str = ""
    type: str = ""
    default: Any = None

    @property
    def shown(self) -> str:
        return self.metavar if self.positional else f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        return self.type == "bool"

    @property
    def is_repeatable(self) -> bool:
        return self.type == "tuple[str, ...]" and self.parse is None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values, if it has one of these; empty for any text or several."""
        return () if self.parse else self.values or ()

    @property
    def default_shown(self) -> str:
        """The default as text; empty where there is none."""
        is_none = self.default is False or self.default in (None, (), {})
        return self.default_text or ("" if is_none else str(self.default))

    def of_commands(self) -> Flag:
        """The flag as the command line has it."""
        if not self.auto:
            return self
        return dataclasses.replace(self, values=self.values and ("auto", *self.values), default="auto")

    def check(self, value: Any) -> None:
        """Raises ValueError for a value that the flag may not have; None is allowed if it is the default."""
        if value is None and self.default is None:
            return
        several = isinstance(value, tuple)
        for one in value if several else (value,):
            if not self._allows(one):
                shown = f"{one:g}" if isinstance(one, float) else repr(one)
                verb, subject = ("has", "each") if several else ("is", "it")
                raise ValueError(f"{self.shown} {verb} {shown}; {subject} may be {self.allowed}")

    def _allows(self, value: Any) -> bool:
        if self.values is not None:
            return value in self.values
        if self.above is self.at_least is self.at_most is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.above is not None and not value > self.above:
            return False
        if self.at_least is not None and not value >= self.at_least:
            return False
        return self.at_most is None or value <= self.at_most

    @property
    def allowed(self) -> str:
        if self.values is not None:
            return " or ".join(filter(None, (", ".join(self.values[:-1]), self.values[-1])))
        if self.above is not None:
            return f"above {self.above:g} and at most {self.at_most:g}"
        if self.at_least is None:
            return "an integer" if self.type == "int" else "a number"
        return f"{self.at_least:g} " + ("or more" if self.at_most is None else f"to {self.at_most:g}")


def flag(default: _T, help: str, group: str = "", **declared: Any) -> _T:
    """A field that is a flag; `declared` are further attributes of `Flag`.

    Without `group`, the heading of its help is the group of the class; see `declares_flags`.
    """
    return _field(default, Flag(help=help, group=group or _GROUP_OF_CLASS, **declared))


def like(cls: type, field: str, **changed: Any) -> Any:
    """A field that is a flag of another class too, except for the attributes in `changed`."""
    (found,) = (one for one in flags_of(cls) if one.field == field)
    return _field(found.default, dataclasses.replace(found, group=_GROUP_OF_CLASS, **changed))


def setting(default: _T, help: str, **declared: Any) -> _T:
    return _field(default, Flag(help=help, **declared))


def _field(default: _T, declared: Flag) -> _T:
    metadata = {"flag": declared}
    if isinstance(default, dict):
        field: Any = dataclasses.field(default_factory=dict, metadata=metadata)
    else:
        field = dataclasses.field(default=default, metadata=metadata)
    found: _T = field
    return found


def declares_flags(group: str = "") -> Callable[[_Class], _Class]:
    """Decorates a dataclass whose fields are flags; its docstring gets their help."""

    def declared(cls: _Class) -> _Class:
        found = [_completed(field, group) for field in dataclasses.fields(cls) if "flag" in field.metadata]
        cls._declared_flags = tuple(found)  # type: ignore[attr-defined]
        lines = "\n".join(
            textwrap.fill(f"{one.field}: {one.help}", 106, initial_indent="    ", subsequent_indent=" " * 8)
            for one in found
        )
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\nAttributes:\n{lines}\n"
        return cls

    return declared


def _completed(field: dataclasses.Field[Any], group: str) -> Flag:
    declared: Flag = field.metadata["flag"]
    default = {} if field.default_factory is dict else field.default
    return dataclasses.replace(
        declared,
        name=declared.name or field.name,
        group=group if declared.group == _GROUP_OF_CLASS else declared.group,
        field=field.name,
        type=str(field.type).removesuffix(" | None"),
        default=None if default is dataclasses.MISSING else default,
    )


def flags_of(cls: type, *names: str) -> tuple[Flag, ...]:
    """The flags that a dataclass declares; with `names`, these only."""
    declared: tuple[Flag, ...] = cls._declared_flags  # type: ignore[attr-defined]
    return tuple(one for one in declared if one.group and (not names or one.name in names))


def check_values(config: object) -> None:
    for one in flags_of(type(config)):
        one.check(getattr(config, one.field))


@functools.cache
def parameters() -> dict[str, str]:
    """The parameters of the Python API, by the flag, without `--`."""
    found = {"output": "WriteDataset.output"}
    for module in map(importlib.import_module, _API):
        for cls in vars(module).values():
            if isinstance(cls, type) and hasattr(cls, "_declared_flags"):
                for one in flags_of(cls):
                    found[one.name] = (
                        f"{cls.__name__}({one.field}=True)"
                        if one.is_switch
                        else f"{cls.__name__}.{one.field}"
                    )
    return found


def as_parameters(message: str) -> str:
    """Replaces flags by the parameters of the Python API; a flag without a parameter stays."""
    return _FLAG.sub(lambda match: parameters().get(match[1], match[0]), message)


def as_flags(message: str) -> str:
    """The inverse of `as_parameters`."""
    flags = {parameter: f"--{name}" for name, parameter in parameters().items()}
    return _PARAMETER.sub(lambda match: flags.get(match[0], match[0]), message)


@contextlib.contextmanager
def naming_parameters() -> Iterator[None]:
    """Replaces flags by parameters in the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(as_parameters(str(error))) from error.__cause__


def flag_with(flag: str, value: str) -> str:
    """A flag and its value, quoted for a shell: `--image_column 'Image Path'`."""
    between = "=" if value.startswith("-") else " "
    if value.isprintable() or not value.isascii():
        return f"{flag}{between}{shlex.quote(value)}"
    escaped = value.encode("unicode_escape").decode().replace("'", r"\'")
    return f"{flag}{between}$'{escaped}'"  # a line break in quotes would break the message, too
