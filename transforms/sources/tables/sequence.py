"""Source `sequence`: JSON Lines, a sequence a line: what holds for all of it, and lists with a value a step.

The layout is that of the JSON of a tf.train.SequenceExample, with plain values in it: `context` and
`feature_lists` (https://www.tensorflow.org/api_docs/python/tf/train/SequenceExample).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
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
from recordmill.transforms.sources.config import SourceConfig, check_unused, readable
from recordmill.transforms.sources.names import is_image_name
from recordmill.transforms.sources.selection import check_selection
from recordmill.transforms.sources.source import (
    Description,
    Items,
    Source,
)
from recordmill.transforms.sources.tables.json_columns import flat, take
from recordmill.transforms.sources.tables.jsonl_manifest import read_objects
from recordmill.transforms.sources.tables.manifests import (
    PEEKED,
    Manifest,
    check_manifests,
    flag_of,
    manifests,
    splits_by_name,
)
from recordmill.transforms.sources.tables.rows import (
    Row,
    RowRecords,
    labels_in,
    split_columns,
    split_name,
    usual_name,
)

_EXTENSIONS = ("jsonl", "ndjson", "jsonlines")
_CONTEXT = "context"
_LISTS = "feature_lists"
_FRAMES = ("image/encoded", "frames")


class SequenceSource(Source):
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

    def check(self, config: SourceConfig) -> None:
        check_unused(
            config, self.name, "image_column", "include_annotations", "input_features", "mask_pattern"
        )
        with readable("--input", config.input):
            check_manifests(config, self.name)
            check_selection(config)
            for manifest in manifests(config):
                _check_rows(manifest, config)

    def split_names(self, config: SourceConfig) -> tuple[str, ...] | None:
        try:
            for manifest in manifests(config):
                first = list(itertools.islice(read_objects(manifest), PEEKED + 1))
                if len(first) > PEEKED or _split_columns(_contexts(manifest)):
                    return None
            return tuple(sorted(set(splits_by_name(config).values())))
        except (OSError, ValueError):  # `check` says what is wrong
            return None

    def schemas(self, config: SourceConfig) -> tuple[str, ...]:
        return ("sequence",)

    def items(self, config: SourceConfig, scratch: str) -> Items:
        yield from _sequences(config)


def _check_rows(manifest: Manifest, config: SourceConfig) -> None:
    """Raises ValueError where the first lines are no sequences, or none has what a flag names."""
    where = f"{flag_of(config)} is {manifest.path!r}"
    first = [item for _, item in itertools.islice(read_objects(manifest), PEEKED)]
    rows = [item for item in first if isinstance(item, dict)]
    if not rows:
        raise ValueError(f"{where}, whose first lines are no JSON objects; a sequence is one object a line")
    if not any(_has_lists(row) for row in rows):
        raise ValueError(f"{where}, whose first objects have neither {_LISTS} nor a list; see --source jsonl")
    missing = set(_label_names(config))
    for _, item in read_objects(manifest) if missing else ():
        if isinstance(item, dict):
            missing -= flat(_context_of(item), strict=False).keys()
        if not missing:
            return
    if missing:
        raise ValueError(
            f"--label_column is {config.label_column!r}; no line of {manifest.path!r} has "
            f"{', '.join(map(repr, sorted(missing)))} in its context"
        )


def _has_lists(row: dict[str, Any]) -> bool:
    return _LISTS in row or (_CONTEXT not in row and any(isinstance(value, list) for value in row.values()))


def _label_names(config: SourceConfig) -> tuple[str, ...]:
    asked = config.label_column
    return () if asked is None else tuple(part.strip() for part in asked.split(","))


def _context_of(item: dict[str, Any]) -> dict[str, Any]:
    """The context of a line, as far as there is one."""
    try:
        return _parts(dict(item))[0]
    except BadInput:
        return {}


def _contexts(manifest: Manifest) -> list[dict[str, FeatureValue]]:
    """The contexts of the first lines."""
    first = itertools.islice(read_objects(manifest), PEEKED)
    return [flat(_context_of(item), strict=False) for _, item in first if isinstance(item, dict)]


def _split_columns(contexts: list[dict[str, FeatureValue]]) -> tuple[str, ...]:
    """Which names of the first contexts tell the split, in lower case."""
    names = list(dict.fromkeys(name for context in contexts for name in context))
    usual = split_columns(names, contexts)
    return usual if usual_name(usual, names) is not None else ()


def _sequences(config: SourceConfig) -> Iterator[ImageRecord | Failure]:
    splits = splits_by_name(config)
    for manifest in manifests(config):
        columns = _split_columns(_contexts(manifest))
        records = _Records(config, manifest, columns, None if columns else splits.get(manifest.path))
        for line, item in read_objects(manifest):
            yield records.record(line, item)


class _Records:
    """Makes the lines of one file into records.

    Args:
        config: of the source.
        manifest: the file.
        splits: names in the context that tell the split.
        split: of the lines that name none.
    """

    def __init__(
        self, config: SourceConfig, manifest: Manifest, splits: tuple[str, ...], split: str | None
    ) -> None:
        self._rows = RowRecords(config, manifest, split)
        every = dataclasses.replace(config, include=(), exclude=(), label_pattern=None)
        self._frames = RowRecords(every, manifest)
        self._labels = _label_names(config)
        self._splits = splits

    def record(self, line: int, item: dict[str, Any] | BadInput) -> ImageRecord | Failure:
        """The record of a line, or why there is none."""
        try:
            if isinstance(item, BadInput):
                raise item
            context, lists = _parts(item)
            row = self._row(context)
            steps = {name: _steps(name, value) for name, value in lists.items()}
            record = self._rows.record(row, line)
            if isinstance(record, Failure):
                return record
            return self._with_steps(record, line, steps)
        except BadInput as fault:
            return self._rows.failure(line, fault)

    def _row(self, context: dict[str, Any]) -> Row:
        split, column = None, usual_name(self._splits, list(context))
        if column is not None:
            value = take(context, column)
            split = split_name("" if value is None else str(value), column)
        labels = tuple(label for name in self._labels for label in labels_in(take(context, name), name))
        return Row(None, labels, split, flat(context))

    def _with_steps(
        self, record: ImageRecord, line: int, lists: dict[str, tuple[FeatureValue, ...]]
    ) -> ImageRecord | Failure:
        """The record with its lists, of which one may be frames."""
        names = [name for name in _FRAMES if name in lists and _are_images(lists[name])]
        if len(names) > 1:
            raise BadInput("manifest", "two lists of frames", " and ".join(map(repr, names)))
        frames: list[ImageRef] = []
        size = 0
        for path in map(str, lists.pop(names[0])) if names else ():
            found = self._frames.record(Row(path, (), None, {}), line)
            if isinstance(found, Failure):
                return found
            assert found.image is not None
            frames.append(found.image)
            size += found.size
        if record.annotations.features.keys() & lists.keys():
            both = sorted(record.annotations.features.keys() & lists.keys())
            raise BadInput("manifest", "a name in the context and in the lists", ", ".join(both))
        annotations = msgspec.structs.replace(record.annotations, steps=Steps(tuple(frames), lists=lists))
        return msgspec.structs.replace(record, annotations=annotations, size=size)


def _parts(item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The context and the lists of a line."""
    if _CONTEXT not in item and _LISTS not in item:
        lists = {name: value for name, value in item.items() if isinstance(value, list)}
        return {name: value for name, value in item.items() if name not in lists}, lists
    context, lists = item.get(_CONTEXT, {}), item.get(_LISTS, {})
    for name, value in ((_CONTEXT, context), (_LISTS, lists)):
        if not isinstance(value, dict):
            raise BadInput("manifest", "not a sequence", f"{name} is {_shown(value)}, not an object")
    others = {name: value for name, value in item.items() if name not in (_CONTEXT, _LISTS)}
    if others.keys() & context.keys():
        twice = ", ".join(sorted(others.keys() & context.keys()))
        raise BadInput("manifest", "two values have the same name", twice)
    return {**others, **context}, lists


def _steps(name: str, value: Any) -> tuple[FeatureValue, ...]:
    """A list of steps, each a value or several.

    Raises:
        BadInput: stage `manifest`, `not a list of steps`.
    """
    if not isinstance(value, list):
        raise _no_steps(name, f"is {_shown(value)}")
    if not name.strip():
        raise BadInput("manifest", "a value has no name")
    kinds: set[bool] = set()
    steps: list[FeatureValue] = []
    for number, step in enumerate(value, 1):
        scalars: list[Scalar] = step if isinstance(step, list) else [step]
        for scalar in scalars:
            if not isinstance(scalar, str | int | float):
                raise _no_steps(name, f"has {_shown(scalar)} in step {number}")
            kinds.add(isinstance(scalar, str))
        steps.append(tuple(step) if isinstance(step, list) else step)
    if len(kinds) > 1:
        raise _no_steps(name, "has text and numbers")
    return tuple(steps)


def _no_steps(name: str, what: str) -> BadInput:
    remedy = "a list has numbers or texts, one or a list of them a step"
    return BadInput("manifest", "not a list of steps", f"{name!r} {what}; {remedy}")


def _are_images(steps: tuple[FeatureValue, ...]) -> bool:
    return bool(steps) and all(isinstance(step, str) and is_image_name(step) for step in steps)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]
