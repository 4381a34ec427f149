"""Learning-rate factors by step."""

from __future__ import annotations

import math

import pytest

from recsys.errors import ConfigError
from recsys.optim.lr_schedule import LrSchedule


def factors(schedule: LrSchedule, total: int) -> list[float]:
    return [schedule.factor(step, total) for step in range(total)]


def test_constant() -> None:
    assert LrSchedule().is_constant
    assert factors(LrSchedule(), 3) == [1.0, 1.0, 1.0]


def test_warm_up_rises_in_equal_steps_and_never_starts_at_zero() -> None:
    schedule = LrSchedule(warmup_steps=4)
    assert not schedule.is_constant
    assert factors(schedule, 6) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_linear_decay_ends_with_the_training() -> None:
    assert factors(LrSchedule(decay="linear"), 4) == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert LrSchedule(decay="linear").factor(4, 4) == 0.0


def test_cosine_decay() -> None:
    schedule = LrSchedule(warmup_steps=2, decay="cosine", min_factor=0.1)
    expected = [0.5, 1.0, *(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / 4)) for i in range(4))]
    assert factors(schedule, 6) == pytest.approx(expected)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_after_its_end_the_least_factor_stays(decay: str) -> None:
    schedule = LrSchedule(decay=decay, min_factor=0.2, decay_steps=5)
    assert schedule.factor(4, 100) > 0.2
    assert [schedule.factor(step, 100) for step in (5, 6, 99)] == pytest.approx([0.2, 0.2, 0.2])


def test_a_warm_up_as_long_as_the_training() -> None:
    assert factors(LrSchedule(warmup_steps=3, decay="linear"), 3) == pytest.approx([1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay": "step"}, r"optim\.lr_schedule\.decay=step: valid are constant, linear, cosine"),
        ({"warmup_steps": -1}, r"optim\.lr_schedule: steps must be >= 0"),
        ({"min_factor": 1.5}, r"optim\.lr_schedule: .*min_factor in \[0, 1\]"),
    ],
)
def test_a_value_that_cannot_work_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LrSchedule(**changes)  # type: ignore[arg-type]
