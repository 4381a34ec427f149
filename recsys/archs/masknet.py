"""Parallel MaskNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import nn
from torch.nn import functional

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import KeyedDropout
from recsys.archs.layers import BlockLinear, check_hidden, check_sizes, linear, mlp


@final
class MaskNetArch(SubArch):
    """Mask blocks side by side, concatenated into an MLP (MaskNet, Wang et al., 2021, section 3.4).

    With V the flattened tokens and LN(V) its layer norm token by token, block i gives
    ``ReLU(LN(W_i (mask_i(V) * LN(V)) + b_i))`` where the instance-guided mask is
    ``mask_i(V) = W2_i ReLU(W1_i V + b1_i) + b2_i``. All blocks run as one batch of matrix products.

    Args:
        shape: shape of the tokens.
        num_blocks: mask blocks.
        mask_hidden: width of the mask's hidden layer (the paper's aggregation layer).
        block_features: output width of a block.
        hidden: widths of the hidden layers of the MLP on top of the blocks.
        out_features: O.
        dropout: probability of dropping an element of the blocks' outputs or a hidden unit of the MLP.

    Raises:
        ConfigError: a size is not a whole number of at least 1.
    """

    def __init__(
        self,
        shape: TokenShape,
        *,
        num_blocks: int = 2,
        mask_hidden: int = 16,
        block_features: int = 32,
        hidden: Sequence[int] = (32,),
        out_features: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes("masknet", num_blocks=num_blocks, mask_hidden=mask_hidden, block_features=block_features)
        check_sizes("masknet", out_features=out_features)
        check_hidden("masknet", hidden)
        self.out_features = out_features
        self.num_blocks = num_blocks
        self.token_norm = nn.LayerNorm(shape.dim)
        self.mask_in = linear(shape.flat, num_blocks * mask_hidden)
        self.mask_out = BlockLinear(num_blocks, mask_hidden, shape.flat)
        self.block = BlockLinear(num_blocks, shape.flat, block_features)
        self.block_scale = nn.Parameter(torch.ones(num_blocks, 1, block_features))
        self.block_shift = nn.Parameter(torch.zeros(num_blocks, 1, block_features))
        self.dropout = KeyedDropout(dropout)
        self.top = mlp(num_blocks * block_features, hidden, out_features, dropout=dropout)

    def masks(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """The mask of every block, ``(num_blocks, B, T * D)``."""
        hidden = functional.relu(self.mask_in(tokens_BTD.flatten(1)))
        out: torch.Tensor = self.mask_out(hidden.unflatten(1, (self.num_blocks, -1)).transpose(0, 1))
        return out

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        masked = self.masks(tokens_BTD) * self.token_norm(tokens_BTD).flatten(1)
        hidden = self.block(masked)
        normed = functional.layer_norm(hidden, hidden.shape[-1:]) * self.block_scale + self.block_shift
        blocks = functional.relu(normed).transpose(0, 1).flatten(1)
        out_BO: torch.Tensor = self.top(self.dropout(blocks))
        return out_BO
