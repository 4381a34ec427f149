"""What the jobs of a sweep say: figures a job, failures, and which jobs no other one beats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from recsys.chains.report import CHAIN_JSON
from recsys.errors import DataError
from recsys.report.model import RunReport
from recsys.report.record import RunRecord
from recsys.sweep.job import JobEnd
from recsys.sweep.plan import SweepPlan

Status = Literal["finished", "failed", "not run"]


@dataclass(frozen=True)
class Job:
    """A job and its figures; None where the job did not finish or a figure is not defined.

    Attributes:
        number: name of its folder.
        label: its values of the keys that vary.
        values: by key that varies.
        ne, baseline_ne: on the test rows.
        gap_percent: NE against the baseline's; above 0 is worse.
        speedup: rows/s against the baseline's, which took turns with it; ``p10`` and ``p90`` over the turns.
        step_ms: time of its training step in that timing.
        seconds: that the job took.
        reused: whether an earlier sweep had made it.
        error: why it failed.
        loss, baseline_loss: nats, of a chain, which has no NE.
    """

    number: int
    label: str
    values: dict[str, str]
    status: Status
    ne: float | None = None
    baseline_ne: float | None = None
    gap_percent: float | None = None
    speedup: float | None = None
    speedup_p10: float | None = None
    speedup_p90: float | None = None
    step_ms: float | None = None
    peak_memory_mib: float | None = None
    seconds: float | None = None
    reused: bool = False
    error: str | None = None
    loss: float | None = None
    baseline_loss: float | None = None


@dataclass(frozen=True)
class SweepResult:
    """All jobs of a sweep.

    Attributes:
        arguments: of the command line.
        varied: keys that vary.
        jobs: in the order of their numbers.
        front: numbers of the jobs that no other job beats in both NE gap and speed, fastest first.
        records: the finished runs; without those of chains.
    """

    arguments: list[str]
    varied: list[str]
    jobs: list[Job]
    front: list[int]
    records: list[RunRecord]


def read_sweep(folder: Path) -> SweepResult:
    """Read a sweep's folder, finished or not.

    Raises:
        DataError: ``sweep.json`` or a job's file is missing or damaged; names it.
    """
    plan = SweepPlan.read(folder)
    jobs = [read_job(folder / str(number), plan) for number in range(len(plan.jobs))]
    records = [RunRecord(folder / str(job.number)) for job in jobs if job.status == "finished" and job.loss is None]
    return SweepResult(plan.arguments, plan.varied, jobs, pareto_front(jobs), records)


def read_job(folder: Path, plan: SweepPlan) -> Job:
    """A job's figures from its folder, whose name is its number.

    Raises:
        DataError: one of its files is damaged; names it.
    """
    number = int(folder.name)
    values = {key.lstrip("+"): plan.jobs[number].get(key, "-") for key in plan.varied}
    label = plan.label(number)
    end = JobEnd.read(folder)
    if end is None:
        return Job(number, label, values, "not run")
    if end.status == "failed":
        return Job(number, label, values, "failed", seconds=end.seconds, error=end.error)
    if (folder / CHAIN_JSON).exists():
        return _chain_job(Job(number, label, values, "finished", seconds=end.seconds), folder / CHAIN_JSON)
    record = RunRecord(folder)
    report = record.report
    speedup, peak = report.speedup, report.erase.peak_memory_bytes
    return Job(
        number,
        label,
        values,
        "finished",
        ne=report.erase.ne,
        baseline_ne=report.baseline.ne,
        gap_percent=report.ne_gap_percent,
        # A model that is its own baseline is as fast as itself.
        speedup=1.0 if len(report.sides) == 1 else None if speedup is None else speedup.median,
        speedup_p10=None if speedup is None else speedup.p10,
        speedup_p90=None if speedup is None else speedup.p90,
        step_ms=_step_ms(record, report),
        peak_memory_mib=None if peak is None else peak / 2**20,
        seconds=end.seconds,
        reused=end.reused_from is not None,
    )


def _chain_job(job: Job, path: Path) -> Job:
    try:
        raw = json.loads(path.read_text())
        own, speedup = raw["erase"], raw["speedup"] or {}
        losses = [list(raw[side]["heads"].values())[-1]["loss"] for side in ("erase", "baseline")]
        return replace(
            job,
            speedup=speedup.get("median", 1.0),
            speedup_p10=speedup.get("p10"),
            speedup_p90=speedup.get("p90"),
            step_ms=own["step_ms"],
            peak_memory_mib=own["peak_memory_bytes"] / 2**20,
            loss=losses[0],
            baseline_loss=losses[1],
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{path}: not the report of a chain ({error}); run the job again") from error


def _step_ms(record: RunRecord, report: RunReport) -> float | None:
    rows_per_s = report.erase.rows_per_s
    try:
        batch_size = float(record.config["trainer"]["batch_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{record.folder}: its configuration has no trainer.batch_size; run the job again") from error
    return None if rows_per_s is None else 1000 * batch_size / rows_per_s


def pareto_front(jobs: Iterable[Job]) -> list[int]:
    """Numbers of the jobs that no other one equals or beats in NE gap and speed, and beats in one; fastest first."""
    known = [(j.speedup, j.gap_percent, j.number) for j in jobs if j.speedup is not None and j.gap_percent is not None]
    front: list[int] = []
    lowest = float("inf")
    for _, gap, number in sorted(known, key=lambda entry: (-entry[0], entry[1], entry[2])):
        if gap < lowest:
            front.append(number)
            lowest = gap
    return front


def of_status(jobs: Sequence[Job], status: Status) -> list[Job]:
    """The jobs that ended so."""
    return [job for job in jobs if job.status == status]
