"""GroupReferences: shuffles references, not images, and finds keys that are not unique."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.records import ImageRecord, JobError
from recordmill.transforms.shards.dataset_plan import DatasetPlan
from recordmill.transforms.shards.hashing import key_digest
from recordmill.transforms.shards.references import Batches, items, reference_record
from recordmill.transforms.survey import Surveyed, in_global_window

_REPEATED = "repeated"

GroupOf = Callable[[str, bytes], Hashable]
"""The group of a reference in a split."""


class GroupedReferences(NamedTuple):
    """References by group.

    Attributes:
        groups: (group, batches of references).
        repeated: (key, location) of the records whose keys may not be unique.
    """

    groups: beam.PCollection[tuple[Any, Iterable[bytes]]]
    repeated: beam.PCollection[tuple[str, str]]


class GroupReferences(beam.PTransform):
    """Surveyed -> GroupedReferences. References are shuffled, images are not.

    Args:
        grouping: returns a function from split and reference to group; called once for each bundle.
    """

    def __init__(
        self, plan: beam.PCollection[DatasetPlan], grouping: Callable[[DatasetPlan], GroupOf], types: Any
    ) -> None:
        super().__init__()
        self._plan = plan
        self._grouping = grouping
        self._types = types

    def expand(self, surveyed: Surveyed) -> GroupedReferences:
        """(split, references) -> (group, references) -> GroupByKey."""
        assigned, repeated = surveyed.references | "AssignGroups" >> beam.ParDo(
            AssignGroups(self._grouping),
            beam.pvalue.AsSingleton(self._plan),
            beam.pvalue.AsList(surveyed.repeated),
        ).with_output_types(self._types, **{_REPEATED: tuple[str, str]}).with_outputs(
            _REPEATED, main="assigned"
        )
        return GroupedReferences(assigned | "Group" >> beam.GroupByKey(), repeated)


class AssignGroups(beam.DoFn):
    """(split, references) -> (group, references); key and location of repeated keys to `repeated`."""

    def __init__(self, grouping: Callable[[DatasetPlan], GroupOf]) -> None:
        self._grouping = grouping

    def start_bundle(self) -> None:
        self._batches: Batches[Hashable] = Batches()
        self._group_of: GroupOf | None = None
        self._repeated: frozenset[int] = frozenset()

    def process(
        self, element: tuple[str, bytes], plan: DatasetPlan, repeated: Sequence[int]
    ) -> Iterator[Any]:
        if self._group_of is None:
            self._group_of = self._grouping(plan)
            self._repeated = frozenset(repeated)
        split, batch = element
        for reference in items([batch]):
            if self._repeated:
                record = reference_record(reference)
                if key_digest(record.key) in self._repeated:
                    yield beam.pvalue.TaggedOutput(_REPEATED, (record.key, described_location(record)))
            group = self._group_of(split, reference)
            full = self._batches.add(group, reference)
            if full is not None:
                yield group, full
        if self._batches.full:
            yield from self._batches.rest()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(in_global_window, self._batches.rest())


def described_location(record: ImageRecord) -> str:
    """The location of a record in the source, for a message."""
    path = record.image.uri if record.image is not None else ""
    return " at ".join(part for part in (path, record.origin) if part) or "(no origin)"


def check_unique(repeated: Sequence[tuple[str, str]]) -> None:
    """Checks (key, location) of the keys whose hashes are not unique.

    Raises:
        JobError: a key is not unique.
    """
    locations: dict[str, list[str]] = {}
    for key, location in sorted(repeated):
        locations.setdefault(key, []).append(location)
    every = {key: found for key, found in locations.items() if len(found) > 1}
    if every:
        key, found = next(iter(every.items()))
        more = f" (and {len(every) - 1} more keys)" if len(every) > 1 else ""
        raise JobError(
            f"key {key!r} is not unique: {'; '.join(found[:4])}{more}. Keys must be unique in a dataset"
        )
