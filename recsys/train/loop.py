"""The training loop: one model over its training rows, the best state by valid NE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field

import torch

from recsys.data.source import BatchSource, DataSplits
from recsys.distributed.world import ALONE, World
from recsys.errors import CheckpointError, NonFiniteError, UserError
from recsys.metrics import RunningNE
from recsys.models.recommender import OVER, Recommender
from recsys.report.curve import CurvePoint
from recsys.train.best_state import Best, copy_state, refresh, write_back
from recsys.train.checkpointing import Checkpointing
from recsys.train.evaluator import Autocast, evaluate
from recsys.train.feed import DeviceFeed
from recsys.train.finite import FiniteGuard, nonfinite_message
from recsys.train.fit_state import FitState
from recsys.train.prediction import PLAIN, Prediction
from recsys.train.progress import Progress
from recsys.train.stepper import Stepper
from recsys.train.stop_signal import Stopped, StopSignal
from recsys.types import Batch

_CUDA_CHECK_STEPS = 100


@dataclass(frozen=True)
class LoopConfig:
    """What the loop itself decides; see ``configs/trainer/default.yaml``.

    Attributes:
        window_rows: latest training rows that the NE in the progress display covers; None: all.
        max_skipped_steps: steps that may be left out because a number is not finite; None: the first ends the run.
    """

    epochs: int
    evals_per_epoch: int
    keep_best: bool
    patience: int
    quiet: bool
    window_rows: int | None = None
    max_skipped_steps: int | None = None


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

    Args:
        prediction: makes the logit by which valid rows are scored.
        world: the ranks that train together.
        checkpoints: how the run is saved and what it goes on from; None never saves.
        on_point: called with each point that is added to the learning curve.

    Raises:
        NonFiniteError: a loss or a prediction is NaN or infinite; names the part.
        Stopped: SIGTERM came; with ``checkpoints`` the run is saved.
    """

    def __init__(
        self,
        model: Recommender,
        stepper: Stepper,
        data: DataSplits,
        device: torch.device,
        config: LoopConfig,
        autocast: Autocast = None,
        checkpoints: Checkpointing | None = None,
        on_point: Callable[[CurvePoint], None] | None = None,
        prediction: Prediction = PLAIN,
        world: World = ALONE,
    ) -> None:
        self._world = world
        self._on_point = on_point
        self._model, self._stepper, self._data = model, stepper, data
        self._prediction = prediction
        self._device, self._config, self._autocast = device, config, autocast
        self._checkpoints = checkpoints
        self._check_every = 1 if device.type == "cpu" else _CUDA_CHECK_STEPS
        self._guard = FiniteGuard(self._check_every)
        self._running = RunningNE(config.window_rows)
        self._state = FitState()
        self._best: Best | None = None

    def run(self, title: str) -> FitResult:
        """Train for the configured epochs, or until patience ends, and put the best state back."""
        state = self._restore()
        self._model.train()
        with Progress(self._config.epochs * self._data.train.num_rows, title, self._config.quiet) as progress:
            progress.skip(state.rows)
            with StopSignal() as signal, self._closing():
                self._train(progress, signal)
        self._guard.check()
        self._stepper.finish()
        if self._best is None:
            state.best_rows = state.rows
        else:
            write_back(self._best, self._model)
        return FitResult(state.curve, state.best_rows, state.rows)

    def _train(self, progress: Progress, signal: StopSignal) -> None:
        state, feed = self._state, DeviceFeed(self._device)
        for batch, evaluate_now in self._batches(self._data.train):
            moved = feed(batch)
            step = self._stepper(moved)
            if step.fault is None:
                self._guard.update(step.losses)
                self._running.update(step.logits[OVER], moved.labels, moved.weights)
            else:
                self._skip(step.fault)
            state.advance(batch.step_rows, len(self._data.train))
            progress.update(batch.step_rows, self._running.compute)
            is_best = False
            if evaluate_now:
                is_best = self._evaluate()
                if self._is_out_of_patience:
                    return
            self._save_or_stop(signal, is_best)

    def _skip(self, fault: str) -> None:
        """Leave the step out, as it left the weights, or end the run."""
        limit, step = self._config.max_skipped_steps, self._state.step
        if limit is None or self._state.skipped == limit:
            skipped = f" after {limit} steps that were skipped" if limit else ""
            raise NonFiniteError(nonfinite_message(fault, step) + skipped)
        self._state.skipped += 1
        count = f"{self._state.skipped} of at most {limit}"
        print(f"{fault} is NaN or infinite in step {step}, counted from 0: its batch is skipped ({count})", flush=True)

    @property
    def _is_out_of_patience(self) -> bool:
        return 0 < self._config.patience <= self._state.since_best

    def _batches(self, train: BatchSource) -> Iterator[tuple[Batch, bool]]:
        num = len(train)
        evals = min(self._config.evals_per_epoch, num)
        due = {num * (i + 1) // evals for i in range(evals)}
        first = self._state.batch
        for _ in range(self._state.epoch, self._config.epochs):
            for index, batch in enumerate(train, start=first + 1):
                yield batch, index in due
            first = 0

    def _evaluate(self) -> bool:
        """Add a point to the curve; whether it is the best so far."""
        self._guard.check()
        self._stepper.finish()
        state = self._state
        valid = evaluate(self._model, self._data.valid, self._device, self._autocast, self._prediction, self._world)
        ne = valid.compute().ne
        state.curve.append(CurvePoint(state.rows, ne, valid.heads_ne()))
        if self._on_point is not None:
            self._on_point(state.curve[-1])
        if ne is None:
            return False
        if state.best_ne is not None and not ne < state.best_ne:
            state.since_best += 1
            return False
        state.best_ne, state.since_best = ne, 0
        if self._config.keep_best:
            self._keep()
        return True

    def _keep(self) -> None:
        self._state.best_rows = self._state.rows
        if self._best is None:
            self._best = copy_state(self._model)
        else:
            refresh(self._best, self._model)

    def _restore(self) -> FitState:
        if self._checkpoints is not None:
            restored = self._checkpoints.restore(self._model, self._stepper, self._running, self._device)
            self._state, self._best = restored
            self._guard = FiniteGuard(self._check_every, self._state.step)
        try:
            self._data.train.load_state_dict({"epoch": self._state.epoch, "batch": self._state.batch})
        except UserError as error:
            place = "" if self._checkpoints is None else f"{self._checkpoints.place}: "
            raise CheckpointError(f"{place}{error}") from error
        return self._state

    def _save_or_stop(self, signal: StopSignal, is_best: bool) -> None:
        checkpoints = self._checkpoints
        if checkpoints is None:
            if signal.received:
                raise Stopped
            return
        due, stop = checkpoints.wants(self._state.step, signal.received)
        if due or stop or (is_best and checkpoints.saves_best):
            self._guard.check()  # a checkpoint of a model that is lost would replace a good one
            self._stepper.finish()
            checkpoints.save(self._state, self._model, self._stepper, self._running, self._best, wait=stop)
        if stop:
            raise Stopped

    def _closing(self) -> AbstractContextManager[object]:
        return nullcontext() if self._checkpoints is None else closing(self._checkpoints.saver)
