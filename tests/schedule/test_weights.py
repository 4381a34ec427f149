"""Low-precision copies of weights."""

from __future__ import annotations

import torch
from torch import nn

from recsys.schedule.weights import CastWeights


def test_parts_that_share_a_parameter_share_its_copy() -> None:
    layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
    weights = CastWeights({"forward": layer, "learn": nn.Sequential(layer, other)}, torch.bfloat16)
    assert weights.by_part["forward"]["weight"] is weights.by_part["learn"]["0.weight"]
    assert weights.of(layer.weight) is weights.by_part["forward"]["weight"]
    assert weights.of(other.weight) is not weights.of(layer.weight)
    assert len(list(weights.copies())) == 4


def test_a_weight_written_by_others_is_copied_again() -> None:
    layer = nn.Linear(3, 2)
    weights = CastWeights({"part": layer}, torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(0.5)
    weights.refresh()
    assert torch.equal(weights.by_part["part"]["weight"], torch.full((2, 3), 0.5, dtype=torch.bfloat16))
