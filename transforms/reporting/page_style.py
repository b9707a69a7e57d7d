"""The style sheet of report.html: that of the sweep's page, and what it does not have."""

from __future__ import annotations

from recordmill.transforms.sweeping.page_style import STYLE as SHARED

STYLE = (
    SHARED
    + """
:root { --warn: #8a4b00; --warn-card: #fff4e0; }
@media (prefers-color-scheme: dark) { :root { --warn: #ffc46b; --warn-card: #33270f; } }
a { color: var(--bar); } nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 16px 0 0; }
h1 bdi, h3 bdi, .meanings dd, .warning { overflow-wrap: anywhere; } section { scroll-margin-top: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 320px)); gap: 10px;
  margin: 20px 0 0; }
.tiles div { background: var(--card); border-radius: 6px; padding: 10px 14px; }
.tiles dt { color: var(--quiet); font-size: 13px; }
.tiles dd { margin: 0; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles .bad { background: var(--warn-card); } .tiles .bad dd { color: var(--warn); }
.warning { color: var(--warn); background: var(--warn-card); padding: 6px 12px; border-radius: 6px; }
.text td { text-align: left; white-space: normal; overflow-wrap: anywhere; vertical-align: top;
  min-width: 130px; }
.text th { vertical-align: top; text-align: left; }
.text.reasons thead th:first-child, .text.reasons td.number { text-align: right; min-width: 60px;
  padding-left: 0; }
.text tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 150px; max-width: 420px; }
.text td.why { min-width: 220px; }
.balance { width: 100%; max-width: 960px; } .balance td { min-width: 180px; }
.balance tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 90px; max-width: 260px; }
.balance thead th:not(:first-child) { text-align: left; }
.share { display: grid; grid-template-columns: 1fr 58px 74px; gap: 8px; align-items: center; }
.share i { display: block; height: 12px; background: var(--bar); border-radius: 2px; }
.share b { font-weight: 500; } .share span { color: var(--quiet); font-size: 13px; }
.wide td { min-width: 320px; } .wide .share { grid-template-columns: 1fr 100px 74px 104px; }
.share small { color: var(--quiet); font-size: 13px; }
.none b, .none span { color: var(--warn); }
.bars div { min-width: 0; white-space: nowrap; } .bars i { flex: none; }
.bars small { display: block; color: var(--quiet); line-height: 1.3; }
.bars span:has(small) { padding-bottom: 5px; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 18px 14px; }
.samples figure { width: auto; min-width: 0; }
.samples img { width: auto; max-width: 100%; height: auto; image-rendering: auto; border-radius: 3px; }
.samples figcaption span { display: inline-block; max-width: 100%; white-space: normal;
  overflow-wrap: anywhere; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 4px; }
.pair { display: flex; flex-wrap: wrap; gap: 12px; --zoom: 2; } .pairs { display: grid; gap: 18px 32px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 560px), 1fr)); }
.pair figure { width: calc(50% - 6px); max-width: 320px; min-width: 0; }
.pair img { width: 100%; height: auto; image-rendering: pixelated; }
details > summary { cursor: pointer; margin: 8px 0; } code { overflow-wrap: anywhere; }
@media (max-width: 760px) { .samples { grid-template-columns: repeat(auto-fill, minmax(140px, 1fr));
  gap: 12px 8px; }
  .balance td { min-width: 96px; } .share, .wide .share { grid-template-columns: 1fr auto; gap: 0 6px; }
  .share div { grid-column: 1 / -1; order: 1; } .share span { text-align: right; }
  .share b { text-align: left; }
  .balance tbody th { max-width: 130px; } .text th:first-child { position: static; }
  .text tbody th { max-width: 200px; } .tiles { grid-template-columns: 1fr 1fr; } }
@media print { body { max-width: none; padding: 0; } nav { display: none; }
  .scroll { overflow: visible; } figure, tr, .tiles div { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .samples { grid-template-columns: repeat(5, 1fr); }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
)
