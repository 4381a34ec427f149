"""A sub-architecture whose backward into the tokens takes a known time: detached, it does not run."""

from __future__ import annotations

import time
from typing import Any

import torch

from recsys.archs.base import SubArch, TokenShape


class _Spin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens_BTD: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return tokens_BTD.view_as(tokens_BTD)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        # Not asleep: work of a known length by any clock.
        end = time.process_time() + ctx.seconds
        while time.process_time() < end:
            pass
        return grads[0], None


class SpinningArch(SubArch):
    """One linear layer over the flattened tokens."""

    def __init__(
        self, shape: TokenShape, *, backward_ms: float = 0.0, out_features: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.out_features = out_features
        self._seconds = backward_ms / 1000
        self._layer = torch.nn.Linear(shape.flat, out_features)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        return self._layer(_Spin.apply(tokens_BTD, self._seconds).flatten(1))
