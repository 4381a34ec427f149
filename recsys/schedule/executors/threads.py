"""One host thread a lane: the paper's non-blocking dispatch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from recsys.schedule.executors.plan import Plan
from recsys.schedule.executors.streams import StreamExecutor, launch_ops
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult


class ThreadedExecutor(StreamExecutor):
    """Every lane other than 0 is issued by a thread of its own, so that no backward() holds up the others.

    A wait for another lane needs that lane's event to be recorded first, so threads also wait for each
    other on the host. The first ``warmup_steps`` are issued by one thread: compilation and lazily made
    handles are not safe to race for.
    """

    def __init__(
        self, device: torch.device, priorities: Mapping[int, int] | None = None, *, warmup_steps: int = 2
    ) -> None:
        super().__init__(device, priorities)
        self._warmup_left = warmup_steps
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run one step; returns before the device is done.

        Raises:
            Exception: the first one that a lane raised; the other lanes stop.
        """
        result = super().run(program, parts, batch)
        self._warmup_left = max(0, self._warmup_left - 1)
        return result

    def issue(
        self, plan: Plan, parts: StepParts, streams: Mapping[int, torch.cuda.Stream], start: torch.cuda.Event | None
    ) -> None:
        """Issue each lane in program order, the lanes side by side."""
        if self._warmup_left:
            super().issue(plan, parts, streams, start)
            return
        if self._pool is None or self._size < len(plan.last):
            # A lane without a thread would wait for ever for one that waits for it.
            self._size = len(plan.last)
            self._pool = ThreadPoolExecutor(max_workers=max(1, self._size), thread_name_prefix="lane")
        crew = _Crew(plan, parts, streams, start)
        futures: list[Future[None]] = [self._pool.submit(crew.run_lane, lane) for lane in plan.last]
        crew.run_lane(0)
        for future in futures:
            future.result()
        crew.raise_error()
        for index in plan.last.values():
            streams[0].wait_event(crew.events[index])


class _Crew:
    """The lanes of one step."""

    def __init__(
        self,
        plan: Plan,
        parts: StepParts,
        streams: Mapping[int, torch.cuda.Stream],
        start: torch.cuda.Event | None,
    ) -> None:
        self._plan, self._parts, self._streams, self._start = plan, parts, streams, start
        self._issued = {i: threading.Event() for i, launch in enumerate(plan.launches) if launch.signals}
        self._error: BaseException | None = None
        self.events: dict[int, torch.cuda.Event] = {}

    def run_lane(self, lane: int) -> None:
        """Issue one lane's launches in the calling thread."""
        try:
            # Both settings are the thread's own.
            with torch.cuda.stream(self._streams[lane]), torch.autograd.set_multithreading_enabled(False):
                if lane != 0 and self._start is not None:
                    self._streams[lane].wait_event(self._start)
                for index, launch in enumerate(self._plan.launches):
                    if launch.lane == lane and not self._issue(index):
                        return
        except BaseException as error:  # handed to the caller by raise_error
            self._error = self._error or error
            for issued in self._issued.values():
                issued.set()

    def _issue(self, index: int) -> bool:
        launch = self._plan.launches[index]
        stream = self._streams[launch.lane]
        for wait in launch.waits:
            self._issued[wait].wait()
            if self._error is not None:
                return False
            stream.wait_event(self.events[wait])
        launch_ops(launch, self._parts)
        if launch.signals:
            self.events[index] = stream.record_event()
            self._issued[index].set()
        return True

    def raise_error(self) -> None:
        """Raise what a lane raised, if one did."""
        if self._error is not None:
            raise self._error
