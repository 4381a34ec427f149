"""Costs of operations measured on the device: by the clock on a CPU, from a profile on a GPU."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from recsys.advise.costs import Costs
from recsys.schedule.executors.base import Executor, apply
from recsys.schedule.overlap import load_spans, op_durations, op_saturations
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult
from recsys.train.stepper import Stepper
from recsys.types import Batch

_WARM_UP = 3

Clock = Callable[[], float]


class TimedExecutor(Executor):
    """Runs one operation after the other and notes what each took.

    Args:
        clock: in seconds.

    Attributes:
        us: microseconds by operation, a value a step.
        step_us: of whole steps.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.us: dict[str, list[float]] = {}
        self.step_us: list[float] = []

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """One step in program order."""
        begin = self._clock()
        parts.begin(batch)
        for op in program.ops:
            start = self._clock()
            apply(op, parts)
            self.us.setdefault(f"{op.kind.value}:{op.part}", []).append(1e6 * (self._clock() - start))
        result = parts.end()
        self.step_us.append(1e6 * (self._clock() - begin))
        return result

    def costs(self) -> Costs:
        """Medians over the steps, the first of which warm up and do not count."""
        us = {op: statistics.median(values[_WARM_UP:]) for op, values in self.us.items()}
        rests = [step - sum(values[i] for values in self.us.values()) for i, step in enumerate(self.step_us)]
        return Costs(us, rest_us=max(0.0, statistics.median(rests[_WARM_UP:])))


def clock_for(device: torch.device) -> tuple[str, Clock]:
    """``cpu``: the process's CPU time, where one thread runs a step on a CPU: then it is the step's time on a machine
    that does nothing else. ``wall``: elsewhere."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return "cpu", time.process_time
    return "wall", time.perf_counter


def time_operations(
    steppers: Mapping[str, Stepper], batches: Sequence[Batch], steps: int, clock: Clock
) -> dict[str, Costs]:
    """Costs on a CPU: the models take turns step by step, so that what else the machine does meets all of them.

    Args:
        steppers: by name; their executors are replaced.
        batches: on the CPU; gone through as often as needed.
        steps: that count, of each model.
        clock: in seconds.
    """
    executors = {name: TimedExecutor(clock) for name in steppers}
    for name, stepper in steppers.items():
        stepper.executor = executors[name]
    for batch in itertools.islice(itertools.cycle(batches), steps + _WARM_UP):
        for stepper in steppers.values():
            stepper(batch)
    return {name: executor.costs() for name, executor in executors.items()}


def profile_operations(stepper: Stepper, batches: Sequence[Batch], replay_us: float) -> Costs:
    """Costs on a GPU, from the kernels of one eager step.

    Args:
        stepper: of an eager schedule on one lane.
        batches: on the device.
        replay_us: microseconds of the same step as a serial graph. What it takes beyond its kernels is the gaps
            between them, which stay on a critical path; an eager step's gaps are the host's.
    """
    from torch.profiler import ProfilerActivity, profile

    for batch in batches[:_WARM_UP]:
        stepper(batch)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        stepper(batches[0])
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    return costs_of_trace(trace, torch.cuda.get_device_properties(0).multi_processor_count, replay_us)


def costs_of_trace(trace: Mapping[str, Any], num_sms: int, replay_us: float) -> Costs:
    """Costs from the Chrome trace of one eager step; see ``profile_operations``."""
    spans = load_spans(trace)
    durations = op_durations(spans)
    gap = max(0.0, replay_us - sum(span.duration for span in spans)) / max(1, len(spans))
    busy = op_saturations(spans, num_sms)
    us = {op: time_us + gap * kernels for op, (time_us, kernels) in durations.items()}
    fill = {op: min(1.0, max(1e-6, busy[op] / us[op])) for op in us if us[op] > 0}
    # Kernels that no operation launched (the batch's copies) are a part of every step.
    rest = us.pop(":", 0.0)
    return Costs(us, fill, rest)


def costs_of_report(report: Mapping[str, Any]) -> Costs:
    """Costs from ``overlap.json`` of ``scripts/trace_schedule.py``: of the replayed model, everything detached.

    Raises:
        ValueError: it holds no operations.
    """
    if not isinstance(report.get("ops"), Mapping):
        raise ValueError("no object 'ops'")
    ops = report["ops"]
    return Costs({op: float(v["us"]) for op, v in ops.items()}, {op: float(v["fill"]) for op, v in ops.items()})
