from __future__ import annotations

import pytest
import torch

from recsys.archs.base import TokenShape
from recsys.archs.dot import DotArch, PairLinear
from recsys.errors import ConfigError


def naive_pairs(tokens_TD: torch.Tensor) -> list[float]:
    """The dot product of token i with every earlier token j, in DLRM's order."""
    num_tokens, dim = tokens_TD.shape
    return [
        sum(tokens_TD[i, d].item() * tokens_TD[j, d].item() for d in range(dim))
        for i in range(num_tokens)
        for j in range(i)
    ]


def test_every_pair_is_read_once_in_dlrm_order() -> None:
    pairs = PairLinear(4, 6).double()
    with torch.no_grad():
        pairs.over_pairs.weight.copy_(torch.eye(6))
    tokens_BTD = torch.randn(3, 4, 5, dtype=torch.float64)
    expected = torch.tensor([naive_pairs(row) for row in tokens_BTD], dtype=torch.float64)
    torch.testing.assert_close(pairs(tokens_BTD), expected)


def test_gradients_are_those_of_the_gather() -> None:
    pairs = PairLinear(4, 3).double()
    tokens_BTD = torch.randn(5, 4, 2, dtype=torch.float64, requires_grad=True)
    inputs = [tokens_BTD, pairs.over_pairs.weight, pairs.over_pairs.bias]
    rows, columns = torch.tril_indices(4, 4, offset=-1)
    gathered = pairs.over_pairs((tokens_BTD @ tokens_BTD.mT)[:, rows, columns])
    expected = torch.autograd.grad(gathered.square().sum(), inputs)
    actual = torch.autograd.grad(pairs(tokens_BTD).square().sum(), inputs)
    torch.testing.assert_close(actual, expected)


def test_without_hidden_layers_it_is_linear_in_the_pairs() -> None:
    arch = DotArch(TokenShape(3, 2), hidden=[], out_features=4).double()
    tokens_BTD = torch.randn(2, 3, 2, dtype=torch.float64)
    pairs = torch.tensor([naive_pairs(row) for row in tokens_BTD], dtype=torch.float64)
    torch.testing.assert_close(arch(tokens_BTD), arch.pairs.over_pairs(pairs))
    torch.testing.assert_close(arch(2 * tokens_BTD), 4 * arch(tokens_BTD))


def test_the_buffer_is_not_saved() -> None:
    assert "pairs.pair_index" not in DotArch(TokenShape(3, 2)).state_dict()


def test_one_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="dot: there is no pair among fewer than 2 features; leave this"):
        DotArch(TokenShape(1, 4))
