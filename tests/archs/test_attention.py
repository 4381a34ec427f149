from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from recsys.archs.attention import AttentionArch, InteractingLayer
from recsys.archs.base import TokenShape
from recsys.errors import ConfigError


def naive_layer(layer: nn.Module, x_TD: torch.Tensor) -> torch.Tensor:
    """Softmax attention head by head and token by token, plus the mapped residual."""
    assert isinstance(layer, InteractingLayer)
    width = layer.out_dim // layer.num_heads
    w_q, w_k, w_v, w_res = layer.query_key_value_residual.weight.split(layer.out_dim)
    out = torch.zeros(x_TD.shape[0], layer.out_dim, dtype=torch.float64)
    for head in range(layer.num_heads):
        rows = slice(head * width, (head + 1) * width)
        for m, x_m in enumerate(x_TD):
            scores = [((w_q[rows] @ x_m) @ (w_k[rows] @ x_k)).item() / math.sqrt(width) for x_k in x_TD]
            total = sum(math.exp(score) for score in scores)
            for score, x_k in zip(scores, x_TD, strict=True):
                out[m, rows] += math.exp(score) / total * (w_v[rows] @ x_k)
    return (out + x_TD @ w_res.T).clamp(min=0)


def test_layer_follows_the_paper() -> None:
    torch.manual_seed(0)
    layer = InteractingLayer(3, num_heads=2, head_dim=4).double()
    tokens_BTD = torch.randn(2, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(tokens_BTD), torch.stack([naive_layer(layer, x) for x in tokens_BTD]))


def test_layers_are_stacked_and_projected() -> None:
    torch.manual_seed(0)
    arch = AttentionArch(TokenShape(3, 5), num_layers=2, num_heads=2, head_dim=2, out_features=6).double()
    x_TD = torch.randn(3, 5, dtype=torch.float64)
    second = naive_layer(arch.layers[2], naive_layer(arch.layers[0], x_TD))
    torch.testing.assert_close(arch(x_TD[None])[0], arch.project(second.flatten()))


def test_one_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="attention: one feature has no other to attend to; leave this"):
        AttentionArch(TokenShape(1, 4))


def test_no_heads_are_refused() -> None:
    with pytest.raises(ConfigError, match="attention: num_heads must be a whole number of at least 1, got 0"):
        AttentionArch(TokenShape(3, 4), num_heads=0)
