"""The configuration of a dataset, which the transforms read. Imports no Beam."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.examples import MASK_SCHEMAS, SCHEMA_NAMES
from recordmill.transforms.examples.mask_values import check_mask_values, with_ignored
from recordmill.transforms.flag_values import PAIRS, fractions, names, renames, shard_counts, size
from recordmill.transforms.flags import check_values, declares_flags, flag, naming_parameters, setting
from recordmill.transforms.images.policy import ImagePolicy
from recordmill.transforms.map_image import MapImage
from recordmill.transforms.records import BOXES, SPLIT_NAME

MIB = 1 << 20
CONTENT = "content"
"""The value of `--group_by` that groups records by the bytes of their images."""
DROP = "drop"
"""The value of `--duplicates` that leaves copies out."""


def _schemas(text: str) -> str:
    from recordmill.transforms.examples.registry import named_schemas  # imports all schemas

    return text if text == "auto" else ",".join(schema.name for schema in named_schemas(text))


@declares_flags()
@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    """How records are built, split, sharded, ordered and published."""

    policy: ImagePolicy = setting(ImagePolicy(), "how images are stored")
    schema: str = flag(
        "auto",
        "names and meaning of the features: auto chooses by the source or its records; "
        f"{', '.join(SCHEMA_NAMES)}; or several, such as detection,segmentation",
        "records",
        parse=_schemas,
        metavar="NAME[,NAME]",
        pattern="[a-z]+(,[a-z]+)*",
    )
    rename: Mapping[str, str] = flag(
        {}, "other names for features", "records", parse=renames, metavar="OLD=NEW,…", pattern=PAIRS
    )
    boxes: str = flag(
        "clip",
        "boxes partly outside their image: clip them, drop them, or fail the record; boxes without area are "
        "dropped with clip and drop, and fail the record with fail",
        "records",
        values=BOXES,
    )
    map_image: MapImage | None = flag(
        None,
        "a Python function that runs on each image and its annotations before they are stored. It may change "
        "them, leave the image out, or make several records of it. The module is in the current folder or "
        "installed. A version identifies the function instead of its source code",
        "records",
        parse=MapImage.parse,
        metavar="MODULE:FUNCTION[@VERSION]",
        pattern=r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*(@[A-Za-z0-9_.-]+)?",
        only_if_set=True,
    )
    label_names: tuple[str, ...] | None = flag(
        None,
        "names of the labels, one on each line, in the order of their ids; or a label_map.pbtxt",
        "input and output",
        name="label_file",
        parse=str,
        path="file",
        metavar="FILE",
    )
    label_classes: Mapping[int, str] | None = setting(None, "names of the labels by id, from a label map")
    label_texts: Mapping[str, str] = setting({}, "display names by label, from a label map")
    label_offset: int | None = flag(
        None,
        "number that is added to every label id",
        "input and output",
        metavar="N",
        default_text="ids start at the schema's first id",
    )
    mask_values: Mapping[str, str] = flag(
        {},
        "replaces classes in masks. A class is given by its name, or by its value in the masks of the "
        "source; 255 means ignored. Masks of classes, panoptic masks and masks drawn from objects change; "
        "boxes and labels do not",
        "input and output",
        parse=renames,
        metavar="OLD=NEW,…",
        pattern=PAIRS,
        only_if_set=True,
    )
    ignore_label: tuple[str, ...] = flag(
        (),
        "classes whose pixels in masks are ignored: the same as --mask_values VALUE=255",
        "input and output",
        parse=names,
        metavar="VALUE[,VALUE…]",
        pattern="[^,]+(,[^,]+)*",
        determines_bytes=False,
    )
    splits: Mapping[str, float] = flag(
        {},
        "splits by a hash of the key, instead of the splits of the source; the fractions add up to 1",
        "shards",
        parse=fractions,
        metavar="NAME=FRACTION,…",
        pattern=r"{0}(,{0})*".format(r"[A-Za-z0-9_-]+=([01]|[01]?\.[0-9]+)"),
    )
    expected_splits: tuple[str, ...] = setting(
        (),
        "splits that the layout of the source names; if one of them has no record, the job fails",
        determines_bytes=False,
    )
    group_by: str | None = flag(
        None,
        "with --splits: records with the same value of this feature go into the same split. content puts "
        "identical images into the same split; it reads images before it writes, as --duplicates=drop does",
        "shards",
        metavar="FEATURE",
    )
    group_pattern: str | None = flag(
        None,
        "with --splits: records with the same match of this regular expression in their keys stay together",
        "shards",
        metavar="REGEX",
    )
    duplicates: str = flag(
        "keep",
        "identical images: keep writes all, and lists them in duplicates.jsonl; fail publishes nothing if "
        "splits share images; drop writes one of them: the first by key, from train only if no other split "
        "has the image. drop reads images before it writes, except objects of a bucket whose listing has an "
        "MD5; --plan counts the images to read",
        "records",
        values=("keep", "fail", DROP),
        determines_bytes=False,
    )
    num_shards: int | Mapping[str, int] | None = flag(
        None,
        "number of shards of each split: the same N for every split, or a number for each",
        "shards",
        parse=shard_counts,
        metavar="N|NAME=N,…",
        default_text="from --shard_size",
        pattern="({0}|{1}={0}(,{1}={0})*)".format("0*[1-9][0-9]{0,4}", "[A-Za-z0-9_-]+"),
    )
    shard_size: int = flag(
        128 * MIB,
        "approximate bytes of a shard, such as 128MiB, 100MB or 5000000",
        "shards",
        parse=size,
        at_least=1,
        metavar="SIZE",
        default_text="128MiB",
        pattern=r"[0-9]+(\.[0-9]+)? ?([kKmMgGtT][iI]?)?[bB]?",
    )
    reader_hosts: int | None = flag(
        None,
        "number of hosts that will read the dataset: 10 shards for each host, of at least 10 MB",
        "shards",
        at_least=1,
        metavar="N",
    )
    seed: int = flag(
        0, "seed of the order and of the shards; it does not change the splits", "shards", metavar="N"
    )
    order: str = flag(
        "shuffled", "order of the records across all shards", "shards", values=("shuffled", "key")
    )
    writer: str = flag(
        "shards",
        "shards: writes complete shards, with the same bytes each time; an interrupted job can be resumed. "
        "beam: beam.io.WriteToTFRecord, which shuffles the records. auto: shards on one machine and for "
        "versions, otherwise beam",
        "shards",
        values=("shards", "beam"),
        auto=True,
    )
    split_names: tuple[str, ...] = setting(
        (), "every split that a record may have; required if writer is beam", determines_bytes=False
    )
    overwrite: bool = flag(
        False,
        "replace the dataset in --output; the old one stays until the new one is complete",
        "running",
        determines_bytes=False,
    )
    max_failure_ratio: float = flag(
        0.01,
        "largest share of inputs that may fail; above it, nothing is published",
        "running",
        at_least=0,
        at_most=1,
        metavar="R",
        pattern=r"(0|1|[01]\.0*|0?\.[0-9]+)",
        determines_bytes=False,
    )
    strict: bool = flag(
        False,
        "publish nothing if the dataset has warnings, such as a single class or images without boxes; "
        "with --plan: exit with 1",
        "running",
        determines_bytes=False,
    )
    name: str = flag(
        "dataset", "the dataset's name for TFDS", "shards", metavar="NAME", default_text="from --output"
    )
    untyped_features: bool = setting(
        False,
        "free features are text; their type is detected from the complete column",
        determines_bytes=False,
    )
    shuffles_in_memory: bool = setting(
        True,
        "whether the runner shuffles in memory, on one machine; otherwise on disks",
        determines_bytes=False,
    )
    workers: int = setting(
        0,
        "number of writer processes on the machine of the pipeline; 0: the runner's workers write",
        determines_bytes=False,
    )
    worker_slots: int = setting(
        0, "how many shards the runner's workers may write at a time; 0 if unknown", determines_bytes=False
    )
    dataset_version: str | None = flag(
        None,
        "publish in a folder of this name below --output, next to the previous versions, and reuse the "
        "unchanged records of the latest; auto increments the last number, and publishes nothing if "
        "nothing has changed",
        "running",
        metavar="auto|X.Y.Z",
        pattern=r"(auto|{0}\.{0}\.{0})".format("(0|[1-9][0-9]{0,8})"),
        determines_bytes=False,
    )
    keep_versions: int | None = flag(
        None,
        "with --dataset_version: number of versions to keep; the oldest are removed, but never the highest "
        "or the one that latest.json names",
        "running",
        at_least=1,
        metavar="N",
        default_text="all",
        determines_bytes=False,
    )

    @naming_parameters()
    def __post_init__(self) -> None:
        check_values(self)
        self._join_mask_values()
        if self.map_image is not None and not isinstance(self.map_image, MapImage):
            raise ValueError(f"map_image is {self.map_image!r}; it may be MapImage.of(function)")
        self.policy.check_effects(self.policy.changed, self.map_image is not None)
        _check_splits(self.splits)
        _check_num_shards(self.num_shards)
        if (self.group_by or self.group_pattern) and not self.splits:
            name = "--group_by" if self.group_by else "--group_pattern"
            raise ValueError(f"{name} keeps groups in one split of --splits, which is not given")
        if self.group_by and self.group_pattern:
            raise ValueError("--group_by and --group_pattern both determine groups; give one of them")
        if self.group_pattern is not None:
            try:
                re.compile(self.group_pattern)
            except re.error as error:
                raise ValueError(f"--group_pattern is {self.group_pattern!r}: {error}") from error
        self._check_writer()
        self._check_versions()

    def _join_mask_values(self) -> None:
        """Makes `ignore_label` part of `mask_values`: equal masks have equal configurations."""
        values = with_ignored(self.mask_values, self.ignore_label)
        check_mask_values(values)
        if values and self.schema != "auto" and MASK_SCHEMAS.isdisjoint(self.schema.split(",")):
            name = "--ignore_label" if self.ignore_label else "--mask_values"
            raise ValueError(
                f"{name} changes masks, and --schema={self.schema} stores none of classes; give "
                f"--schema=segmentation or panoptic, or remove {name}"
            )
        object.__setattr__(self, "mask_values", values)
        object.__setattr__(self, "ignore_label", ())

    def _check_versions(self) -> None:
        """Raises ValueError for flags that exclude versions, or need them."""
        if self.dataset_version is None:
            if self.keep_versions is not None:
                raise ValueError(f"--keep_versions is {self.keep_versions}, which needs --dataset_version")
            return
        if self.overwrite:
            raise ValueError(
                f"--overwrite replaces a dataset, and --dataset_version={self.dataset_version} publishes "
                "next to those that exist; give one of them"
            )
        if self.writer != "shards":
            raise ValueError(
                f"--writer is {self.writer!r}, and --dataset_version={self.dataset_version} reuses "
                "shards, which must be the same each time; remove --writer, or give --writer=shards"
            )

    def _check_writer(self) -> None:
        """Raises ValueError for a flag that the writer has no use for."""
        if self.writer == "shards":
            return
        for name in ("order", "seed", "shard_size", "reader_hosts"):
            value = getattr(self, name)
            if value != type(self).__dataclass_fields__[name].default:
                raise ValueError(
                    f"--{name} is {value!r}, which only --writer=shards uses: with --writer=beam the runner "
                    "decides the order, and --num_shards or the runner the number of shards"
                )

    @property
    def groups_by_content(self) -> bool:
        """Whether identical images stay in one split."""
        return self.group_by == CONTENT

    @property
    def drops_duplicates(self) -> bool:
        """Whether copies are left out."""
        return self.duplicates == DROP

    @property
    def identifies_images(self) -> bool:
        """Whether images have to be identified by their bytes before they are written."""
        return self.groups_by_content or self.drops_duplicates

    def as_json(self) -> dict[str, object]:
        """The fields that determine the bytes, as in manifest.json."""
        fields = dataclasses.asdict(self)
        own = [one.name for one in _in_manifest() if fields[one.name] or not one.metadata["flag"].only_if_set]
        shown = {name: fields[name] for name in own}
        if self.map_image is not None:
            shown["map_image"] = str(self.map_image)
        if self.drops_duplicates:  # of the values of `duplicates`, only this one determines the bytes
            shown["duplicates"] = DROP
        return {**shown, **fields["policy"]}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DatasetConfig:
        """The inverse of `as_json`; other fields have their defaults.

        Raises:
            ValueError: a field is unknown to this version, or has a value that it may not have.
        """
        own = {*(field.name for field in _in_manifest()), "duplicates"}
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
        if values.get("map_image") is not None:
            values["map_image"] = MapImage.named(values["map_image"])
        return cls(policy=policy, **{name: value for name, value in values.items() if name in own})

    def digest(self, codecs: Mapping[str, str], source: Mapping[str, object] | None = None) -> str:
        """A hash of the configuration, of the source's settings and of the codecs' versions."""
        parts = [self.as_json(), dict(codecs), dict(source or {})]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _in_manifest() -> list[dataclasses.Field[Any]]:
    """The fields, but for the policy, that determine the bytes of a dataset; the others, how it is made."""
    every = [field for field in dataclasses.fields(DatasetConfig) if field.name != "policy"]
    return [field for field in every if field.metadata["flag"].determines_bytes]


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
