"""Sizes and shapes of images and boxes, as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.wording import (
    Rows,
    aspect_rows,
    box_count_rows,
    counted,
    side_rows,
    size_rows,
)
from recordmill.transforms.shards.statistics import Statistics
from recordmill.transforms.sweeping.markup import bars, escaped, joined


def together(statistics: Iterable[Statistics]) -> Statistics:
    """The figures of all splits as one."""
    found = Statistics()
    for one in statistics:
        found.merge(one)
    return found


def images(findings: Findings) -> str:
    """Sizes, aspect ratios and formats of the stored images; empty where there are none."""
    found = together(findings.statistics.values())
    if found.least is None or found.most is None:
        return ""
    formats = {} if findings.manifest is None else findings.manifest["formats"]
    told = ", ".join(f"{count:,} {escaped(name)}" for name, count in formats.items())
    lead = f"{counted(found.images, 'image')}{f', as stored: {told}' if told else ''}."
    if found.least == found.most:
        width, height = found.most
        of_size = f"{width:,} × {height:,} pixels"
        lead += f" All are {of_size}." if found.images > 1 else f" It is {of_size}."
        return f"<p>{lead}</p>\n"
    (width, height), (widest, highest) = found.least, found.most
    lead += f" The smallest is {width:,} × {height:,} pixels, the largest {widest:,} × {highest:,}."
    charts = (
        ("Width", "their width in pixels", size_rows(found.widths)),
        ("Height", "their height in pixels", size_rows(found.heights)),
        ("Aspect ratio", "width ÷ height; above 1 is wide", aspect_rows(found.aspects)),
    )
    return f"<p>{lead}</p>\n{_charts(charts, 'images')}"


def objects(findings: Findings) -> str:
    """Numbers, sizes and shapes of boxes, and what annotations are stored."""
    found = together(findings.statistics.values())
    parts = []
    stored = {} if findings.manifest is None else findings.manifest.get("annotations", {}).get("stored", {})
    if told := _stored(stored):
        parts.append(f"<p>Stored beside the images: {told}.</p>\n")
    if found.boxes_per_image:
        empty = found.boxes_per_image[0]
        boxes = counted(sum(found.box_sides.values()), "box", "boxes")
        lead = f"{boxes} in {counted(sum(found.boxes_per_image.values()), 'image')}"
        parts.append(f"<p>{lead}; {f'{empty:,} of them' if empty else 'none is'} without any.</p>\n")
        charts = (
            ("Boxes in an image", "", box_count_rows(found.boxes_per_image)),
            ("Box size", "the square root of their share of the image", side_rows(found.box_sides)),
            ("Box aspect ratio", "width ÷ height, in pixels", aspect_rows(found.box_aspects)),
        )
        parts.append(_charts(charts, "boxes"))
    return "".join(parts)


def _stored(stored: Mapping[str, int]) -> str:
    """What annotations are stored: `objects`, `images_without_objects`, else masks by what they are."""
    told = []
    for name, count in stored.items():
        noun = name if name.endswith("objects") else f"{name} masks"
        if count:
            told.append(f"{count:,} {escaped(noun.replace('_', ' '))}")
    return ", ".join(told)


def _charts(charts: Iterable[tuple[str, str, Rows]], noun: str) -> str:
    parts = []
    for title, unit, rows in charts:
        if rows:
            of = "images" if title == "Boxes in an image" else noun
            quiet = f'<p class="quiet">{of} by {unit}</p>' if unit else f'<p class="quiet">{of}</p>'
            parts.append(f"<div><h3>{title}</h3>\n{quiet}\n{bars(rows)}</div>")
    return f'<div class="histograms">\n{joined(parts)}</div>\n'
