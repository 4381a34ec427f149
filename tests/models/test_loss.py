from __future__ import annotations

import math

import pytest
import torch

from recsys.models.loss import weighted_bce


def test_weighted_mean_by_hand() -> None:
    logits, labels, weights = torch.tensor([0.0, 2.0, -1.0]), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 0.5, 0])
    expected = (math.log(2) + 0.5 * math.log1p(math.exp(2))) / 1.5
    assert weighted_bce(logits, labels, weights).item() == pytest.approx(expected, rel=1e-6)


def test_padding_changes_nothing() -> None:
    logits = torch.tensor([0.3, -2.0, 50.0, -50.0], requires_grad=True)
    labels = torch.tensor([1.0, 0.0, 0.0, 1.0])
    padded = weighted_bce(logits, labels, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert torch.equal(padded, weighted_bce(logits[:2], labels[:2], torch.ones(2)))
    (grad,) = torch.autograd.grad(padded, logits)
    assert grad[2:].tolist() == [0.0, 0.0]
    assert grad[:2].all()


@pytest.mark.parametrize("num_rows", [0, 3])
def test_no_row_that_counts_gives_zero(num_rows: int) -> None:
    logits = torch.randn(num_rows, requires_grad=True)
    loss = weighted_bce(logits, torch.ones(num_rows), torch.zeros(num_rows))
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None and logits.grad.tolist() == [0.0] * num_rows


def test_weights_below_one_are_still_a_mean() -> None:
    logits, labels = torch.tensor([1.0, -3.0]), torch.tensor([1.0, 1.0])
    small = weighted_bce(logits, labels, torch.full((2,), 1e-3))
    torch.testing.assert_close(small, weighted_bce(logits, labels, torch.ones(2)))


def test_float32_under_autocast() -> None:
    logits = torch.tensor([20.25, -3.0], dtype=torch.bfloat16, requires_grad=True)
    labels, weights = torch.zeros(2), torch.ones(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = weighted_bce(logits, labels, weights)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx((20.25 + math.log1p(math.exp(-3.0))) / 2, rel=1e-6)


def test_a_large_wrong_logit_is_finite() -> None:
    assert weighted_bce(torch.tensor([-1e4]), torch.ones(1), torch.ones(1)).item() == 1e4
