from __future__ import annotations

import pytest
import torch

from recsys.errors import ConfigError
from recsys.models.dense_arch import DenseArch


def test_by_hand() -> None:
    arch = DenseArch(2, 2, hidden=[])
    arch.load_state_dict(
        {"mlp.0.0.weight": torch.tensor([[1.0, 2.0], [-1.0, 1.0]]), "mlp.0.0.bias": torch.tensor([0.5, -2.0])}
    )
    assert arch(torch.tensor([[3.0, 4.0]])).tolist() == [[11.5, 0.0]]  # the last ReLU cuts -1


def test_shape_and_gradients() -> None:
    arch = DenseArch(13, 8, hidden=[16, 12])
    out = arch(torch.randn(32, 13))
    assert out.shape == (32, 8)
    out.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in arch.parameters())


@pytest.mark.parametrize(("num_dense", "dim", "name"), [(0, 8, "num_dense"), (13, 0, "dim")])
def test_a_size_of_zero_is_refused(num_dense: int, dim: int, name: str) -> None:
    with pytest.raises(ConfigError, match=f"dense arch: {name} must be a whole number of at least 1, got 0"):
        DenseArch(num_dense, dim)
