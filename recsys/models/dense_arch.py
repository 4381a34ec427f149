"""The bottom MLP over the dense features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.layers import check_hidden, check_sizes, mlp
from recsys.models.piecewise_linear import PiecewiseLinear


class DenseArch(nn.Module):
    """Bottom MLP of DLRM (Naumov et al., 2019): dense features to vectors of the embedding dimension.

    Every layer ends in a ReLU, the last one too.

    Args:
        num_dense: N.
        dim: D.
        hidden: widths of the hidden layers.
        dropout: probability of dropping a hidden unit.
        num_tokens: vectors. DLRM has one, which is narrow for many dense features.
        num_bins: of the piecewise-linear encoding of the ``binned`` features; 0 reads every feature as it is.
        binned: indices of those features.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(
        self,
        num_dense: int,
        dim: int,
        *,
        hidden: Sequence[int] = (64,),
        dropout: float = 0.0,
        num_tokens: int = 1,
        num_bins: int = 0,
        binned: Sequence[int] = (),
    ) -> None:
        super().__init__()
        check_sizes("dense arch", num_dense=num_dense, dim=dim, tokens=num_tokens)
        check_hidden("dense arch", hidden)
        self.num_tokens = num_tokens
        self.encoder = PiecewiseLinear(num_dense, binned, num_bins) if num_bins else None
        width = num_dense if self.encoder is None else self.encoder.out_features
        self.mlp = nn.Sequential(mlp(width, hidden, num_tokens * dim, dropout=dropout), nn.ReLU())

    def forward(self, dense_BN: torch.Tensor) -> torch.Tensor:
        """Map dense features ``(B, N)`` to one dense vector ``(B, D)`` or several side by side ``(B, tokens * D)``."""
        dense_BD: torch.Tensor = self.mlp(dense_BN if self.encoder is None else self.encoder(dense_BN))
        return dense_BD
