"""What was read, written, failed and why; and what the bytes became."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.transforms.records import Failure
from recordmill.transforms.reporting.findings import Findings
from recordmill.transforms.reporting.wording import ACTIONS, counted, quality_rows, shown, size_text
from recordmill.transforms.sweeping.markup import bars, escaped, joined

_KINDS = (
    ("failed", "Failed", "not in the dataset: they could not be used"),
    ("skipped", "Skipped", "left out on purpose"),
    ("changed", "Annotations that were changed", "their records are in the dataset"),
)
_LONGEST_DETAIL = 400
_PARTICULARS = '<th scope="col">particulars</th>'


def outcome(findings: Findings) -> str:
    """Counts, reasons, and the first failures by key."""
    manifest = findings.manifest
    records = sum(one.records for one in findings.statistics.values())
    tiles = (
        [("records", f"{records:,}", False)]
        if manifest is None
        else [
            (name, f"{manifest['counts'][name]:,}", name == "failed" and manifest["counts"][name] > 0)
            for name in ("read", "written", "failed", "skipped")
        ]
    )
    parts = [_tiles(tiles), _unreadable(findings)]
    if manifest is not None:
        if not manifest["counts"]["failed"]:
            parts.append("<p>Nothing failed.</p>\n")
        changed = [
            {"reason": reason, "count": count}
            for reason, count in manifest.get("annotations", {}).get("changed", {}).items()
        ]
        reasons = {**manifest.get("reasons", {}), "changed": changed}
        for kind, title, meaning in _KINDS:
            parts.append(_left_out(title, meaning, reasons.get(kind, ()), findings.failures.get(kind, ())))
    return "".join(parts)


def _tiles(tiles: Iterable[tuple[str, str, bool]]) -> str:
    drawn = "".join(
        f"<div{' class=bad' if bad else ''}><dt>{name}</dt><dd>{figure}</dd></div>"
        for name, figure, bad in tiles
    )
    return f'<dl class="tiles">{drawn}</dl>\n'


def _unreadable(findings: Findings) -> str:
    """What of the shards themselves could not be read."""
    lines = [f"{shown(name)}: {escaped(told)}" for name, told in findings.damages]
    lines += [
        f"{counted(count, 'record')}: {escaped(reason)}" for reason, count in sorted(findings.faults.items())
    ]
    if not lines:
        return ""
    listed = joined(f"<li>{line}</li>" for line in lines)
    return f'<p class="warning">Some of it could not be read back:</p>\n<ul>\n{listed}</ul>\n'


def _left_out(
    title: str, meaning: str, reasons: Sequence[Mapping[str, Any]], failures: Sequence[Failure]
) -> str:
    if not reasons and not failures:
        return ""
    total = sum(row["count"] for row in reasons)
    rows = joined(
        f'<tr><td class="number">{row["count"]:,}</td><th scope="row">{_reason(row)}</th></tr>'
        for row in reasons
    )
    table = (
        f'<table class="text reasons"><thead><tr><th scope="col">count</th><th scope="col">reason</th></tr>'
        f"</thead>\n<tbody>\n{rows}</tbody></table>\n"
    )
    return f"<h3>{title}: {total:,}</h3>\n<p>{meaning[0].upper()}{meaning[1:]}.</p>\n{table}" + _listed(
        failures, total
    )


def _reason(row: Mapping[str, Any]) -> str:
    stage = f"{escaped(row['stage'])}: " if row.get("stage") else ""
    return f"{stage}{escaped(row['reason'])}"


def _listed(failures: Sequence[Failure], total: int) -> str:
    """The first of them by key."""
    if not failures:
        return ""
    told = any(one.detail for one in failures)
    rows = joined(
        f'<tr><th scope="row">{shown(one.key)}</th><td>{escaped(one.stage)}: {escaped(one.reason)}</td>'
        f"{_particulars(one) if told else ''}</tr>"
        for one in failures
    )
    title = "Each of them" if len(failures) >= total else f"The first {len(failures)} of them by key"
    is_open = " open" if len(failures) <= 12 else ""
    return (
        f'<details{is_open}><summary>{title}</summary>\n<div class="scroll" tabindex="0">'
        '<table class="text"><thead><tr><th scope="col">key</th><th scope="col">reason</th>'
        f"{_PARTICULARS if told else ''}</tr></thead>\n"
        f"<tbody>\n{rows}</tbody></table></div></details>\n"
    )


def _particulars(failure: Failure) -> str:
    return f'<td class="why">{shown(failure.detail, _LONGEST_DETAIL) if failure.detail else ""}</td>'


def sizes(findings: Findings) -> str:
    """Bytes in the source, as stored, and of the shards; what was done to how many images."""
    manifest = findings.manifest
    if manifest is None:
        return ""
    size = manifest["bytes"]
    parts = []
    if size["source"]:
        ratio = size["encoded"] / size["source"]
        told = "as many bytes as" if ratio == 1 else f"{ratio:.3g} times the bytes that they have"
        parts.append(f"<p>The stored images take {told} in the source.</p>\n")
    titles = (("source", "images in the source"), ("encoded", "images as stored"), ("shards", "shards"))
    rows = [(title, size[name], size_text(size[name])) for name, title in titles if size[name]]
    parts.append(_size_bars(rows))
    if manifest["actions"]:
        actions = sorted(manifest["actions"].items(), key=lambda one: (-one[1], one[0]))
        parts.append(
            "<h3>What was done to images</h3>\n" + bars([(_action(*one), one[1]) for one in actions])
        )
    if manifest.get("jpeg_qualities"):
        parts.append(
            "\n<h3>JPEG qualities that were chosen</h3>\n<p>Images by the quality that each needed for the "
            "similarity asked for.</p>\n" + bars(quality_rows(manifest["jpeg_qualities"]))
        )
    return "".join(parts) + _alpha(manifest.get("alpha", {}))


def _size_bars(rows: Sequence[tuple[str, int, str]]) -> str:
    most = max((size for _, size, _ in rows), default=0) or 1
    drawn = "".join(
        f'<span>{title}</span><div><i style="width:{70 * size / most:.1f}%"></i>{told}</div>'
        for title, size, told in rows
    )
    return f'<div class="bars">{drawn}</div>\n'


def _action(name: str, _: int) -> str:
    meaning = ACTIONS.get(name)
    return f"{escaped(name)}<small>{meaning}</small>" if meaning else escaped(name)


def _alpha(alpha: Mapping[str, int]) -> str:
    if not alpha.get("images"):
        return ""
    saved = alpha["bytes"] - alpha["flattened_bytes"]
    told = f"<p>{counted(alpha['images'], 'image')} kept their transparency, in {size_text(alpha['bytes'])}"
    cost = f"; <code>--alpha flatten</code> would save {size_text(saved)}" if saved > 0 else ""
    return f"\n<h3>Transparency</h3>\n{told}{cost}.</p>\n"
