"""Numbers keyed by seed and name."""

from __future__ import annotations

import pytest
import torch

from recsys.seeding import keyed_generator, keyed_init, keyed_seed

CPU = torch.device("cpu")


def draw(generator: torch.Generator) -> list[float]:
    numbers: list[float] = torch.rand(4, generator=generator).tolist()
    return numbers


def test_seeds_are_fixed_for_all_time() -> None:
    # Figures kept from earlier runs stand for these numbers.
    assert keyed_seed(0, "cross") == 98169376421938420
    assert keyed_seed(1, "cross") == 2404437237150148713


def test_seeds_differ_by_seed_and_by_name_and_fit_63_bits() -> None:
    seeds = [keyed_seed(seed, name) for seed in (0, 1, 10, 2**63 - 1) for name in ("a", "b", "0/a", "")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)


def test_generators_repeat_and_do_not_touch_each_other() -> None:
    expected = draw(keyed_generator(3, "a", CPU))
    one, other = keyed_generator(3, "a", CPU), keyed_generator(3, "b", CPU)
    assert draw(other) != expected
    assert draw(one) == expected


def test_init_draws_from_the_key_and_leaves_the_global_generator_as_it_was() -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    with keyed_init(3, "a"):
        first = torch.rand(4)
    torch.rand(100)
    with keyed_init(3, "a"):
        again = torch.rand(4)
        with keyed_init(3, "b"):
            inner = torch.rand(4)
    assert torch.equal(first, again) and not torch.equal(first, inner)
    torch.set_rng_state(before)
    with pytest.raises(KeyError), keyed_init(3, "a"):
        torch.rand(4)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
