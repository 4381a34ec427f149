from __future__ import annotations

import pytest
import torch

from recsys.errors import ConfigError
from recsys.models.local_head import LocalHead


def test_linear_head_by_hand() -> None:
    head = LocalHead(2)
    head.load_state_dict({"mlp.0.weight": torch.tensor([[2.0, -1.0]]), "mlp.0.bias": torch.tensor([0.25])})
    assert head(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist() == [-0.75, 0.25]


@pytest.mark.parametrize(("hidden", "num_parameters"), [([], 9), ([4], 8 * 4 + 4 + 4 + 1)])
def test_form_follows_hidden(hidden: list[int], num_parameters: int) -> None:
    head = LocalHead(8, hidden=hidden)
    assert sum(parameter.numel() for parameter in head.parameters()) == num_parameters
    assert head(torch.randn(1, 8)).shape == (1,)


def test_head_gradients_are_float32_under_autocast() -> None:
    head = LocalHead(8, hidden=[4])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_B = head(torch.randn(16, 8))
    logits_B.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in head.parameters())


def test_bad_hidden_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"local head: hidden must be a list .*, got 8"):
        LocalHead(8, hidden=8)  # type: ignore[arg-type]
