"""From totals to a plan: schema, labels, columns, size estimate, and the number of shards of each split."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from recordmill.transforms.annotations.mapping import OF_CLASS_IDS
from recordmill.transforms.config import MIB, DatasetConfig
from recordmill.transforms.examples.framing import FRAME_BYTES
from recordmill.transforms.examples.labels import LabelMap
from recordmill.transforms.examples.mask_values import with_mask_values
from recordmill.transforms.examples.registry import choose_schema
from recordmill.transforms.examples.schema import (
    DatasetSummary,
    FeatureSettings,
    Schema,
    all_specs,
    apply_rename,
    check_names,
)
from recordmill.transforms.records import SPLIT_NAME, ImageRecord, JobError
from recordmill.transforms.shards.previous import MaskMap, PreviousVersion
from recordmill.transforms.shards.record_encoder import RecordSettings
from recordmill.transforms.shards.references import (
    DEFAULT_SPLIT,
    pack_reference,
    reference_record,
    reference_shard,
)
from recordmill.transforms.shards.report import shard_digest
from recordmill.transforms.shards.statistics import CountedFeatures, Statistics
from recordmill.transforms.shards.tasks import EncodeTask, encoder_pool
from recordmill.transforms.shards.totals import SplitTotals, Totals
from recordmill.transforms.storage import files
from recordmill.transforms.storage.faults import naming_faults
from recordmill.transforms.storage.files import write_file
from recordmill.transforms.workers.task import no_progress

# TensorFlow's advice to readers (performance guide, and TFDS): ten files a host, none below 10 MB.
_SHARDS_PER_HOST = 10
_SMALLEST_HOST_SHARD = 10_000_000
_MOST_SHARDS = 99_999
# A worker that is done with its shard takes another, while the slowest are still at theirs.
_SHARDS_PER_SLOT = 2
# Framing of a record, and what its small features take.
_RECORD_OVERHEAD = 400
# For values that are stored in lists of any length: as if some records had none.
_OF_LISTS = -1
# Below both, a second process takes longer to start than the work does.
_SPAWN_RECORDS = 500
_SPAWN_BYTES = 32 * MIB
# Stops sampling large images: the estimate need not be exact.
_SAMPLE_BYTES = 16 << 20
# An image that takes longer is left out.
_IMAGE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class SplitPlan:
    """One split.

    Attributes:
        num_shards: 0 if the runner decides while it writes.
        edges: with `--order=key`, the first key of each shard but the first.
    """

    records: int
    estimated_bytes: int
    num_shards: int
    edges: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DatasetPlan:
    """The decisions that are made before the first image of the dataset is written.

    Attributes:
        splits: by name, in order of name; shards are numbered through them for the shuffle.
        settings: of the encoding of each record.
        summary: of the records; what only the stored images show is not known yet.
        records: of all splits.
        source_bytes: of their images, as listed.
        digest: of the list of records.
        replaces: sha256 of the manifest of the dataset that is replaced; empty if there is none.
        previous: the previous version, if it can be reused; else None.
        previous_version: number of the previous version, reusable or not.
        not_reused: why it cannot be reused; empty if it can, or if there is none.
    """

    splits: Mapping[str, SplitPlan]
    settings: RecordSettings
    summary: DatasetSummary
    records: int
    source_bytes: int
    digest: str
    replaces: str = ""
    previous: PreviousVersion | None = None
    previous_version: str = ""
    not_reused: str = ""

    @property
    def estimated_bytes(self) -> int:
        return sum(split.estimated_bytes for split in self.splits.values())

    def shards(self) -> list[tuple[str, int]]:
        """(split, shard) of each planned shard; its index in the list is its number in the shuffle."""
        return [(name, shard) for name, split in self.splits.items() for shard in range(split.num_shards)]

    def first_shards(self) -> dict[str, int]:
        """The index in `shards` of each split's first shard."""
        ends = itertools.accumulate(split.num_shards for split in self.splits.values())
        return dict(zip(self.splits, [0, *ends], strict=False))

    def masks(self) -> MaskMap:
        """The ids that the values of class masks are stored as."""
        before = self.previous.masks if self.previous is not None else None
        return MaskMap.of(self.settings.features.labels, before)


def plan_dataset(
    totals: Totals,
    config: DatasetConfig,
    sample_cache: str | None = None,
    previous: PreviousVersion | None = None,
) -> DatasetPlan:
    """The plan for a list of records with these totals.

    The file `sample_cache` keeps the measured size of a sample. With `previous`, there are as many shards as
    it has, unless flags ask for another number.

    Raises:
        JobError: an empty split, a name clash, or labels that do not fit.
    """
    counts = totals.splits
    _check_splits(counts, config)
    settings = record_settings(totals, config)
    sizes = _previous_sizes(totals, previous) or _estimated_sizes(
        totals, settings, sample_cache, worker_processes(totals, config.workers)
    )
    splits = {}
    for name in sorted(counts):
        if previous is not None and previous.same_shards and name in previous.splits:
            num_shards = previous.splits[name].num_shards
        else:
            num_shards = _num_shards(name, sizes[name], counts[name].records, config)
        edges = _key_edges(counts[name], num_shards) if config.order == "key" else ()
        splits[name] = SplitPlan(counts[name].records, sizes[name], num_shards, edges)
    return DatasetPlan(
        splits=splits,
        settings=settings,
        summary=_summary(totals, config, settings.features),
        records=totals.records,
        source_bytes=totals.source_bytes,
        digest=f"{totals.digest:032x}",
        previous=previous,
    )


def beam_splits(config: DatasetConfig) -> tuple[str, ...]:
    """The splits that `--writer=beam` prepares for, from the call and the layout of the input; sorted."""
    names = (
        config.split_names
        or tuple(config.splits)
        or tuple(_by_split(config))
        or (*config.expected_splits, DEFAULT_SPLIT)
    )
    return tuple(sorted({name for name in names if SPLIT_NAME.fullmatch(name)}))


def worker_processes(listed: Totals | DatasetPlan, workers: int) -> int:
    """The number of worker processes that the listed records are worth, `workers` at most."""
    worthwhile = listed.records >= _SPAWN_RECORDS or listed.source_bytes >= _SPAWN_BYTES
    return max(workers, 1) if worthwhile else 1


def slots_warning(config: DatasetConfig, shards: int) -> str | None:
    """A warning if there are fewer shards, each written by one worker, than workers can use."""
    wanted = _SHARDS_PER_SLOT * config.worker_slots
    if config.writer != "shards" or shards >= wanted:
        return None
    there_are = "there is 1 shard" if shards == 1 else f"there are {shards} shards"
    or_beam = "" if config.dataset_version is not None else ", or --writer=beam,"
    return (
        f"{there_are} for the {config.worker_slots} cores that workers may have, and each is written by one: "
        f"{wanted} shards or more (--num_shards, --shard_size){or_beam} would keep all of them at work; "
        "fewer workers would take as long"
    )


def fewest_shards(config: DatasetConfig) -> int | None:
    """The least number of shards, before records are listed; None if the flags do not determine it."""
    if config.num_shards is None:
        return None
    if isinstance(config.num_shards, Mapping):
        return sum(config.num_shards.values())
    return config.num_shards * max(len(config.splits or config.expected_splits), 1)


def _check_splits(found: Collection[str], config: DatasetConfig) -> None:
    """Raises JobError for a named split without records, or one that `--writer=beam` has no writer for."""
    named = {
        "--splits": config.splits,
        "--num_shards": _by_split(config),
        "the input": config.expected_splits,
    }
    for where, names in named.items():
        for name in names:
            if name not in found:
                others = ", ".join(sorted(found))
                raise JobError(
                    f"split {name!r} is empty: {where} names it, but records fall only into {others}"
                )
    if config.writer != "beam":
        return
    ready = beam_splits(config)
    for name in sorted(found):
        if name not in ready:
            every = ",".join(f"{split}=N" for split in sorted(found))
            raise JobError(
                f"split {name!r} has records, but --writer=beam is ready for {', '.join(ready)} only: it has "
                f"to know all splits beforehand; name them with --num_shards={every}, others by --splits, "
                "or use --writer=shards (in Python, DatasetConfig.split_names)"
            )


def record_settings(totals: Totals, config: DatasetConfig) -> RecordSettings:
    """The settings of the encoding: labels numbered, columns typed, names checked."""
    columns = totals.columns.resolve(totals.records)
    attributes = totals.attributes.resolve(_OF_LISTS)
    steps = totals.steps.resolve(None)
    annotated = frozenset(totals.annotated)
    names = config.label_names if config.label_classes is None else config.label_classes
    try:
        schema = choose_schema(config.schema, totals.with_image > 0, annotated)
        found = totals.labels
        classes = totals.classes.of(found)
        if classes and names is not None and {"0", classes.get(0)} & config.mask_values.keys():
            classes = _without_background(classes, names)
        labels = LabelMap.build(
            found,
            names,
            config.label_offset,
            classes,
            {**totals.classes.texts, **config.label_texts},
            schema.first_id,
        )
        features = FeatureSettings(labels, columns, attributes, steps, annotated)
        if config.mask_values:
            labels = _with_mask_values(totals, config, schema, features)
            features = dataclasses.replace(features, labels=labels)
        summary = _summary(totals, config, features)
        check_names(schema, summary)
        apply_rename(all_specs(schema, summary), config.rename)
    except ValueError as error:
        raise JobError(str(error)) from error
    if config.map_image is not None and (schema.name == "sequence" or not totals.with_image):
        have = "are sequences" if totals.annotated & {"steps"} else "have no images"
        raise JobError(f"--map_image is {config.map_image.label}, and the records {have}; leave it out")
    return RecordSettings(
        config.policy, schema, features, dict(config.rename), config.boxes, config.map_image
    )


def _without_background(
    classes: Mapping[int, str], names: Sequence[str] | Mapping[int, str]
) -> dict[int, str]:
    """Classes without the 0 that no mask has, unless the label file names it: its id is free for the file."""
    named = names.values() if isinstance(names, Mapping) else names
    return {own_id: name for own_id, name in classes.items() if own_id or name in named}


def _with_mask_values(
    totals: Totals, config: DatasetConfig, schema: Schema, features: FeatureSettings
) -> LabelMap:
    """The labels, merged and ignored as --mask_values asks. Raises ValueError if it cannot."""
    if not schema.needs(features.annotated) & OF_CLASS_IDS:
        raise ValueError(
            f"--mask_values (or --ignore_label) changes masks, and schema {schema.name!r} stores none of "
            "classes from this input; give --schema=segmentation or panoptic, or remove the flag"
        )
    counted = CountedFeatures(schema, features)
    used = set[str | int]()
    for split in totals.splits.values():
        used.update(split.labels if counted.has_labels else (), split.objects if counted.has_objects else ())
    classes = totals.classes.of(totals.labels)
    return with_mask_values(features.labels, config.mask_values, features.annotated, used, classes)


def _summary(totals: Totals, config: DatasetConfig, features: FeatureSettings) -> DatasetSummary:
    return DatasetSummary(
        totals.with_image > 0,
        totals.label_counts or (0, 0),
        features.columns,
        formats=frozenset({config.policy.image_format}),
        chose_qualities=config.policy.target_ssim is not None,
        class_names=features.labels.class_names(),
        attributes=features.attributes,
        steps=features.steps,
        annotated=features.annotated,
    )


def planned_statistics(totals: Totals, settings: RecordSettings) -> dict[str, Statistics]:
    """The statistics of each split before an image is read: records, labels and objects."""
    counted = CountedFeatures(settings.schema, settings.features)
    ids = settings.features.labels.ids
    found = {}
    for name, split in sorted(totals.splits.items()):
        unlabelled = split.unlabelled if counted.has_objects else split.records - split.labelled
        found[name] = one = Statistics(records=split.records, unlabelled=unlabelled)
        if counted.has_labels:
            one.labels = _by_id(split.labels, ids)
        if counted.has_objects:
            one.objects = _by_id(split.objects, ids)
            without = split.records - split.objects_per_record.total()
            one.boxes_per_image = +Counter({0: without, **split.objects_per_record})
    return found


def _by_id(labels: Mapping[str | int, int], ids: Mapping[str | int, int]) -> Counter[int]:
    """Counts by class id. Labels without an id are left out: their records will fail."""
    counts: Counter[int] = Counter()
    for label, count in labels.items():
        if label in ids:
            counts[ids[label]] += count
    return counts


def shard_index(reference: bytes, split: SplitPlan) -> int:
    """The shard, within its split, of a packed reference."""
    if split.edges:
        return bisect.bisect_right(split.edges, reference_record(reference).key)
    return reference_shard(reference, split.num_shards)


def _by_split(config: DatasetConfig) -> Mapping[str, int]:
    return config.num_shards if isinstance(config.num_shards, Mapping) else {}


def _num_shards(name: str, size: int, records: int, config: DatasetConfig) -> int:
    if isinstance(config.num_shards, int):
        return config.num_shards
    if config.num_shards is not None:
        if name not in config.num_shards:
            given = ",".join(f"{split}={count}" for split, count in config.num_shards.items())
            raise JobError(f"--num_shards={given} has no number for split {name!r}; add {name}=N")
        return config.num_shards[name]
    if config.writer == "beam":
        return 0
    if config.reader_hosts is not None:
        wanted = _SHARDS_PER_HOST * config.reader_hosts
        return max(min(wanted, size // _SMALLEST_HOST_SHARD), 1)
    return min(max(math.ceil(size / config.shard_size), 1), records, _MOST_SHARDS)


def _previous_sizes(totals: Totals, previous: PreviousVersion | None) -> dict[str, int]:
    """Bytes of each split, if records were as large as in the previous version; empty if there is none."""
    before = previous.splits if previous is not None else {}
    records = sum(split.records for split in before.values())
    size = sum(split.size for split in before.values())
    if not records:
        return {}
    sizes = {name: split.size / split.records for name, split in before.items() if split.records}
    return {
        name: int(sizes.get(name, size / records) * split.records) for name, split in totals.splits.items()
    }


def _estimated_sizes(
    totals: Totals, settings: RecordSettings, sample_cache: str | None, workers: int
) -> dict[str, int]:
    """Bytes of each split's records, from the size of a sample, per source byte or per record."""
    sampled, source, encoded = measure(totals.sampled(), settings, sample_cache, workers)
    sizes = {}
    for name, split in totals.splits.items():
        if source and not totals.unsized:
            payload = split.source_bytes * (encoded - sampled * _RECORD_OVERHEAD) / source
            size = max(payload, 0) + split.records * _RECORD_OVERHEAD
        else:
            size = split.records * encoded / max(sampled, 1)
        sizes[name] = int(size)
    return sizes


def _key_edges(split: SplitTotals, num_shards: int) -> tuple[str, ...]:
    """First keys of all shards but the first: evenly spaced in the sorted sample of keys."""
    keys = sorted(key.decode("utf-8") for key in split.keys.items())
    return tuple(keys[len(keys) * shard // num_shards] for shard in range(1, num_shards))


class Measured(NamedTuple):
    """Records that could be encoded, the bytes of their images in the source, and of their frames."""

    records: int
    source_bytes: int
    encoded_bytes: int


def measure(
    sample: Iterable[ImageRecord], settings: RecordSettings, cache: str | None = None, workers: int = 1
) -> Measured:
    """Encodes a sample, in processes of its own: an image may crash its codec.

    The file `cache` keeps the result for the next call with the same sample and settings.
    """
    references = []
    read = 0
    for record in sample:
        if read > _SAMPLE_BYTES:
            break
        read += record.size
        references.append(pack_reference(record, seed=0))
    if not references:
        return Measured(0, 0, 0)
    digest = shard_digest(settings.digest(), references)
    measured = _cached(cache, digest)
    if measured is None:
        measured = _encoded(references, settings, min(workers, len(references)))
        if cache is not None:
            with naming_faults(cache):
                write_file(cache, json.dumps([digest, *measured]))
    return measured


def _cached(cache: str | None, digest: str) -> Measured | None:
    if cache is None:
        return None
    try:
        found, *numbers = json.loads(files.read_bytes(cache))
        is_whole = all(type(number) is int for number in numbers)  # a damaged file may hold anything
        return Measured(*numbers) if found == digest and is_whole else None
    except (OSError, ValueError, TypeError):
        return None


def _encoded(references: list[bytes], settings: RecordSettings, workers: int) -> Measured:
    # Kept images need no decoding to be measured; optimising some would take longer than all is worth.
    policy = dataclasses.replace(settings.policy, validate="header", optimize="none")
    settings = dataclasses.replace(settings, policy=policy)
    with encoder_pool(settings, no_progress, workers, _IMAGE_SECONDS, tries=1) as pool:
        batch = pool.submit(EncodeTask(references, sizes_only=True), workers).result()
    stats = batch.stats
    size = batch.payload_bytes + stats.written * FRAME_BYTES
    made, left_out = stats.written - stats.added, stats.skipped.total()
    # Images that a function leaves out count with their bytes, as if they were as large as the others.
    source_bytes = stats.source_bytes * (made + left_out) // max(made, 1)
    return Measured(made + left_out, source_bytes, size)
