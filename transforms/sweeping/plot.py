"""Size against quality: one picture of a sweep, as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.sweeping.labels import Label, place_labels
from recordmill.transforms.sweeping.palette import FAINT, INK, PAPER, STYLES
from recordmill.transforms.sweeping.results import Row, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DPI = 1100, 1100, 100

_RC = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "recordmill",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,
}
_SIZES = [digit * 10.0**power for power in range(-4, 9) for digit in (1, 1.5, 2, 3, 5, 7)]
_SSIMS = [1, 0.9999, 0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.3, 0]
_LEAST_GAP = 0.045
_LABEL_SIZE = 9
# Larger raw pixels, as a multiple of the next largest size, would leave no room for the other points.
_FARTHEST = 2.5


def render(sweep: Sweep) -> dict[str, bytes]:
    """Draws size against SSIM, a line a group: above the mean, below the worst image.

    Returns:
        The bytes of `sweep.png` and `sweep.svg`; the SVG is the same for the same sweep.
    """
    import matplotlib.style

    rows = [row for row in sweep.rows if row.ssim_mean is not None and row.images]
    with matplotlib.style.context(["default", _RC]):
        figure = _figure(rows, sweep.images)
        return {
            "sweep.png": _saved(figure, format="png", dpi=DPI, metadata={"Software": None}),
            "sweep.svg": _saved(
                figure,
                format="svg",
                metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            ),
        }


def _saved(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, facecolor=PAPER, **options)
    return out.getvalue()


def _figure(rows: Sequence[Row], images: int) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    canvas: Any = FigureCanvasAgg(figure)  # whose get_renderer has no types
    counted = f"{images:,} image{'' if images == 1 else 's'}"
    figure.suptitle(f"Size and quality of {counted}, by setting", fontsize=14, x=0.075, y=0.985, ha="left")
    axes = figure.subplots(2, 1)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.93, bottom=0.12, hspace=0.2)
    if not rows:
        for axis in axes:
            axis.set_axis_off()
        figure.text(0.5, 0.5, "No setting's pixels could be compared.", ha="center", fontsize=14)
        return figure
    within = [row for row in rows if not _is_outside(row, rows)]
    for axis, worst in zip(axes, (False, True), strict=True):
        _draw(axis, within, worst)
    axes[0].set_title("SSIM, mean of all images", loc="left", fontsize=11)
    axes[1].set_title("SSIM of the image that suffers most", loc="left", fontsize=11)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.53, 0.0))
    for axis in axes:
        _add_labels(axis, rows, axis is axes[1], canvas.get_renderer())
    return figure


def _draw(axis: Axes, rows: Sequence[Row], worst: bool) -> None:
    points = _points(rows, worst)
    axis.set_xscale("log")
    axis.set_yscale("function", functions=(_stretched, _shrunk))
    for group, style in STYLES.items():
        mine = [(row, point) for row, point in zip(rows, points, strict=True) if row.setting.group == group]
        if not mine:
            continue
        mine.sort(key=lambda pair: (pair[0].setting.value or 0, pair[1]))
        axis.plot(
            [point[0] for _, point in mine],
            [point[1] for _, point in mine],
            color=style.color,
            marker=style.marker,
            markersize=7,
            markerfacecolor=PAPER if style.dashed else style.color,
            linewidth=0 if mine[0][0].setting.value is None else 1.4,
            linestyle="--" if style.dashed else "-",
            label=style.label,
        )
    _set_limits(axis, points)
    axis.grid(color=FAINT, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_facecolor(PAPER)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.set_xlabel(
        "TFRecord bytes for each byte of the files" if _has_ratios(rows) else "TFRecord bytes an image"
    )


def _has_ratios(rows: Sequence[Row]) -> bool:
    return all(row.ratio for row in rows)


def _size(row: Row, rows: Sequence[Row]) -> float:
    size = row.ratio if _has_ratios(rows) else row.bytes_per_image
    assert size is not None, row
    return size


def _is_outside(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a row lies outside the plot, which then has only its label, at the right edge."""
    sizes = [_size(one, rows) for one in rows if one.setting.group != "pixels"]
    return bool(sizes) and _size(row, rows) > _FARTHEST * max(sizes)


def _points(rows: Sequence[Row], worst: bool) -> list[tuple[float, float]]:
    """Size and SSIM of each row."""
    points = []
    for row in rows:
        ssim = row.ssim_worst if worst else row.ssim_mean
        assert ssim is not None, row
        points.append((_size(row, rows), ssim))
    return points


def _label_text(row: Row, rows: Sequence[Row]) -> str:
    value, size = row.setting.value, _size(row, rows)
    if _is_outside(row, rows):
        return (
            f"{row.setting.name}: {size:,.1f}× →"
            if _has_ratios(rows)
            else f"{row.setting.name}: {size:,.0f} →"
        )
    return row.setting.name if value is None else (f"≥{value}" if value <= 1 else f"q{value:g}")


def _stretched(ssim: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """A scale on which 0.99 and 0.999 can be told apart, and 1 can be drawn."""
    loss = 1 - np.asarray(ssim, np.float64)
    stretched: npt.NDArray[np.float64] = -np.sign(loss) * np.sqrt(np.abs(loss))
    return stretched


def _shrunk(stretched: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The inverse of `_stretched`."""
    values = np.asarray(stretched, np.float64)
    ssim: npt.NDArray[np.float64] = 1 + np.sign(values) * values**2
    return ssim


def _set_limits(axis: Axes, points: Sequence[tuple[float, float]]) -> None:
    sizes = np.log10([size for size, _ in points])
    margin = max(0.08 * float(np.ptp(sizes)), 0.05)
    low, high = float(sizes.min()) - margin, float(sizes.max()) + margin
    axis.set_xlim(10**low, 10**high)
    unit = "×" if max(size for size, _ in points) < 1000 else ""
    places = [(np.log10(size), size, f"{size:,.10g}{unit}") for size in _SIZES]
    _set_ticks(axis.xaxis, places, low, high)

    losses = _stretched(np.array([ssim for _, ssim in points]))
    span = max(float(losses.max() - losses.min()), 0.02)
    # room for labels above what lost nothing, and below what lost most
    bottom, top = float(losses.min()) - 0.12 * span, float(losses.max()) + 0.18 * span
    axis.set_ylim(float(_shrunk(np.array(bottom))), float(_shrunk(np.array(top))))
    marks = [(float(_stretched(np.array(ssim))), ssim, f"{ssim:g}") for ssim in _SSIMS]
    _set_ticks(axis.yaxis, marks, bottom, top)


def _set_ticks(axis: Any, places: Sequence[tuple[float, float, str]], low: float, high: float) -> None:
    """Ticks of (place, value, text) that are within, and not too near to each other."""
    kept: list[tuple[float, float, str]] = []
    for place, value, text in places:
        far = all(abs(place - other) > _LEAST_GAP * (high - low) for other, _, _ in kept)
        if low <= place <= high and far:
            kept.append((place, value, text))
    axis.set_ticks([value for _, value, _ in kept], labels=[text for _, _, text in kept])
    axis.set_ticks([], minor=True)


def _add_labels(axis: Axes, rows: Sequence[Row], worst: bool, renderer: Any) -> None:
    labels = []
    box = axis.get_window_extent(renderer)
    for row, point in zip(rows, _points(rows, worst), strict=True):
        text, color = _label_text(row, rows), STYLES[row.setting.group].color
        drawn = axis.text(0, 0, text, fontsize=_LABEL_SIZE)
        extent = drawn.get_window_extent(renderer)
        drawn.remove()
        x, y = axis.transData.transform(point)
        x = min(x, box.x1)
        labels.append(Label(text, float(x), float(y), extent.width, extent.height, color))
    lines = [line for line in axis.lines if line.get_linewidth()]
    curves = [line.get_transform().transform(np.column_stack(line.get_data())) for line in lines]
    for label, place in zip(
        labels, place_labels(labels, curves, (box.x0, box.y0, box.x1, box.y1)), strict=True
    ):
        _write(axis, label, place)


def _write(axis: Axes, label: Label, place: tuple[float, float]) -> None:
    left, bottom = place
    points = 72 / DPI
    line = {"arrowstyle": "-", "color": label.color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    axis.annotate(
        label.text,
        tuple(axis.transData.inverted().transform((label.x, label.y))),
        xytext=((left - label.x + label.width / 2) * points, (bottom - label.y + label.height / 2) * points),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=_LABEL_SIZE,
        color=label.color,
        arrowprops=line if label.is_far(left, bottom) else None,
    )
