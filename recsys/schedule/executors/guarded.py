"""One operation after the other, looking for numbers that are not finite before they reach weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from recsys.schedule.executors.base import Executor, apply
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult


class GuardedParts(StepParts, Protocol):
    """Parts whose running step can be looked at and given up."""

    def running_losses(self) -> Mapping[str, torch.Tensor]:
        """Losses of the running step so far."""

    def running_gradients(self, part: str) -> Sequence[torch.Tensor]:
        """What the next update of ``part`` will read."""

    def gradient_into(self, part: str) -> torch.Tensor:
        """The gradient that enters the backward of ``part`` from its consumers."""

    def abandon(self) -> StepResult:
        """Drop the running step and its gradients."""


class GuardedExecutor(Executor):
    """Ignores lanes. A step in which a loss or a gradient is not finite ends early, and its result names the part.

    Looking at a number waits for it, so this is for a CPU.

    Args:
        fused: parts whose backward writes their weights.
        whole: look at everything before anything is written, so that a bad step leaves no trace; the backwards of
            ``fused`` parts then run last. Needs a program that updates at the end.
        gather: every rank's text, for ``whole``: a step is bad for all ranks if it is for one.
    """

    def __init__(
        self, fused: frozenset[str], *, whole: bool = False, gather: Callable[[str], list[str]] | None = None
    ) -> None:
        self._fused, self._whole, self._gather = fused, whole, gather
        self._orders: dict[tuple[Op, ...], tuple[tuple[Op, ...], int]] = {}

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run the operations; ``StepResult.fault`` says why the step was given up."""
        parts.begin(batch)
        fault = self._run_whole(program, parts) if self._whole else self._run_in_order(program, parts)
        if fault is None:
            return parts.end()
        result = _guarded(parts).abandon()
        result.fault = fault
        return result

    def _run_in_order(self, program: Program, parts: StepParts) -> str | None:
        seen: set[str] = set()
        ran_forward = False
        for op in program.ops:
            ran_forward |= op.kind is Kind.FORWARD
            if op.kind is Kind.UPDATE or (op.kind is Kind.BACKWARD and op.part in self._fused):
                fault = _bad_loss(parts, seen) if ran_forward else None
                ran_forward = False
                fault = fault or self._bad_gradient(parts, op.part)
                if fault is not None:
                    return fault
            apply(op, parts)
        return _bad_loss(parts, seen)

    def _run_whole(self, program: Program, parts: StepParts) -> str | None:
        ops, num_before = self._orders.setdefault(program.ops, _writes_last(program, self._fused))
        for op in ops[:num_before]:
            apply(op, parts)
        written = [op.part for op in ops[num_before:]]
        fault = _bad_loss(parts, set()) or next(filter(None, (self._bad_gradient(parts, p) for p in written)), None)
        if self._gather is not None:
            fault = next(filter(None, self._gather(fault or "")), None)
        if fault is None:
            for op in ops[num_before:]:
                apply(op, parts)
        return fault

    def _bad_gradient(self, parts: StepParts, part: str) -> str | None:
        guarded = _guarded(parts)
        grads = [guarded.gradient_into(part)] if part in self._fused else list(guarded.running_gradients(part))
        if not grads or all(map(math.isfinite, torch.stack(torch._foreach_norm(grads, math.inf)).tolist())):
            return None
        return f"the gradient of part {part!r}"


def _bad_loss(parts: StepParts, seen: set[str]) -> str | None:
    # In model order, for later parts read the output of earlier ones.
    fresh = {name: loss for name, loss in _guarded(parts).running_losses().items() if name not in seen}
    seen |= fresh.keys()
    bad = [name for name, loss in fresh.items() if not math.isfinite(loss)]
    if not bad:
        return None
    also = f" (and with it that of {', '.join(map(repr, bad[1:]))})" if bad[1:] else ""
    return f"the loss of part {bad[0]!r}{also}"


def _writes_last(program: Program, fused: frozenset[str]) -> tuple[tuple[Op, ...], int]:
    """The operations with all that write weights at the end, and how many come before those."""
    writes = [op for op in program.ops if op.kind is Kind.UPDATE or (op.kind is Kind.BACKWARD and op.part in fused)]
    before = [op for op in program.ops if op not in writes]
    Program(program.graph, (*before, *writes))  # checks that the order is one that the dependencies allow
    return (*before, *writes), len(before)


def _guarded(parts: StepParts) -> GuardedParts:
    assert hasattr(parts, "abandon"), "these parts cannot be looked at in the middle of a step"
    return parts  # type: ignore[return-value]
