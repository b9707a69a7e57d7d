"""The index of a TFRecord file, as DALI and the `tfrecord` package for PyTorch read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def index_lines(lengths: Iterable[int], start: int = 0) -> Iterator[str]:
    """A line `<offset> <length>` a record, line end included.

    Args:
        lengths: bytes of each frame (payload and framing), in file order.
        start: offset of the first frame, for a part that follows others in the file.
    """
    offset = start
    for length in lengths:
        yield f"{offset} {length}\n"
        offset += length
