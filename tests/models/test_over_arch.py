from __future__ import annotations

import pytest
import torch

from recsys.archs.dropout import bind_generator
from recsys.errors import ConfigError
from recsys.models.over_arch import OverArch


def test_gives_a_logit_per_row_not_a_probability() -> None:
    arch = OverArch(2, hidden=[1])
    arch.load_state_dict(
        {
            "mlp.0.weight": torch.tensor([[1.0, -1.0]]),
            "mlp.0.bias": torch.tensor([0.0]),
            "mlp.3.weight": torch.tensor([[-3.0]]),
            "mlp.3.bias": torch.tensor([0.5]),
        }
    )
    assert arch(torch.tensor([[5.0, 1.0], [1.0, 5.0]])).tolist() == [-11.5, 0.5]


@pytest.mark.parametrize("num_rows", [1, 4])
def test_shape(num_rows: int) -> None:
    assert OverArch(6, hidden=[8, 4])(torch.randn(num_rows, 6)).shape == (num_rows,)


def test_dropout_follows_its_generator() -> None:
    arch, x = OverArch(6, hidden=[64], dropout=0.5), torch.randn(4, 6)
    generator = torch.Generator()
    bind_generator(arch, generator)
    first, again, other = (arch(x) for _ in map(generator.manual_seed, [1, 1, 2]))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_bad_hidden_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"over arch: hidden must be a list .*, got \[8, 0\]"):
        OverArch(6, hidden=[8, 0])
