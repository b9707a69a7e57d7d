"""The plot of a sweep: size against SSIM, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.sweeping.results import FAINT, GROUPS, INK, PAPER, Group, Row, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]
"""Size and SSIM."""

WIDTH, HEIGHT, DPI = 1100, 1100, 100

_RC = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "recordmill",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "grid.color": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,
}
_SSIMS = [1, 0.9999, 0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.3, 0]
_LEAST_GAP = 0.045
_LABEL_SIZE = 9
# If raw pixels are larger than this multiple of the next largest size, they leave no room for other points.
_FARTHEST = 2.5


def render(sweep: Sweep) -> dict[str, bytes]:
    """Draws size against SSIM, a line for each group: above the mean SSIM, below that of the worst image.

    Returns:
        The bytes of `sweep.png` and `sweep.svg`; the SVG is the same for the same sweep.
    """
    import matplotlib.style

    rows = [row for row in sweep.rows if row.ssim_mean is not None and row.images]
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.style.context(["default", _RC]):
        figure = _figure(rows, sweep.images)
        return {
            "sweep.png": _saved(figure, format="png", dpi=DPI, metadata={"Software": None}),
            "sweep.svg": _saved(figure, format="svg", metadata=metadata),
        }


def _saved(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, facecolor=PAPER, **options)
    return out.getvalue()


def _figure(rows: Sequence[Row], images: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    counted = f"{images:,} image{'' if images == 1 else 's'}"
    figure.suptitle(f"Size and quality of {counted}, by setting", fontsize=14, x=0.01, ha="left")
    if not rows:
        figure.text(0.5, 0.5, "No setting's pixels could be compared.", ha="center", fontsize=14)
        return figure
    top, bottom = figure.subplots(2, 1)
    _draw(top, rows, worst=False)
    _draw(bottom, rows, worst=True)
    top.set_title("SSIM, mean of all images")
    bottom.set_title("SSIM of the worst image")
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw(axis: Axes, rows: Sequence[Row], worst: bool) -> None:
    """Draws one part of the plot. Raw pixels far to the right of the others become a label in the corner."""
    axis.set_xscale("log")
    axis.set_yscale("function", functions=(_stretched, _shrunk))
    has_ratios = all(row.ratio for row in rows)
    unit, digits = ("×", 1) if has_ratios else ("", 0)
    sizes = {row.setting.name: (row.ratio if has_ratios else row.bytes_per_image) or 0 for row in rows}
    largest = max((sizes[row.setting.name] for row in rows if row.setting.group != "pixels"), default=np.inf)
    points: list[Point] = []
    for name, group in GROUPS.items():
        mine: list[tuple[Row, Point]] = []
        for row in sorted(rows, key=lambda row: row.setting.value or 0):
            size, ssim = sizes[row.setting.name], row.ssim_worst if worst else row.ssim_mean
            if row.setting.group == name and ssim is not None:
                mine.append((row, (size, ssim)))
        if mine and name == "pixels" and mine[0][1][0] > _FARTHEST * largest:
            text = f"{mine[0][0].setting.name}: {mine[0][1][0]:,.{digits}f}{unit} →"
            style: dict[str, Any] = {"fontsize": _LABEL_SIZE, "color": group.color}
            axis.annotate(text, (1, 1), xycoords="axes fraction", ha="right", va="top", **style)
        elif mine:
            _draw_group(axis, group, mine)
            points += [point for _, point in mine]
    _set_ticks(axis, points, unit)
    axis.set_xlabel("TFRecord bytes for each byte of the files" if has_ratios else "TFRecord bytes an image")


def _draw_group(axis: Axes, group: Group, mine: Sequence[tuple[Row, Point]]) -> None:
    """Draws the points of a group, and the line through them.

    The points of a dashed line have no labels: each has the pixels, and so the SSIM, of a labelled point.
    """
    axis.plot(
        *zip(*(point for _, point in mine), strict=True),
        color=group.color,
        marker=group.marker,
        markersize=7,
        markerfacecolor=PAPER if group.dashed else group.color,
        linewidth=0 if mine[0][0].setting.value is None else 1.4,
        linestyle="--" if group.dashed else "-",
        label=group.label,
    )
    right, up = group.offset
    for number, (row, point) in enumerate(() if group.dashed else mine):
        value = row.setting.value
        # Settings without a value are close to each other: their labels alternate above and below.
        above = up if value is not None or number % 2 == 0 else -up
        axis.annotate(
            row.setting.name if value is None else f"≥{value}" if value <= 1 else f"q{value:g}",
            point,
            xytext=(right, above),
            textcoords="offset points",
            ha="left" if right > 0 else "right" if right < 0 else "center",
            va="bottom" if above > 0 else "top",
            fontsize=_LABEL_SIZE,
            color=group.color,
        )


def _stretched(ssim: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """A scale that separates 0.99 from 0.999, and includes 1."""
    loss = 1 - np.asarray(ssim, np.float64)
    stretched: npt.NDArray[np.float64] = -np.sign(loss) * np.sqrt(np.abs(loss))
    return stretched


def _shrunk(stretched: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The inverse of `_stretched`."""
    values = np.asarray(stretched, np.float64)
    ssim: npt.NDArray[np.float64] = 1 + np.sign(values) * values**2
    return ssim


def _set_ticks(axis: Axes, points: Sequence[Point], unit: str) -> None:
    """Limits with room for the labels, and ticks at round numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.margins(x=0.08)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.10g}{unit}"))
    axis.xaxis.set_minor_locator(NullLocator())

    stretched = _stretched(np.array([ssim for _, ssim in points]))
    span = max(float(np.ptp(stretched)), 0.02)
    bottom, top = float(stretched.min()) - 0.12 * span, float(stretched.max()) + 0.18 * span
    axis.set_ylim(float(_shrunk(np.array(bottom))), float(_shrunk(np.array(top))))
    kept: list[tuple[float, float]] = []
    for ssim in _SSIMS:
        at = float(_stretched(np.array(ssim)))
        if bottom <= at <= top and all(at < other - _LEAST_GAP * (top - bottom) for other, _ in kept):
            kept.append((at, ssim))
    axis.set_yticks([ssim for _, ssim in kept], labels=[f"{ssim:g}" for _, ssim in kept])
    axis.yaxis.set_minor_locator(NullLocator())
