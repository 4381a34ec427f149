"""Dropout that draws from a generator of its own."""

from __future__ import annotations

import torch
from torch import nn

from recsys.errors import ConfigError


class KeyedDropout(nn.Module):
    """Inverted dropout (Srivastava et al., 2014) drawing from the generator of its part.

    With the global generator, two schedules that run the same parts in another order would draw
    other masks. ``bind_generator`` gives every dropout of a part that part's generator.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not isinstance(p, int | float) or not 0.0 <= p < 1.0:
            raise ConfigError(f"dropout must be a number in [0, 1), got {p!r}")
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same shape out."""
        if not self.training or self.p == 0.0:
            return x
        return x * self._mask(x)

    @torch.compiler.disable
    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        keep = 1.0 - self.p
        return torch.empty_like(x).bernoulli_(keep, generator=self.generator).div_(keep)


def bind_generator(module: nn.Module, generator: torch.Generator) -> None:
    """Make every ``KeyedDropout`` inside ``module`` draw from ``generator``."""
    for child in module.modules():
        if isinstance(child, KeyedDropout):
            child.generator = generator
