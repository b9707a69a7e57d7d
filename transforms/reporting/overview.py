"""The overview of a dataset: its source, schema, classes and splits, and warnings."""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.wording import counted, shown
from recordmill.transforms.shards.class_overview import class_overview, class_texts, source_facts
from recordmill.transforms.shards.plausibility import data_warnings
from recordmill.transforms.sweeping.markup import joined

_LONGEST = 1000


def overview(findings: Findings) -> str:
    """Source, schema, classes and splits as a list, and the warnings."""
    facts = joined(f"<dt>{title}</dt><dd>{text}</dd>" for title, text in _facts(findings))
    warnings = joined(
        f'<p class="warning"><b>{shown(one.found, _LONGEST)}.</b> {shown(one.check, _LONGEST)}.</p>'
        for one in data_warnings(findings.statistics, findings.labels)
    )
    return f'<dl class="meanings">\n{facts}</dl>\n{warnings}'


def _facts(findings: Findings) -> Iterator[tuple[str, str]]:
    """Titles and texts, as HTML."""
    manifest = findings.manifest
    if manifest is not None:
        reason = manifest["provenance"].get("source_reason", "")
        for title, text in source_facts(manifest["source"], reason).items():
            yield title, shown(text, _LONGEST)
        yield "schema", shown(manifest["config"].get("schema", "?"))
    classes = class_overview(findings.statistics, findings.labels)
    for title, text in class_texts(classes, len(findings.labels)).items():
        yield title, shown(text, _LONGEST)
    splits = (f"{shown(name)} {counted(one.records, 'record')}" for name, one in findings.statistics.items())
    yield "splits", ", ".join(splits)
