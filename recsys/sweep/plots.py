"""Pictures of a sweep: NE gap over speed with the Pareto front, and both figures of each job."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from recsys.report.plots import COLORS, DPI, SIZE_INCHES, style
from recsys.sweep.results import Job, SweepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES_A_JOB = 0.2
_LONGEST_LABEL = 60


def pareto_png(result: SweepResult) -> bytes:
    """Every finished job as a point, those that no other one beats joined and named; a PNG's bytes."""
    known = _known(result)
    by_number = {job.number: job for job in known}
    front = [by_number[number] for number in result.front]
    with style():
        figure = _figure(SIZE_INCHES)
        axes = figure.subplots()
        axes.scatter(*_points(known), color=COLORS["quiet"], s=22, label=f"{len(known)} jobs")
        axes.plot(*_points(front), color=COLORS["erase"], marker="D", ms=5, label="no other job beats these in both")
        for job in front:
            axes.annotate(
                _short(job), (job.speedup or 0, job.gap_percent or 0), xytext=(4, -9), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
        axes.axhline(0, color=COLORS["baseline"], ls="--", lw=1, label="NE of the baseline")
        axes.axvline(1, color=COLORS["baseline"], ls=":", lw=1, label="speed of the baseline")
        axes.set_xlabel("training rows/s over the baseline's")
        axes.set_ylabel("NE gap, % (lower is better)")
        axes.set_title("NE gap over speed")
        axes.legend(fontsize=8)
        return _png(figure)


def jobs_png(result: SweepResult) -> bytes:
    """NE gap on the left, speed with p10 and p90 on the right, a line a job; a PNG's bytes."""
    known = _known(result)
    rows = range(len(known))
    with style():
        figure = _figure((10.0, 1.4 + _INCHES_A_JOB * len(known)))
        left, right = figure.subplots(1, 2, sharey=True)
        left.scatter([job.gap_percent for job in known], rows, color=COLORS["erase"], s=20)
        left.axvline(0, color=COLORS["baseline"], ls="--", lw=1)
        left.set_xlabel("NE gap, %")
        low = [(job.speedup or 0) - (job.speedup_p10 or job.speedup or 0) for job in known]
        high = [(job.speedup_p90 or job.speedup or 0) - (job.speedup or 0) for job in known]
        spread = [[max(0.0, v) for v in low], [max(0.0, v) for v in high]]
        right.errorbar(
            [job.speedup or 0 for job in known], rows, xerr=spread, fmt="o", ms=4, color=COLORS["erase"], lw=1
        )
        right.axvline(1, color=COLORS["baseline"], ls=":", lw=1)
        right.set_xlabel("training rows/s over the baseline's (p10, median, p90)")
        left.set_yticks(list(rows), [_short(job) for job in known], fontsize=7)
        left.invert_yaxis()
        return _png(figure)


def _known(result: SweepResult) -> list[Job]:
    return [job for job in result.jobs if job.gap_percent is not None and job.speedup is not None]


def _points(jobs: list[Job]) -> tuple[list[float], list[float]]:
    return [job.speedup or 0 for job in jobs], [job.gap_percent or 0 for job in jobs]


def _short(job: Job) -> str:
    """The values without their key, where there is one key only."""
    text = next(iter(job.values.values())) if len(job.values) == 1 else job.label
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
