"""One training step as a callable: program, executor, optimizers and learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from recsys.data.slices import split_evenly
from recsys.optim.device_lr import LearningRates
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule.executors.base import Executor
from recsys.schedule.program import Program
from recsys.schedule.step import StepParts, StepResult


@dataclass
class Stepper:
    """Runs one step a call and moves the learning rates of the dense parts and the tables.

    Attributes:
        step: steps done.
        total_steps: steps of the whole run, for decays that end with it.
        accumulate: the program of a pass without updates; then a batch is cut into ``passes`` slices, all but the
            last run by it. Losses and gradients are those of the batch in one piece.
        passes: forwards and backwards a step.
    """

    parts: StepParts
    program: Program
    executor: Executor
    rates: LearningRates
    set_sparse_lr_factor: Callable[[float], None]
    lr_schedule: LrSchedule
    total_steps: int
    step: int = 0
    accumulate: Program | None = None
    passes: int = 1

    def __call__(self, batch: Any) -> StepResult:
        """Train on ``batch``, which is on the device of the model."""
        if not self.lr_schedule.is_constant:
            self._set_lr(self.lr_schedule.factor(self.step, self.total_steps))
        self.step += 1
        if self.accumulate is None:
            return self.executor.run(self.program, self.parts, batch)
        *first, last = split_evenly(batch, self.passes)
        results = [self.executor.run(self.accumulate, self.parts, piece) for piece in first]
        results.append(self.executor.run(self.program, self.parts, last))
        return _join(results, batch.num_rows)

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Optimizers of the dense parts by part name; none where the parts have no such things."""
        return getattr(self.parts, "optimizers", {})

    def finish(self) -> None:
        """Wait for what a step left running: before weights are read outside of a step."""
        self.executor.finish()

    def _set_lr(self, factor: float) -> None:
        self.rates.set_factor(factor)
        self.set_sparse_lr_factor(factor)


def _join(results: list[StepResult], rows: int) -> StepResult:
    """The result of the slices' whole: losses add up, logits follow each other, padding falls off the end."""
    first = results[0]
    return StepResult(
        {n: torch.stack([r.losses[n] for r in results]).sum() for n in first.losses},
        {n: torch.cat([r.logits[n] for r in results])[:rows] for n in first.logits},
    )
