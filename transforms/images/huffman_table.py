"""JPEG: Huffman tables as look-ups, and the best one for given symbols (ITU-T T.81, annexes C and K.2)."""

from __future__ import annotations

import dataclasses
import functools
import heapq

import numpy as np

from recordmill.transforms.images.exif import Array

FIRST_AC = 4
"""Tables are numbered 0 to 3 for DC, and from this on for AC."""
# The coefficients of a block, of which an AC code goes on by 1 to 16, or by one of these two: their sum tells
# how a block ended.
BLOCK = 64
END_OF_BLOCK = 128
INVALID = 255


class UnusualJpegError(Exception):
    """A JPEG that is damaged, or made in a way that is not worth rewriting."""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """What each of the possible next 16 bits means.

    Attributes:
        entries: uint16 (65536,): the symbol, and 256 times the length of its code; 0 for no code.
        steps: uint8: bits of the code and of the extra bits behind it; INVALID for no code.
        runs: uint8: by how many coefficients an AC code goes on, END_OF_BLOCK or INVALID.
    """

    entries: Array
    steps: Array
    runs: Array


def read_tables(payload: bytes) -> dict[int, Table]:
    """The tables of a DHT segment, by number (T.81, B.2.4.2).

    Raises:
        UnusualJpegError: it is damaged.
    """
    found = {}
    while payload:
        kind, slot = payload[0] >> 4, payload[0] & 15
        counts = payload[1:17]
        symbols = payload[17 : 17 + sum(counts)]
        if kind > 1 or slot > 3 or len(counts) != 16 or len(symbols) != sum(counts):
            raise UnusualJpegError("a damaged Huffman table")
        found[FIRST_AC * kind + slot] = _table(counts, symbols, kind == 1)
        payload = payload[17 + len(symbols) :]
    return found


@functools.lru_cache(maxsize=8)  # Many files have the four tables of T.81's annex K.3.
def _table(counts: bytes, symbols: bytes, is_ac: bool) -> Table:
    """The look-ups of a table: codes are in ascending order, so each fills the range after the one before."""
    lengths = np.repeat(np.arange(1, 17), list(counts))
    symbol = np.frombuffer(symbols, np.uint8).astype(np.int64)
    widths = 1 << (16 - lengths)
    if widths.sum() > 1 << 16:
        raise UnusualJpegError("more codes than there can be")
    size = symbol & 15
    run = (symbol >> 4) + 1
    if is_ac:
        run[symbol == 0] = END_OF_BLOCK
        usual = (size > 0) | (symbol == 0) | (symbol == 0xF0)
    else:
        usual = symbol < 16
    looked_up = np.zeros((3, 1 << 16), np.uint16)
    looked_up[1:] = INVALID
    found = np.where(usual, [symbol + 256 * lengths, lengths + size, run], [[0], [INVALID], [INVALID]])
    looked_up[:, : widths.sum()] = np.repeat(found, widths, axis=1)
    return Table(looked_up[0], looked_up[1].astype(np.uint8), looked_up[2].astype(np.uint8))


def canonical_codes(lengths: Array) -> Array:
    """The codes of ascending lengths (T.81, C.2)."""
    widths = 1 << (16 - lengths)
    codes: Array = (np.cumsum(widths) - widths) >> (16 - lengths)
    return codes


def optimal_table(counts: list[int]) -> tuple[list[int], list[int]]:
    """The Huffman table that takes the fewest bits, no code longer than 16 of them (T.81, K.2).

    Args:
        counts: how often each of the symbols 0 to 255 occurs; one at least does.

    Returns:
        How many codes there are of each length from 1 to 16; and the symbols, by length of their codes.
    """
    # Symbol 256 takes up the code of ones only, which T.81 wants unused. Of equals the larger goes first.
    heap = [(count, -symbol) for symbol, count in enumerate(counts) if count] + [(1, -256)]
    heapq.heapify(heap)
    members = {key: [-key] for _, key in heap}
    size = {-key: 0 for _, key in heap}
    while len(heap) > 1:
        first, key = heapq.heappop(heap)
        second, other = heapq.heappop(heap)
        members[key] += members.pop(other)
        for symbol in members[key]:
            size[symbol] += 1
        heapq.heappush(heap, (first + second, key))
    by_size = sorted((length, symbol) for symbol, length in size.items() if symbol != 256)
    return _limited(list(size.values())), [symbol for _, symbol in by_size]


def _limited(sizes: list[int]) -> list[int]:
    """How many codes of each length, once the longer ones are cut to 16 bits and symbol 256 is gone."""
    count = [0] * (max(17, *sizes) + 1)
    for size in sizes:
        count[size] += 1
    for size in range(len(count) - 1, 16, -1):
        while count[size]:
            shorter = size - 2
            while count[shorter] == 0:
                shorter -= 1
            count[size] -= 2
            count[size - 1] += 1
            count[shorter + 1] += 2
            count[shorter] -= 1
    longest = max(size for size in range(17) if count[size])
    count[longest] -= 1
    return count[1:17]
