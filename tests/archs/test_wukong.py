from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from recsys.archs.base import TokenShape
from recsys.archs.wukong import WukongArch, WukongLayer


def layer_of(num_tokens: int) -> WukongLayer:
    torch.manual_seed(0)
    shape = TokenShape(num_tokens, 3)
    layer = WukongLayer(shape, num_fmb=2, num_lcb=2, rank=2, hidden=[5], dropout=0.0).double()
    for norm in (layer.fm_norm, layer.out_norm):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return layer


def naive_fm(x_TD: torch.Tensor, y_TR: torch.Tensor) -> torch.Tensor:
    """X X^T Y from the definition: all pairwise dots first, then their weighted sums."""
    num_tokens, dim = x_TD.shape
    rank = y_TR.shape[1]
    out = torch.zeros(num_tokens, rank, dtype=torch.float64)
    for i in range(num_tokens):
        for j in range(num_tokens):
            dot = sum(x_TD[i, d].item() * x_TD[j, d].item() for d in range(dim))
            for r in range(rank):
                out[i, r] += dot * y_TR[j, r].item()
    return out


def naive_layer_norm(x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + norm.eps).sqrt() * norm.weight + norm.bias


def naive_layer(layer: WukongLayer, x_TD: torch.Tensor) -> torch.Tensor:
    rank, num_lcb, _ = layer.splits
    maps = layer.over_tokens.weight
    y_TR, w_lcb, w_residual = maps[:rank].T, maps[rank : rank + num_lcb], maps[rank + num_lcb :]
    flat = naive_layer_norm(naive_fm(x_TD, y_TR).flatten(), layer.fm_norm)
    first, last = layer.fm_mlp[0], layer.fm_mlp[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    fmb = (last.weight @ functional.relu(first.weight @ flat + first.bias) + last.bias).reshape(2, 3)
    residual = w_residual @ x_TD if len(w_residual) else x_TD
    return naive_layer_norm(torch.cat([fmb, w_lcb @ x_TD]) + residual, layer.out_norm)


def test_layer_follows_the_paper_with_a_mapped_residual() -> None:
    layer, tokens_BTD = layer_of(5), torch.randn(3, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(tokens_BTD), torch.stack([naive_layer(layer, x) for x in tokens_BTD]))


def test_layer_follows_the_paper_with_an_identity_residual() -> None:
    layer, tokens_BTD = layer_of(4), torch.randn(3, 4, 3, dtype=torch.float64)
    assert layer.splits[2] == 0
    torch.testing.assert_close(layer(tokens_BTD), torch.stack([naive_layer(layer, x) for x in tokens_BTD]))


def test_layers_are_stacked() -> None:
    arch = WukongArch(TokenShape(5, 4), num_layers=3, num_fmb=2, num_lcb=1)
    layers = [layer for layer in arch.layers if isinstance(layer, WukongLayer)]
    assert [layer.out_shape for layer in layers] == [TokenShape(3, 4)] * 3
    assert [layer.splits[2] for layer in layers] == [3, 0, 0]
