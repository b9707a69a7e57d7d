"""The files that describe a published dataset: manifest.json and what TFDS needs."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.examples.label_map import label_map_text
from recordmill.transforms.examples.schema import DatasetSummary, FeatureSpec, SequenceSchema
from recordmill.transforms.examples.tfds import (
    SplitInfo,
    dataset_info,
    dataset_name,
    features_json,
    label_files,
    supervised_keys,
)
from recordmill.transforms.images.versions import codec_versions
from recordmill.transforms.shards.overview import class_overview
from recordmill.transforms.shards.previous import SETTINGS, package_version, shard_name
from recordmill.transforms.shards.reconcile import Reconciled
from recordmill.transforms.shards.report import ShardReport
from recordmill.transforms.storage.layout import (
    DUPLICATES,
    FAILURES,
    FORMAT_VERSION,
    INDEX,
    LINEAGE,
    LINEAGE_ENDING,
    MANIFEST,
    REPORT,
    REPORT_DATA,
)
from recordmill.transforms.storage.owner import utc_now
from recordmill.transforms.storage.sealed import PLACEHOLDER, seal

_TFDS_VERSION = "1.0.0"
_LABEL_MAP = "label_map.pbtxt"
_PACKAGES = ("apache-beam", "google-crc32c", "numpy", "pillow", "protobuf", "pycocotools", "simplejpeg")


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a dataset comes from, as manifest.json records it, by a job that starts now."""

    source: Mapping[str, object]
    config_digest: str
    runner: str
    job: str
    version: str = ""
    source_reason: str = ""
    started: str = dataclasses.field(default_factory=utc_now)


class ShardNames(NamedTuple):
    """A shard, and the names of its files under the output; without versions, it has no lineage."""

    report: ShardReport
    records_name: str
    index_name: str
    lineage_name: str | None


def shard_files(reconciled: Reconciled) -> list[ShardNames]:
    """Each shard, with the names of its files."""
    files = []
    num_shards = reconciled.num_shards
    for report in reconciled.reports:
        name = shard_name(report.split, report.shard, num_shards[report.split])
        lineage = f"{LINEAGE}/{name}{LINEAGE_ENDING}" if report.file.lineage_path is not None else None
        files.append(ShardNames(report, f"{name}.tfrecord", f"{INDEX}/{name}.idx", lineage))
    return files


def manifest_json(
    reconciled: Reconciled, config: DatasetConfig, provenance: Provenance, described: Iterable[str]
) -> dict[str, Any]:
    """The contents of manifest.json, without its seal and the digests of other files.

    `described` are the names of the files next to its shards, as `metadata_names` has them.
    """
    shards = [name for _, *names in shard_files(reconciled) for name in names if name is not None]
    files = sorted([*shards, *described, *listing_names(reconciled)])
    version = {"version": provenance.version} if provenance.version else {}
    return {**version, **_manifest(reconciled, config, provenance), "files": files}


def manifest_text(manifest: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The text of manifest.json, finished now, and sealed.

    `digests` are the SHA-256, by name, of each file that is no shard, index or page.
    """
    provenance = {**manifest["provenance"], "finished": utc_now()}
    every = dict(sorted(digests.items()))
    complete = {**manifest, "provenance": provenance, "digests": every, "seal": PLACEHOLDER}
    return seal(json.dumps(complete, indent=2, ensure_ascii=False) + "\n")


def listing_names(reconciled: Reconciled) -> list[str]:
    """Names of the files that list records: failures.jsonl, and duplicates.jsonl if there are any."""
    return [FAILURES, DUPLICATES] if reconciled.duplicates.groups else [FAILURES]


def lineage_digests(reconciled: Reconciled) -> dict[str, str]:
    """SHA-256 of the lineage of each shard, in hex, by name."""
    return {
        shard.lineage_name: shard.report.file.lineage_sha256
        for shard in shard_files(reconciled)
        if shard.lineage_name is not None
    }


def metadata_names(reconciled: Reconciled, config: DatasetConfig, version: str = "") -> list[str]:
    """Names of all files that describe the dataset, in the order of writing; `version` where it has any."""
    settings = [SETTINGS] if version else []
    return [REPORT_DATA, REPORT, *settings, *companions(reconciled, config, version), MANIFEST]


def of_same_job(text: str, manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest.json was written by the job of `manifest`, at any time."""
    try:
        parsed = json.loads(text)
        for name in ("digests", "seal"):
            parsed.pop(name, None)
        parsed["provenance"]["finished"] = manifest["provenance"]["finished"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(parsed == json.loads(json.dumps(manifest)))


def _summary(reconciled: Reconciled) -> DatasetSummary:
    stats = reconciled.stats
    masks: dict[str, Counter[str]] = defaultdict(Counter)
    for (name, dtype), count in stats.mask_dtypes.items():
        masks[name][dtype] += count
    summary = dataclasses.replace(
        reconciled.plan.summary,
        channels=frozenset(stats.channels),
        dtypes=frozenset(stats.dtypes),
        formats=frozenset(stats.formats),
        chose_qualities=bool(stats.qualities),
        mask_dtypes={name: frozenset(dtypes) for name, dtypes in masks.items()},
        complete_masks=frozenset(name for name, dtypes in masks.items() if dtypes.total() == stats.written),
    )
    if stats.label_counts:  # those of the source do not count where a function makes the records
        label_counts = min(stats.label_counts), max(stats.label_counts)
        return dataclasses.replace(summary, label_counts=label_counts)
    return summary


def _renamed(specs: Mapping[str, FeatureSpec], config: DatasetConfig) -> dict[str, FeatureSpec]:
    return {config.rename.get(name, name): spec for name, spec in specs.items()}


def _described(specs: Mapping[str, FeatureSpec]) -> dict[str, object]:
    return {name: {"dtype": spec.dtype, "shape": list(spec.shape)} for name, spec in sorted(specs.items())}


def _reports(reconciled: Reconciled, split: str) -> list[ShardReport]:
    return [report for report in reconciled.reports if report.split == split]


def companions(reconciled: Reconciled, config: DatasetConfig, version: str = "") -> dict[str, str]:
    """Name and text of each file that other readers need: TFDS (no SequenceExample), Object Detection API."""
    settings, summary = reconciled.plan.settings, _summary(reconciled)
    schema = settings.schema
    if isinstance(schema, SequenceSchema):
        return {}
    specs = _renamed(schema.specs(summary), config)
    splits = {}
    for name in reconciled.plan.splits:
        reports = _reports(reconciled, name)
        lengths = tuple(report.file.stats.written for report in reports)
        splits[name] = SplitInfo(lengths, sum(report.file.size for report in reports))
    name, keys = dataset_name(config.name), supervised_keys(specs)
    files = {
        **label_files(specs, summary.class_names),
        "features.json": features_json(specs, summary),
        "dataset_info.json": dataset_info(name, version or _TFDS_VERSION, splits, keys),
    }
    if "objects" in schema.needs(settings.features.annotated):
        labels = settings.features.labels
        files[_LABEL_MAP] = label_map_text(labels.labels, labels.texts)
    return files


def _manifest(reconciled: Reconciled, config: DatasetConfig, provenance: Provenance) -> dict[str, Any]:
    plan, stats, summary = reconciled.plan, reconciled.stats, _summary(reconciled)
    schema, labels = plan.settings.schema, plan.settings.features.labels.labels
    lists = schema.list_specs(summary) if isinstance(schema, SequenceSchema) else {}
    return {
        "format_version": FORMAT_VERSION,
        "recordmill": package_version("recordmill"),
        "config": {**config.as_json(), "schema": schema.name},
        "config_digest": provenance.config_digest,
        "source": {**provenance.source, "digest": plan.digest},
        "counts": {
            "read": reconciled.read,
            "written": stats.written,
            "failed": sum(reconciled.failed.values()),
            "skipped": sum(reconciled.skipped.values()),
            **({"added": stats.added} if config.map_image is not None else {}),
        },
        "reasons": {"failed": _by_reason(reconciled.failed), "skipped": _by_reason(reconciled.skipped)},
        "bytes": {
            "source": stats.source_bytes,
            "encoded": stats.encoded_bytes,
            "shards": sum(report.file.size for report in reconciled.reports),
        },
        "actions": dict(sorted(stats.actions.items())),
        "formats": dict(sorted(stats.formats.items())),
        "alpha": {
            "images": stats.alpha_images,
            "bytes": stats.alpha_bytes,
            "flattened_bytes": stats.flattened_bytes,
        },
        "jpeg_qualities": {str(quality): count for quality, count in sorted(stats.qualities.items())},
        "splits": {name: _split(reconciled, name) for name in plan.splits},
        "classes": class_overview(reconciled.statistics, labels),
        "warnings": [one.as_json() for one in reconciled.warnings],
        "duplicates": reconciled.duplicates.counts(),
        "annotations": {
            "stored": dict(sorted(stats.annotations.items())),
            "changed": dict(sorted(stats.notes.items())),
        },
        "features": _described(_renamed(schema.specs(summary), config)),
        "feature_lists": _described(_renamed(lists, config)),
        "labels": {str(number): name for number, name in labels.items()},
        "provenance": {
            "runner": provenance.runner,
            "job": provenance.job,
            "started": provenance.started,
            "finished": utc_now(),
            "source_reason": provenance.source_reason,
            "reused_shards": sum(report.reused for report in reconciled.reports),
            "taken_over": _reused(reconciled),
            "work": {name: stats.work[name] for name in ("source_reads", "images", "masks")},
            "packages": {
                "python": platform.python_version(),
                **{package: package_version(package) for package in _PACKAGES},
                **codec_versions(),
            },
        },
    }


def _reused(reconciled: Reconciled) -> dict[str, object] | None:
    """What is reused of the previous version; None where there is none."""
    plan = reconciled.plan
    if not plan.previous_version and not plan.not_reused:
        return None
    return {
        "from": plan.previous_version,
        "records": reconciled.stats.reused,
        "shards": sum(report.from_previous for report in reconciled.reports),
        "reason": plan.not_reused,
    }


def _split(reconciled: Reconciled, name: str) -> dict[str, object]:
    num_shards = reconciled.num_shards[name]
    reports = _reports(reconciled, name)
    return {
        "records": sum(report.file.stats.written for report in reports),
        "shards": [
            {
                "file": f"{shard_name(name, report.shard, num_shards)}.tfrecord",
                "records": report.file.stats.written,
                "bytes": report.file.size,
                "sha256": report.file.sha256,
            }
            for report in reports
        ],
    }


def _by_reason(counts: Mapping[tuple[str, str], int]) -> list[dict[str, object]]:
    rows: Iterable[tuple[tuple[str, str], int]] = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return [{"stage": stage, "reason": reason, "count": count} for (stage, reason), count in rows]
