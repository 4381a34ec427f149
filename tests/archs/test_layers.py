from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from recsys.archs.dropout import KeyedDropout
from recsys.archs.layers import BlockLinear, check_hidden, check_sizes, linear, mlp
from recsys.errors import ConfigError


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "8", None])
def test_a_bad_size_is_named(size: Any) -> None:
    message = f"mlp: out_features must be a whole number of at least 1, got {size!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_sizes("mlp", rank=3, out_features=size)


@pytest.mark.parametrize("hidden", [64, "64", [64, 0], [64, 0.5], None])
def test_bad_hidden_widths_are_named(hidden: Any) -> None:
    message = f"mlp: hidden must be a list of whole numbers of at least 1 such as [64,32], got {hidden!r}"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_hidden("mlp", hidden)


def test_good_sizes_pass() -> None:
    check_sizes("mlp", rank=1)
    check_hidden("mlp", [])
    check_hidden("mlp", (3, 4))


def test_linear_is_glorot_uniform_with_zero_bias() -> None:
    layer = linear(300, 100)
    bound = (6 / 400) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not layer.bias.any()
    assert linear(3, 2, bias=False).bias is None


def test_mlp_ends_without_activation() -> None:
    kinds = [type(layer) for layer in mlp(8, [4, 3], 2)]
    assert kinds == [nn.Linear, nn.ReLU, KeyedDropout, nn.Linear, nn.ReLU, KeyedDropout, nn.Linear]
    assert [type(layer) for layer in mlp(8, [], 2)] == [nn.Linear]


def test_block_linear_keeps_blocks_apart() -> None:
    layer = BlockLinear(3, 4, 2)
    nn.init.normal_(layer.bias)
    x = torch.randn(3, 5, 4)
    expected = torch.stack([x[i] @ layer.weight[i] + layer.bias[i] for i in range(3)])
    torch.testing.assert_close(layer(x), expected)


def test_block_linear_is_initialised_block_by_block() -> None:
    weight = BlockLinear(5, 300, 100).weight
    assert weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.05)
