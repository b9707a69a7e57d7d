"""report.html: what a dataset holds and how it was made.

The page does not depend on the time at which it is made: the same dataset has the same page.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.transforms.pages.histograms import (
    aspect_bars,
    box_count_bars,
    box_size_bars,
    quality_bars,
    side_bars,
)
from recordmill.transforms.pages.render import render_page
from recordmill.transforms.records import IGNORE
from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.samples import Sample
from recordmill.transforms.shards.overview import class_overview, class_texts, data_warnings, source_facts
from recordmill.transforms.shards.statistics import Statistics

MOST_CLASSES = 40
"""Classes that have a row of their own."""

# Classes have headings if they have so many samples on average.
_SAMPLES_UNDER_HEADING = 3

ACTIONS = {
    "kept": "stored byte for byte",
    "reencoded": "encoded again in the same format",
    "transcoded": "encoded in another format",
    "decoded": "stored as pixels",
    "optimized": "compressed better, with the same pixels",
    "resized": "stored in another size",
    "rotated": "turned as the EXIF orientation says",
    "flattened": "alpha laid on the background",
    "recolored": "stored with other colour channels",
    "srgb": "converted to sRGB",
    "first_frame": "animated; the first frame is stored",
    "coarse_enough": "already saved at the requested quality or below",
    "not_smaller": "kept, because encoding again would save nothing",
    "alpha_kept": "transparent, which the requested format cannot be",
    "ssim_missed": "no quality reaches the requested SSIM",
    "stripped": "stored without metadata",
    "optimize_differed": "not optimized, because pixels would change",
}
"""What was done to images, by the name under which the manifest counts it."""


class Cell(NamedTuple):
    """A class in a split; `width` is that of its bar, in per cent of the longest."""

    number: int
    share: float
    width: float
    images: int | None


class ClassRow(NamedTuple):
    """The cells of a class, by split; the last row may be for the number of `others` together."""

    name: str
    cells: list[Cell]
    others: int = 0


class Balance(NamedTuple):
    """The classes of one kind of annotation.

    Attributes:
        noun: what is counted: `label`, `object` or `pixel`.
        rows: of the largest classes, the largest first; empty if nothing is counted.
        most: name and count of the largest class.
        least: of the smallest class.
        missing: names of the classes that a split lacks, by split.
        unused: names of the classes that no split has.
        ignored: number of pixels with the ignore label, by split; empty if there are none.
        ignored_share: of all pixels.
        ignored_images: number of images that have such pixels.
    """

    title: str
    noun: str
    totals: Mapping[str, int]
    rows: Sequence[ClassRow]
    classes: int
    most: tuple[str, int]
    least: tuple[str, int]
    missing: Sequence[tuple[str, list[str]]]
    unused: Sequence[str]
    named: int
    has_images: bool = False
    ignored: Mapping[str, int] = {}
    ignored_share: float = 0.0
    ignored_images: int = 0
    ignore_label: int = IGNORE

    @property
    def times(self) -> str:
        """How many times as many the largest class has as the smallest."""
        ratio = self.most[1] / self.least[1]
        return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def class_balances(
    statistics: Mapping[str, Statistics], names: Mapping[int, str], is_merged: bool = False
) -> list[Balance]:
    """The balance of labels, objects and pixels; kinds that no split has are left out.

    If classes are merged in masks (`is_merged`), classes of labels and objects without pixels are left out.
    """
    found = [
        _balance("Labels of images", "label", {key: one.labels for key, one in statistics.items()}, names),
        _balance("Objects", "object", {key: one.objects for key, one in statistics.items()}, names),
        _pixel_balance(statistics, names, is_merged),
    ]
    return [one for one in found if one.rows or one.ignored]


def _pixel_balance(
    statistics: Mapping[str, Statistics], names: Mapping[int, str], is_merged: bool
) -> Balance:
    """Ignored pixels are counted separately. Id 0 is the background if only other ids have names."""
    counts = {split: one.pixels.copy() for split, one in statistics.items()}
    total = sum(found.total() for found in counts.values())
    ignored = {split: found.pop(IGNORE, 0) for split, found in counts.items()}
    names = {one: name for one, name in names.items() if one != IGNORE}
    if is_merged:
        of_others = set[int]().union(*({*one.labels, *one.objects} for one in statistics.values()))
        pixels = set[int]().union(*counts.values())
        names = {one: name for one, name in names.items() if one in pixels or one not in of_others}
    if names and 0 not in names and any(found[0] for found in counts.values()):
        names = {0: "background", **names}
    images = {split: one.pixel_images for split, one in statistics.items()}
    balance = _balance("Pixels of masks", "pixel", counts, names, images)
    if any(ignored.values()):
        seen = sum(found[IGNORE] for found in images.values())
        share = sum(ignored.values()) / total
        balance = balance._replace(ignored=ignored, ignored_share=share, ignored_images=seen)
    return balance


def _balance(
    title: str,
    noun: str,
    counts: Mapping[str, Counter[int]],
    names: Mapping[int, str],
    images: Mapping[str, Counter[int]] | None = None,
) -> Balance:
    """`counts` and `images` are by class id, by split."""
    total = sum(counts.values(), Counter[int]())
    order = sorted(total, key=lambda one: (-total[one], one))
    called = {one: names.get(one, str(one)) for one in (*order, *names)}
    missing = ((split, [called[one] for one in order if not found[one]]) for split, found in counts.items())
    most, least = ((called[one], total[one]) for one in (order[0], order[-1])) if order else (("", 0),) * 2
    return Balance(
        title,
        noun,
        totals={split: found.total() for split, found in counts.items()},
        rows=_rows(order, counts, called, images or {}),
        classes=len(order),
        most=most,
        least=least,
        missing=[(split, lacking) for split, lacking in missing if lacking],
        unused=[called[one] for one in names if not total[one]],
        named=len(names),
        has_images=bool(images),
    )


def _rows(
    order: Sequence[int],
    counts: Mapping[str, Counter[int]],
    called: Mapping[int, str],
    images: Mapping[str, Counter[int]],
) -> list[ClassRow]:
    shown, others = order[:MOST_CLASSES], order[MOST_CLASSES:]
    totals = {split: found.total() or 1 for split, found in counts.items()}
    longest = max((found[one] / totals[split] for split, found in counts.items() for one in shown), default=1)
    rows = []
    for one in shown:
        cells = []
        for split, found in counts.items():
            share = found[one] / totals[split]
            seen = images[split][one] if found[one] and split in images else None
            cells.append(Cell(found[one], share, 100 * share / longest, seen))
        rows.append(ClassRow(called[one], cells))
    if others:
        rest = {split: sum(found[one] for one in others) for split, found in counts.items()}
        cells = [Cell(count, count / totals[split], 0, None) for split, count in rest.items()]
        rows.append(ClassRow("", cells, len(others)))
    return rows


def html_text(findings: Findings) -> str:
    """The page; its last comment has room for its seal (`recordmill.transforms.storage.sealed.seal`)."""
    manifest = findings.manifest or {}
    total = Statistics()
    for one in findings.statistics.values():
        total.merge(one)
    return render_page(
        "report.html",
        findings=findings,
        total=total,
        records=total.records,
        facts=_facts(findings),
        warnings=data_warnings(findings.statistics, findings.labels, findings.duplicates),
        balances=class_balances(
            findings.statistics, findings.labels, bool(manifest.get("config", {}).get("mask_values"))
        ),
        stored=_stored(manifest.get("annotations", {}).get("stored", {})),
        formats=manifest.get("formats", {}),
        sample_groups=_sample_groups(findings.samples),
        **_outcome(findings),
        **_charts(total),
        **_changes(manifest),
        origins=_origins(manifest) if manifest else (),
    )


def _facts(findings: Findings) -> dict[str, str]:
    """Source, schema and classes, by title."""
    facts, manifest = {}, findings.manifest
    if manifest is not None:
        facts = source_facts(manifest["source"], manifest["provenance"].get("source_reason", ""))
        facts["schema"] = manifest["config"].get("schema", "?")
    classes = class_overview(findings.statistics, findings.labels)
    return {**facts, **class_texts(classes, len(findings.labels))}


def _outcome(findings: Findings) -> dict[str, Any]:
    """Title, meaning, reasons and failures, of records that were left out or changed."""
    manifest = findings.manifest
    if manifest is None:
        return {"left_out": ()}
    reasons, changed = manifest.get("reasons", {}), manifest.get("annotations", {}).get("changed", {})
    changes = [{"reason": reason, "count": count} for reason, count in changed.items()]
    kinds = (
        ("failed", "Failed", "Not in the dataset: they could not be used.", reasons.get("failed", ())),
        ("skipped", "Skipped", "Left out on purpose.", reasons.get("skipped", ())),
        ("changed", "Annotations that were changed", "Their records are in the dataset.", changes),
    )
    return {"left_out": [(*kind, findings.failures.get(name, ())) for name, *kind in kinds]}


def _changes(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes before and after, what was done to images, and the chosen qualities, as bars."""
    titles = {"source": "images in the source", "encoded": "images as stored", "shards": "shards"}
    size = manifest.get("bytes", {})
    actions = sorted(manifest.get("actions", {}).items(), key=lambda one: (-one[1], one[0]))
    qualities = manifest.get("jpeg_qualities") or {}
    return {
        "size_bars": [(title, size[name]) for name, title in titles.items() if size.get(name)],
        "actions": actions,
        "action_notes": ACTIONS,
        "qualities": quality_bars({int(quality): count for quality, count in qualities.items()}),
    }


def _charts(total: Statistics) -> dict[str, Any]:
    """Histograms of images and of boxes: title, caption and bars."""
    return {
        "image_charts": (
            ("Width", "images by width in pixels", side_bars(total.widths)),
            ("Height", "images by height in pixels", side_bars(total.heights)),
            ("Aspect ratio", "images by width ÷ height; above 1 is wide", aspect_bars(total.aspects)),
        ),
        "box_charts": (
            ("Boxes in an image", "images by number of boxes", box_count_bars(total.boxes_per_image)),
            ("Box size", "boxes by the root of their share of the image", box_size_bars(total.box_sides)),
            ("Box aspect ratio", "boxes by width ÷ height in pixels", aspect_bars(total.box_aspects)),
        ),
    }


def _stored(stored: Mapping[str, int]) -> list[tuple[str, int]]:
    """Stored annotations: objects, images without objects, or masks of some kind; and their number."""
    return [
        ((name if name.endswith("objects") else f"{name} masks").replace("_", " "), count)
        for name, count in stored.items()
        if count
    ]


def _sample_groups(samples: Sequence[Sample]) -> list[tuple[str | None, list[Sample]]]:
    """Samples under the name of their class, or all without a heading if classes have few."""
    groups = [(name, list(found)) for name, found in itertools.groupby(samples, lambda one: one.group)]
    if len(groups) == 1 or len(samples) < _SAMPLES_UNDER_HEADING * len(groups):
        return [(None, list(samples))]
    return [*groups]


def _origins(manifest: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Source, flags and packages; a heading and pairs each.

    The job and its time are only in the manifest: the same records have the same page.
    """
    facts = {
        f"source {name}" if name != "kind" else "source": one for name, one in manifest["source"].items()
    }
    facts |= {
        "version": manifest.get("version", ""),
        "recordmill": manifest["recordmill"],
        "configuration": manifest["config_digest"],
    }
    config = {name: value for name, value in manifest["config"].items() if value not in (None, {}, [])}
    parts = (
        ("", facts.items()),
        ("Configuration", sorted(config.items())),
        ("Packages", sorted(manifest["provenance"]["packages"].items())),
    )
    return [(title, [(name, _value(one)) for name, one in pairs if one != ""]) for title, pairs in parts]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
