"""An array of labels as annotations: ids, names, one-hot rows, or numbers that are free features."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from recordmill.transforms.records import Annotations
from recordmill.transforms.sources.arrays.npy_files import Elements, StoredArray

TARGET = "target"
"""The free feature of labels that are no classes."""


def annotations_of(labels: StoredArray | None, count: int) -> Iterator[Annotations]:
    """The annotations of each image, read as they are asked for.

    Raises:
        JobError: the array is damaged.
    """
    if labels is None:
        yield from itertools.repeat(Annotations(), count)
        return
    meaning = _meaning(labels)
    for rows in labels.rows():
        for row in rows.reshape(len(rows), -1):
            yield meaning(row)


def _meaning(labels: StoredArray) -> Callable[[Elements], Annotations]:
    width = math.prod(labels.shape[1:])
    kind = labels.dtype.kind
    if kind in "US":
        return _names
    if width == 1:
        return _ids if kind in "iub" else _target
    if not all(bool(np.isin(rows, (0, 1)).all()) for rows in labels.rows()):
        return _targets
    return _marked  # one-hot rows have one label each, others as many as there are ones


def _names(row: Elements) -> Annotations:
    names = (one.decode() if isinstance(one, bytes) else str(one) for one in row.tolist())
    return Annotations(tuple(name for name in names if name))


def _ids(row: Elements) -> Annotations:
    return Annotations((int(row[0]),))


def _marked(row: Elements) -> Annotations:
    return Annotations(tuple(map(int, np.flatnonzero(row))))


def _target(row: Elements) -> Annotations:
    value: Any = row[0].item()
    return Annotations(features={TARGET: float(value)})


def _targets(row: Elements) -> Annotations:
    return Annotations(features={TARGET: tuple(row.tolist())})
