"""The forest plot: a gap with its interval for each experiment, and the single folds behind it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from recsys.compare.result import Comparison, Gap
from recsys.report.plots import COLORS, DPI, SIZE_INCHES, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_INCHES = 0.55
_REST_INCHES = 1.8


def forest_png(comparison: Comparison) -> bytes:
    """The picture as a PNG's bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style():
        height = _REST_INCHES + _ROW_INCHES * len(comparison.gaps)
        figure = Figure(figsize=(SIZE_INCHES[0], height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw_forest(figure.subplots(), comparison)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        return buffer.getvalue()


def draw_forest(axes: Axes, comparison: Comparison) -> None:
    """Draw it into ``axes``, the first experiment on top; call inside ``with style():``."""
    margin = comparison.margin
    axes.axvspan(-margin, margin, color=COLORS["floor"], alpha=0.15, lw=0, label=f"margin, {margin:g} %")
    axes.axvline(0, color=COLORS["quiet"], lw=1)
    for position, gap in enumerate(comparison.gaps):
        _draw_gap(axes, position, gap, labelled=position == 0)
    names = [f"{gap.label}\n{gap.verdict.word}" for gap in comparison.gaps]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("NE gap in percent; left is better")
    axes.set_title(f"NE gap to {comparison.reference}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=4)


def _draw_gap(axes: Axes, position: int, gap: Gap, *, labelled: bool) -> None:
    def label(text: str) -> str | None:
        return text if labelled else None

    if gap.wide_interval is not None:
        axes.plot(gap.wide_interval, [position] * 2, color=COLORS["erase"], lw=1, ls=":", label=label("wide interval"))
    axes.plot(gap.interval, [position] * 2, color=COLORS["erase"], lw=2.2, label=label("95 % interval"))
    axes.plot([gap.mean], [position], "D", color=COLORS["erase"], mec="white", ms=7.5, zorder=5)
    # A point for each replicate that the interval is made of: folds, or with one split the seeds.
    points = [sum(fold) / len(fold) for fold in gap.values] if len(gap.values) > 1 else gap.values[0]
    what = "folds" if len(gap.values) > 1 else "seeds"
    axes.plot(
        points, [position + 0.22] * len(points), "o", color=COLORS["quiet"], ms=3.5, alpha=0.7, lw=0, label=label(what)
    )
