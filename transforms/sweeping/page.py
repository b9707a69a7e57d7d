"""sweep.html: the figures, the plot and the worst images side by side, in one file that fetches nothing.

Every text goes through html.escape; pictures are data: URIs, and the page's own policy forbids all else.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from recordmill.transforms.sweeping.groups import DARK, GROUPS
from recordmill.transforms.sweeping.markup import bars, data_uri, document, escaped, joined
from recordmill.transforms.sweeping.page_style import STYLE, name, plot_style
from recordmill.transforms.sweeping.results import Crop, Row, Sweep
from recordmill.transforms.sweeping.wording import (
    groups,
    quality_bins,
    rate_text,
    remarks,
    ssim_text,
)

_COLUMNS = (
    ("setting", ""),
    ("TFRecord", "bytes"),
    ("ratio", "to the files"),
    ("an image", "bytes"),
    ("encode", "images/s"),
    ("decode", "images/s"),
    ("SSIM", "mean"),
    ("SSIM", "worst"),
    ("PSNR", "dB"),
)
_NONE = "–"
_SHOWN_SIDE, _SMALL_SIDE = 320, 160


def html_text(sweep: Sweep, svg: str) -> str:
    """The page.

    Args:
        sweep: what was found.
        svg: the plot, as `plot.render` draws it.
    """
    images = f"{sweep.images:,} image{'' if sweep.images == 1 else 's'}"
    parts = [
        f"<h1>What each setting costs: {images}</h1>",
        f'<p class="quiet">{escaped(sweep.source_kind)} <code>{escaped(sweep.input)}</code>, '
        f"measured {escaped(sweep.started)}</p>",
        _failures(sweep),
        _table(sweep.rows),
        f'<h2>Size and quality</h2>\n<div class="scroll plot" tabindex="0">{_inline(svg)}</div>',
        _histograms(sweep.rows),
        _worst(sweep.crops, [row.setting.name for row in sweep.rows]),
        _meanings(sweep),
    ]
    return document(f"Sweep: {images}", plot_style() + STYLE, parts)


def _failures(sweep: Sweep) -> str:
    if not sweep.failures:
        return ""
    rows = "".join(
        f"<li>{count:,}: {escaped(reason)}</li>" for reason, count in sorted(sweep.failures.items())
    )
    return f"<p>Not measured, because they could not be read:</p>\n<ul>{rows}</ul>"


def _table(rows: Sequence[Row]) -> str:
    head = "".join(
        f'<th scope="col">{title}{f"<span>{unit}</span>" if unit else ""}</th>' for title, unit in _COLUMNS
    )
    lines = []
    for before, row in zip(itertools.chain([None], rows), rows, strict=False):
        first = before is None or before.setting.group != row.setting.group
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(row))
        lines.append(
            f'<tr{" class=first" if first else ""}><th scope="row">{escaped(row.setting.name)}'
            f"{_refused(row)}</th>{cells}</tr>"
        )
    body = "\n".join(lines)
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _refused(row: Row) -> str:
    return f' <span class="quiet">({row.failed:,} refused)</span>' if row.failed else ""


def _cells(row: Row) -> list[str]:
    return [
        f"{row.tfrecord_bytes:,}",
        _number(row.ratio, "{:.3f}"),
        _number(row.bytes_per_image, "{:,.0f}"),
        rate_text(row.encode_rate, _NONE),
        rate_text(row.decode_rate, _NONE),
        ssim_text(row.ssim_mean, _NONE),
        ssim_text(row.ssim_worst, _NONE),
        _number(row.psnr_mean, "{:.1f}"),
    ]


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else form.format(value)


def _inline(svg: str) -> str:
    """The plot as part of the page: without its prolog, and in the colours of the page."""
    drawing = svg[svg.index("<svg") :].replace("<svg", '<svg role="img" aria-label="size against quality"', 1)
    colors = re.compile("|".join(DARK))
    return colors.sub(lambda match: f"var({name(match[0])})", drawing)


def _histograms(rows: Sequence[Row]) -> str:
    parts = []
    for row in rows:
        bins = quality_bins(row)
        if not bins:
            continue
        parts.append(f"<div><h3>{escaped(row.setting.name)}</h3>\n{bars(bins)}</div>")
    if not parts:
        return ""
    return (
        "<h2>JPEG qualities that were chosen</h2>\n<p>Images by the quality that each needed.</p>\n"
        f'<div class="histograms">\n{joined(parts)}</div>'
    )


def _worst(crops: Sequence[Crop], names: Sequence[str]) -> str:
    if not crops:
        return ""
    order = {setting: place for place, setting in enumerate(names)}
    parts = [
        "<h2>The images that suffer most</h2>",
        "<p>The same part of each image at every setting, its pixels enlarged alike; settings whose pictures "
        "are the same share one. Point at a picture, or tap it, to see the source in its place. "
        "SSIM and bytes are of the whole image.</p>",
    ]
    for place, key in enumerate(dict.fromkeys(crop.key for crop in crops)):
        mine = [crop for crop in crops if crop.key == key]
        mine.sort(key=lambda crop: order.get(crop.setting, len(order)))
        parts.append(_image(place, mine))
    return "\n".join(parts)


def _image(place: int, crops: Sequence[Crop]) -> str:
    first = crops[0]
    top, left, height, width = first.box
    longest = max(height, width, 1)
    zoom, small = max(_SHOWN_SIDE // longest, 1), max(_SMALL_SIDE // longest, 1)
    source = data_uri(first.source_png)
    pictures: dict[tuple[bytes, float], list[Crop]] = {(first.source_png, 1.0): []}
    for crop in crops:
        pictures.setdefault((crop.png, crop.ssim), []).append(crop)
    (_, unchanged), *changed = pictures.items()
    box = f"{width} × {height} pixels from ({left}, {top})"
    figures = [_figure("", source, f"<b>source</b><br>{box}{_caption(unchanged)}")]
    for (png, ssim), same in changed:
        caption = f"SSIM {ssim_text(ssim, _NONE)}{_caption(same)}"
        figures.append(_figure(f"source-{place}", data_uri(png), caption))
    scale = f"--w:{width};--h:{height};--zoom:{zoom};--small:{small}"
    return (
        f"<h3>{escaped(first.key)}</h3>\n"
        f"<style>.source-{place} {{ background-image: url({source}) }}</style>\n"
        f'<div class="crops" style="{scale}">\n{joined(figures)}</div>'
    )


def _caption(crops: Sequence[Crop]) -> str:
    return "".join(f"<br><b>{escaped(crop.setting)}</b> {crop.image_bytes:,}&nbsp;bytes" for crop in crops)


def _figure(backdrop: str, uri: str, caption: str) -> str:
    shown = f' class="{backdrop}" tabindex="0"' if backdrop else ""
    return f'<figure><div{shown}><img src="{uri}" alt=""></div><figcaption>{caption}</figcaption></figure>'


def _meanings(sweep: Sweep) -> str:
    meanings = [
        f"<dt>{escaped(GROUPS[group].label)}</dt><dd>{escaped(GROUPS[group].meaning)}</dd>"
        for group in groups(sweep.rows)
    ]
    flags = [
        f"<dt>{escaped(setting.name)}</dt><dd><code>{escaped(setting.flags) or 'the defaults'}</code></dd>"
        for setting in (row.setting for row in sweep.rows)
    ]
    versions = ", ".join(
        f"{escaped(title)} {escaped(version)}" for title, version in sorted(sweep.packages.items())
    )
    return "\n".join(
        (
            f'<h2>What the settings mean</h2>\n<dl class="meanings">\n{joined(meanings)}</dl>',
            f"<ul>\n{joined(f'<li>{escaped(remark)}</li>' for remark in remarks(sweep))}</ul>",
            "<h2>How to convert so</h2>\n<p>The flags of <code>recordmill convert</code>:</p>",
            f'<dl class="meanings">\n{joined(flags)}</dl>',
            f'<p class="quiet">Made with {versions}</p>' if versions else "",
        )
    )
