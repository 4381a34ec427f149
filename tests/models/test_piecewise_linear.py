from __future__ import annotations

import pytest
import torch

from recsys.config.wire import dense_factory
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.dense_arch import DenseArch
from recsys.models.piecewise_linear import PiecewiseLinear


def test_encoding_worked_by_hand() -> None:
    encoder = PiecewiseLinear(2, [1], 3)  # bins -3..-1, -1..1, 1..3
    encoded = encoder(torch.tensor([[7.0, 0.5], [8.0, -9.0], [9.0, 9.0]]))
    assert encoded.tolist() == [[7, 0.5, 1, 0.75, 0], [8, -9, 0, 0, 0], [9, 9, 1, 1, 1]]
    assert encoder.out_features == 5


def test_several_dense_vectors_lie_side_by_side() -> None:
    arch = DenseArch(3, 4, hidden=[5], num_tokens=2, num_bins=6, binned=[0, 2])
    assert arch(torch.randn(7, 3)).shape == (7, 8)
    assert not DenseArch(3, 4).state_dict().keys() ^ arch.state_dict().keys(), "knots are no state"


def test_sizes_are_checked() -> None:
    with pytest.raises(ConfigError, match="dense arch: tokens must be a whole number"):
        DenseArch(3, 4, num_tokens=0)


def test_patterns_choose_features_and_one_that_chooses_none_is_told() -> None:
    spec = FeatureSpec(("I1", "I2", "C1_count"), ())
    options = {"hidden": [4], "tokens": 1, "bins": 5}
    arch = dense_factory({**options, "binned": ["I?"]}, spec)(3, 4)
    assert arch.encoder is not None and arch.encoder.chosen.tolist() == [0, 1]
    with pytest.raises(ConfigError, match=r"no dense feature is called 'J\*'; the data have I1"):
        dense_factory({**options, "binned": ["J*"]}, spec)
