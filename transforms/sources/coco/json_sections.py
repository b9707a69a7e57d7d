"""COCO's JSON read in one pass, an element of its lists at a time: files may be larger than memory.

The standard library's decoder, on a window of the text, takes half the time of a streaming parser, gives
the same floats as `json.load`, and locates a fault in the text.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from recordmill.transforms.records import JobError

_CHUNK = 1 << 20
_LONGEST = 1 << 26  # characters of one element, or of one other value
_TOKEN = 16  # characters that a cut token may lie before the cut
_EXPONENT = 3
_UNTERMINATED = "Unterminated string"
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class Element(NamedTuple):
    """One element of the list with the key `section`: its value, and its text in the file."""

    section: str
    value: Any
    text: str


class JsonSections:
    """The lists at the top of the JSON object in a file; `lists` has the keys of those read so far."""

    def __init__(self, stream: BinaryIO, path: str, chunk: int = _CHUNK) -> None:
        self._stream = stream
        self._path = path
        self._chunk = chunk
        self._decode_bytes = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._passed = 0  # characters, and lines, that are not in the text any more
        self._lines = 1
        self.lists: list[str] = []

    def elements(self) -> Iterator[Element]:
        """The elements of all lists, in the order of the file.

        Raises:
            JobError: it is no JSON object; it is broken, and where; a value has more than 64M characters.
        """
        if self._next() != "{":
            raise self._fault("no JSON object starts", self._at)
        self._at += 1
        first = True
        while (char := self._next()) != "}":
            if not first:
                self._take(",")
                char = self._next()
            first = False
            if char != '"':
                raise self._fault("a key in double quotes is expected", self._at)
            key, _ = self._decode()
            self._take(":")
            if self._next() == "[":
                self.lists.append(key)
                yield from self._list(key)
            else:
                self._decode()
        self._at += 1
        if self._next():
            raise self._fault("there is more after the end of the object", self._at)

    def _list(self, section: str) -> Iterator[Element]:
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return
        while True:
            self._next()
            value, text = self._decode()
            yield Element(section, value, text)
            if self._next() == "]":
                self._at += 1
                return
            self._take(",")

    def _next(self) -> str:
        """The next character that is no space, which is not taken; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, char: str) -> None:
        if self._next() != char:
            raise self._fault(f"{char!r} is expected", self._at)
        self._at += 1

    def _decode(self) -> tuple[Any, str]:
        """The value that starts here, and its text."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self._text) - _TOKEN or error.msg.startswith(_UNTERMINATED)
                if not (cut and self._more()):
                    raise self._fault(error.msg[:1].lower() + error.msg[1:], error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self._fault("a value is nested too deeply, or too long a number", self._at) from error
            else:
                # a number at the end of what is read may go on, at worst with `e-1`
                if end + _EXPONENT <= len(self._text) or not self._more():
                    text, self._at = self._text[self._at : end], end
                    return value, text

    def _more(self) -> bool:
        """Reads on, more the longer the value is that does not fit; False at the end of the file."""
        held = len(self._text) - self._at
        if held > _LONGEST:
            raise self._fault(f"a value has more than {_LONGEST} characters", self._at)
        while not self._ended:
            data = self._stream.read(max(self._chunk, held))
            self._ended = not data
            try:
                more = self._decode_bytes.decode(data, final=self._ended)
            except UnicodeDecodeError as error:
                raise self._fault("a byte is not UTF-8", len(self._text)) from error
            if more:
                self._passed += self._at
                self._lines += self._text.count("\n", 0, self._at)
                self._text = self._text[self._at :] + more
                self._at = 0
                return True
        return False

    def _fault(self, what: str, at: int) -> JobError:
        line = self._lines + self._text.count("\n", 0, at)
        is_cut = self._ended and (at >= len(self._text.rstrip()) or what.startswith(_UNTERMINATED.lower()))
        cut = "; it is cut off there" if is_cut else ""
        return JobError(
            f"{self._path!r} is broken: {what}, at character {self._passed + at}, line {line}{cut}"
        )
