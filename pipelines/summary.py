"""Prints the summary of a conversion, or of its plan."""

from __future__ import annotations

import datetime
import importlib.util
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from recordmill.pipelines.estimate import Estimate
from recordmill.pipelines.terminal import plain_console
from recordmill.transforms.pages.text import counted, share_text
from recordmill.transforms.shards.duplicates import Duplicates, first_groups
from recordmill.transforms.shards.overview import (
    DataWarning,
    class_texts,
    pixel_shares,
    quoted,
    source_facts,
)
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.storage.files import read_text
from recordmill.transforms.storage.layout import DATASET_INFO, DUPLICATES, LATEST, REPORT, REPORT_DATA
from recordmill.transforms.storage.versions import Version

# As measured on photographs with libjpeg-turbo, and with tf.io.decode_jpeg.
_PROGRESSIVE = "progressive JPEGs take 2.1 to 2.6 times as long as baseline JPEGs, each time they are read"
# Masks whose pixels are counted, as the manifest calls them.
_OF_CLASSES = frozenset(("class", "panoptic_category"))
# Classes of masks that have a line of their own.
_MOST_CLASSES = 10
# Characters of the longest bar of a histogram.
_BAR = 40
# Groups of duplicates that are shown.
_GROUPS = 3


def print_result(manifest_path: str) -> None:
    """Prints the table of a published dataset."""
    manifest: dict[str, Any] = json.loads(read_text(manifest_path))
    table = _table()
    version: str = manifest.get("version", "")
    if version:
        table.add_row("version", version)
    counts, size = manifest["counts"], manifest["bytes"]
    reason = manifest["provenance"].get("source_reason", "")
    _add_facts(table, source_facts(manifest["source"], reason))
    table.add_row("schema", manifest["config"]["schema"])
    _add_facts(table, class_texts(manifest.get("classes", {}), len(manifest["labels"])))
    folder = manifest_path.rpartition("/")[0] or "."
    for number, line in enumerate(_pixel_lines(folder, manifest)):
        table.add_row("" if number else "pixels", line)
    table.add_row("read", f"{counts['read']:,}")
    added = f" ({counts['added']:,} added by --map_image)" if counts.get("added") else ""
    table.add_row("written", f"{counts['written']:,}{added}")
    _add_reasons(table, "failed", counts["failed"], manifest["reasons"]["failed"])
    _add_reasons(table, "skipped", counts["skipped"], manifest["reasons"]["skipped"])
    if manifest["actions"]:
        actions = ", ".join(f"{name} {count:,}" for name, count in manifest["actions"].items())
        table.add_row("images", actions)
    _add_annotations(table, manifest["annotations"])
    if alpha := manifest["alpha"]["images"]:
        table.add_row("transparency", _alpha(alpha, manifest["alpha"]))
    if manifest["jpeg_qualities"]:
        _add_qualities(table, manifest["jpeg_qualities"])
    if manifest["config"]["optimize"] == "lossless-progressive" and "optimized" in manifest["actions"]:
        table.add_row("decoding", _PROGRESSIVE)
    ratio = f" ({size['encoded'] / size['source']:.2f} of the source's)" if size["source"] else ""
    table.add_row("bytes in", decimal(size["source"]))
    table.add_row("bytes out", f"{decimal(size['shards'])}; images {decimal(size['encoded'])}{ratio}")
    for name, split in manifest["splits"].items():
        shards = counted(len(split["shards"]), "shard")
        table.add_row(f"split {name}", f"{counted(split['records'], 'record')} in {shards}")
    if reused := manifest["provenance"]["reused_shards"]:
        table.add_row("reused", f"{counted(reused, 'shard')} finished before")
    _add_reused(table, manifest["provenance"])
    if DUPLICATES in manifest["files"]:
        _add_duplicates(table, Duplicates(**manifest["duplicates"]), f"{folder}/{DUPLICATES}")
    started, finished = (
        datetime.datetime.fromisoformat(manifest["provenance"][key]) for key in ("started", "finished")
    )
    table.add_row("time", str(finished - started))
    console = plain_console(soft_wrap=True)
    console.print(table)
    _print_warnings(console, manifest.get("warnings", ()))
    home = folder.removesuffix(version).removesuffix("/") if version else folder
    splits = manifest["splits"]
    split = "train" if "train" in splits else max(splits, key=lambda name: splits[name]["records"])
    shown = f" Its {REPORT} describes it." if REPORT in manifest["files"] else ""
    to_read = f"To read the version that {home}/{LATEST} names:" if version else "To read it:"
    console.print(f"The dataset is in {folder}/.{shown} {to_read}\n")
    console.print(_reading(home, folder, split, DATASET_INFO in manifest["files"]))


def _pixel_lines(folder: str, manifest: Mapping[str, Any]) -> list[str]:
    """The share of each class in the pixels of masks, and the number of its images; from report.json."""
    if _OF_CLASSES.isdisjoint(manifest["annotations"]["stored"]) or REPORT_DATA not in manifest["files"]:
        return []
    splits = json.loads(read_text(f"{folder}/{REPORT_DATA}"))["splits"]
    statistics = {name: Statistics.from_json(found) for name, found in splits.items()}
    shares = pixel_shares(statistics, {int(number): name for number, name in manifest["labels"].items()})
    classes, ignored = [one for one in shares if one.name], [one for one in shares if not one.name]
    shown, others = classes[:_MOST_CLASSES], classes[_MOST_CLASSES:]
    rows = [(one.share, f"{quoted(one.name)} in {counted(one.images, 'image')}") for one in shown]
    if others:
        rest = counted(len(others), "other class", "other classes")
        rows.append((sum(one.share for one in others), f"{rest}; {REPORT_DATA} has all"))
    rows += ((one.share, f"of all pixels are ignored, in {counted(one.images, 'image')}") for one in ignored)
    width = max(len(share_text(share)) for share, _ in rows) if rows else 0
    return [f"{share_text(share):>{width}}  {text}" for share, text in rows]


def _add_facts(table: Table, facts: Mapping[str, str]) -> None:
    for row in facts.items():
        table.add_row(*row)


def _add_duplicates(table: Table, found: Duplicates, path: str) -> None:
    """The number of groups of records with equal images, and the first of them."""
    table.add_row("duplicates", found.text)
    for group in first_groups(path, _GROUPS):
        table.add_row("", group.text)


def _print_warnings(console: Console, warnings: Sequence[Mapping[str, str]]) -> None:
    """Prints each warning on one line, so that a search finds it."""
    for one in warnings:
        console.print(f"WARNING: {DataWarning(**one).text}")


def print_unchanged(version: Version | None) -> None:
    """Prints that the job published no version after `version`."""
    plain_console(soft_wrap=True).print(f"Nothing has changed since version {version}: nothing is published.")


def _version(number: str) -> str:
    """A version by its number, which is empty if latest.json is damaged or missing."""
    return f"version {number}" if number else "a previous version"


def _add_reused(table: Table, provenance: dict[str, Any]) -> None:
    """The records reused from the previous version, or why none is; and the remaining work."""
    taken = provenance.get("taken_over")
    if taken is None:
        return
    if not taken["records"]:
        reason = taken["reason"] or "no unchanged image"
        table.add_row("reused", f"nothing of {_version(taken['from'])}: {reason}")
        return
    shards = f"; {counted(taken['shards'], 'complete shard')}" if taken["shards"] else ""
    table.add_row("reused", f"{counted(taken['records'], 'record')} of version {taken['from']}{shards}")
    work = provenance["work"]
    done = f"{counted(work['source_reads'], 'file')} of the source read, {counted(work['images'], 'image')}"
    masks = f" and {counted(work['masks'], 'mask')}" if work["masks"] else ""
    table.add_row("work", f"{done}{masks} prepared")


def _add_annotations(table: Table, annotations: dict[str, dict[str, int]]) -> None:
    """The stored and the changed annotations."""
    stored = {name: count for name, count in annotations["stored"].items() if count}
    if stored:
        text = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in stored.items())
        table.add_row("annotations", text)
    for number, (reason, count) in enumerate(annotations["changed"].items()):
        table.add_row("" if number or stored else "annotations", f"{count:,}  {reason}")


def _alpha(images: int, alpha: dict[str, int]) -> str:
    saved = alpha["bytes"] - alpha["flattened_bytes"]
    kept = f"{counted(images, 'image')} kept theirs, in {decimal(alpha['bytes'])}"
    return f"{kept}; --alpha flatten would save {decimal(saved)}" if saved > 0 else kept


def _add_qualities(table: Table, qualities: dict[str, int]) -> None:
    """A histogram of the chosen JPEG qualities, by tens."""
    by_range: Counter[str] = Counter()
    for quality, count in qualities.items():
        low = int(quality) // 10 * 10
        by_range["source kept" if quality == "0" else "100" if low == 100 else f"{low} to {low + 9}"] += count
    most = max(by_range.values())
    for index, (name, count) in enumerate(by_range.items()):
        bar = "#" * max(round(_BAR * count / most), 1)
        table.add_row("" if index else "JPEG quality", f"{name:<11}  {bar} {count:,}")


def print_plan(
    plan: dict[str, Any],
    source: Mapping[str, str],
    output: str,
    cost: Estimate | None = None,
    version: str = "",
) -> None:
    """Prints the plan of a job, and its cost on Dataflow.

    Args:
        plan: written by `WritePlan`.
        source: from `source_facts`.
        output: folder of the dataset, or of all its versions.
        cost: of the job; None if it is not billed.
        version: to publish; empty for a dataset without versions.
    """
    table = _table()
    if version:
        table.add_row("version", f"{version}, unless nothing has changed")
    _add_facts(table, source)
    table.add_row("schema", plan["schema"])
    if plan["classes"] or "segmentation" not in plan["schema"]:
        _add_facts(table, class_texts(plan["classes"], plan["labels"]))
    else:
        table.add_row("mask classes", "not counted: --plan does not read masks")
    table.add_row("records", f"{plan['records']:,}")
    for skipped, name in ((False, "failed"), (True, "skipped")):
        rows = [
            {"stage": stage, "reason": reason, "count": count}
            for is_skipped, stage, reason, count in plan["left_out"]
            if is_skipped == skipped
        ]
        _add_reasons(table, name, sum(row["count"] for row in rows), rows)
    if plan["repeated_keys"]:
        table.add_row("", f"{plan['repeated_keys']:,} keys are not unique: the job would fail")
    for name, (kind, shape) in plan["columns"].items():
        table.add_row(f"feature {name}", f"{kind} {_shape(shape)}")
    if any(plan["identify"].values()):
        _add_identify(table, plan["identify"])
    table.add_row("bytes in", decimal(plan["source_bytes"]))
    table.add_row("bytes out", f"about {decimal(plan['estimated_bytes'])}")
    if plan["not_reused"]:
        table.add_row("reused", f"nothing of {_version(plan['previous_version'])}: {plan['not_reused']}")
    elif plan["previous_version"]:
        table.add_row("reused", f"unchanged records of version {plan['previous_version']}")
    for name, split in plan["splits"].items():
        shards = counted(split["shards"], "shard") if split["shards"] else "shards of the runner's choice"
        counts = f"{counted(split['records'], 'record')} in {shards}"
        table.add_row(f"split {name}", f"{counts}, about {decimal(split['bytes'])}")
    if cost is not None:
        _add_cost(table, cost)
    console = plain_console(soft_wrap=True)
    console.print(table)
    _print_warnings(console, plan["warnings"])
    if cost is not None:
        console.print("These are estimates. They assume that")
        for line in cost.assumptions:
            console.print(f"- {line}")
        if version:
            console.print("- nothing is reused from a previous version")
    if plan["memory_warning"]:
        console.print(plan["memory_warning"])
    console.print(f"Nothing was written to {output}: this is the plan.")


def _add_identify(table: Table, work: Mapping[str, int]) -> None:
    """The work to find identical images, and its effect on the plan."""
    table.add_row(
        "copies",
        f"{counted(work['read'], 'image')} ({decimal(work['read_bytes'])}) to read before writing; "
        f"{work['listed']:,} have a hash in the listing, {work['cached']:,} were read by an earlier job",
    )
    if work["read"]:
        table.add_row("", "this plan treats each image that has to be read as if it had no copy")


def _add_cost(table: Table, cost: Estimate) -> None:
    workers = f"{counted(cost.workers, 'worker')} for about {_hours(cost.hours)}"
    table.add_row("worker hours", f"about {cost.worker_hours:,.2f}: {workers}")
    table.add_row(
        "cost",
        f"about ${cost.total:,.2f}: workers ${cost.compute:,.2f}, shuffle ${cost.shuffle:,.2f}, "
        f"requests ${cost.requests:,.2f}; to keep the dataset ${cost.stored:,.2f} a month",
    )


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 2 else counted(max(round(60 * hours), 1), "minute")


def _table() -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _add_reasons(table: Table, name: str, total: int, reasons: list[dict[str, Any]]) -> None:
    table.add_row(name, f"{total:,}")
    for row in reasons:
        table.add_row("", f"{row['count']:,}  {row['stage']}: {row['reason']}")


def _shape(shape: list[int | None]) -> str:
    if not shape:
        return "scalar"
    return "list" if shape[0] is None else f"list of {shape[0]}"


def _reading(home: str, folder: str, split: str, for_tfds: bool) -> str:
    """Code that reads a split with `load_dataset`, which finds the version, and with TFDS if possible."""
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    missing = "" if has_tensorflow else "  # TensorFlow: make setup, or pip install 'recordmill[tensorflow]'"
    lines = [
        f"    from recordmill import load_dataset{missing}",
        f"    dataset = load_dataset({home!r}, split={split!r})",
        "    print(next(iter(dataset)))\n",
    ]
    if for_tfds:
        lines += [
            "TensorFlow Datasets reads it too:\n",
            "    import tensorflow_datasets as tfds",
            f"    dataset = tfds.builder_from_directory({folder!r}).as_dataset(split={split!r})\n",
        ]
    return "\n".join(lines)
