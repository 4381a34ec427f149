"""The top MLP."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.layers import check_hidden, check_sizes, mlp, to_logit


class OverArch(nn.Module):
    """Top MLP of DLRM (Naumov et al., 2019): everything concatenated to one logit.

    Args:
        in_features: width of the concatenated inputs.
        hidden: widths of the hidden layers.
        dropout: probability of dropping a hidden unit.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = (64,), dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes("over arch", in_features=in_features)
        check_hidden("over arch", hidden)
        self.mlp = mlp(in_features, hidden, 1, dropout=dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``(B, in_features)`` to logits ``(B,)``; the sigmoid is left to the loss and the metrics."""
        *hidden, last = self.mlp
        for layer in hidden:
            x = layer(x)
        assert isinstance(last, nn.Linear)
        return to_logit(last, x)
