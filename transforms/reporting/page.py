"""report.html: what is in a dataset and how it came to be, in one file that fetches nothing.

Every text of the data goes through html.escape; the page's own policy forbids scripts and requests. It tells
nothing of the time at which it is made, so that a dataset has one page.
"""

from __future__ import annotations

from recordmill.transforms.reporting.balance import balance, pixel_balance
from recordmill.transforms.reporting.figures import images, objects
from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.origin import provenance, shards
from recordmill.transforms.reporting.outcome import outcome, sizes
from recordmill.transforms.reporting.overview import overview
from recordmill.transforms.reporting.page_style import STYLE
from recordmill.transforms.reporting.pictures import changes, pictures
from recordmill.transforms.reporting.wording import counted, shown, size_text
from recordmill.transforms.sweeping.markup import document

_SEAL = f"<!-- seal: {'0' * 64} -->"


def html_text(findings: Findings) -> str:
    """The page; its last comment has room for its seal (`recordmill.transforms.storage.sealed.seal`)."""
    sections = {
        "overview": ("Overview", overview(findings)),
        "outcome": ("Read and written", outcome(findings)),
        "size": ("Size before and after", sizes(findings)),
        "classes": ("Class balance", _classes(findings)),
        "images": ("Images", images(findings)),
        "objects": ("Objects and masks", objects(findings)),
        "samples": ("Samples", pictures(findings.samples)),
        "changes": ("Before and after encoding", changes(findings.crops)),
        "shards": ("Shards", shards(findings.shards)),
        "origin": ("How it was made", provenance(findings.manifest)),
    }
    there = {name: found for name, found in sections.items() if found[1]}
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in there.items())
    parts = [
        f"<h1>{shown(findings.name)}</h1>\n{_lead(findings)}",
        f'<nav aria-label="on this page">{links}</nav>',
        *(
            f'<section id="{name}">\n<h2>{title}</h2>\n{body}</section>'
            for name, (title, body) in there.items()
        ),
        _SEAL,
    ]
    return document(f"Dataset {findings.name}", STYLE, parts)


def _lead(findings: Findings) -> str:
    records = sum(one.records for one in findings.statistics.values())
    size = sum(shard.size or 0 for shard in findings.shards)
    shards = f"{counted(len(findings.shards), 'shard')} of {size_text(size)}"
    return f'<p class="quiet">{counted(records, "record")} · {shards}</p>'


def _classes(findings: Findings) -> str:
    statistics = findings.statistics
    labels = {split: one.labels for split, one in statistics.items()}
    found = {split: one.objects for split, one in statistics.items()}
    parts = (
        balance("Labels of images", "label", labels, findings.labels),
        balance("Objects", "object", found, findings.labels),
        pixel_balance(statistics, findings.labels),
    )
    return "".join(parts)
