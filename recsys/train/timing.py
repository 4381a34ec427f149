"""Training speed of two models side by side."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from recsys.data.source import BatchSource
from recsys.train.stepper import Stepper
from recsys.types import Batch

_WARMUP_STEPS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds for the same rows, one entry a turn.

    Attributes:
        seconds: for each stepper, one value a round.
        rows: rows in one turn.
    """

    seconds: tuple[list[float], ...]
    rows: int


def time_interleaved(
    steppers: Sequence[Stepper],
    source: BatchSource,
    device: torch.device,
    *,
    rounds: int,
    steps: int,
    clock: Callable[[], float] | None = None,
) -> Timing:
    """Let the steppers take turns on the same batches; the order flips every round.

    The models train on while they are timed: time copies, not the ones whose figures count.

    Args:
        steppers: those to compare.
        source: whole batches are taken from its start.
        device: where the models are.
        rounds: turns of each stepper.
        steps: training steps a turn.
        clock: in seconds; None: the wall clock. ``time.process_time`` leaves out what other programs do to a step,
            where one thread runs it.
    """
    clock = clock or time.perf_counter
    source.load_state_dict({"epoch": 0, "batch": 0})
    batches = [b.to(device) for b in itertools.islice(iter(source), steps)]
    whole = [b for b in batches if b.num_rows == batches[0].num_rows]
    for stepper in steppers:
        _turn(stepper, (whole * _WARMUP_STEPS)[:_WARMUP_STEPS], device, clock)
    seconds: tuple[list[float], ...] = tuple([] for _ in steppers)
    turn = [whole[i % len(whole)] for i in range(steps)]
    for number in range(rounds):
        order = range(len(steppers)) if number % 2 == 0 else range(len(steppers) - 1, -1, -1)
        for index in order:
            seconds[index].append(_turn(steppers[index], turn, device, clock))
    return Timing(seconds, steps * whole[0].step_rows)


def _turn(stepper: Stepper, batches: Sequence[Batch], device: torch.device, clock: Callable[[], float]) -> float:
    _wait(device)
    start = clock()
    for batch in batches:
        stepper(batch)
    _wait(device)
    return clock() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
