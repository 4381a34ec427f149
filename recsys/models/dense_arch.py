"""The bottom MLP over the dense features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.layers import check_hidden, check_sizes, mlp


class DenseArch(nn.Module):
    """Bottom MLP of DLRM (Naumov et al., 2019): dense features to one vector of the embedding dimension.

    Every layer ends in a ReLU, the last one too.

    Args:
        num_dense: N.
        dim: D.
        hidden: widths of the hidden layers.
        dropout: probability of dropping a hidden unit.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(self, num_dense: int, dim: int, *, hidden: Sequence[int] = (64,), dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes("dense arch", num_dense=num_dense, dim=dim)
        check_hidden("dense arch", hidden)
        self.mlp = nn.Sequential(mlp(num_dense, hidden, dim, dropout=dropout), nn.ReLU())

    def forward(self, dense_BN: torch.Tensor) -> torch.Tensor:
        """Map dense features ``(B, N)`` to the dense vector ``(B, D)``."""
        dense_BD: torch.Tensor = self.mlp(dense_BN)
        return dense_BD
