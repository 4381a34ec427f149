"""Time one training step of a finished run operation by operation on a CPU, and write overlap.json into its folder.

    python -m scripts.trace_ops runs/2026-01-31/12-00-00-1

Every operation of the run's schedule (forward, backward and update of each part) is timed where it runs, over --steps
steps on fresh batches after a warm-up; the step of median length is kept. The report (scripts/report.py) draws it. A
CPU runs the operations one after the other, so nothing overlaps here; the critical path tells what lanes could gain at
most. On a GPU, scripts/trace_schedule.py traces kernels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/trace_ops.py` puts scripts/ there

import torch

from recsys.config.wire import build_data, build_model, build_stepper
from recsys.errors import ConfigError, UserError
from recsys.overview.gather import OVERLAP_JSON
from recsys.report.atomic import write_atomic
from recsys.report.record import RunRecord
from recsys.schedule.executors.base import Executor, apply
from recsys.schedule.op import Kind
from recsys.schedule.overlap import Span, critical_path, measure_overlap, op_durations
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult

_WARM_UP = 3


class TimedExecutor(Executor):
    """Runs operations in program order, as a CPU does, and keeps when each began and ended.

    Attributes:
        steps: the spans of each step, microseconds from its start.
    """

    def __init__(self) -> None:
        self.steps: list[list[Span]] = []

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run one step."""
        spans: list[Span] = []
        start = time.perf_counter()
        parts.begin(batch)
        for op in program.ops:
            begin = time.perf_counter()
            apply(op, parts)
            end = time.perf_counter()
            spans.append(Span(str(op), (begin - start) * 1e6, (end - start) * 1e6, op.lane, str(op)))
        self.steps.append(spans)
        return parts.end()


def trace(folder: Path, steps: int) -> dict[str, Any]:
    """What ``overlap.json`` holds; see :class:`recsys.overview.gather.Trace`.

    Args:
        folder: of a run.
        steps: steps to time.

    Raises:
        ConfigError: the run's schedule needs a GPU.
        UserError: the folder is no run's, or its data is not there.
    """
    cfg = RunRecord(folder).config
    if cfg["trainer"]["device"] == "cuda":
        raise ConfigError(
            f"{folder}: trainer.device=cuda; on a GPU use python -m scripts.trace_schedule --experiment {cfg['name']}"
        )
    device = torch.device("cpu")
    data = build_data(cfg)
    stepper = build_stepper(cfg, build_model(cfg, data.spec, device).train(), device, len(data.train))
    stepper.executor = timed = TimedExecutor()
    number = 0
    while number < _WARM_UP + steps:
        for batch in data.train:
            stepper(batch)
            number += 1
            if number == _WARM_UP + steps:
                break
    return _figures(stepper.program, timed.steps[_WARM_UP:], cfg["schedule"]["name"])


def _figures(program: Program, steps: Sequence[list[Span]], schedule: str) -> dict[str, Any]:
    spans = sorted(steps, key=lambda s: s[-1].end)[len(steps) // 2]
    graph = program.graph
    early = {op.part for op in program.ops if op.kind is Kind.BACKWARD and graph.backward_is_early(op.part)} - {"over"}
    durations = {op: duration for op, (duration, _) in op_durations(spans).items()}
    limit, path = critical_path(program, durations)
    total = spans[-1].end
    return {
        "median_ms": {schedule: total / 1e3},
        "overlap": asdict(measure_overlap(spans, early)),
        "critical_path_us": limit,
        "critical_path": path,
        "eta": None,  # of a schedule against another one; here there is one
        "timeline": {schedule: [[s.op, s.start, s.duration, s.stream] for s in spans]},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN", help="folders with a config.yaml")
    parser.add_argument("--steps", type=int, default=21, help="timed steps (default: %(default)s)")
    flags = parser.parse_args(arguments)
    if flags.steps < 1:
        parser.error("--steps must be at least 1")
    try:
        for folder in flags.folders:
            figures = trace(folder, flags.steps)
            write_atomic(folder / OVERLAP_JSON, json.dumps(figures, indent=1, allow_nan=False) + "\n")
            (name, ms), limit = next(iter(figures["median_ms"].items())), figures["critical_path_us"] / 1e3
            print(f"{folder}: {name} {ms:.2f} ms a step, critical path {limit:.2f} ms; written to {OVERLAP_JSON}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
