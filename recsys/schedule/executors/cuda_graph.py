"""A step as one CUDA graph with the lanes' fork and join inside."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch

from recsys.errors import ConfigError
from recsys.schedule.executors.base import Executor
from recsys.schedule.executors.gemm_sms import gemm_sms
from recsys.schedule.executors.graph_nodes import count_nodes
from recsys.schedule.executors.streams import StreamExecutor
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program
from recsys.schedule.step import CapturableParts, StepParts, StepResult


class StaticInputs(Protocol):
    """How a batch gets to the addresses that a captured step reads."""

    def signature(self, batch: Any) -> Hashable:
        """What must be equal for two batches to share a capture: shapes and types."""

    def allocate(self, batch: Any) -> Any:
        """A batch like ``batch`` at addresses of its own."""

    def load(self, static: Any, batch: Any) -> None:
        """Copy ``batch`` into ``static``, which ``allocate`` gave, on the current stream."""

    def copy_labels(self, static: Any) -> Any:
        """``static`` with labels and weights of its own, for a part that outlives the step."""


@dataclass
class GraphReport:
    """What was captured and how often it ran.

    Attributes:
        captures: graphs made, re-captures included.
        replays: steps that were replays.
        eager_steps: steps that were not: warm-up, rare batch sizes, or all of them after a fallback.
        kernels: kernels in the latest graph.
        copies: memory copies and fills in the latest graph.
        fallback: why steps run eagerly for good, or None.
    """

    captures: int = 0
    replays: int = 0
    eager_steps: int = 0
    kernels: int = 0
    copies: int = 0
    fallback: str | None = None


@dataclass
class _Capture:
    graph: Any
    static: Any
    frame: Any
    result: StepResult
    addresses: list[int]
    frozen: tuple[float, ...]


@dataclass
class _Shape:
    """One batch signature: how often it was seen, and its capture."""

    seen: int = 0
    capture: _Capture | None = None
    recaptures: int = 0


@dataclass
class _Split:
    before: tuple[Op, ...] = ()
    inside: tuple[Op, ...] = ()
    after: tuple[Op, ...] = field(default=())


class GraphExecutor(Executor):
    """Runs the first steps eagerly, captures one, and replays it from then on.

    Capturing executes nothing: the step whose capture it is runs as the first replay, so training sees
    every batch exactly once. A batch of another signature is warmed up and captured in turn. Before each
    replay the addresses of parameters, buffers and optimizer state, and the host numbers that a capture
    freezes, are compared with the capture's; if one moved, the step is captured again.

    Args:
        device: the GPU.
        inputs: how batches get to static addresses.
        priorities: lane -> stream priority.
        outside: parts that run eagerly around the graph, because their shapes (numbers of ids) or their
            host-side learning rate change from step to step. Nothing inside may precede their
            forward or follow their backward.
        warmup_steps: eager steps before the first capture; a later signature gets twice as many, so that
            an epoch's short last batch is not captured for one use.
        strict: a fallback to eager steps is an error.
        gemm_sms: multiprocessors that matrix products of a captured step are planned for; None for all.

    Raises:
        ConfigError: with ``strict``, where a warning would otherwise say why steps run eagerly.
    """

    def __init__(
        self,
        device: torch.device,
        inputs: StaticInputs,
        priorities: Mapping[int, int] | None = None,
        *,
        outside: frozenset[str] = frozenset(),
        warmup_steps: int = 3,
        strict: bool = False,
        gemm_sms: int | None = None,
    ) -> None:
        self._gemm_sms = gemm_sms
        self.report = GraphReport()
        self._device = device
        self._inputs = inputs
        self._eager = StreamExecutor(device, priorities)
        self._stream = torch.cuda.Stream(device, priority=(priorities or {}).get(0, 0))
        self._outside = outside
        self._warmup_steps = warmup_steps
        self._strict = strict
        self._shapes: dict[Hashable, _Shape] = {}
        self._splits: dict[tuple[Op, ...], _Split] = {}
        self._checked: CapturableParts | None = None

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run one step; what it returns is overwritten by the next step."""
        # Checking a protocol takes longer than launching a graph: once for each parts.
        if parts is not self._checked and not isinstance(parts, CapturableParts):
            self._fall_back(f"{type(parts).__name__} cannot be captured")
        if self.report.fallback is not None:
            return self._run_eagerly(program, parts, batch)
        self._checked = capturable = cast(CapturableParts, parts)
        shape = self._shapes.setdefault((program.ops, self._inputs.signature(batch)), _Shape())
        shape.seen += 1
        if shape.capture is None and shape.seen <= self._warmup_for(shape):
            return self._run_eagerly(program, parts, batch)
        if shape.capture is not None and self._moved(shape.capture, capturable):
            shape.capture = None
            shape.recaptures += 1
            if shape.recaptures == 3:
                warnings.warn(
                    "a step is captured again and again, because a learning rate or an address that it froze keeps "
                    "changing; keep learning rates on the device or run the part outside of the graph",
                    stacklevel=2,
                )
        if shape.capture is None:
            try:
                shape.capture = self._capture(program, capturable, batch)
            except RuntimeError as error:
                self._fall_back(f"the capture failed: {error}")
                return self._run_eagerly(program, parts, batch)
            return self._replay(program, capturable, shape.capture, batch, fresh=True)
        return self._replay(program, capturable, shape.capture, batch, fresh=False)

    def _warmup_for(self, shape: _Shape) -> int:
        is_first = shape is next(iter(self._shapes.values()))
        return self._warmup_steps if is_first else 2 * self._warmup_steps

    def _fall_back(self, why: str) -> None:
        if self._strict:
            raise ConfigError(f"schedule.strict: steps would run eagerly, because {why}")
        if self.report.fallback is None:
            warnings.warn(f"steps run eagerly, because {why}", stacklevel=3)
        self.report.fallback = why

    def _run_eagerly(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        self.report.eager_steps += 1
        # On the stream that is captured later: autograd remembers where a parameter's gradient was made.
        caller = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(caller)
        with torch.cuda.stream(self._stream):
            result = self._eager.run(program, parts, batch)
        caller.wait_stream(self._stream)
        for tensor in (*result.losses.values(), *result.logits.values()):
            tensor.record_stream(caller)
        return result

    def _capture(self, program: Program, parts: CapturableParts, batch: Any) -> _Capture:
        split = self._split(program)
        static = self._inputs.allocate(batch)
        self._inputs.load(static, batch)
        parts.begin(static)
        # What runs before the graph runs for the real batch; the graph reads its outputs where they lie now.
        for op in split.before:
            parts.refresh(op.part, batch)
        graph = self._new_graph(parts)
        try:
            with (
                gemm_sms(self._gemm_sms),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
            ):
                self._eager.dispatch(program, parts, split.inside)
        finally:
            frame = parts.suspend(differentiable=self._outside)
        graph.instantiate()
        nodes = count_nodes(graph)
        self.report.captures += 1
        self.report.kernels = nodes["kernel"]
        self.report.copies = nodes["memcpy"] + nodes["memset"]
        return self._capture_of(graph, static, frame, parts)

    def _new_graph(self, parts: CapturableParts) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        for generator in parts.generators():
            graph.register_generator_state(generator)
        return graph

    def _capture_of(self, graph: Any, static: Any, frame: Any, parts: CapturableParts) -> _Capture:
        return _Capture(graph, static, frame, frame.result, _addresses(parts), parts.frozen_values(self._outside))

    def _launch(self, graph: Any) -> None:
        graph.replay()

    def _replay(
        self, program: Program, parts: CapturableParts, capture: _Capture, batch: Any, *, fresh: bool
    ) -> StepResult:
        split = self._split(program)
        parts.refresh_weights()
        if not fresh:
            self._inputs.load(capture.static, batch)
        parts.resume(capture.frame)
        if not fresh:
            for op in split.before:
                parts.refresh(op.part, batch)
        self._launch(capture.graph)
        with torch.autograd.set_multithreading_enabled(False):
            for op in split.after:
                _run_after(op, parts)
        parts.suspend(differentiable=self._outside)
        self.report.replays += 1
        return StepResult(dict(capture.result.losses), dict(capture.result.logits))

    def _moved(self, capture: _Capture, parts: CapturableParts) -> bool:
        return capture.frozen != parts.frozen_values(self._outside) or capture.addresses != _addresses(parts)

    def _split(self, program: Program) -> _Split:
        if program.ops not in self._splits:
            self._splits[program.ops] = split_around(program, self._outside)
        return self._splits[program.ops]


def split_around(program: Program, outside: frozenset[str]) -> _Split:
    """Cut a program into what runs before, inside and after a graph that leaves out ``outside``.

    Raises:
        ConfigError: an operation inside would have to run before or after one outside on the wrong side.
    """
    before = tuple(op for op in program.ops if op.part in outside and op.kind is Kind.FORWARD)
    after = tuple(op for op in program.ops if op.part in outside and op.kind is not Kind.FORWARD)
    inside = tuple(op for op in program.ops if op.part not in outside)
    late = {(op.kind, op.part) for op in after}
    for op in before:
        if program.graph[op.part].inputs:
            raise ConfigError(f"part {op.part!r} cannot run outside of the graph, for it reads other parts")
    for op in inside:
        if late & set(program.dependencies(op)):
            raise ConfigError(f"{op} cannot be captured, for it follows an operation outside of the graph")
    return _Split(before, inside, after)


def _run_after(op: Op, parts: CapturableParts) -> None:
    if op.kind is Kind.BACKWARD:
        parts.backward(op.part)
    elif op.kind is Kind.REDUCE:
        parts.reduce(op.part)
    else:
        parts.update(op.part)


def _addresses(parts: CapturableParts) -> list[int]:
    return [t.data_ptr() for t in parts.persistent()]
