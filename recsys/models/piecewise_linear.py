"""Piecewise-linear encoding of numbers, so that a first layer can bend at many places."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.layers import check_sizes

REACH = 3.0
"""Knots lie in ``[-REACH, REACH]``, in standard deviations: the preparation standardises dense features."""


class PiecewiseLinear(nn.Module):
    """Each chosen feature becomes its own value and ``num_bins`` numbers (Gorishniy, Rubachev, Babenko, 2022).

    Number t is ``clamp((x - k_t) / (k_{t+1} - k_t), 0, 1)`` for knots ``k`` spread evenly over ``[-REACH, REACH]``:
    a linear layer of it is a function of x with a bend at every knot. The other features stay as they are.

    Args:
        num_dense: N.
        chosen: indices of the features to encode.
        num_bins: of each.

    Raises:
        ConfigError: ``num_bins`` is not a whole number of at least 1.
    """

    knots: torch.Tensor
    chosen: torch.Tensor

    def __init__(self, num_dense: int, chosen: Sequence[int], num_bins: int) -> None:
        super().__init__()
        check_sizes("dense arch", bins=num_bins)
        self.out_features = num_dense + len(chosen) * num_bins
        self._width = 2 * REACH / num_bins
        self.register_buffer("knots", -REACH + self._width * torch.arange(num_bins), persistent=False)
        self.register_buffer("chosen", torch.tensor(list(chosen), dtype=torch.int64), persistent=False)

    def forward(self, dense_BN: torch.Tensor) -> torch.Tensor:
        """``(B, N)`` to ``(B, out_features)``."""
        x = dense_BN.index_select(1, self.chosen).unsqueeze(2)
        bins = ((x - self.knots) / self._width).clamp(0.0, 1.0)
        return torch.cat([dense_BN, bins.flatten(1)], dim=1)
