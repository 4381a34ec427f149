"""The training loop: one model over its training rows, the best state by valid NE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from recsys.data.source import BatchSource, DataSplits
from recsys.distributed.state import local_tensors
from recsys.distributed.world import ALONE, World
from recsys.metrics import RunningNE
from recsys.models.recommender import OVER, Recommender
from recsys.report.curve import CurvePoint
from recsys.train.evaluator import Autocast, evaluate
from recsys.train.feed import DeviceFeed
from recsys.train.finite import FiniteGuard
from recsys.train.progress import Progress
from recsys.train.stepper import Stepper
from recsys.types import Batch

_CUDA_CHECK_STEPS = 100


@dataclass(frozen=True)
class LoopConfig:
    """What the loop itself decides; see ``configs/trainer/default.yaml``.

    Attributes:
        window_rows: latest training rows that the NE in the progress display covers; None: all.
    """

    epochs: int
    evals_per_epoch: int
    keep_best: bool
    patience: int
    quiet: bool
    window_rows: int | None = None


@dataclass
class FitResult:
    """What a training run leaves.

    Attributes:
        curve: valid NE over training rows seen.
        best_rows: training rows seen by the state that the model now holds.
        rows: training rows seen in all.
    """

    curve: list[CurvePoint] = field(default_factory=list)
    best_rows: int = 0
    rows: int = 0


class Fit:
    """Trains ``model`` by ``stepper``.

    Raises:
        NonFiniteError: a loss or a prediction is NaN or infinite; names the part.
    """

    def __init__(
        self,
        model: Recommender,
        stepper: Stepper,
        data: DataSplits,
        device: torch.device,
        config: LoopConfig,
        autocast: Autocast = None,
        world: World = ALONE,
    ) -> None:
        self._model, self._stepper, self._data = model, stepper, data
        self._world = world
        self._device, self._config, self._autocast = device, config, autocast
        self._guard = FiniteGuard(1 if device.type == "cpu" else _CUDA_CHECK_STEPS)
        self._best_ne: float | None = None
        self._best_state: list[torch.Tensor] | None = None
        self._since_best = 0

    def run(self, title: str) -> FitResult:
        """Train for the configured epochs, or until patience ends, and put the best state back."""
        config, train = self._config, self._data.train
        train.load_state_dict({"epoch": 0, "batch": 0})
        result, running, feed = FitResult(), RunningNE(config.window_rows), DeviceFeed(self._device)
        self._model.train()
        with Progress(config.epochs * train.num_rows, title, config.quiet) as progress:
            for batch, evaluate_now in self._batches(train):
                moved = feed(batch)
                step = self._stepper(moved)
                self._guard.update(step.losses)
                running.update(step.logits[OVER], moved.labels, moved.weights)
                result.rows += batch.step_rows
                progress.update(batch.step_rows, running.compute)
                if evaluate_now and self._evaluate(result):
                    break
        self._guard.check()
        self._stepper.finish()
        if self._best_state is None:
            result.best_rows = result.rows
        else:
            restore(self._model, self._best_state)
        return result

    def _batches(self, train: BatchSource) -> Iterator[tuple[Batch, bool]]:
        num = len(train)
        evals = min(self._config.evals_per_epoch, num)
        due = {num * (i + 1) // evals for i in range(evals)}
        for _ in range(self._config.epochs):
            for index, batch in enumerate(train, start=1):
                yield batch, index in due

    def _evaluate(self, result: FitResult) -> bool:
        """Add a point to the curve; whether to stop."""
        self._guard.check()
        self._stepper.finish()
        ne = evaluate(self._model, self._data.valid, self._device, self._autocast, self._world).compute().ne
        result.curve.append(CurvePoint(result.rows, ne))
        if ne is None:
            return False
        if self._best_ne is None or ne < self._best_ne:
            self._best_ne, self._since_best = ne, 0
            if self._config.keep_best:
                self._keep(result)
            return False
        self._since_best += 1
        return 0 < self._config.patience <= self._since_best

    def _keep(self, result: FitResult) -> None:
        result.best_rows = result.rows
        if self._best_state is None:
            self._best_state = [t.clone() for t in local_tensors(self._model)]
            return
        for kept, now in zip(self._best_state, local_tensors(self._model), strict=True):
            kept.copy_(now)


@torch.no_grad()
def restore(model: Recommender, kept: list[torch.Tensor]) -> None:
    """Write back what ``local_tensors`` gave earlier."""
    for now, then in zip(local_tensors(model), kept, strict=True):
        now.copy_(then)
