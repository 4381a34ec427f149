from __future__ import annotations

import pytest
import torch
from torch import nn

from recsys.archs.base import TokenShape
from recsys.archs.cross import CrossArch, CrossLayer
from recsys.errors import ConfigError


def naive_cross_layer(layer: nn.Module, x_0: torch.Tensor, x_l: torch.Tensor) -> torch.Tensor:
    """Equation 2 of DCN V2 for one row, element by element."""
    assert isinstance(layer, CrossLayer)
    u, v_t, b = layer.u.weight, layer.v.weight, layer.u.bias
    width, rank = u.shape
    out = torch.empty(width, dtype=torch.float64)
    for i in range(width):
        inner = b[i].item()
        for r in range(rank):
            inner += u[i, r].item() * sum(v_t[r, j].item() * x_l[j].item() for j in range(width))
        out[i] = x_0[i].item() * inner + x_l[i].item()
    return out


def test_layers_follow_the_equation() -> None:
    torch.manual_seed(0)
    arch = CrossArch(TokenShape(3, 2), num_layers=3, rank=2, out_features=None).double()
    tokens_BTD = torch.randn(2, 3, 2, dtype=torch.float64)
    for parameter in arch.parameters():
        nn.init.normal_(parameter)
    out = arch(tokens_BTD)
    for row in range(2):
        x_0 = x_l = tokens_BTD[row].flatten()
        for layer in arch.layers:
            x_l = naive_cross_layer(layer, x_0, x_l)
        torch.testing.assert_close(out[row], x_l)


def test_by_hand() -> None:
    arch = CrossArch(TokenShape(2, 1), num_layers=1, rank=1, out_features=None)
    arch.load_state_dict(
        {
            "layers.0.v.weight": torch.tensor([[1.0, 2.0]]),
            "layers.0.u.weight": torch.tensor([[3.0], [4.0]]),
            "layers.0.u.bias": torch.tensor([0.5, -1.0]),
        }
    )
    # V^T x = 1*5 + 2*7 = 19; U V^T x + b = (57.5, 75); x * (...) + x = (5*58.5, 7*76)
    assert arch(torch.tensor([[[5.0], [7.0]]])).tolist() == [[292.5, 532.0]]


def test_without_projection_the_width_is_kept() -> None:
    assert CrossArch(TokenShape(3, 4), out_features=None).out_features == 12


@pytest.mark.parametrize("field", ["num_layers", "rank", "out_features"])
def test_a_size_of_zero_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"cross: {field} must be a whole number of at least 1, got 0"):
        CrossArch(TokenShape(3, 4), **{field: 0})
