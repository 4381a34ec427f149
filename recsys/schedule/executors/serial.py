"""One operation after the other, in program order."""

from __future__ import annotations

from typing import Any

from recsys.schedule.executors.base import Executor, apply
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult


class SerialExecutor(Executor):
    """Ignores lanes. The reference that every other executor must agree with."""

    def run(self, program: Program, parts: StepParts, batch: Any) -> StepResult:
        """Run the operations in the order in which they stand."""
        parts.begin(batch)
        for op in program.ops:
            apply(op, parts)
        return parts.end()
