"""Low-rank cross network (DCNv2)."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import KeyedDropout
from recsys.archs.layers import check_sizes, linear


class CrossLayer(nn.Module):
    """``x_{l+1} = x_0 * (U V^T x_l + b) + x_l`` with U, V of shape ``(width, rank)``.

    DCN V2 (Wang et al., 2021), equation 2: one layer raises the polynomial degree by one.
    """

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.v = linear(width, rank, bias=False)
        self.u = linear(rank, width)

    def forward(self, x_0: torch.Tensor, x_l: torch.Tensor) -> torch.Tensor:
        """``(B, width)`` twice in, ``(B, width)`` out."""
        return x_0 * self.u(self.v(x_l)) + x_l


@final
class CrossArch(SubArch):
    """Low-rank cross layers over the flattened tokens, then a Linear (DCN V2, Wang et al., 2021).

    Args:
        shape: shape of the tokens.
        num_layers: cross layers; the output holds interactions up to degree ``num_layers + 1``.
        rank: rank of the weight matrix of a cross layer.
        out_features: O; null leaves the Linear out and gives the crossed tokens, O = T * D.
        dropout: probability of dropping an element of the crossed tokens.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(
        self,
        shape: TokenShape,
        *,
        num_layers: int = 2,
        rank: int = 16,
        out_features: int | None = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.out_features = shape.flat if out_features is None else out_features
        check_sizes("cross", num_layers=num_layers, rank=rank, out_features=self.out_features)
        self.layers = nn.ModuleList(CrossLayer(shape.flat, rank) for _ in range(num_layers))
        self.dropout = KeyedDropout(dropout)
        self.project = nn.Identity() if out_features is None else linear(shape.flat, out_features)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        x_0 = tokens_BTD.flatten(1)
        x_l = x_0
        for layer in self.layers:
            x_l = layer(x_0, x_l)
        out_BO: torch.Tensor = self.project(self.dropout(x_l))
        return out_BO
