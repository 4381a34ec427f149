"""Two models take turns on the same batches."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
import torch

from recsys.train import timing
from recsys.train.stepper import Stepper
from recsys.train.timing import time_interleaved
from recsys.types import Batch
from tests.reference.toy import CPU
from tests.reference.toy_data import toy_source

Log = list[tuple[str, torch.Tensor]]


class Recorder:
    """Stands in for a stepper; its steps take ``cost`` ticks of the clock."""

    def __init__(self, name: str, cost: float, log: Log, clock: list[float]) -> None:
        self.name, self.cost, self.log, self.clock = name, cost, log, clock

    def __call__(self, batch: Batch) -> None:
        self.log.append((self.name, batch.labels))
        self.clock[0] += self.cost


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def measure(log: Log, clock: list[float], rows: int, batch_size: int, **options: Any) -> timing.Timing:
    steppers = [Recorder("a", 1.0, log, clock), Recorder("b", 3.0, log, clock)]
    return time_interleaved(cast(list[Stepper], steppers), toy_source(rows, batch_size), CPU, **options)


def turns(log: Log, steps: int) -> str:
    return "".join(name for name, _ in log[::steps])


def test_turns_alternate_and_their_order_flips_every_round(clock: list[float]) -> None:
    log: Log = []
    timed = measure(log, clock, 96, 16, rounds=3, steps=2)
    warm_up = log[: len(log) - 3 * 2 * 2]
    assert {name for name, _ in warm_up} == {"a", "b"}, "the slow first steps of both are not counted"
    assert turns(log[len(warm_up) :], 2) == "abbaab"
    assert timed.seconds == ([2.0, 2.0, 2.0], [6.0, 6.0, 6.0])
    assert timed.rows == 32


def test_every_turn_sees_the_same_whole_batches(clock: list[float]) -> None:
    log: Log = []
    # Two whole batches and a short one: the short one is left out, and three steps start over.
    timed = measure(log, clock, 40, 16, rounds=2, steps=3)
    assert timed.rows == 48
    counted = [labels for _, labels in log[-12:]]
    assert all(len(labels) == 16 for labels in counted)
    for turn in range(1, 4):
        for step in range(3):
            assert torch.equal(counted[3 * turn + step], counted[step])
    assert torch.equal(counted[0], counted[2]) and not torch.equal(counted[0], counted[1])


def test_fewer_rows_than_a_batch(clock: list[float]) -> None:
    timed = measure([], clock, 10, 16, rounds=1, steps=2)
    assert timed.rows == 20
