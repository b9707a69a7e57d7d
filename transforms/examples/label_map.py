"""label_map.pbtxt, written and read: the classes of the TF Object Detection API.

Source of the format: object_detection/protos/string_int_label_map.proto, in protobuf's text format. It is
read token by token, since protobuf's own parser does not report the line of an item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.text_format import Tokenizer

_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_CLOSING = {"{": "}", "<": ">"}
_SHOWN = 40  # characters of a text in a message
_MAX_DEPTH = 20
_INT32_MAX = 2**31 - 1


class MapItem(NamedTuple):
    """A class of a label map.

    Attributes:
        number: its id.
        name: in records; the display name if it has no other.
        display: its display name; may be empty.
    """

    number: int
    name: str
    display: str


def label_map_text(labels: Mapping[int, str], texts: Mapping[str, str]) -> str:
    """The text of label_map.pbtxt: an item for each class, but for id 0, which is the background there.

    Args:
        labels: names by id.
        texts: display names by name.
    """
    return "".join(_item(number, name, texts.get(name, name)) for number, name in labels.items() if number)


def _item(number: int, name: str, display: str) -> str:
    lines = [f"  id: {number}", f"  name: {_quoted(name)}"]
    if display != name:
        lines.append(f"  display_name: {_quoted(display)}")
    return "\n".join(["item {", *lines, "}", ""])


def _quoted(value: str) -> str:
    """A text in quotes, as UTF-8; characters that UTF-8 cannot encode become `?`."""
    value = value.encode("utf-8", "replace").decode()
    value = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", value) + "'"


def read_map_items(text: str) -> list[MapItem]:
    """The items of a label_map.pbtxt that names each class once, in their order.

    Raises:
        ValueError: names the line, from 1, and its error.
    """
    lines: dict[int | str, int] = {}
    found = map_items(text)
    for line, item in found:
        for kind, value in (("id", item.number), ("name", item.name)):
            if value in lines:
                raise ValueError(f"line {line}: {kind} {value!r} is also the item's in line {lines[value]}")
            lines[value] = line
    return [item for _, item in found]


def map_items(text: str) -> list[tuple[int, MapItem]]:
    """The line of each item of a label_map.pbtxt, and the item. Raises ValueError as `read_map_items`."""
    from google.protobuf import text_format  # takes 50 ms

    tokens = text_format.Tokenizer(text.removeprefix("\ufeff").split("\n"))
    try:
        found = [(line, _class(line, fields)) for line, fields in _items(tokens)]
    except text_format.ParseError as error:
        _, _, reason = str(error).rpartition("': ")  # after line, column and the line's text
        raise ValueError(f"line {error.GetLine()}: {reason[:100]}") from error
    if not found:
        raise ValueError("line 1: there is no item; each class needs item { id: 1 name: 'its name' }")
    return found


def _class(line: int, fields: dict[str, str]) -> MapItem:
    number = fields.get("id", "")
    if not _NUMBER.fullmatch(number) or not 0 <= int(number[:11]) <= _INT32_MAX:
        had = f"has id {_clipped(number)}" if number else "has no id"
        raise ValueError(f"line {line}: this item {had}; it must be an integer from 0 to {_INT32_MAX}")
    display = fields.get("display_name", "")
    name = fields.get("name", "") or display
    if not name:
        raise ValueError(f"line {line}: this item has neither name nor display_name")
    return MapItem(int(number), name, display)


def _items(tokens: Tokenizer) -> Iterator[tuple[int, dict[str, str]]]:
    """The line of each item, and its scalar fields."""
    while not tokens.AtEnd():
        line = _line(tokens)
        if tokens.token != "item":
            raise _expected(tokens, "item { … }")
        tokens.NextToken()
        tokens.TryConsume(":")
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                yield _line(tokens), _message(tokens, 1)
                tokens.TryConsume(",")
        else:
            yield line, _message(tokens, 1)
        _skip_separator(tokens)


def _message(tokens: Tokenizer, depth: int) -> dict[str, str]:
    """The scalar fields of a message."""
    closing = _CLOSING.get(tokens.token)
    if closing is None:
        raise _expected(tokens, "{")
    if depth > _MAX_DEPTH:
        raise ValueError(f"line {_line(tokens)}: messages are nested deeper than {_MAX_DEPTH}")
    tokens.NextToken()
    fields: dict[str, str] = {}
    while not tokens.TryConsume(closing):
        if not re.match(r"\w", tokens.token):
            raise _expected(tokens, f"the name of a field, or {closing}")
        name = tokens.token
        tokens.NextToken()
        value = _value(tokens, depth, scalar=tokens.TryConsume(":"))
        if value is not None:
            fields[name] = value
        _skip_separator(tokens)
    return fields


def _value(tokens: Tokenizer, depth: int, *, scalar: bool) -> str | None:
    """The text of a scalar; None for a message or a list."""
    if tokens.token in _CLOSING:
        _message(tokens, depth + 1)
        return None
    if tokens.TryConsume("["):
        if depth > _MAX_DEPTH:
            raise ValueError(f"line {_line(tokens)}: lists are nested deeper than {_MAX_DEPTH}")
        while not tokens.TryConsume("]"):
            _value(tokens, depth + 1, scalar=True)
            tokens.TryConsume(",")
        return None
    if not scalar or not re.match(r"[\w'\"+.-]", tokens.token):
        raise _expected(tokens, "a value" if scalar else ":")
    if tokens.token[0] in "'\"":
        return str(tokens.ConsumeString())
    value = str(tokens.token)
    tokens.NextToken()
    return value


def _skip_separator(tokens: Tokenizer) -> None:
    if not tokens.TryConsume(","):
        tokens.TryConsume(";")


def _line(tokens: Tokenizer) -> int:
    return int(tokens.ParseError("").GetLine())


def _expected(tokens: Tokenizer, expected: str) -> ValueError:
    got = "the end of the file" if tokens.AtEnd() else _clipped(tokens.token)
    return ValueError(f"line {_line(tokens)}: expected {expected}, got {got}")


def _clipped(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
