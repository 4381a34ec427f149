"""The interface of an executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch.profiler import record_function

from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult


class Executor(ABC):
    """Runs a program's operations on the parts of a model."""

    @abstractmethod
    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run one training step on ``batch``."""

    def finish(self) -> None:  # noqa: B027
        """Make the caller's stream wait for all earlier steps: before weights are read outside of a step.

        A no-op where a step leaves nothing behind.
        """


def apply(op: Op, parts: StepParts) -> None:
    """Run one operation inside a profiler range of its name."""
    with record_function(str(op)):
        if op.kind is Kind.FORWARD:
            parts.forward(op.part)
        elif op.kind is Kind.BACKWARD:
            parts.backward(op.part)
        elif op.kind is Kind.REDUCE:
            parts.reduce(op.part)
        else:
            parts.update(op.part)
