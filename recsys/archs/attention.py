"""Multi-head self-attention over the tokens (AutoInt)."""

from __future__ import annotations

from typing import final

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import KeyedDropout
from recsys.archs.layers import check_sizes, linear
from recsys.errors import ConfigError

_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class InteractingLayer(nn.Module):
    """``ReLU(concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) + W_res X)`` (AutoInt, Song et al., 2019, section 4.4).

    The scores are divided by ``sqrt(d)``, d the width of a head, as in Vaswani et al. (2017); the
    paper leaves them as they are. Query, key, value and residual maps are one matrix product. They
    have no bias: softmax cancels a bias of the keys, which would be a parameter without gradient.
    """

    def __init__(self, dim: int, *, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.out_dim = num_heads * head_dim
        self.query_key_value_residual = linear(dim, 4 * self.out_dim, bias=False)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, T, num_heads * head_dim)``."""
        q, k, v, residual = self.query_key_value_residual(tokens_BTD).split(self.out_dim, dim=2)
        q, k, v = (x.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        # On a few dozen tokens cuDNN's and FlashAttention's kernels, torch's first choices, compute mostly padding
        # (27 tokens, 4 heads of 32, forward and backward: 92, 153 and 75 us).
        with sdpa_kernel(_KERNELS):
            heads = functional.scaled_dot_product_attention(q, k, v)
        return functional.relu(heads.transpose(1, 2).flatten(2) + residual)


@final
class AttentionArch(SubArch):
    """Interacting layers over the tokens, flattened into a Linear (AutoInt, Song et al., 2019).

    Args:
        shape: shape of the tokens, T >= 2.
        num_layers: interacting layers.
        num_heads: attention heads of a layer.
        head_dim: width of a head; a multiple of 8 lets a GPU use its fused kernels.
        out_features: O.
        dropout: probability of dropping an element of a layer's output.

    Raises:
        ConfigError: a size is not a whole number of at least 1, or there are fewer than 2 tokens.
    """

    def __init__(
        self,
        shape: TokenShape,
        *,
        num_layers: int = 2,
        num_heads: int = 2,
        head_dim: int = 8,
        out_features: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            "attention", num_layers=num_layers, num_heads=num_heads, head_dim=head_dim, out_features=out_features
        )
        if shape.num_tokens < 2:
            raise ConfigError("attention: one feature has no other to attend to; leave this sub-architecture out")
        self.out_features = out_features
        self.layers = nn.Sequential()
        dim = shape.dim
        for _ in range(num_layers):
            layer = InteractingLayer(dim, num_heads=num_heads, head_dim=head_dim)
            self.layers.extend([layer, KeyedDropout(dropout)])
            dim = layer.out_dim
        self.project = linear(shape.num_tokens * dim, out_features)

    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, O)``."""
        out_BO: torch.Tensor = self.project(self.layers(tokens_BTD).flatten(1))
        return out_BO
