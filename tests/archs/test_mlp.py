from __future__ import annotations

import torch

from recsys.archs.base import TokenShape
from recsys.archs.mlp import MLPArch


def test_by_hand() -> None:
    arch = MLPArch(TokenShape(2, 1), hidden=[2], out_features=1)
    arch.load_state_dict(
        {
            "tower.0.weight": torch.tensor([[1.0, 2.0], [-1.0, 0.0]]),
            "tower.0.bias": torch.tensor([0.5, 1.0]),
            "tower.3.weight": torch.tensor([[2.0, 10.0]]),
            "tower.3.bias": torch.tensor([0.25]),
        }
    )
    # hidden = ReLU(3 + 8 + 0.5, -3 + 1) = (11.5, 0)
    assert arch(torch.tensor([[[3.0], [4.0]]])).tolist() == [[23.25]]
