"""Evaluation covers every row once."""

from __future__ import annotations

import pytest
import torch

from recsys.errors import NonFiniteError
from recsys.metrics import compute_metrics
from recsys.models.recommender import OVER
from recsys.schedule.infer import infer
from recsys.train.evaluator import evaluate
from tests.reference.toy import CPU, SIX, cuts_for, make_model
from tests.reference.toy_data import toy_source


def test_every_row_counts_also_those_of_the_short_last_batch() -> None:
    model = make_model(cuts_for(("cross", "dot")))
    in_batches = evaluate(model, toy_source(50, 16), CPU)
    assert in_batches.rows == 50 and in_batches.compute().rows == 50 and in_batches.compute().coverage == 1.0
    # The dropout of a model in training would show here.
    (batch,) = toy_source(50, 50)
    logits = infer(model.eval().graph, dict(model.parts.items()), batch).logits
    for got, name in ((in_batches.compute(), OVER), (in_batches.compute_heads()["cross"], "cross")):
        expected = compute_metrics(logits[name].numpy(), batch.labels.numpy(), batch.weights.numpy(), 50)
        assert got.ne == pytest.approx(expected.ne, rel=1e-5) and got.auc == pytest.approx(expected.auc, abs=2e-3)
    assert set(in_batches.compute_heads()) == {"cross", "dot"}


def test_an_earlier_pass_that_stopped_midway_does_not_cut_this_one_short() -> None:
    source = toy_source(50, 16)
    next(iter(source))
    assert source.state_dict()["batch"] == 1
    assert evaluate(make_model(cuts_for(())), source, CPU).rows == 50


@pytest.mark.parametrize("training", [True, False])
def test_the_training_flag_is_put_back_also_after_an_error(training: bool) -> None:
    model = make_model(cuts_for(SIX)).train(training)
    evaluate(model, toy_source(20, 16), CPU)
    assert model.training is training
    with torch.no_grad():
        next(model.parts["over"].parameters()).fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="evaluation: the model gave a logit that is NaN"):
        evaluate(model, toy_source(20, 16), CPU)
    assert model.training is training


def test_evaluation_changes_nothing() -> None:
    model = make_model(cuts_for(SIX))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    one, other = (evaluate(model, toy_source(50, 16), CPU).compute() for _ in range(2))
    assert one == other, "no dropout is drawn"
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
