"""The shards of a dataset, and how it was made: source, flags, runner, packages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.transforms.reporting.findings import Shard
from recordmill.transforms.reporting.wording import counted, shown
from recordmill.transforms.sweeping.markup import joined

_SHOWN_DIGITS = 12
_MOST_SHARDS = 1000
_MANY_SHARDS = 24
_LONGEST = 400


def shards(found: Sequence[Shard]) -> str:
    """The shards as a table, folded where there are many."""
    if not found:
        return ""
    rows = joined(_row(shard) for shard in found[:_MOST_SHARDS])
    table = (
        '<div class="scroll" tabindex="0"><table>\n<thead><tr><th scope="col">file</th>'
        '<th scope="col">split</th>'
        '<th scope="col">records</th><th scope="col">bytes</th><th scope="col">SHA-256</th></tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )
    left = len(found) - _MOST_SHARDS
    if left > 0:
        table += f'<p class="quiet">And {counted(left, "more shard")}.</p>\n'
    if len(found) <= _MANY_SHARDS:
        return table
    return f"<details><summary>{counted(len(found), 'shard')}</summary>\n{table}</details>\n"


def _row(shard: Shard) -> str:
    records = "–" if shard.records is None else f"{shard.records:,}"
    size = "not there" if shard.size is None else f"{shard.size:,}"
    digest = shard.sha256[:_SHOWN_DIGITS]
    told = f'<code title="{shown_digest(shard.sha256)}">{shown_digest(digest)}…</code>' if digest else "–"
    return (
        f'<tr><th scope="row">{shown(shard.file)}</th><td>{shown(shard.split)}</td><td>{records}</td>'
        f"<td>{size}</td><td>{told}</td></tr>"
    )


def shown_digest(digest: str) -> str:
    """Hex digits, and nothing else that a manifest might have in their place."""
    return "".join(letter for letter in digest if letter in "0123456789abcdef")


def provenance(manifest: Mapping[str, Any] | None) -> str:
    """Where it comes from and what was asked for; empty where no manifest tells.

    Which job made it, and when, is left to the manifest: the same records have the same page.
    """
    if manifest is None:
        return ""
    source, made = manifest["source"], manifest["provenance"]
    facts = {f"source {name}" if name != "kind" else "source": value for name, value in source.items()}
    facts |= {
        "version": manifest.get("version", ""),
        "recordmill": manifest["recordmill"],
        "configuration": manifest["config_digest"],
    }
    config = {name: value for name, value in manifest["config"].items() if value not in (None, {}, [])}
    return (
        f"{_facts(facts.items())}<h3>What was asked for</h3>\n{_facts(sorted(config.items()))}"
        f"<h3>Packages</h3>\n{_facts(sorted(made['packages'].items()))}"
    )


def _facts(facts: Iterable[tuple[str, Any]]) -> str:
    lines = [
        f"<dt>{shown(name)}</dt><dd><code>{_value(value)}</code></dd>" for name, value in facts if value != ""
    ]
    return f'<dl class="meanings">\n{joined(lines)}</dl>\n'


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown(text, _LONGEST)
