"""sweep.html: the figures, the plot and the worst images next to each other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from recordmill.transforms.pages.histograms import quality_bars
from recordmill.transforms.pages.render import render_page
from recordmill.transforms.sweeping.results import COLUMNS, DARK, GROUPS, Crop, Sweep, remarks


def html_text(sweep: Sweep, svg: str) -> str:
    """The page; `svg` is the plot, as `plot.render` draws it."""
    from markupsafe import Markup

    svg = _inline(svg)
    drawing = Markup(svg)  # matplotlib escapes its texts  # nosec B704
    names = [row.setting.name for row in sweep.rows]
    groups = dict.fromkeys(row.setting.group for row in sweep.rows)
    return render_page(
        "sweep.html",
        sweep=sweep,
        columns=[("setting", ""), *((column.title, column.unit) for column in COLUMNS)],
        rows=[(row, [column.text(row) for column in COLUMNS]) for row in sweep.rows],
        drawing=drawing,
        dark=DARK,
        has_optimised=any(GROUPS[group].dashed for group in groups),
        qualities=[
            (row.setting.name, "", quality_bars(row.qualities)) for row in sweep.rows if row.qualities
        ],
        pictures=[
            _pictures([crop for crop in sweep.crops if crop.key == key], names)
            for key in dict.fromkeys(crop.key for crop in sweep.crops)
        ],
        meanings=[(GROUPS[group].label, GROUPS[group].meaning) for group in groups],
        remarks=remarks(sweep),
        flags=[(row.setting.name, row.setting.flags or "the defaults") for row in sweep.rows],
    )


def _inline(svg: str) -> str:
    """The plot as part of the page: without its prolog, in the colours of the page."""
    drawing = svg[svg.index("<svg") :].replace("<svg", '<svg role="img" aria-label="size against quality"', 1)
    return re.sub("|".join(DARK), lambda match: f"var(--plot-{match[0][1:]})", drawing)


def _pictures(crops: Sequence[Crop], names: Sequence[str]) -> tuple[Crop, list[Crop], list[list[Crop]]]:
    """The crops of an image: the first; those that look like the source; the others by picture.

    Args:
        crops: of the image.
        names: of the settings, in order.
    """
    order = {name: number for number, name in enumerate(names)}
    ordered = sorted(crops, key=lambda crop: order.get(crop.setting, len(order)))
    first = ordered[0]
    pictures: dict[tuple[bytes, float], list[Crop]] = {(first.source_png, 1.0): []}
    for crop in ordered:
        pictures.setdefault((crop.png, crop.ssim), []).append(crop)
    unchanged, *changed = pictures.values()
    return first, unchanged, changed
