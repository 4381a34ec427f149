"""Wukong layers: stacked factorization machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import nn
from torch.nn import functional

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.layers import check_hidden, check_sizes, linear, mlp


class WukongLayer(nn.Module):
    """``LN(concat(FMB(X), LCB(X)) + residual(X))`` (Wukong, Zhang et al., 2024, section 3).

    - FMB, factorization machine block: ``reshape(MLP(LN(flatten(X X^T Y))))``, Y ``(T, rank)``.
      ``X (X^T Y)`` is the optimised form of the paper's section 3.6.
    - LCB, linear compression block: ``W X``, W ``(num_lcb, T)``.
    - residual: X, or a linear map over tokens where the number of tokens changes.

    Y, W and the residual map all read the tokens along T, so they are one matrix product.
    """

    def __init__(
        self, shape: TokenShape, *, num_fmb: int, num_lcb: int, rank: int, hidden: Sequence[int], dropout: float
    ) -> None:
        super().__init__()
        self.num_fmb = num_fmb
        self.out_shape = TokenShape(num_fmb + num_lcb, shape.dim)
        num_residual = 0 if self.out_shape == shape else self.out_shape.num_tokens
        self.splits = (rank, num_lcb, num_residual)
        self.over_tokens = linear(shape.num_tokens, sum(self.splits), bias=False)
        self.fm_norm = nn.LayerNorm(shape.num_tokens * rank)
        self.fm_mlp = mlp(shape.num_tokens * rank, hidden, num_fmb * shape.dim, dropout=dropout)
        self.out_norm = nn.LayerNorm(shape.dim)

    def fmb(self, tokens_BTD: torch.Tensor, summary_BDR: torch.Tensor) -> torch.Tensor:
        """Tokens and ``X^T Y`` to ``(B, num_fmb, D)``."""
        fm_BTR = torch.bmm(tokens_BTD, summary_BDR)
        out: torch.Tensor = self.fm_mlp(self.fm_norm(fm_BTR.flatten(1)))
        return out.unflatten(1, (self.num_fmb, tokens_BTD.shape[2]))

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, num_fmb + num_lcb, D)``."""
        # Zero tokens up to a multiple of 8: unaligned rows miss a GPU's fast kernels.
        padding = (0, -tokens_BTD.shape[1] % 8 if tokens_BTD.is_cuda else 0)
        tokens_BDT, weight = tokens_BTD.transpose(1, 2), self.over_tokens.weight
        along_T = functional.linear(functional.pad(tokens_BDT, padding), functional.pad(weight, padding))
        summary_BDR, lcb, residual = along_T.split(self.splits, dim=2)
        residual_BTD = residual.transpose(1, 2) if self.splits[2] else tokens_BTD
        mixed = torch.cat([self.fmb(tokens_BTD, summary_BDR), lcb.transpose(1, 2)], dim=1)
        out: torch.Tensor = self.out_norm(mixed + residual_BTD)
        return out


@final
class WukongArch(SubArch):
    """A stack of Wukong layers, flattened into a Linear (Wukong, Zhang et al., 2024).

    Args:
        shape: shape of the tokens.
        num_layers: layers; the degree of the interactions doubles with each.
        num_fmb: tokens that a layer's factorization machine block gives.
        num_lcb: tokens that a layer's linear compression block gives.
        rank: columns of Y, the rank of the factorization machine.
        hidden: widths of the hidden layers of the block's MLP.
        out_features: O.
        dropout: probability of dropping a hidden unit of the block's MLP.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(
        self,
        shape: TokenShape,
        *,
        num_layers: int = 2,
        num_fmb: int = 8,
        num_lcb: int = 8,
        rank: int = 8,
        hidden: Sequence[int] = (32,),
        out_features: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes("wukong", num_layers=num_layers, num_fmb=num_fmb, num_lcb=num_lcb, rank=rank)
        check_sizes("wukong", out_features=out_features)
        check_hidden("wukong", hidden)
        self.out_features = out_features
        self.layers = nn.Sequential()
        for _ in range(num_layers):
            layer = WukongLayer(shape, num_fmb=num_fmb, num_lcb=num_lcb, rank=rank, hidden=hidden, dropout=dropout)
            self.layers.append(layer)
            shape = layer.out_shape
        self.project = linear(shape.flat, out_features)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        out_BO: torch.Tensor = self.project(self.layers(tokens_BTD).flatten(1))
        return out_BO
