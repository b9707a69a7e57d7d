"""Sample pictures by class, and the same part of images before and after their encoding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from recordmill.transforms.reading.sheet import Part
from recordmill.transforms.reporting.findings import Crop
from recordmill.transforms.reporting.samples import Sample
from recordmill.transforms.reporting.wording import shown, size_text
from recordmill.transforms.sweeping.markup import data_uri, escaped, joined
from recordmill.transforms.sweeping.wording import ssim_text

# So many pictures of a class, on average, are worth a heading.
_MANY = 3
_MOST_PAIRS = 4
_MOST_TOLD = 8
_LONGEST_LABEL, _LONGEST_KEY = 60, 80


def pictures(samples: Sequence[Sample]) -> str:
    """Sample pictures; under the name of their class where each has several."""
    if not samples:
        return ""
    groups = [(name, list(found)) for name, found in itertools.groupby(samples, lambda one: one.group)]
    lead = "<p>Some records, spread over the shards, as they are stored; boxes and masks are drawn.</p>\n"
    if len(groups) == 1 or len(samples) < _MANY * len(groups):
        return lead + _grid(samples)
    return lead + "".join(
        f"<h3>{shown(name, _LONGEST_LABEL) if name else 'without a class'}</h3>\n{_grid(found, name)}"
        for name, found in groups
    )


def _grid(samples: Iterable[Sample], heading: str | None = None) -> str:
    figures = (_figure(sample, heading) for sample in samples)
    return f'<div class="samples">\n{joined(figures)}</div>\n'


def _figure(sample: Sample, heading: str | None) -> str:
    """A picture with its caption, which does not repeat the heading above it."""
    height, width = sample.pixels
    is_new = sample.told != ((None, heading),)
    told = " ".join(_part(part) for part in sample.told[:_MOST_TOLD]) if is_new else ""
    left = len(sample.told) - _MOST_TOLD
    told += f" and {left} more" if left > 0 else ""
    size = f" · {sample.size[1]:,} × {sample.size[0]:,}" if sample.size else ""
    names = ", ".join(text for _, text in sample.told[:_MOST_TOLD]) or sample.group or "no class"
    alt = f"{sample.key[:_LONGEST_KEY]}: {names[: _MOST_TOLD * _LONGEST_LABEL]}"
    return (
        f'<figure><img src="{data_uri(sample.picture, "jpeg")}" width="{width}" height="{height}" '
        f'alt="{escaped(alt)}"><figcaption>{f"<b>{told}</b><br>" if told else ""}'
        f"{shown(sample.key, _LONGEST_KEY)}<br>{shown(sample.split)}{size}</figcaption></figure>"
    )


def _part(part: Part) -> str:
    color, text = part
    swatch = f'<i class="swatch" style="background:rgb{color}"></i>' if color is not None else ""
    return f"<span>{swatch}{shown(text, _LONGEST_LABEL)}</span>"


def changes(crops: Sequence[Crop]) -> str:
    """Parts of re-encoded images, before and after, side by side."""
    if not crops:
        return ""
    lead = (
        "<p>The part of some images that their encoding has changed most, enlarged alike. SSIM and bytes are "
        "of the whole image.</p>\n"
    )
    return f'{lead}<div class="pairs">\n{joined(map(_pair, crops[:_MOST_PAIRS]))}</div>\n'


def _pair(crop: Crop) -> str:
    before = f"<b>before</b> {size_text(crop.source_bytes)}"
    after = f"<b>after</b> {size_text(crop.stored_bytes)}, SSIM {ssim_text(crop.ssim, '–')}"
    shots = "".join(
        f'<figure><img src="{data_uri(png)}" alt="{title}"><figcaption>{told}</figcaption></figure>'
        for png, title, told in ((crop.before, "before", before), (crop.after, "after", after))
    )
    return f'<div><h3>{shown(crop.key)}</h3>\n<div class="pair">{shots}</div></div>'
