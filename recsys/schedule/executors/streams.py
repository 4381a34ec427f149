"""Lanes as CUDA streams."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.profiler import record_function

from recsys.schedule.executors.base import Executor, apply
from recsys.schedule.executors.plan import Plan, PlannedOp, make_plan
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program
from recsys.schedule.step import CapturableParts, StepParts, StepResult


class StreamExecutor(Executor):
    """Issues every operation from the calling thread, each on its lane's stream.

    Lane 0 is the stream that is current when ``run`` is called; it waits for every other lane before
    ``run`` lets go of the step's tensors, so none needs ``record_stream``. A part's backward runs inside
    its lane, in the calling thread: autograd then makes no other stream wait for it.

    Args:
        device: the GPU.
        priorities: lane -> CUDA stream priority, lower is more urgent (0 and -1 always exist).
    """

    def __init__(self, device: torch.device, priorities: Mapping[int, int] | None = None) -> None:
        self.device = device
        self._priorities = dict(priorities or {})
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._plans: dict[tuple[Op, ...], Plan] = {}

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run one step; returns before the device is done."""
        parts.begin(batch)
        self.dispatch(program, parts)
        return parts.end()

    def dispatch(self, program: Program, parts: StepParts, ops: tuple[Op, ...] | None = None) -> None:
        """Issue ``ops`` (default: all) of a begun step, fork and join included."""
        plan = self.plan(program, ops)
        main = torch.cuda.current_stream(self.device)
        streams = {0: main} | {lane: self.stream(lane) for lane in plan.last}
        start = main.record_event() if plan.last else None
        with torch.autograd.set_multithreading_enabled(False):
            self.issue(plan, parts, streams, start)

    def issue(
        self, plan: Plan, parts: StepParts, streams: Mapping[int, torch.cuda.Stream], start: torch.cuda.Event | None
    ) -> None:
        """Issue the launches in order."""
        events: dict[int, torch.cuda.Event] = {}
        begun: set[int] = {0}
        for i, launch in enumerate(plan.launches):
            stream = streams[launch.lane]
            if launch.lane not in begun and start is not None:
                stream.wait_event(start)
                begun.add(launch.lane)
            for wait in launch.waits:
                stream.wait_event(events[wait])
            with nullcontext() if launch.lane == 0 else torch.cuda.stream(stream):
                launch_ops(launch, parts)
            if launch.signals:
                events[i] = stream.record_event()
        for index in plan.last.values():
            streams[0].wait_event(events[index])

    def plan(self, program: Program, ops: tuple[Op, ...] | None = None) -> Plan:
        """The launches of ``program``, planned once."""
        key = program.ops if ops is None else ops
        if key not in self._plans:
            self._plans[key] = make_plan(program, key)
        return self._plans[key]

    def stream(self, lane: int) -> torch.cuda.Stream:
        """The stream of a lane other than 0."""
        if lane not in self._streams:
            self._streams[lane] = torch.cuda.Stream(self.device, priority=self._priorities.get(lane, 0))
        return self._streams[lane]


def launch_ops(launch: PlannedOp, parts: StepParts) -> None:
    """Run one launch's operations; several updates at once where the parts can."""
    if launch.away:
        assert isinstance(parts, CapturableParts), "updates on another lane need parts that hold gradients"
        # Freed on its own stream, a gradient could be overwritten while this one still reads it.
        for part in launch.away:
            parts.hold_gradients(part)
    if len(launch.ops) > 1 and launch.ops[0].kind is Kind.UPDATE and isinstance(parts, CapturableParts):
        with record_function("U:" + ",".join(op.part for op in launch.ops) + f"@{launch.lane}"):
            parts.update_many([op.part for op in launch.ops])
        return
    for op in launch.ops:
        apply(op, parts)
