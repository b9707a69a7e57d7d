"""SurveyRecords: one pass over the list of records: references to shuffle, totals, and hashes of the keys.

GroupReferences: shuffles the references, not images, and finds keys that are not unique.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam import coders
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.metrics import count, count_left_out
from recordmill.transforms.records import BadInput, ClassNames, Failure, ImageRecord, JobError
from recordmill.transforms.repeated_hashes import FindRepeated, HashBuckets, RepeatedHashes
from recordmill.transforms.shards.dataset_plan import DatasetPlan
from recordmill.transforms.shards.record_spool import RecordSpool
from recordmill.transforms.shards.references import (
    Batches,
    ListedRecord,
    encode,
    items,
    key_digest,
    plain_record,
    reference_record,
    with_split,
)
from recordmill.transforms.shards.survey_task import (
    SurveyedBatch,
    SurveySettings,
    SurveyTask,
    keys_before,
    survey,
)
from recordmill.transforms.shards.totals import Totals
from recordmill.transforms.task_fn import TaskFn, in_window

_FAILURES, _TOTALS, _HASHES, _REPEATED = "failures", "totals", "hashes", "repeated"
_COUNTED_AT_ONCE = 1000
# Of `packed` and `content`: ten thousand rows of a table.
_BATCH_BYTES = 2 << 20


class Grouping(NamedTuple):
    """The groups that references are put in.

    Attributes:
        group_of: returns the group of a reference in a split.
        only: the group of each split that has just one.
    """

    group_of: Callable[[str, bytes], Hashable]
    only: Mapping[str, Hashable]


class StructCoder(coders.Coder):
    """A struct as msgpack: equal bytes for equal values. Beam's default coder takes several times as long."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def encode(self, value: object) -> bytes:
        return encode(value)

    def decode(self, encoded: bytes) -> Any:
        return msgspec.msgpack.decode(encoded, type=self._kind)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return self._kind

    @classmethod
    def from_type_hint(cls, typehint: type, registry: object) -> StructCoder:
        return cls(typehint)


coders.registry.register_coder(ImageRecord, StructCoder)
coders.registry.register_coder(Failure, StructCoder)


class Surveyed(NamedTuple):
    """The result of a survey.

    Attributes:
        references: (split, batch of references).
        totals: a few elements, to be merged.
        repeated: hashes of keys that may not be unique, as of `FindRepeated`.
        failures: listed inputs that are not records.
    """

    references: beam.PCollection[tuple[str, bytes]]
    totals: beam.PCollection[Totals]
    repeated: beam.PCollection[bytes]
    failures: beam.PCollection[Failure]


class SurveyRecords(beam.PTransform):
    """PCollection[ImageRecord | Failure | ClassNames] -> Surveyed.

    Args:
        scratch: folder for the images that records bring, and for large annotations, instead of shuffling
            them; it is kept as long as references. Annotations are put there only if it is a folder of this
            machine: other runners shuffle on disks. Without it, records cannot bring images.
        job: name of the folder in `scratch` that only this job uses.
    """

    def __init__(self, config: DatasetConfig, scratch: str | None = None, job: str = "records") -> None:
        super().__init__()
        self._config = config
        self._scratch = scratch
        self._job = job

    def expand(self, entries: beam.PCollection[ImageRecord | Failure | ClassNames]) -> Surveyed:
        survey = SurveyFn(self._config, self._scratch, self._job)
        types = {_FAILURES: Failure, _TOTALS: Any, _HASHES: tuple[int, bytes]}
        parted = entries | "Survey" >> beam.ParDo(survey).with_output_types(
            tuple[str, bytes], **types
        ).with_outputs(*types, main="references")
        repeated = parted[_HASHES] | "FindRepeated" >> FindRepeated()
        return Surveyed(parted["references"], parted[_TOTALS], repeated, parted[_FAILURES])


class SurveyFn(TaskFn[None, SurveyedBatch]):
    """Surveys records in batches, those of large inputs in worker processes."""

    def __init__(self, config: DatasetConfig, scratch: str | None, job: str) -> None:
        super().__init__(config.workers)
        self._config = config
        self._settings = SurveySettings(config.seed, config.untyped_features, config.map_image is not None)
        self._scratch = scratch
        self._job = job
        self._pattern = re.compile(config.group_pattern) if config.group_pattern else None
        self._spool: RecordSpool | None = None

    def start_bundle(self) -> None:
        super().start_bundle()
        self._spool = RecordSpool(self._scratch, self._job)
        self._totals = Totals(self._config.untyped_features)
        self._hashes = HashBuckets()
        self._records: list[ListedRecord] = []
        self._bytes = 0
        self._read = 0

    def process(self, element: ImageRecord | Failure | ClassNames) -> Iterator[Any]:
        if isinstance(element, ClassNames):
            self._totals.classes.add(element)
            return
        self._read += 1
        if self._read == _COUNTED_AT_ONCE:
            # A complete source may be one bundle, and people follow the count.
            count("read", self._read)
            self._read = 0
        if isinstance(element, ImageRecord):
            try:
                self._add(with_split(element, self._config, self._pattern))
            except BadInput as error:
                element = error.failure(element.key)
            except UnicodeEncodeError as error:
                text = error.object[error.start : error.end]
                raise JobError(
                    f"record {element.key!r} has a text with {text!r}, which is not Unicode; replace it"
                ) from error
            else:
                if self._bytes >= _BATCH_BYTES:
                    yield from self._survey_batch()
                return
        count_left_out(element)
        self.log.add(element)
        yield TaggedOutput(_FAILURES, element)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._spool is not None
        self._spool.close()
        count("read", self._read)
        for value in self._surveyed():
            yield in_window(value)
        yield from super().finish_bundle()
        for value in self._taken_hashes():
            yield in_window(value)
        yield in_window(TaggedOutput(_TOTALS, self._totals))

    def teardown(self) -> None:
        """Stops the processes; removes the unfinished file of a bundle that has failed."""
        super().teardown()
        if self._spool is not None:
            self._spool.discard()
        self._spool = None

    def results(self, _: None, batch: SurveyedBatch) -> Iterator[Any]:
        """The references of a batch, and hashes if there are many."""
        self._totals.merge(batch.totals)
        self._hashes.add(batch.hashes)
        self._hashes.forbid(batch.forbidden)
        yield from batch.references
        if self._hashes.full:
            yield from self._taken_hashes()

    def _add(self, record: ImageRecord) -> None:
        """Adds a record to the batch.

        Raises:
            BadInput: an integer of more than 64 bits, or an image that is too large.
        """
        assert self._spool is not None
        record = self._spool.with_reference(plain_record(record))
        listed = ListedRecord.of(record, self._spool.annotations)
        self._records.append(listed)
        self._bytes += len(listed.packed) + len(listed.content)

    def _survey_batch(self) -> Iterator[Any]:
        """Surveys the batch, in a worker process if there are several."""
        if self.workers == 1:
            yield from self._surveyed()
            return
        task = SurveyTask.of(self._records, self._settings)
        self._records, self._bytes = [], 0
        yield from self.submit(None, task)

    def _surveyed(self) -> Iterator[Any]:
        """Surveys the batch here."""
        records, self._records, self._bytes = self._records, [], 0
        yield from self.results(None, survey(records, self._settings))

    def _taken_hashes(self) -> Iterator[TaggedOutput]:
        return (TaggedOutput(_HASHES, pair) for pair in self._hashes.take())


class GroupedReferences(NamedTuple):
    """References by group.

    Attributes:
        groups: (group, batches of references).
        repeated: (key, location) of the records whose keys may not be unique.
    """

    groups: beam.PCollection[tuple[Any, Iterable[bytes]]]
    repeated: beam.PCollection[tuple[str, str]]


@dataclasses.dataclass(eq=False, repr=False)
class GroupReferences(beam.PTransform):
    """Surveyed -> GroupedReferences. References are shuffled, images are not.

    Attributes:
        plan: of the dataset, one element.
        grouping: makes the groups of a plan; called once for each bundle.
        types: of the assigned references: tuple[group, bytes].
    """

    plan: beam.PCollection[DatasetPlan]
    grouping: Callable[[DatasetPlan], Grouping]
    types: Any

    def expand(self, surveyed: Surveyed) -> GroupedReferences:
        assigned, repeated = surveyed.references | "AssignGroups" >> beam.ParDo(
            AssignGroups(self.grouping),
            beam.pvalue.AsSingleton(self.plan),
            beam.pvalue.AsList(surveyed.repeated),
        ).with_output_types(self.types, **{_REPEATED: tuple[str, str]}).with_outputs(
            _REPEATED, main="assigned"
        )
        return GroupedReferences(assigned | "Group" >> beam.GroupByKey(), repeated)


class AssignGroups(beam.DoFn):
    """(split, references) -> (group, references); key and location of repeated keys to `repeated`."""

    def __init__(self, grouping: Callable[[DatasetPlan], Grouping]) -> None:
        self._plan_grouping = grouping

    def start_bundle(self) -> None:
        self._batches: Batches[Hashable] = Batches()
        self._grouping: Grouping | None = None  # the plan may differ from the previous bundle's
        self._repeated = RepeatedHashes(())

    def process(
        self, element: tuple[str, bytes], plan: DatasetPlan, repeated: Sequence[bytes]
    ) -> Iterator[Any]:
        if self._grouping is None:
            self._grouping = self._plan_grouping(plan)
            self._repeated = RepeatedHashes(repeated)
        split, batch = element
        if split in self._grouping.only and not self._repeated:
            yield self._grouping.only[split], batch
            return
        for reference in items([batch]):
            if self._repeated:
                yield from self._among_repeated(reference_record(reference))
            group = self._grouping.group_of(split, reference)
            full = self._batches.add(group, reference)
            if full is not None:
                yield group, full
        if self._batches.full:
            yield from self._batches.rest()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(in_window, self._batches.rest())

    def _among_repeated(self, record: ImageRecord) -> Iterator[TaggedOutput]:
        """The keys of a record that may be repeated, with their location."""
        keys = [record.key, *keys_before(record.key)]
        for key in itertools.compress(keys, self._repeated.has(list(map(key_digest, keys)))):
            where = _location(record)
            if key != record.key:
                where += f", whose key {record.key!r} could also be one that --map_image makes of {key!r}"
            yield TaggedOutput(_REPEATED, (key, where))


def _location(record: ImageRecord) -> str:
    """The location of a record in the source, for a message."""
    image = record.image
    path = "" if image is None or image.version < 0 else image.uri  # no file of the scratch folder
    return " at ".join(part for part in (path, record.origin) if part) or "(no origin)"


def check_unique(repeated: Sequence[tuple[str, str]]) -> None:
    """Raises JobError if a key is repeated, given (key, location) of the keys whose hashes are."""
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
