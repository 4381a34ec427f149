"""Pairwise dot products (DLRM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import nn
from torch.nn import functional

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import KeyedDropout
from recsys.archs.layers import check_hidden, check_sizes, linear, mlp
from recsys.errors import ConfigError


class PairLinear(nn.Module):
    """A Linear over the ``T * (T - 1) / 2`` dot products of different tokens.

    Gathering the triangle out of the products ``(B, T, T)`` has a slow backward: a scatter over
    every sample. Here the small weight is spread over the ``T * T`` columns instead, zero where a
    product is a repetition or a square, so that the products are read where they lie; the backward
    of the spread is a gather of weight size. Function and parameters are those of the gather.
    """

    pair_index: torch.Tensor

    def __init__(self, num_tokens: int, out_features: int) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        # Zero tokens up to a multiple of 8: rows of products that start unaligned miss the fast kernels.
        self.padding = -num_tokens % 8
        self.num_columns = num_tokens * (num_tokens + self.padding)
        rows, columns = torch.tril_indices(num_tokens, num_tokens, offset=-1)
        self.register_buffer("pair_index", rows * (num_tokens + self.padding) + columns, persistent=False)
        self.over_pairs = linear(rows.numel(), out_features)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, out_features)``."""
        padded = functional.pad(tokens_BTD, (0, 0, 0, self.padding))
        dots_BTT = torch.bmm(tokens_BTD, padded.transpose(1, 2))
        weight = self.over_pairs.weight
        spread = weight.new_zeros(weight.shape[0], self.num_columns).index_copy(1, self.pair_index, weight)
        return functional.linear(dots_BTT.flatten(1), spread, self.over_pairs.bias)


@final
class DotArch(SubArch):
    """MLP over the dot products of every two tokens, the interaction of DLRM (Naumov et al., 2019).

    Args:
        shape: shape of the tokens, T >= 2.
        hidden: widths of the hidden layers of the MLP; empty for one Linear over the pairs.
        out_features: O.
        dropout: probability of dropping a hidden unit.

    Raises:
        ConfigError: a size is not a whole number of at least 1, or there are fewer than 2 tokens.
    """

    def __init__(
        self, shape: TokenShape, *, hidden: Sequence[int] = (64,), out_features: int = 32, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes("dot", out_features=out_features)
        check_hidden("dot", hidden)
        if shape.num_tokens < 2:
            raise ConfigError("dot: there is no pair among fewer than 2 features; leave this sub-architecture out")
        self.out_features = out_features
        first, *rest = [*hidden, out_features]
        self.pairs = PairLinear(shape.num_tokens, first)
        self.top = nn.Sequential()
        if rest:
            self.top = nn.Sequential(
                nn.ReLU(), KeyedDropout(dropout), mlp(first, rest[:-1], out_features, dropout=dropout)
            )

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        out_BO: torch.Tensor = self.top(self.pairs(tokens_BTD))
        return out_BO
