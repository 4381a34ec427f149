"""A step as several CUDA graphs, in which parts that nobody waits for run on into the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from recsys.errors import ConfigError
from recsys.schedule.executors.cuda_graph import GraphExecutor, StaticInputs
from recsys.schedule.executors.gemm_sms import gemm_sms
from recsys.schedule.executors.graph_nodes import count_nodes
from recsys.schedule.graph import PartGraph
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program
from recsys.schedule.step import CapturableParts, StepResult


def trailing_parts(graph: PartGraph) -> tuple[str, ...]:
    """Parts whose backward and update no other operation of the step waits for."""
    return tuple(
        p for p in graph.names if graph.backward_is_early(p) and not graph.sends_gradient(p) and p in _read(graph)
    )


def _read(graph: PartGraph) -> set[str]:
    return {edge.source for part in graph.parts for edge in part.inputs}


@dataclass
class _Trail:
    """One trailing part's stream, and its two graphs: forward, and backward with update."""

    stream: torch.cuda.Stream
    pool: Any
    graphs: list[torch.cuda.CUDAGraph] = field(default_factory=list)
    done: torch.cuda.Event | None = None


@dataclass
class _Cut:
    head: tuple[Op, ...]
    trails: dict[str, tuple[Op, tuple[Op, ...]]]
    tail: tuple[Op, ...]


class TrailingExecutor(GraphExecutor):
    """Main lane: one graph up to the trailing parts' inputs, one after their outputs. Each trailing part: two graphs.

    A trailing part starts from copies of its inputs and of the batch, so its backward and update may still
    run while the next step overwrites those. Its next forward follows its update on the same stream, and
    the main lane waits for every forward: each number is that of the step-by-step schedule.

    Raises:
        ConfigError: the program has no trailing part.
    """

    def __init__(
        self,
        device: torch.device,
        inputs: StaticInputs,
        priorities: Mapping[int, int] | None = None,
        *,
        warmup_steps: int = 3,
        strict: bool = False,
        gemm_sms: int | None = None,
    ) -> None:
        super().__init__(device, inputs, priorities, warmup_steps=warmup_steps, strict=strict, gemm_sms=gemm_sms)
        self._lane_priorities = dict(priorities or {})
        self._cuts: dict[tuple[Op, ...], _Cut] = {}

    def _capture(self, program: Program, parts: CapturableParts, batch: Any) -> Any:
        cut = self._cuts.setdefault(program.ops, cut_program(program))
        static = self._inputs.allocate(batch)
        self._inputs.load(static, batch)
        torch.cuda.synchronize(self._device)
        pool = torch.cuda.graph_pool_handle()
        trails = {
            part: _Trail(
                torch.cuda.Stream(self._device, priority=self._lane_priorities.get(ops[0].lane, 0)),
                torch.cuda.graph_pool_handle(),
            )
            for part, ops in cut.trails.items()
        }
        graphs: list[torch.cuda.CUDAGraph] = []
        parts.begin(static)
        try:
            with gemm_sms(self._gemm_sms):
                graphs.append(self._record(program, parts, cut.head, self._stream, pool))
                for part, (forward, _) in cut.trails.items():
                    trail = trails[part]
                    trail.graphs.append(self._record_forward(parts, forward, trail, static))
                graphs.append(self._record(program, parts, cut.tail, self._stream, pool))
                for part, (_, rest) in cut.trails.items():
                    trail = trails[part]
                    on_main = tuple(Op(op.kind, op.part, 0) for op in rest)
                    trail.graphs.append(self._record(program, parts, on_main, trail.stream, trail.pool))
        finally:
            frame = parts.suspend(differentiable=())
        every = [*graphs, *(g for t in trails.values() for g in t.graphs)]
        counts = [count_nodes(g) for g in every]
        self.report.captures += 1
        self.report.kernels = sum(c["kernel"] for c in counts)
        self.report.copies = sum(c["memcpy"] + c["memset"] for c in counts)
        return self._capture_of((graphs, trails), static, frame, parts)

    def _record(
        self, program: Program, parts: CapturableParts, ops: Sequence[Op], stream: torch.cuda.Stream, pool: Any
    ) -> torch.cuda.CUDAGraph:
        graph = self._new_graph(parts)
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._eager.dispatch(program, parts, tuple(ops))
        graph.instantiate()
        return graph

    def _record_forward(self, parts: CapturableParts, forward: Op, trail: _Trail, static: Any) -> torch.cuda.CUDAGraph:
        graph = self._new_graph(parts)
        with torch.cuda.graph(graph, pool=trail.pool, stream=trail.stream, capture_error_mode="thread_local"):
            copy = self._inputs.copy_labels(static)
            parts.forward_on_copies(forward.part, copy)
        graph.instantiate()
        return graph

    def _launch(self, handle: Any) -> None:
        (head, tail), trails = handle
        main = torch.cuda.current_stream(self._device)
        head.replay()
        ready = main.record_event()
        for trail in trails.values():
            trail.stream.wait_event(ready)
            with torch.cuda.stream(trail.stream):
                trail.graphs[0].replay()
                main.wait_event(trail.stream.record_event())
                trail.graphs[1].replay()
        tail.replay()

    def finish(self) -> None:
        """Make the caller's stream wait for everything that trails."""
        main = torch.cuda.current_stream(self._device)
        for shape in self._shapes.values():
            if shape.capture is not None:
                for trail in shape.capture.graph[1].values():
                    main.wait_stream(trail.stream)

    def _run_eagerly(self, program: Program, parts: Any, batch: Any) -> StepResult:
        self.finish()
        return super()._run_eagerly(program, parts, batch)


def cut_program(program: Program) -> _Cut:
    """Cut a program into a head, trailing parts and a tail.

    Raises:
        ConfigError: no part may trail.
    """
    graph = program.graph
    names = trailing_parts(graph)
    if not names:
        raise ConfigError("schedule.trailing=true: no detached part is free of embedding gradient, so none may trail")
    needed = {e.source for n in names for e in graph[n].inputs}
    before = set(needed)
    for part in reversed(graph.parts):
        if part.name in before:
            before |= {e.source for e in part.inputs}
    head = tuple(op for op in program.ops if op.kind is Kind.FORWARD and op.part in before)
    trails = {
        n: (
            next(op for op in program.ops if op.part == n and op.kind is Kind.FORWARD),
            tuple(op for op in program.ops if op.part == n and op.kind is not Kind.FORWARD),
        )
        for n in names
    }
    tail = tuple(op for op in program.ops if op not in head and op.part not in names)
    return _Cut(head, trails, tail)
