"""Lines in order, however many: what is more than a part of memory is sorted on the disk."""

from __future__ import annotations

import contextlib
import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from recordmill.transforms.storage.scratch import scratch_folder

_HELD = 64 << 20


def in_order(lines: Iterable[str], key: Callable[[str], Any], held: int = _HELD) -> Iterator[str]:
    """Lines, without line ends, in the order of their keys, equal ones in that in which they come.

    So many characters are held at a time; what is more lies in files without a name meanwhile.
    """
    with contextlib.ExitStack() as stack:
        sorted_parts: list[Iterator[str]] = []
        some: list[str] = []
        size = 0
        for line in lines:
            some.append(line)
            size += len(line)
            if size >= held:
                some.sort(key=key)
                file = stack.enter_context(
                    tempfile.TemporaryFile(
                        "w+", encoding="utf-8", errors="surrogatepass", newline="\n", dir=scratch_folder()
                    )
                )
                sorted_parts.append(_written(file, some))
                some, size = [], 0
        some.sort(key=key)
        yield from heapq.merge(*sorted_parts, some, key=key)


def _written(file: IO[str], lines: list[str]) -> Iterator[str]:
    """Lines as they are read again, once they are in a file."""
    file.writelines(f"{line}\n" for line in lines)
    file.seek(0)
    return (line.removesuffix("\n") for line in file)
