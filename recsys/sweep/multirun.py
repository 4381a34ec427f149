"""A sweep as the command line runs it: opened once, a job at a time, told at the end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys.errors import ConfigError
from recsys.sweep.job import JOB_JSON, JobEnd, run_job
from recsys.sweep.plan import SWEEP_JSON, SweepPlan, plan_sweep


@dataclass
class Multirun:
    """Implements ``recsys.config.cli.Sweep``.

    Attributes:
        folder: of the sweep.
        plan: its jobs.
    """

    folder: Path
    plan: SweepPlan

    @staticmethod
    def open(arguments: list[str]) -> Multirun:
        """Check every job, then write ``sweep.json``.

        Raises:
            ConfigError: a job that could not run, or the folder holds another sweep; nothing was started then.
        """
        folder, plan = plan_sweep(arguments)
        if (folder / SWEEP_JSON).exists() and SweepPlan.read(folder).jobs != plan.jobs:
            raise ConfigError(f"hydra.sweep.dir={folder}: holds a sweep of other jobs; name another folder")
        plan.write(folder)
        for number in range(len(plan.jobs)):  # what failed is to be tried again
            if (end := JobEnd.read(folder / str(number))) is not None and end.status == "failed":
                (folder / str(number) / JOB_JSON).unlink()
        print(f"{len(plan.jobs)} jobs, each of them checked; in {folder}", flush=True)
        return Multirun(folder, plan)

    @staticmethod
    def job(cfg: dict[str, Any], folder: Path) -> None:
        """Run one job, here or in another process, and tell its end in a line."""
        cfg["trainer"]["quiet"] = True
        end = run_job(cfg, folder)
        plan = SweepPlan.read(folder.parent)
        number = int(folder.name)
        print(
            f"job {number}, {plan.label(number)}: {_outcome(folder, plan, end)}{_left(folder.parent, plan)}", flush=True
        )

    def finish(self) -> int:
        """Write and show the tables over all jobs; 1 if a job failed or did not end."""
        from recsys.sweep.results import read_sweep
        from recsys.sweep.tables import summary, write_results

        result = read_sweep(self.folder)
        write_results(self.folder, result)
        print(summary(result), flush=True)
        print(f"written to {self.folder}", flush=True)
        if lacking := [job for job in result.jobs if job.status != "finished"]:
            print(
                f"error: {len(lacking)} of {len(result.jobs)} jobs did not finish; the same command tries them again",
                file=sys.stderr,
            )
        return 1 if lacking else 0


def _outcome(folder: Path, plan: SweepPlan, end: JobEnd) -> str:
    from recsys.sweep.results import read_job

    if end.status == "failed":
        return f"failed: {end.error}"
    job = read_job(folder, plan)
    quality = "" if job.gap_percent is None else f"NE gap {job.gap_percent:+.3f} %, "
    if job.loss is not None:
        quality = f"log loss {job.loss:.4f}, "
    speed = "" if job.speedup is None else f"{job.speedup:.3f} times the speed "
    how = "from an earlier sweep" if end.reused_from else f"{end.seconds:.0f} s"
    return f"{quality}{speed}({how})"


def _left(folder: Path, plan: SweepPlan) -> str:
    """How many jobs are left, and how long they take one after the other."""
    ends = [JobEnd.read(folder / str(number)) for number in range(len(plan.jobs))]
    left = sum(end is None for end in ends)
    seconds = [end.seconds for end in ends if end is not None and end.status == "finished" and not end.reused_from]
    if not left:
        return ""
    pace = f", about {left * sum(seconds) / len(seconds) / 60:.0f} min one by one" if seconds else ""
    return f"; {left} left{pace}"
