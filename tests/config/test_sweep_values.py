from __future__ import annotations

import pytest

from recsys.config.sweep_values import detach_sets, loss_weights
from recsys.errors import ConfigError


def test_detach_sets_grow_from_none_to_all() -> None:
    assert detach_sets("subsets", "abc") == "[],[a],[b],[c],[a,b],[a,c],[b,c],[a,b,c]"
    assert detach_sets("pairs", "abc") == "[],[a],[b],[c],[a,b],[a,c],[b,c]"
    assert detach_sets("sizes", "abc") == "[],[a],[a,b],[a,b,c]"
    assert detach_sets("pairs", "a") == "[],[a]"


def test_every_part_gets_the_weight() -> None:
    assert loss_weights("0.1,3", ["mlp", "dot"]) == "{mlp:0.1,dot:0.1},{mlp:3,dot:3}"


def test_what_cannot_be_swept_is_told() -> None:
    with pytest.raises(ConfigError, match=r"model\.archs: the model has no sub-architectures to detach"):
        detach_sets("subsets", [])
    with pytest.raises(ConfigError, match="valid are subsets, pairs, sizes"):
        detach_sets("triples", "abc")
