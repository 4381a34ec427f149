"""The head that gives a sub-architecture a prediction of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.layers import check_hidden, check_sizes, mlp, to_logit


class LocalHead(nn.Module):
    """Linear or MLP from a sub-architecture's output to a logit, for its local loss.

    Args:
        in_features: O of the sub-architecture.
        hidden: widths of the hidden layers; empty for a linear head.
        dropout: probability of dropping a hidden unit.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = (), dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes("local head", in_features=in_features)
        check_hidden("local head", hidden)
        self.mlp = mlp(in_features, hidden, 1, dropout=dropout)

    def forward(self, out_BO: torch.Tensor) -> torch.Tensor:
        """Map ``(B, O)`` to logits ``(B,)``."""
        *hidden, last = self.mlp
        for layer in hidden:
            out_BO = layer(out_BO)
        assert isinstance(last, nn.Linear)
        return to_logit(last, out_BO)
