"""A loss that is not finite is noticed, dated and named."""

from __future__ import annotations

import pytest
import torch

from recsys.errors import NonFiniteError
from recsys.train.finite import FiniteGuard

NAN, INF = float("nan"), float("inf")


def losses(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


def test_finite_losses_pass() -> None:
    guard = FiniteGuard(1)
    guard.check()
    for _ in range(3):
        guard.update(losses(cross=0.5, over=1e30))
    guard.check()


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_the_part_and_the_step_are_named(bad: float) -> None:
    guard = FiniteGuard(1)
    guard.update(losses(cross=0.5, dot=0.5, over=0.5))
    with pytest.raises(NonFiniteError, match=r"the loss of part 'dot' became NaN or infinite in step 1.*optim\.lr"):
        guard.update(losses(cross=0.5, dot=bad, over=0.5))


def test_of_several_the_first_in_model_order_is_the_source() -> None:
    with pytest.raises(NonFiniteError, match=r"of part 'dot' \(and with it that of 'over'\) became"):
        FiniteGuard(1).update(losses(cross=0.5, dot=NAN, over=NAN))


def test_where_it_began_is_kept_between_checks() -> None:
    guard = FiniteGuard(every=4)
    guard.update(losses(cross=0.5, dot=0.5, over=0.5))
    guard.update(losses(cross=0.5, dot=NAN, over=0.5))
    guard.update(losses(cross=NAN, dot=0.5, over=NAN))
    with pytest.raises(NonFiniteError, match="of part 'dot' became NaN or infinite in step 1"):
        guard.update(losses(cross=NAN, dot=NAN, over=NAN))


def test_the_last_steps_are_checked_on_demand() -> None:
    guard = FiniteGuard(every=100)
    guard.update(losses(over=INF))
    with pytest.raises(NonFiniteError, match="in step 0"):
        guard.check()
