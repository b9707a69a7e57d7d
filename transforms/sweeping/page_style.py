"""The style sheet of sweep.html."""

from __future__ import annotations

from recordmill.transforms.sweeping.groups import DARK

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #22262b; --quiet: #5b636d; --line: #d5d9de;
  --card: #f5f6f8; --bar: #0a5ca8; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e4e7eb; --quiet: #a3acb6;
  --line: #3a4149; --card: #1e2329; --bar: #6db0f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 24px 20px 64px; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 8px; }
h3 { font-size: 15px; margin: 28px 0 8px; }
p, li { max-width: 75ch; } .quiet, figcaption { color: var(--quiet); }
code { font: 12.5px/1.5 ui-monospace, Menlo, Consolas, monospace; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid var(--bar); }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: 14px;
  overflow-wrap: normal; }
th, td { padding: 4px 12px; text-align: right; white-space: nowrap; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); padding-left: 0; }
thead th { vertical-align: bottom; font-weight: 600; border-bottom: 2px solid var(--line); }
thead th span { display: block; font-weight: 400; color: var(--quiet); }
tbody th { font-weight: 400; } tbody tr.first > * { border-top: 1px solid var(--line); }
tbody tr:hover > * { background: var(--card); }
.plot { max-width: 1000px; } .plot svg { display: block; width: 100%; min-width: 760px; height: auto; }
.meanings { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; }
.meanings dt { font-weight: 600; } .meanings dd { margin: 0; max-width: 75ch; }
.histograms { display: flex; flex-wrap: wrap; gap: 0 48px; } .histograms > div { flex: 1 1 280px; }
.bars { display: grid; grid-template-columns: max-content 1fr; gap: 3px 10px; max-width: 520px;
  font-variant-numeric: tabular-nums; font-size: 13px; }
.bars span { text-align: right; white-space: nowrap; }
.bars div { display: flex; align-items: center; gap: 8px; }
.bars i { height: 12px; background: var(--bar); border-radius: 2px; }
.crops { display: flex; flex-wrap: wrap; gap: 20px 12px; align-items: flex-start; }
figure { margin: 0; width: calc(var(--w) * var(--zoom) * 1px); min-width: 120px; }
figure div { width: calc(var(--w) * var(--zoom) * 1px); height: calc(var(--h) * var(--zoom) * 1px);
  background-size: 100% 100%; image-rendering: pixelated; }
figure img { display: block; width: 100%; height: 100%; image-rendering: pixelated; }
figure div:hover > img, figure div:focus > img { opacity: 0; }
figcaption { font-size: 13px; line-height: 1.35; margin-top: 4px; overflow-wrap: break-word; }
figcaption b { color: var(--ink); }
@media (max-width: 760px) { body { padding: 16px 12px 48px; }
  .crops { --zoom: var(--small) !important; gap: 10px; }
  .meanings { grid-template-columns: 1fr; } .meanings dd { margin-bottom: 6px; } th, td { padding: 4px 8px; }
  th:first-child { min-width: 125px; white-space: normal; } }
"""


def plot_style() -> str:
    """The colours of the plot, as properties: one value on a light page, another on a dark one."""
    light = " ".join(f"{name(color)}: {color};" for color in DARK)
    dark = " ".join(f"{name(color)}: {DARK[color]};" for color in DARK)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def name(color: str) -> str:
    """The property that stands for a colour of the plot."""
    return f"--plot-{color[1:]}"
