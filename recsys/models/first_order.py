"""The first-order (wide) term: a weight for every id and every dense feature."""

from __future__ import annotations

import torch
from torch import nn

from recsys.archs.layers import check_sizes


class FirstOrder(nn.Module):
    """The wide part of Wide & Deep (Cheng et al., 2016), as a logit without bias.

    The ids' weights are the means of the coordinates behind D of their tables' rows
    (``SparseConfig.first_order``), so that one lookup and one optimizer serve both. The mean, not the sum: a step of
    Adagrad moves every coordinate by about the learning rate, and dozens of weights move one logit together.

    Args:
        num_dense: N; may be 0.
        dim: D.

    Raises:
        ConfigError: ``dim`` is not a whole number of at least 1.
    """

    def __init__(self, num_dense: int, dim: int) -> None:
        super().__init__()
        check_sizes("first order", dim=dim)
        self.dim = dim
        self.dense = nn.Parameter(torch.zeros(num_dense)) if num_dense else None

    def forward(self, sparse_BFE: torch.Tensor, dense_BN: torch.Tensor) -> torch.Tensor:
        """Sum the weights of looked-up vectors ``(B, F, E)`` and dense features ``(B, N)``: float32 ``(B,)``."""
        logits_B = sparse_BFE[..., self.dim :].float().mean(dim=2).sum(dim=1)
        if self.dense is None:
            return logits_B
        # Not a matrix product: it must not be cast down under autocast.
        return logits_B + (dense_BN.float() * self.dense).sum(dim=1)
