"""Source `sequence`: JSON Lines, a sequence a line: what holds for all of it, and lists with a value a step.

The layout is that of the JSON of a tf.train.SequenceExample, with plain values in it: `context` and
`feature_lists` (https://www.tensorflow.org/api_docs/python/tf/train/SequenceExample).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from recordmill.transforms.records import (
    BadInput,
    Failure,
    FeatureValue,
    ImageRecord,
    ImageRef,
    Scalar,
    Steps,
)
from recordmill.transforms.sources.config import SourceConfig
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.source import Description
from recordmill.transforms.sources.tables.columns import Columns, asked_labels, split_columns, usual_name
from recordmill.transforms.sources.tables.manifest_sources import (
    JSON_LINES,
    JsonTable,
    ManifestSource,
)
from recordmill.transforms.sources.tables.rows import Row
from recordmill.transforms.sources.tables.text_rows import Values
from recordmill.transforms.sources.tables.values import flat, labels_in, shown, split_in, take

_CONTEXT = "context"
_LISTS = "feature_lists"
_FRAMES = ("image/encoded", "frames")


class SequenceTable(JsonTable):
    """A file of sequences: its columns are the values of their contexts."""

    @functools.cached_property
    def peeked(self) -> Sequence[Values]:
        return [flat(_context_of(row), strict=False) for row in self.first]

    @functools.cached_property
    def columns(self) -> Columns:
        names = dict.fromkeys(name for context in self.peeked for name in context)
        split = usual_name(split_columns(names, self.peeked), names)
        return Columns(labels=asked_labels(self.config, ()), split=split)

    @functools.cached_property
    def _splits(self) -> tuple[str, ...]:
        names = itertools.chain.from_iterable(self.peeked)
        return split_columns(names, self.peeked) if self.columns.split is not None else ()

    def row(self, values: Values) -> Row:
        context, lists = _parts(values)
        column = usual_name(self._splits, context)
        split = None if column is None else split_in(take(context, column), column)
        labels = tuple(
            label for name in self.columns.labels for label in labels_in(take(context, name), name)
        )
        features = flat(context)
        return Row(None, labels, split, features, lists={key: _steps(key, lists[key]) for key in lists})

    def record(self, row: Row, line: int) -> ImageRecord | Failure:
        """The record of a line with its lists, of which one may be frames."""
        record = super().record(row, line)
        if isinstance(record, Failure):
            return record
        lists = dict(row.lists or {})
        names = [name for name in _FRAMES if _are_images(lists.get(name, ()))]
        if len(names) > 1:
            raise BadInput("manifest", "two lists of frames", " and ".join(map(repr, names)))
        found = [self.images.find(str(path)) for name in names for path in lists.pop(name)]
        if both := sorted(record.annotations.features.keys() & lists.keys()):
            raise BadInput("manifest", "a name in the context and in the lists", ", ".join(both))
        frames = tuple(ImageRef(frame.path, version=frame.version) for frame in found)
        annotations = msgspec.structs.replace(record.annotations, steps=Steps(frames, lists=lists))
        size = sum(frame.size for frame in found)
        return msgspec.structs.replace(record, annotations=annotations, size=size)

    def check(self) -> None:
        if not self.first:
            raise ValueError(
                f"{self.where}, whose first lines are no JSON objects; a sequence is one object a line"
            )
        if not any(_LISTS in row or _lists_in(row) for row in self.first):
            raise ValueError(
                f"{self.where}, whose first objects have neither {_LISTS} nor a list; see --source jsonl"
            )
        missing = set(self.columns.labels)
        for _, item in self.read() if missing else ():
            if not isinstance(item, BadInput):
                missing -= flat(_context_of(item), strict=False).keys()
            if not missing:
                return
        if missing:
            raise ValueError(
                f"--label_column is {self.config.label_column!r}; no line of {self.manifest.path!r} has "
                f"{', '.join(map(repr, sorted(missing)))} in its context"
            )


def _lists_in(item: Values) -> Values:
    """The lists of an object without `context` and `feature_lists`."""
    if _CONTEXT in item or _LISTS in item:
        return {}
    return {name: value for name, value in item.items() if isinstance(value, list)}


def _context_of(item: Values) -> Values:
    """The context of a line, as far as there is one."""
    try:
        return _parts(item)[0]
    except BadInput:
        return {}


def _parts(item: Values) -> tuple[Values, Values]:
    """The context and the lists of a line."""
    if _CONTEXT not in item and _LISTS not in item:
        lists = _lists_in(item)
        return {name: value for name, value in item.items() if name not in lists}, lists
    context, lists = item.get(_CONTEXT, {}), item.get(_LISTS, {})
    for name, value in ((_CONTEXT, context), (_LISTS, lists)):
        if not isinstance(value, dict):
            raise BadInput("manifest", "not a sequence", f"{name} is {shown(value)}, not an object")
    others = {name: value for name, value in item.items() if name not in (_CONTEXT, _LISTS)}
    if twice := sorted(others.keys() & context.keys()):
        raise BadInput("manifest", "two values have the same name", ", ".join(twice))
    return {**others, **context}, lists


def _steps(name: str, value: Any) -> tuple[FeatureValue, ...]:
    """A list of steps, each a value or several."""

    def fault(what: str) -> BadInput:
        remedy = "a list has numbers or texts, one or a list of them a step"
        return BadInput("manifest", "not a list of steps", f"{name!r} {what}; {remedy}")

    if not isinstance(value, list):
        raise fault(f"is {shown(value)}")
    if not name.strip():
        raise BadInput("manifest", "a value has no name")
    kinds: set[bool] = set()
    for number, step in enumerate(value, 1):
        scalars: list[Scalar] = step if isinstance(step, list) else [step]
        for scalar in scalars:
            if not isinstance(scalar, str | int | float):
                raise fault(f"has {shown(scalar)} in step {number}")
            kinds.add(isinstance(scalar, str))
    if len(kinds) > 1:
        raise fault("has text and numbers")
    return tuple(tuple(step) if isinstance(step, list) else step for step in value)


def _are_images(steps: tuple[FeatureValue, ...]) -> bool:
    return bool(steps) and all(isinstance(step, str) and is_image_name(step) for step in steps)


class SequenceSource(ManifestSource):
    """Lists the sequences of JSON Lines files."""

    name = "sequence"
    description = Description(
        reads="`.jsonl`: a sequence a line, `context` and `feature_lists` (a list of numbers or texts a "
        "name, one or several a step; `frames` are paths of images); or without these two names: lists, "
        "and all else is context",
        label="the context value that --label_column names",
        split="`split` of the context",
        key="the file's name and the line",
        example="series.jsonl",
    )
    flags = ("annotations", "label_column", "label_pattern")
    table = SequenceTable
    extensions = JSON_LINES

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("sequence",)
