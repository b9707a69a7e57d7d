"""One figure of what a part of a conversion costs, and how CPU time is taken."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Cost(NamedTuple):
    """A figure.

    Attributes:
        name: what was done.
        value: how much of `unit` one `each` of it takes.
        unit: `µs of CPU`, `bytes`, `requests`, …
        each: image, shard, object, …
    """

    name: str
    value: float
    unit: str
    each: str


CPU = "µs of CPU"


def cpu_of(function: Callable[[], _T]) -> tuple[_T, float]:
    """What a function returns, and the CPU seconds of this process that it took."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def children_seconds() -> float:
    """CPU seconds of all processes that have ended under this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
