"""What a dataset shall be: the one frozen configuration that the transforms see. Imports no Beam."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.flags import naming_parameters
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.records import SPLIT_NAME

MIB = 1 << 20
# Fields that decide how a dataset is made, not what its bytes are.
_NOT_THE_BYTES = (
    "workers",
    "max_failure_ratio",
    "strict",
    "untyped_features",
    "expected_splits",
    "split_names",
    "overwrite",
    "shuffles_in_memory",
    "worker_slots",
    "dataset_version",
    "keep_versions",
)


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    """How records are built, split, sharded, ordered and published; each field is a flag of `convert`.

    Attributes:
        policy: what is done to the images.
        schema: `auto`, one of `recordmill.transforms.examples.SCHEMA_NAMES`, or several with commas between.
        rename: new feature names by old one.
        boxes: what becomes of boxes that are partly outside their image: `clip`, `drop`, or `fail` for the
            record; those without an area, or wholly outside, are dropped, or fail it.
        label_names: names of the labels in the order of their ids, or None to number them.
        label_classes: names of the labels by their ids, where a label map gives them.
        label_texts: what it calls them, by name.
        label_offset: added to every label id; None for the schema's own.
        splits: fraction of each split, over the source's own splits; empty to keep those.
        expected_splits: splits that the source's layout names: without a record, the job fails.
        group_by: feature whose equal values stay in one split.
        group_pattern: regular expression on the key, whose equal matches stay in one split.
        num_shards: for every split, or by split; None to derive it from `shard_size`.
        shard_size: bytes a shard shall have, about.
        reader_hosts: number of hosts that will read: asks for ten shards a host of at least 10 MB.
        seed: of the order and the shards, never of the splits.
        order: `shuffled`, or `key` for ascending keys over all shards of a split.
        writer: `shards` writes whole shards in a fixed order; `beam` leaves it to `WriteToTFRecord`.
        split_names: every split that a record may fall into; `beam` has to know them beforehand.
        overwrite: a dataset that the output holds is replaced, once the new one has passed the gate.
        max_failure_ratio: failed over read less skipped, above which nothing is published.
        strict: whether nothing is published where the dataset has warnings, such as a single class.
        name: of the dataset, for TFDS.
        untyped_features: free features are text cells whose type the whole column tells.
        shuffles_in_memory: the runner does, on one machine; else on disks.
        workers: processes that write, on the machine of the pipeline; 0 leaves it to the runner's workers.
        worker_slots: how many shards those may write at a time, at most; 0 where that is not known.
        dataset_version: `x.y.z` or `auto`, the next one: the dataset is published in a folder of that name,
            beside the others, from the last of which it takes over what has not changed; None for a dataset
            without versions.
        keep_versions: how many are left, the oldest being removed; None for all.
    """

    policy: ImagePolicy = ImagePolicy()
    schema: str = "auto"
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    boxes: str = "clip"
    label_names: tuple[str, ...] | None = None
    label_classes: Mapping[int, str] | None = None
    label_texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    label_offset: int | None = None
    splits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    expected_splits: tuple[str, ...] = ()
    group_by: str | None = None
    group_pattern: str | None = None
    num_shards: int | Mapping[str, int] | None = None
    shard_size: int = 128 * MIB
    reader_hosts: int | None = None
    seed: int = 0
    order: str = "shuffled"
    writer: str = "shards"
    split_names: tuple[str, ...] = ()
    overwrite: bool = False
    max_failure_ratio: float = 0.01
    strict: bool = False
    name: str = "dataset"
    untyped_features: bool = False
    shuffles_in_memory: bool = True
    workers: int = 0
    worker_slots: int = 0
    dataset_version: str | None = None
    keep_versions: int | None = None

    @naming_parameters()
    def __post_init__(self) -> None:
        _check_splits(self.splits)
        _check_num_shards(self.num_shards)
        if self.shard_size < 1:
            raise ValueError(f"--shard_size is {self.shard_size}; it must be at least 1 byte")
        if self.reader_hosts is not None and self.reader_hosts < 1:
            raise ValueError(f"--reader_hosts is {self.reader_hosts}; it must be at least 1")
        if self.boxes not in ("clip", "drop", "fail"):
            raise ValueError(f"--boxes is {self.boxes!r}; it may be clip, drop or fail")
        if self.order not in ("shuffled", "key"):
            raise ValueError(f"--order is {self.order!r}; it may be shuffled or key")
        if not 0 <= self.max_failure_ratio <= 1:
            raise ValueError(f"--max_failure_ratio is {self.max_failure_ratio:g}; it may be 0 to 1")
        if (self.group_by or self.group_pattern) and not self.splits:
            flag = "--group_by" if self.group_by else "--group_pattern"
            raise ValueError(f"{flag} keeps groups in one split of --splits, which is not given")
        if self.group_by and self.group_pattern:
            raise ValueError("--group_by and --group_pattern both say how to group; give one of them")
        if self.group_pattern is not None:
            try:
                re.compile(self.group_pattern)
            except re.error as error:
                raise ValueError(f"--group_pattern is {self.group_pattern!r}: {error}") from error
        self._check_writer()
        self._check_versions()

    def _check_versions(self) -> None:
        """Raises ValueError where versions cannot be as they are asked for."""
        if self.keep_versions is not None and self.keep_versions < 1:
            raise ValueError(f"--keep_versions is {self.keep_versions}; it must be at least 1")
        if self.dataset_version is None:
            if self.keep_versions is not None:
                raise ValueError(
                    f"--keep_versions is {self.keep_versions}, and only --dataset_version makes versions"
                )
            return
        if self.overwrite:
            raise ValueError(
                f"--overwrite replaces a dataset, and --dataset_version={self.dataset_version} publishes "
                "beside those that are there; give one of them"
            )
        if self.writer != "shards":
            raise ValueError(
                f"--writer is {self.writer!r}, and --dataset_version={self.dataset_version} takes over from "
                "shards that are the same each time; leave --writer out, or give --writer=shards"
            )

    def _check_writer(self) -> None:
        """Raises ValueError for a writer that is none, or that cannot do what is asked for."""
        if self.writer not in ("shards", "beam"):
            raise ValueError(f"--writer is {self.writer!r}; it may be shards or beam")
        if self.writer == "shards":
            return
        for name in ("order", "seed", "shard_size", "reader_hosts"):
            value = getattr(self, name)
            if value != type(self).__dataclass_fields__[name].default:
                raise ValueError(
                    f"--{name} is {value!r}, which only --writer=shards heeds: with --writer=beam the runner "
                    "decides the order, and --num_shards or the runner the number of shards"
                )

    def as_json(self) -> dict[str, object]:
        """The configuration as manifest.json has it: what decides the bytes, not how they were made."""
        fields = dataclasses.asdict(self)
        for name in _NOT_THE_BYTES:
            del fields[name]
        fields.update(fields.pop("policy"))
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DatasetConfig:
        """The inverse of `as_json`; what that leaves out is the default.

        Raises:
            ValueError: fields that this version does not know, or a value that may not be.
        """
        own = {field.name for field in dataclasses.fields(cls)} - {"policy", *_NOT_THE_BYTES}
        of_images = {field.name for field in dataclasses.fields(ImagePolicy)}
        unknown = sorted(fields.keys() - own - of_images)
        if unknown:
            raise ValueError(f"the configuration has {unknown[0]!r}, which this version does not know")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        policy = ImagePolicy(**{name: value for name, value in values.items() if name in of_images})
        if values.get("label_classes") is not None:
            values["label_classes"] = {int(number): name for number, name in values["label_classes"].items()}
        return cls(policy=policy, **{name: value for name, value in values.items() if name in own})

    def digest(self, codecs: Mapping[str, str], source: Mapping[str, object] | None = None) -> str:
        """A hash of the configuration, of the source's settings and of the codecs' versions."""
        parts = [self.as_json(), dict(codecs), dict(source or {})]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _check_num_shards(num_shards: int | Mapping[str, int] | None) -> None:
    by_split = num_shards if isinstance(num_shards, Mapping) else {}
    for name in by_split:
        if not SPLIT_NAME.fullmatch(name):
            raise ValueError(f"--num_shards names a split {name!r}; letters, digits, _ and - make a name")
    for count in by_split.values() if isinstance(num_shards, Mapping) else [num_shards]:
        if count is not None and not 1 <= count <= 99_999:
            raise ValueError(f"--num_shards is {count}; it may be 1 to 99999")


def _check_splits(splits: Mapping[str, float]) -> None:
    for name, fraction in splits.items():
        if not SPLIT_NAME.fullmatch(name):
            raise ValueError(f"--splits names a split {name!r}; letters, digits, _ and - make a name")
        if not 0 < fraction <= 1:
            raise ValueError(f"--splits gives {name} {fraction:g}; a fraction is above 0 and at most 1")
    total = sum(splits.values())
    if splits and abs(total - 1) > 1e-6:
        given = ",".join(f"{name}={fraction:g}" for name, fraction in splits.items())
        raise ValueError(f"--splits={given} adds up to {total:g}; it must add up to 1")
