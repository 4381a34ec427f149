"""MLP tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.layers import check_hidden, check_sizes, mlp


@final
class MLPArch(SubArch):
    """MLP over the flattened tokens: the deep part of Wide & Deep (Cheng et al., 2016).

    Args:
        shape: shape of the tokens.
        hidden: widths of the hidden layers.
        out_features: O.
        dropout: probability of dropping a hidden unit.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(
        self, shape: TokenShape, *, hidden: Sequence[int] = (64,), out_features: int = 32, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes("mlp", out_features=out_features)
        check_hidden("mlp", hidden)
        self.out_features = out_features
        self.tower = mlp(shape.flat, hidden, out_features, dropout=dropout)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        out_BO: torch.Tensor = self.tower(tokens_BTD.flatten(1))
        return out_BO
