"""What the learning curve shows."""

from __future__ import annotations

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recsys.report import LearningCurve, RunReport
from recsys.report.plots import COLORS, draw_learning_curve, learning_curve_png, style


def draw(report: RunReport, curve: LearningCurve) -> Axes:
    with style():
        axes = Figure().subplots()
        draw_learning_curve(axes, report, curve)
    assert isinstance(axes, Axes)
    return axes


def legend(axes: Axes) -> list[str]:
    shown = axes.get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


def xs(axes: Axes, line: int) -> list[float]:
    return np.asarray(axes.lines[line].get_xdata()).tolist()


def test_lines_labels_and_colours(report: RunReport, curve: LearningCurve) -> None:
    axes = draw(report, curve)
    assert legend(axes) == [
        "baseline6 (sequential), validation rows",
        "baseline6 (sequential), test rows: 0.8000",
        "erase6 (erase), validation rows",
        "erase6 (erase), test rows: 0.8040",
        "floor (Bayes), NE 0.7500",
    ]
    colors = [line.get_color() for line in axes.lines]
    assert colors == [COLORS[key] for key in ("baseline", "baseline", "erase", "erase", "floor")]
    assert xs(axes, 0) == [100, 2000, 4000]
    assert xs(axes, 3) == [4000]
    assert axes.get_title(loc="left") == "erase6 against baseline6: NE gap +0.50 %"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training rows seen", "normalized entropy (NE)")


def test_the_test_mark_stands_where_the_reported_state_was(report: RunReport, curve: LearningCurve) -> None:
    axes = draw(report, dataclasses.replace(curve, best_rows={"baseline": 2000}))
    assert (xs(axes, 1), xs(axes, 3)) == ([2000], [4000])


def test_warm_up_does_not_set_the_scale(report: RunReport, curve: LearningCurve) -> None:
    low, high = draw(report, curve).get_ylim()
    assert low < 0.75
    assert 0.91 < high < 1.0


def test_without_floor_and_without_ne(report: RunReport, curve: LearningCurve) -> None:
    undefined = dataclasses.replace(report.erase, ne=None)
    axes = draw(dataclasses.replace(report, bayes_ne=None, erase=undefined), curve)
    assert [label for label in legend(axes) if "floor" in label or "erase6 (erase), test" in label] == []
    assert axes.get_title(loc="left") == "erase6 against baseline6"


def test_run_without_a_curve(report: RunReport) -> None:
    assert len(draw(report, LearningCurve()).lines) == 3


@pytest.mark.parametrize("bayes_ne", [None, 0.7])
def test_style_does_not_leak(report: RunReport, curve: LearningCurve, bayes_ne: float | None) -> None:
    before = dict(mpl.rcParams)
    learning_curve_png(dataclasses.replace(report, bayes_ne=bayes_ne), curve)
    assert dict(mpl.rcParams) == before
