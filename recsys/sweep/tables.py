"""The results of a sweep as text and files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from recsys.compare.search_tables import NOT_THERE, Table, render
from recsys.errors import UserError
from recsys.report.atomic import write_atomic
from recsys.sweep.detach import find_detach_set, sentences
from recsys.sweep.plots import jobs_png, pareto_png
from recsys.sweep.results import Job, SweepResult, of_status

RESULTS_MD = "results.md"
RESULTS_CSV = "results.csv"
PARETO_PNG = "pareto.png"
JOBS_PNG = "jobs.png"
MAX_GAP_PERCENT = 0.02  # of the detach search: what the industry calls significant


def job_table(result: SweepResult) -> Table:
    """A row a job; ``*`` marks those that no other job beats in both NE gap and speed."""
    varied = [key.lstrip("+") for key in result.varied]
    quality = ["loss", "baseline loss", ""] if _are_chains(result) else ["NE", "baseline NE", "NE gap %"]
    head = ["job", *varied, *quality, "speed (p10 .. p90)", "ms a step", "MiB", "s", "front"]
    return head, [_row(job, varied, job.number in result.front) for job in result.jobs]


def _are_chains(result: SweepResult) -> bool:
    return any(job.loss is not None for job in result.jobs)


def _row(job: Job, varied: list[str], on_front: bool) -> list[str]:
    values = [job.values[key] for key in varied]
    if job.status != "finished":
        return [str(job.number), *values, job.status, *[NOT_THERE] * 7]
    speed = _number(job.speedup, 3)
    if job.speedup_p10 is not None and job.speedup_p90 is not None:
        speed += f" ({job.speedup_p10:.3f} .. {job.speedup_p90:.3f})"
    seconds = "kept" if job.reused else _number(job.seconds, 0)
    quality = [_number(job.ne, 5), _number(job.baseline_ne, 5), _signed(job.gap_percent)]
    if job.loss is not None:
        quality = [_number(job.loss, 5), _number(job.baseline_loss, 5), ""]
    figures = [*quality, speed]
    return [
        str(job.number),
        *values,
        *figures,
        _number(job.step_ms, 2),
        _number(job.peak_memory_mib, 0),
        seconds,
        "*" if on_front else "",
    ]


def failure_lines(result: SweepResult) -> list[str]:
    """A line for each job that failed."""
    return [f"job {job.number}, {job.label}: {job.error}" for job in of_status(result.jobs, "failed")]


def detach_lines(result: SweepResult, max_gap_percent: float = MAX_GAP_PERCENT) -> list[str]:
    """What to detach, where the jobs differ in ``model.detach`` and the seed only; else why that cannot be said."""
    if "model.detach" not in result.varied:
        return []
    try:
        return sentences(find_detach_set(result.records, max_gap_percent))
    except UserError as error:
        return [f"nothing can be said: {error}"]


def summary(result: SweepResult, max_gap_percent: float = MAX_GAP_PERCENT) -> str:
    """What is shown on the terminal."""
    return "\n\n".join(_sections(result, max_gap_percent)) + "\n"


def _sections(result: SweepResult, max_gap_percent: float) -> Iterator[str]:
    done, failed = len(of_status(result.jobs, "finished")), len(of_status(result.jobs, "failed"))
    left = len(of_status(result.jobs, "not run"))
    kept = sum(job.reused for job in result.jobs)
    seconds = sum(job.seconds or 0.0 for job in result.jobs)
    yield (
        f"{done} of {len(result.jobs)} jobs finished ({kept} of them taken from an earlier sweep), {failed} failed, "
        f"{left} not run; {seconds / 60:.1f} min of jobs"
    )
    yield render(job_table(result))
    if failures := failure_lines(result):
        yield "## Failed jobs\n\n" + "\n".join(f"- {line}" for line in failures)
    if lines := detach_lines(result, max_gap_percent):
        yield "## What to detach\n\n" + "\n".join(f"- {line}" for line in lines)


def markdown(result: SweepResult, max_gap_percent: float = MAX_GAP_PERCENT) -> str:
    """The text of ``results.md``."""
    title = f"# Sweep: `{' '.join(result.arguments)}`"
    reading = (
        "NE gap: against the baseline of the same seed, above 0 is worse. Speed: rows/s against that of the baseline, "
        "which took turns with it. `*`: no other job beats it in both."
    )
    pictures = [f"![NE gap over speed]({PARETO_PNG})", f"![NE gap and speed of each job]({JOBS_PNG})"]
    shown = pictures if any(job.gap_percent is not None for job in result.jobs) else []
    return "\n\n".join([title, reading, *_sections(result, max_gap_percent), *shown]) + "\n"


def results_csv(result: SweepResult) -> str:
    """A line a job, its varied keys first; empty where a figure is not there."""
    varied = [key.lstrip("+") for key in result.varied]
    figures = [f.name for f in fields(Job) if f.name not in ("label", "values")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*figures[:1], *varied, *figures[1:], "on_front"])
    for job in result.jobs:
        own = asdict(job)
        cells = ["" if own[name] is None else own[name] for name in figures]
        writer.writerow([cells[0], *(job.values[key] for key in varied), *cells[1:], job.number in result.front])
    return text.getvalue()


def write_results(folder: Path, result: SweepResult, max_gap_percent: float = MAX_GAP_PERCENT) -> None:
    """Write the pictures (where a job has figures), ``results.csv`` and, last, ``results.md``."""
    if any(job.gap_percent is not None for job in result.jobs):
        write_atomic(folder / PARETO_PNG, pareto_png(result))
        write_atomic(folder / JOBS_PNG, jobs_png(result))
    write_atomic(folder / RESULTS_CSV, results_csv(result))
    write_atomic(folder / RESULTS_MD, markdown(result, max_gap_percent))


def _number(value: float | None, digits: int) -> str:
    return NOT_THERE if value is None else f"{value:,.{digits}f}"


def _signed(value: float | None) -> str:
    return NOT_THERE if value is None else f"{value:+.3f}"
