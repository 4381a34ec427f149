"""Pictures of a run. One look for all: import colours and style from here.

matplotlib is loaded by the functions, not by importing this file, and drawn without a display (Agg).
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from recsys.report.curve import LearningCurve
from recsys.report.model import RunReport, Side

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart also by colour-blind readers.
COLORS: dict[str, str] = {"baseline": "#0072B2", "erase": "#D55E00", "floor": "#009E73", "quiet": "#767676"}
MARKERS: dict[str, str] = {"baseline": "o", "erase": "D"}
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so pictures are the same everywhere
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": COLORS["quiet"],
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.facecolor": "white",
}
SIZE_INCHES = (7.5, 4.4)
DPI = 150
_WARM_UP = 0.05  # share of the run whose NE, often far above 1, does not set the scale


def style() -> AbstractContextManager[None]:
    """The look of every picture, for the figures made inside ``with style():``."""
    import matplotlib as mpl

    return mpl.rc_context(cast(Any, STYLE))


def learning_curve_png(report: RunReport, curve: LearningCurve) -> bytes:
    """NE on validation rows over training rows seen, with the final NE on test rows and the floor; a PNG's bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw_learning_curve(figure.subplots(), report, curve)
        return _png(figure)


def draw_learning_curve(axes: Axes, report: RunReport, curve: LearningCurve) -> None:
    """Draw it into ``axes``; call inside ``with style():``."""
    from matplotlib.ticker import EngFormatter

    for side in report.sides:
        _draw_side(axes, side, report, curve)
    if report.bayes_ne is not None:
        axes.axhline(
            report.bayes_ne, color=COLORS["floor"], ls="--", lw=1.2, label=f"floor (Bayes), NE {report.bayes_ne:.4f}"
        )
    axes.set_ylim(*_ne_limits(report, curve))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel("training rows seen")
    axes.set_ylabel("normalized entropy (NE)")
    axes.set_title(_title(report))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right")


def _title(report: RunReport) -> str:
    if len(report.sides) == 1:
        return report.experiment
    title, gap = f"{report.experiment} against {report.baseline_name}", report.ne_gap_percent
    return title if gap is None else f"{title}: NE gap {gap:+.2f} %"


def _draw_side(axes: Axes, side: Side, report: RunReport, curve: LearningCurve) -> None:
    """The validation NE of one model while training, and a mark for its NE on the test rows."""
    color, ne, points = COLORS[side], report.side(side).ne, curve.side(side)
    label = report.label(side)
    defined = [(p.rows, p.ne) for p in points if p.ne is not None]
    if defined:
        axes.plot(*zip(*defined, strict=True), color=color, marker=".", label=f"{label}, validation rows")
    if ne is not None:
        end = curve.best_rows.get(side, points[-1].rows if points else 0)
        axes.plot(
            [end],
            [ne],
            MARKERS[side],
            color=color,
            mec="white",
            ms=7.5,
            clip_on=False,
            zorder=5,
            label=f"{label}, test rows: {ne:.4f}",
        )


def _ne_limits(report: RunReport, curve: LearningCurve) -> tuple[float, float]:
    points = [point for side in report.sides for point in curve.side(side) if point.ne is not None]
    last = max((point.rows for point in points), default=0)
    shown = [p.ne for p in points if p.ne is not None and p.rows >= _WARM_UP * last]
    shown += [ne for ne in (report.baseline.ne, report.erase.ne, report.bayes_ne) if ne is not None]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    margin = 0.08 * (high - low) or 0.05
    return low - margin, high + margin


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
