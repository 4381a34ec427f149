"""An evaluation in batches is the evaluation of all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from recsys.errors import NonFiniteError
from recsys.metrics import EvalAccumulator, compute_metrics


def rows(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(num, generator=generator)
    return logits, (torch.rand(num, generator=generator) < logits.sigmoid()).float()


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_batches_do_not_change_the_metrics(batch_size: int) -> None:
    logits, labels = rows(200)
    accumulator = EvalAccumulator(expected_rows=200)
    for z, y in zip(logits.split(batch_size), labels.split(batch_size), strict=True):
        accumulator.update(z, y, torch.ones_like(y), {"cross": -z})
    metrics = accumulator.compute()
    assert metrics == compute_metrics(logits.numpy(), labels.numpy(), expected_rows=200)
    assert metrics.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    assert accumulator.compute_heads() == {"cross": compute_metrics(-logits.numpy(), labels.numpy(), None, 200)}
    assert accumulator.heads_ne() == {"cross": accumulator.compute_heads()["cross"].ne}
    assert (metrics.rows, metrics.coverage) == (200, 1.0)


def test_padding_rows_are_not_counted_whatever_they_hold() -> None:
    logits, labels = rows(10)
    padded = EvalAccumulator(expected_rows=20)
    padding = torch.tensor([float("nan"), float("inf")])
    weights = torch.cat((torch.ones(10), torch.zeros(2)))
    padded.update(torch.cat((logits, padding)), torch.cat((labels, torch.zeros(2))), weights)
    assert padded.compute() == compute_metrics(logits.numpy(), labels.numpy(), expected_rows=20)
    assert (padded.rows, padded.compute().coverage) == (10, 0.5)


def test_buffers_may_be_reused() -> None:
    logits, labels = rows(10)
    accumulator = EvalAccumulator()
    buffer, label_buffer = logits.clone(), labels.clone()
    accumulator.update(buffer, label_buffer, torch.ones(10), {"dot": buffer})
    buffer.fill_(0)
    label_buffer.fill_(0)
    expected = compute_metrics(logits.numpy(), labels.numpy())
    assert accumulator.compute() == accumulator.compute_heads()["dot"] == expected


def test_logits_with_gradient_and_narrow_types() -> None:
    accumulator = EvalAccumulator()
    logits = torch.tensor([0.5, -1.5], dtype=torch.bfloat16, requires_grad=True)
    accumulator.update(logits, torch.tensor([1.0, 0.0]), torch.ones(2))
    assert accumulator.compute() == compute_metrics([0.5, -1.5], [1, 0])


def test_nothing_evaluated() -> None:
    accumulator = EvalAccumulator(expected_rows=5)
    metrics = accumulator.compute()
    assert (metrics.rows, metrics.coverage, metrics.ne, metrics.auc) == (0, 0.0, None, None)
    assert accumulator.compute_heads() == {}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["the model", "the head of 'wukong'"])
def test_non_finite_logit_names_the_part(bad: float, where: str) -> None:
    good, broken = torch.zeros(2), torch.tensor([0.0, bad])
    main, head = (broken, good) if where == "the model" else (good, broken)
    with pytest.raises(NonFiniteError, match=rf"{where} gave a logit that is NaN or infinite .*lower optim"):
        EvalAccumulator().update(main, torch.tensor([0.0, 1.0]), torch.ones(2), {"wukong": head})


def test_row_counted_twice_is_caught() -> None:
    accumulator = EvalAccumulator(expected_rows=3)
    for _ in range(2):
        accumulator.update(torch.zeros(2), torch.tensor([0.0, 1.0]), torch.ones(2))
    with pytest.raises(AssertionError, match="4 rows evaluated, but the source holds 3"):
        accumulator.compute()


def test_heads_stay_the_same_in_every_batch() -> None:
    accumulator = EvalAccumulator()
    accumulator.update(torch.zeros(1), torch.zeros(1), torch.ones(1), {"dot": torch.zeros(1)})
    with pytest.raises(AssertionError, match="same heads"):
        accumulator.update(torch.zeros(1), torch.zeros(1), torch.ones(1))


def test_float64_logits_stay_exact() -> None:
    accumulator = EvalAccumulator()
    logits = torch.tensor([0.1, 0.1 + 1e-12], dtype=torch.float64)
    accumulator.update(logits, torch.tensor([0.0, 1.0]), torch.ones(2))
    assert accumulator.compute().auc == 1.0
    assert np.float32(0.1) == np.float32(0.1 + 1e-12)
