"""The items of a label_map.pbtxt, read without protobuf's text_format: it would need the message's class.

Source of the format: object_detection/protos/string_int_label_map.proto, in protobuf's text format.
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f\v]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}<>\[\]:,;])
    |(?P<word>[^\s{}<>\[\]:,;"'\#]+)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTER = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    mark: mark for mark in "\\'\"?"
}
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_CLOSING = {"{": "}", "<": ">"}
_MAX_DEPTH = 20
_INT32_MAX = 2**31 - 1


class _Token(NamedTuple):
    kind: str
    value: str
    line: int


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


def read_map_items(text: str) -> list[MapItem]:
    """The items of a label_map.pbtxt that names each class once, in their order.

    Raises:
        ValueError: names the line, from 1, and its error.
    """
    found: list[MapItem] = []
    by_id: dict[int, int] = {}
    by_name: dict[str, int] = {}
    for line, item in map_items(text):
        if item.number in by_id:
            raise ValueError(f"line {line}: id {item.number} is also the item's in line {by_id[item.number]}")
        if item.name in by_name:
            raise ValueError(
                f"line {line}: name {item.name!r} is also the item's in line {by_name[item.name]}"
            )
        by_id[item.number] = by_name[item.name] = line
        found.append(item)
    return found


def map_items(text: str) -> list[tuple[int, MapItem]]:
    """The line of each item of a label_map.pbtxt, and the item. Raises ValueError as `read_map_items`."""
    parser = _Parser(_tokens(text.removeprefix("\ufeff")))
    found = [(line, _class(line, fields)) for line, fields in parser.items()]
    if not found:
        raise ValueError("line 1: there is no item; each class needs item { id: 1 name: 'its name' }")
    return found


def _class(line: int, fields: dict[str, str]) -> MapItem:
    number = fields.get("id", "")
    if not _NUMBER.fullmatch(number) or not 0 <= int(number[:11]) <= _INT32_MAX:
        had = f"has id {number[:40]}{'…' * (len(number) > 40)}" if number else "has no id"
        raise ValueError(f"line {line}: this item {had}; it must be an integer from 0 to {_INT32_MAX}")
    display = fields.get("display_name", "")
    name = fields.get("name", "") or display
    if not name:
        raise ValueError(f"line {line}: this item has neither name nor display_name")
    return MapItem(int(number), name, display)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"line {line}: a text begins that does not end in its line")
        kind = str(match.lastgroup)
        if kind != "blank":
            tokens.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*tokens, _Token("end", "", line)]


@dataclasses.dataclass(slots=True)
class _Parser:
    """Reads the items and their scalar fields; whatever else a file has is passed over."""

    tokens: list[_Token]
    at: int = 0

    def items(self) -> list[tuple[int, dict[str, str]]]:
        """The line and the fields of each item."""
        found: list[tuple[int, dict[str, str]]] = []
        while self.tokens[self.at].kind != "end":
            name = self._name()
            self._skip(":")
            if name.value != "item":
                raise ValueError(f"line {name.line}: expected item {{ … }}, got {name.value}")
            if self._skip("["):
                while not self._skip("]"):
                    found.append((self.tokens[self.at].line, self._message(1)))
                    self._skip(",")
            else:
                found.append((name.line, self._message(1)))
            self._skip(",", ";")
        return found

    def _message(self, depth: int) -> dict[str, str]:
        opening = self._next()
        if opening.value not in _CLOSING:
            raise _unexpected(opening, "{")
        if depth > _MAX_DEPTH:
            raise ValueError(f"line {opening.line}: messages are nested deeper than {_MAX_DEPTH}")
        fields: dict[str, str] = {}
        while not self._skip(_CLOSING[opening.value]):
            name = self._name()
            value = self._value(depth, scalar=self._skip(":"))
            if value is not None:
                fields[name.value] = value
            self._skip(",", ";")
        return fields

    def _value(self, depth: int, *, scalar: bool) -> str | None:
        """The text of a scalar; None for a message or a list."""
        token = self.tokens[self.at]
        if token.value in _CLOSING:
            self._message(depth + 1)
            return None
        if token.value == "[":
            self.at += 1
            if depth > _MAX_DEPTH:
                raise ValueError(f"line {token.line}: lists are nested deeper than {_MAX_DEPTH}")
            while not self._skip("]"):
                self._value(depth + 1, scalar=True)
                self._skip(",")
            return None
        if not scalar or token.kind not in ("word", "text"):
            raise _unexpected(token, "a value" if scalar else ":")
        if token.kind == "word":
            self.at += 1
            return token.value
        return self._text()

    def _text(self) -> str:
        """A text, which may be written in several parts."""
        line, parts = self.tokens[self.at].line, []
        while self.tokens[self.at].kind == "text":
            parts.append(_unescaped(self._next()))
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"line {line}: the text is not UTF-8: {error.reason}") from error

    def _name(self) -> _Token:
        token = self._next()
        if token.kind != "word":
            raise _unexpected(token, "the name of a field")
        return token

    def _next(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise _unexpected(token, "more")
        self.at += 1
        return token

    def _skip(self, *marks: str) -> bool:
        """Passes over one of these marks, if it comes next."""
        token = self.tokens[self.at]
        if token.kind != "mark" or token.value not in marks:
            return False
        self.at += 1
        return True


def _unexpected(token: _Token, expected: str) -> ValueError:
    got = "the end of the file" if token.kind == "end" else token.value
    return ValueError(f"line {token.line}: expected {expected}, got {got}")


def _unescaped(token: _Token) -> bytes:
    """The bytes that a quoted text stands for."""

    def replaced(match: re.Match[str]) -> bytes:
        octal, hexadecimal, short, long, letter = match.groups()
        if octal or hexadecimal:
            return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF])
        try:
            return (_LETTER[letter] if letter else chr(int(short or long, 16))).encode()
        except (KeyError, ValueError, OverflowError):
            raise ValueError(f"line {token.line}: {match[0]} is no escape of protobuf's text") from None

    inner, parts, at = token.value[1:-1], [], 0
    for match in _ESCAPE.finditer(inner):
        parts += [inner[at : match.start()].encode("utf-8", "replace"), replaced(match)]
        at = match.end()
    return b"".join([*parts, inner[at:].encode("utf-8", "replace")])
