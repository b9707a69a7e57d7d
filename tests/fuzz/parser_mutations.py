"""Damage to files of annotations and to containers: to their structure, and to their bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from recordmill.transforms.examples.framing import read_records
from tests.fuzz.parser_seeds import tfrecord

_RAW = "@raw@"
_NUMBERS = [
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "0.5",
    "1e999",
    "-1e999",
    "1e308",
    "1e-320",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "Infinity",
    "1_0",
    "0x1F",
    "1e5",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "٣",
    "½",
    "1,5",
    "+1",
    ".5",
    "5.",
    "1e",
    "1e400000",
] + ["9" * 40, "9" * 400, "9" * 5000, "0." + "9" * 5000]
_TEXTS = (
    [
        "",
        " ",
        "null",
        "true",
        "None",
        "../../x",
        "/etc/passwd",
        "1.png",
        "images/../1.png",
        "a" * 300,
        "a" * 70_000,
    ]
    + [
        "a/" * 3000,
        "\0",
        "a\0b",
        "é",
        "\u202e",
        "\ufeff",
        "\x85",
        "\u2028",
        "%s%n",
        "{}",
        "[]",
        "'",
        '"',
        ",",
        "\t",
    ]
    + [
        "file:///etc/passwd",
        "gs://b/x",
        "http://x/1.png",
        "\\",
        "C:\\x.png",
        ".",
        "..",
        "/",
        "-",
        "n01440764",
        "*",
    ]
)
_BYTES = (
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b'"',
    b"\n",
    b"\r",
    b"<",
)

Random = random.Random


def mutated(rng: Random, name: str, data: bytes) -> bytes:
    """A file's bytes, damaged once or a few times."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        structured = _mutator(name)
        if structured is None or rng.random() < 0.25:
            data = _any_bytes(rng, data)
            continue
        try:
            data = structured(rng, data)
        except Exception:  # it is too broken for more of this kind
            data = _any_bytes(rng, data)
    return data


def _mutator(name: str) -> Callable[[Random, bytes], bytes] | None:
    stem, _, extension = name.rpartition(".")
    if extension in ("gz", "tgz"):
        inner = _mutator(stem) or _any_bytes
        return lambda rng, data: gzip.compress(inner(rng, gzip.decompress(data)), mtime=0)
    found = _BY_EXTENSION.get(extension)
    if found is None and "ubyte" in name:
        return _idx
    return _tfrecord if found is None and "tfrecord" in name else found


def _any_bytes(rng: Random, data: bytes) -> bytes:
    at, to = sorted((rng.randrange(len(data) + 1), min(len(data), rng.randrange(len(data) + 1))))
    length = rng.choice((1, 2, 4, 8, to - at))
    piece = data[at : at + length]
    kind = rng.randrange(9)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + length :]
    if kind == 2:
        return data[:at] + piece * rng.choice((2, 3, 100)) + data[at + length :]
    if kind == 3:
        return rng.choice(_BYTES) + data
    if kind == 4:
        return data[:at] + rng.choice(_BYTES) * rng.choice((1, 1, 5000)) + data[at:]
    if kind == 5:
        return data[:at] + rng.randbytes(len(piece)) + data[at + length :]
    if kind == 6:
        value = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        return data[:at] + bytes([value]) * len(piece[:8]) + data[at + len(piece[:8]) :]
    if kind == 7 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return rng.choice(
        (b"", data + data, data[at:], data.replace(b"\n", b"\r"), data.decode("latin-1").encode("utf-16"))
    )


def _value(rng: Random, old: Any) -> Any:
    """Another value for one of JSON; texts that begin with `_RAW` stand in the JSON as they are."""
    kind = rng.randrange(8)
    if kind < 3:
        return _RAW + rng.choice(_NUMBERS)
    if kind == 3:
        return rng.choice(_TEXTS)
    if kind == 4:
        depth = rng.choice((2, 60, 200, 900, 3000, 100_000))
        return _RAW + rng.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
    if kind == 5:
        return rng.choice(
            ([], {}, None, True, False, [None], [[]], {"": None}, [old], {"a": old}, [old, old])
        )
    if kind == 6:
        return str(old) if not isinstance(old, str) else [old]
    return _RAW + rng.choice(
        ('"\\ud800"', '"\\u0000"', '"' + "x" * 70_000 + '"', "[" + "0," * 20_000 + "0]", "tru", "")
    )


def _json_value(rng: Random, root: Any) -> Any:
    places: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        part = waiting.pop()
        keys = part if isinstance(part, dict) else range(len(part))
        for key in keys:
            places.append((part, key))
            if isinstance(part[key], dict | list):
                waiting.append(part[key])
    if not places or rng.random() < 0.02:
        return _value(rng, root)
    part, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del part[key]
    elif kind == 1 and isinstance(part, list):
        part.insert(key, part[key])
    elif kind == 1:
        part[rng.choice(_TEXTS)] = part[key]
    elif kind == 2:
        other, at = rng.choice(places)
        if at in other or isinstance(other, list) and at < len(other):
            part[key] = json.loads(json.dumps(other[at]))
    else:
        part[key] = _value(rng, part[key])
    return root


def _dumped(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    text = re.sub(rf'"{_RAW}((?:[^"\\]|\\.)*)"', lambda match: json.loads(f'"{match[1]}"'), text)
    return text.encode("utf-8", "surrogatepass")


def _json(rng: Random, data: bytes) -> bytes:
    return _dumped(_json_value(rng, json.loads(data)))


def _jsonl(rng: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join((*lines[:at], _json(rng, lines[at]), b"\n", *lines[at + 1 :]))


def _xml(rng: Random, data: bytes) -> bytes:
    root = ElementTree.fromstring(data)
    parents = [element for element in root.iter() if len(element)]
    parent = rng.choice(parents)
    child = rng.choice(list(parent))
    kind = rng.randrange(8)
    if kind == 0:
        parent.remove(child)
    elif kind == 1:
        parent.insert(0, child)
    elif kind == 2:
        rng.choice(parents).append(ElementTree.fromstring(ElementTree.tostring(child)))
    elif kind == 3:
        child.tag = rng.choice([element.tag for element in root.iter()])
    elif kind == 4:
        depth = rng.choice((50, 200, 50_000))
        child.text = "@deep@"
        return ElementTree.tostring(root).replace(b"@deep@", b"<a>" * depth + b"</a>" * depth)
    elif kind == 5:
        dtd = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;&b;"><!ENTITY d SYSTEM "file:///etc/passwd">]>'
        child.text = "@entity@"
        return dtd.encode() + ElementTree.tostring(root).replace(
            b"@entity@", rng.choice((b"&c;", b"&d;", b"&#0;"))
        )
    elif kind == 6:
        encoding = rng.choice(
            ("utf-16", "x", "utf-7", "latin-1", "ascii", "idna", "hex", "zlib_codec", "undefined")
        )
        return f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + data
    else:
        child.text = rng.choice(_NUMBERS) if rng.random() < 0.6 else rng.choice(_TEXTS).replace("\0", "")
    return ElementTree.tostring(root)


def _text(rng: Random, data: bytes) -> bytes:
    """A text of lines of words."""
    lines = re.split(r"(\n)", data.decode("utf-8", "surrogateescape"))
    at = rng.randrange(0, len(lines), 2)
    parts = re.split(r"([\s,;:=\[\]{}\"]+)", lines[at])
    kind = rng.randrange(8)
    place = rng.randrange(0, len(parts), 2)
    if kind == 0:
        del lines[at : at + 2]
    elif kind == 1:
        lines[at:at] = lines[at : at + 2] * rng.choice((1, 2, 3000))
    elif kind == 2:
        parts[place] = ""
    elif kind == 3:
        parts = parts * rng.choice((2, 3000))
    elif kind == 4 and len(parts) > 2:
        parts[rng.randrange(1, len(parts), 2)] = rng.choice(
            (",", " ", ":", '"', "", "\t", ": [", ": {", "&a ", "*a", "- ")
        )
    else:
        parts[place] = rng.choice(_NUMBERS if kind < 7 else _TEXTS)
    if kind > 1:
        lines[at] = "".join(parts)
    return "".join(lines).encode("utf-8", "surrogateescape")


def _csv(rng: Random, data: bytes) -> bytes:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    text = data.decode(encoding)
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    row = rng.choice(rows)
    at = rng.randrange(len(row))
    kind = rng.randrange(7)
    if kind == 0:
        del row[at]
    elif kind == 1:
        row.insert(at, row[at])
    elif kind == 2:
        other = rng.choice(rows)
        row[at] = other[rng.randrange(len(other))]
    elif kind == 3:
        return text.replace(row[at], f'"{row[at]}', 1).encode(encoding)
    else:
        row[at] = rng.choice(_NUMBERS if kind < 6 else _TEXTS)
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode(encoding, "surrogatepass")


def _npy(rng: Random, data: bytes) -> bytes:
    length = struct.unpack_from("<H", data, 8)[0]
    header, body = data[10 : 10 + length], data[10 + length :]
    tokens = re.split(rb"([\w|<>.]+)", header)
    at = rng.randrange(1, len(tokens), 2)
    odd = (
        b"-1",
        b"0",
        b"1" * 30,
        b"9" * 4000,
        b"True",
        b"None",
        b"(",
        b"[",
        b"'|O'",
        b"'<U4'",
        b"1e9",
        b"x" * 9000,
    )
    types = (b"<f4", b"|b1", b"|V0", b"|S0", b"|u2", b"O", b"<M8", b"|i1", b"descr", b"shape")
    tokens[at] = rng.choice((*odd, *types, b"-" * 3000 + b"1", b"[" * 3000))
    header = b"".join(tokens)
    if rng.random() < 0.2:
        version, size = b"\2\0", struct.pack("<I", rng.choice((len(header), 1 << 31, 0xFFFFFFFF)))
    else:
        version, size = data[6:8], struct.pack("<H", len(header) & 0xFFFF)
    return data[:6] + version + size + header + body


def _idx(rng: Random, data: bytes) -> bytes:
    at = 4 * rng.randrange(4)
    size = rng.choice((0, 1, 3, 0x803, 0xD03, 0x8FF, 0x804, 1 << 16, 1 << 31, 0xFFFFFFFF))
    return data[:at] + struct.pack(">I", size) + data[at + 4 :]


def _tfrecord(rng: Random, data: bytes) -> bytes:
    payloads = list(read_records(io.BytesIO(data)))
    at = rng.randrange(len(payloads))
    kind = rng.randrange(4)
    if kind == 0:
        length = rng.choice((0, 1 << 31, 1 << 40, (1 << 64) - 1, len(payloads[at]) + 1))
        framed = tfrecord(b"x" * 8)[:0] + struct.pack("<Q", length)
        return data + framed + tfrecord(framed)[8:12] + data
    payloads[at] = _any_bytes(rng, payloads[at]) if kind < 3 else _varints(rng, payloads[at])
    return tfrecord(*payloads)


def _varints(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(min(200, len(data)))
    return (
        data[:at] + rng.choice((b"\xff" * 9 + b"\1", b"\xff" * 4 + b"\x0f", b"\x80\x80\4")) + data[at + 1 :]
    )


def _tar(rng: Random, data: bytes) -> bytes:
    """Damages a field of a header, whose checksum is right again."""
    heads = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    start = rng.choice(heads)
    head = bytearray(data[start : start + 512])
    fields = (
        (0, 100),
        (100, 8),
        (108, 8),
        (116, 8),
        (124, 12),
        (136, 12),
        (156, 1),
        (157, 100),
        (257, 8),
        (345, 155),
    )
    at, size = rng.choice((*fields, (124, 12), (156, 1), (156, 1)))
    types = b"\0" + b"01234567gxLKSVDMNX"
    odd = (
        b"77777777777",
        b"\xff" * 12,
        b"\x80" + b"\x7f" * 11,
        b"-1",
        b"",
        b"../../x",
        b"/x",
        b"x" * 155,
        b"\0",
        b"00000000017",
    )
    value = bytes([rng.choice(types)]) if size == 1 else rng.choice(odd)
    head[at : at + size] = value[:size].ljust(size, b"\0")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return data[:start] + bytes(head) + data[start + 512 :]


def _zip(rng: Random, data: bytes) -> bytes:
    """Damages a field of the central directory, of its end, or of a local header."""
    found = [match.start() for match in re.finditer(rb"PK(?:\1\2|\3\4|\5\6)", data)]
    at = rng.choice(found) + 4 + 2 * rng.randrange(21)
    width = rng.choice((2, 4))
    value = rng.choice((0, 1, 8, 9, 12, 14, 0x800, 0x7FFF, 0xFFFF, 1 << 31, 0xFFFFFFFF, len(data)))
    return data[:at] + struct.pack("<I", value)[:width] + data[at + width :]


def _npz(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.5:
        return _zip(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    chosen = rng.randrange(len(members))
    stream = io.BytesIO()
    method = rng.choice((0, 8, 12, 14))
    with zipfile.ZipFile(stream, "w") as archive:
        for number, (info, content) in enumerate(members):
            stored = zipfile.ZipInfo(info.filename)
            archive.writestr(stored, _npy(rng, content) if number == chosen else content, method)
    return stream.getvalue()


def _parquet(rng: Random, data: bytes) -> bytes:
    """Damages the footer, which is Thrift, or its length."""
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    if rng.random() < 0.2:
        value = rng.choice((0, 1, length - 1, length + 1, 0x7FFFFFFF, 0xFFFFFFFF))
        return data[:-8] + struct.pack("<I", value) + data[-4:]
    start = len(data) - 8 - length
    footer = _any_bytes(rng, data[start:-8])
    return data[:start] + footer + struct.pack("<I", len(footer)) + data[-4:]


_BY_EXTENSION: dict[str, Callable[[Random, bytes], bytes]] = {
    "json": _json,
    "jsonl": _jsonl,
    "xml": _xml,
    "csv": _csv,
    "tsv": _csv,
    **dict.fromkeys(("txt", "yaml", "yml", "names", "data", "pbtxt"), _text),
    "npy": _npy,
    "npz": _npz,
    "tar": _tar,
    "zip": _zip,
    "parquet": _parquet,
    "tfrecord": _tfrecord,
}
