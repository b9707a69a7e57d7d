"""JPEG: the Huffman tables that are best for a sequential one's coefficients (ITU-T T.81, annexes F, K.2).

The bits are not decoded one by one. For every bit of a scan, look-ups tell how long a code and its extra bits
would be if one began there; a short loop then only steps from code to code; all else is done on arrays.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

import numpy as np

from recordmill.transforms.images.exif import Array
from recordmill.transforms.images.huffman_table import (
    BLOCK,
    END_OF_BLOCK,
    FIRST_AC,
    INVALID,
    Table,
    UnusualJpegError,
    canonical_codes,
    optimal_table,
    read_tables,
)
from recordmill.transforms.images.jpeg_header import SOS, JpegHeader, written_segment

_SEQUENTIAL = frozenset((0xC0, 0xC1))
_DHT, _EOI, _DNL, _DRI, _APP2 = 0xC4, 0xD9, 0xDC, 0xDD, 0xE2
_MARKER = re.compile(rb"\xff([^\0])", re.DOTALL)
_MOST_BLOCKS = 10  # in an MCU (T.81, B.2.3)
# Scans are worked on in pieces, for memory that does not grow by the bits of a file.
_PIECE = 1 << 16
# What the MCU in which a piece ends may take: 31 bits a code with its extra bits, INVALID for none.
_MARGIN = _MOST_BLOCKS * (64 * 31 + INVALID) // 8 + 8


@dataclasses.dataclass(frozen=True, slots=True)
class _Scan:
    """What a scan holds.

    Attributes:
        blocks: the tables (DC, AC) of each block of an MCU.
        mcus: in each restart interval.
        stream: the bytes of all intervals, without stuffing and markers.
        ends: where in `stream` each interval ends.
    """

    blocks: tuple[tuple[int, int], ...]
    mcus: tuple[int, ...]
    stream: bytes
    ends: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Symbols:
    """The codes of a piece of a scan, in order.

    Attributes:
        symbols: 256 times the table, and the symbol; its lower four bits tell the number of extra bits.
        extra: the extra bits behind each.
        stops: before which of them a restart interval ends; their number where behind the last.
    """

    symbols: Array
    extra: Array
    stops: Array


def huffman_optimised(data: bytes, header: JpegHeader) -> bytes | None:
    """`data` with the same coefficients, scans, restarts and other segments, under the best Huffman tables.

    Args:
        data: a JPEG.
        header: what `read_header` tells of it.

    Returns:
        A JPEG that may be longer where the image is tiny; None for a progressive or arithmetic one, and for
        one that is damaged or in any way unusual.
    """
    if header.process not in _SEQUENTIAL:
        return None
    try:
        return b"".join(_rewritten(data, header))
    except UnusualJpegError:
        return None


def _rewritten(data: bytes, header: JpegHeader) -> Iterator[bytes]:
    tables: dict[int, Table] = {}
    interval, position = 0, 2
    yield data[:2]
    while True:
        marker, start, end = _segment(data, position)
        if marker == _EOI:
            yield data[position:]
            return
        if marker == _DHT:
            tables.update(read_tables(data[start:end]))
            position = end
            continue
        if marker == _DRI:
            interval = int.from_bytes(data[start:end], "big")
        if marker == SOS:
            stop, intervals = _intervals(data, end)
            scan = _scan(header, data[start:end], interval, intervals)
            yield from _coded(scan, tables, data[position:end])
            position = stop
        else:
            yield data[position:end]
            position = end


def _segment(data: bytes, position: int) -> tuple[int, int, int]:
    """(marker, start, end) of the segment at `position`."""
    if len(data) < position + 2 or data[position] != 0xFF:
        raise UnusualJpegError("bytes between segments")
    marker = data[position + 1]
    if marker == _EOI:
        return marker, position + 2, position + 2
    end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    if marker < 0xC0 or 0xD0 <= marker <= 0xD8 or marker == _DNL or not position + 4 <= end <= len(data):
        raise UnusualJpegError("a marker out of its place")
    if marker == _APP2 and data.startswith(b"MPF\0", position + 4):
        raise UnusualJpegError("it tells the offsets of further pictures in the file")
    return marker, position + 4, end


def _intervals(data: bytes, position: int) -> tuple[int, list[bytes]]:
    """Where the scan that begins at `position` ends, and the bytes of its restart intervals, unstuffed."""
    parts: list[bytes] = []
    begin = position
    for found in _MARKER.finditer(data, position):
        parts.append(data[begin : found.start()].replace(b"\xff\0", b"\xff"))
        marker = found[1][0]
        if not 0xD0 <= marker <= 0xD7:
            return found.start(), parts
        if marker != 0xD0 + (len(parts) - 1) % 8:
            raise UnusualJpegError("restart markers out of order")
        begin = found.end()
    raise UnusualJpegError("a scan without end")


def _scan(header: JpegHeader, payload: bytes, interval: int, intervals: list[bytes]) -> _Scan:
    """The order of a scan's blocks (T.81, A.2)."""
    count = payload[0] if payload else 0
    if not 1 <= count <= 4 or len(payload) != 4 + 2 * count:
        raise UnusualJpegError("a damaged scan header")
    factors = {name: (across, down) for name, across, down, _ in header.components}
    widest = max(across for across, _ in factors.values())
    highest = max(down for _, down in factors.values())
    blocks: list[tuple[int, int]] = []
    for name, slots in zip(payload[1 : 1 + 2 * count : 2], payload[2 : 2 + 2 * count : 2], strict=True):
        if name not in factors or len(factors) != len(header.components) or slots & 0xCC:
            raise UnusualJpegError("components that cannot be told apart, or tables that cannot be")
        across, down = factors[name] if count > 1 else (1, 1)
        blocks += [(slots >> 4, FIRST_AC + (slots & 15))] * (across * down)
    if count > 1:
        wide, high = 8 * widest, 8 * highest
        mcus = -(-header.width // wide) * -(-header.height // high)
    else:
        across, down = factors[payload[1]]
        wide, high = -(-header.width * across // widest), -(-header.height * down // highest)
        mcus = -(-wide // 8) * -(-high // 8)
    interval = interval or mcus
    each = [min(interval, mcus - done) for done in range(0, mcus, interval)]
    if len(each) != len(intervals) or len(blocks) > _MOST_BLOCKS:
        raise UnusualJpegError("not as many restarts as announced, or too large an MCU")
    ends = np.cumsum([len(part) for part in intervals])
    return _Scan(tuple(blocks), tuple(each), b"".join(intervals), tuple(int(end) for end in ends))


def _coded(scan: _Scan, tables: dict[int, Table], scan_header: bytes) -> Iterator[bytes]:
    """The scan under new tables: their segment, `scan_header`, the codes."""
    used = {table for block in scan.blocks for table in block}
    if not used <= tables.keys():
        raise UnusualJpegError("a Huffman table that is not defined")
    pieces = list(_read_symbols(scan, tables))
    counts = np.sum([np.bincount(piece.symbols, minlength=256 * 2 * FIRST_AC) for piece in pieces], axis=0)
    lengths = np.zeros(256 * 2 * FIRST_AC, np.int64)
    codes = np.zeros(256 * 2 * FIRST_AC, np.int64)
    definitions = []
    for table in sorted(used):
        found, symbols = optimal_table([int(count) for count in counts[256 * table : 256 * table + 256]])
        slot = table % FIRST_AC | (table // FIRST_AC) << 4
        definitions.append(bytes((slot, *found, *symbols)))
        indices = 256 * table + np.array(symbols)
        lengths[indices] = np.repeat(np.arange(1, 17), found)
        codes[indices] = canonical_codes(lengths[indices])
    body = b"".join(definitions)
    yield written_segment(_DHT, body)
    yield scan_header
    yield from _written(pieces, codes, lengths, len(scan.ends))


def _read_symbols(scan: _Scan, tables: dict[int, Table]) -> Iterator[_Symbols]:
    stream = np.frombuffer(scan.stream + bytes(_MARGIN), np.uint8)
    interval, position, left = 0, 0, scan.mcus[0]
    while interval < len(scan.ends):
        origin = position // 8
        window = _windows(stream[origin : origin + _PIECE + _MARGIN])
        limit = 8 * min(_PIECE, len(scan.stream) - origin)
        blocks = _stepping(scan.blocks, tables, window)
        marks = bytearray(len(window))
        stops = []
        at = position - 8 * origin
        while at < limit and interval < len(scan.ends):
            at, left = _walk(blocks, marks, at, left, limit)
            if left == 0:
                stops.append(at)
                at = -(-at // 8) * 8
                if at != 8 * (scan.ends[interval] - origin):
                    raise UnusualJpegError("more or fewer bytes than codes")
                interval += 1
                left = scan.mcus[interval] if interval < len(scan.ends) else 0
        position = at + 8 * origin
        if interval < len(scan.ends) and position >= 8 * len(scan.stream):
            raise UnusualJpegError("a scan that is cut off")
        yield _gathered(marks, window, tables, stops)


def _windows(stream: Array) -> Array:
    """uint16 (8 times the bytes, less two): the 16 bits from each bit on."""
    wide = stream.astype(np.uint32)
    three = wide[:-2] << 16 | wide[1:-1] << 8 | wide[2:]
    windows = np.empty((len(three), 8), np.uint16)
    for bit in range(8):
        windows[:, bit] = three >> (8 - bit)
    return windows.ravel()


_Block = tuple[int, bytes, int, bytes, bytes]


def _stepping(blocks: tuple[tuple[int, int], ...], tables: dict[int, Table], window: Array) -> list[_Block]:
    """For each block of an MCU: its DC table and the steps from every bit; its AC table, steps and runs."""
    used = {table for block in blocks for table in block}
    steps = {table: tables[table].steps.take(window).tobytes() for table in used}
    runs = {table: tables[table].runs.take(window).tobytes() for table in used if table >= FIRST_AC}
    return [(dc + 1, steps[dc], ac + 1, steps[ac], runs[ac]) for dc, ac in blocks]


def _walk(blocks: list[_Block], marks: bytearray, at: int, left: int, limit: int) -> tuple[int, int]:
    """Steps from code to code, and marks where each begins with its table's number plus one.

    Args:
        blocks: of an MCU, as `_stepping` makes them.
        marks: one for each bit.
        at: the bit to begin at.
        left: how many MCUs are still to come before the next restart.
        limit: the bit from which on no MCU is begun.

    Returns:
        The bit that was reached, and how many of the `left` MCUs are still to come.
    """
    while left and at < limit:
        for dc, dc_steps, ac, ac_steps, runs in blocks:
            marks[at] = dc
            at += dc_steps[at]
            coefficient = 1
            while coefficient < BLOCK:
                marks[at] = ac
                coefficient += runs[at]
                at += ac_steps[at]
            if coefficient != BLOCK and not END_OF_BLOCK < coefficient < END_OF_BLOCK + BLOCK:
                raise UnusualJpegError("a block of more than 64 coefficients")
        left -= 1
    return at, left


def _gathered(marks: bytearray, window: Array, tables: dict[int, Table], stops: list[int]) -> _Symbols:
    found = np.frombuffer(marks, np.uint8)
    begin = np.flatnonzero(found != 0)
    table = found[begin].astype(np.intp) - 1
    entry = np.zeros(len(begin), np.uint16)
    for number, one in tables.items():
        its = np.flatnonzero(table == number)
        entry[its] = one.entries[window[begin[its]]]
    if not entry.all():
        raise UnusualJpegError("a code that no table has")
    symbol = entry & 255
    extra = window[begin + (entry >> 8)].astype(np.uint32) >> (16 - (symbol & 15))
    symbols = (table << 8 | symbol).astype(np.uint16)
    return _Symbols(symbols, extra.astype(np.uint16), np.searchsorted(begin, stops))


def _written(pieces: Iterable[_Symbols], codes: Array, lengths: Array, intervals: int) -> Iterator[bytes]:
    """The codes as bytes, stuffed, with a marker after every restart interval but the last."""
    rest, interval = (0, 0), 0
    for piece in pieces:
        packed, cuts, rest = _packed(piece, codes, lengths, rest)
        begin = 0
        for cut in cuts:
            yield packed[begin:cut].replace(b"\xff", b"\xff\0")
            begin = cut
            interval += 1
            if interval < intervals:
                yield bytes((0xFF, 0xD0 + (interval - 1) % 8))
        yield packed[begin:].replace(b"\xff", b"\xff\0")


def _packed(
    piece: _Symbols, codes: Array, lengths: Array, rest: tuple[int, int]
) -> tuple[bytes, list[int], tuple[int, int]]:
    """The codes of a piece, one behind the other.

    Args:
        piece: the symbols.
        codes: of every symbol of every table.
        lengths: of these codes.
        rest: value and number of the bits before that do not fill a byte.

    Returns:
        Whole bytes; where among them restart intervals end; the bits that are left over.
    """
    size = piece.symbols & 15
    value = np.insert(codes[piece.symbols] << size | piece.extra, piece.stops, 0)
    length = np.insert(lengths[piece.symbols] + size, piece.stops, 0)
    value, length = np.insert(value, 0, rest[0]), np.insert(length, 0, rest[1])
    # An interval is filled up with ones; each begins at a whole byte, so only its own bits count.
    fill = piece.stops + np.arange(1, len(piece.stops) + 1)
    length[fill] = -np.diff(np.cumsum(length)[fill], prepend=0) % 8
    value[fill] = (1 << length[fill]) - 1
    end = np.cumsum(length)
    begin = end - length
    word = begin >> 5
    shifted = value.astype(np.uint64) << (64 - (begin & 31) - length).astype(np.uint64)
    total = int(end[-1])
    # No two share a bit, so sums are unions; below 2**32 they are exact.
    count = (total >> 5) + 2
    words = np.bincount(word, (shifted >> np.uint64(32)).astype(np.float64), count)
    words += np.bincount(word + 1, (shifted & np.uint64(0xFFFFFFFF)).astype(np.float64), count)
    packed = words.astype(">u4").tobytes()
    whole, bits = divmod(total, 8)
    return packed[:whole], [int(at) for at in end[fill] // 8], (packed[whole] >> (8 - bits), bits)
