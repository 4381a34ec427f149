"""Learning-rate schedules as a pure function of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsys.errors import ConfigError

DECAYS = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class LrSchedule:
    """Linear warm-up, then a decay; multiplies every configured learning rate, dense and sparse.

    Attributes:
        warmup_steps: steps until the full rate.
        decay: ``constant``, ``linear`` or ``cosine``.
        min_factor: where the decay ends.
        decay_steps: step at which it ends; 0 means the end of training.
    """

    warmup_steps: int = 0
    decay: str = "constant"
    min_factor: float = 0.0
    decay_steps: int = 0

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            raise ConfigError(f"optim.lr_schedule.decay={self.decay}: valid are {', '.join(DECAYS)}")
        if self.warmup_steps < 0 or self.decay_steps < 0 or not 0 <= self.min_factor <= 1:
            raise ConfigError("optim.lr_schedule: steps must be >= 0 and min_factor in [0, 1]")

    @property
    def is_constant(self) -> bool:
        """Whether the factor is 1 at every step."""
        return self.warmup_steps == 0 and self.decay == "constant"

    def factor(self, step: int, total_steps: int) -> float:
        """Factor of the learning rate in step ``step`` (from 0) of ``total_steps``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay == "constant":
            return 1.0
        span = max(1, (self.decay_steps or total_steps) - self.warmup_steps)
        done = min(1.0, (step - self.warmup_steps) / span)
        shape = 1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.min_factor + (1.0 - self.min_factor) * shape
