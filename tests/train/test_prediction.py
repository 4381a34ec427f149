"""Blends and corrections of the final logit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys.errors import ConfigError
from recsys.metrics import compute_metrics
from recsys.models.recommender import OVER
from recsys.train.evaluator import evaluate
from recsys.train.prediction import PLAIN, Prediction, fit_prediction, starting_prediction
from tests.reference.toy import CPU, cuts_for, make_model
from tests.reference.toy_data import toy_source


def rows(num: int = 4000) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Three parts with noise of their own around the true logits; the weights leave the last half out."""
    draw = np.random.default_rng(0)
    truth = draw.normal(-1, 1, num)
    labels = (draw.random(num) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    noise = {OVER: 0.7, "dot": 0.7, "bad": 9.0}
    weights = np.where(np.arange(num) < num // 2, 1.0, 0.0)
    return {name: truth + sd * draw.normal(size=num) for name, sd in noise.items()}, labels, weights


def test_the_mean_counts_every_logit_alike() -> None:
    start = starting_prediction("mean", ["dot"])
    logits = {OVER: torch.tensor([1.0, 3.0]), "dot": torch.tensor([3.0, 4.0]), "mlp": torch.tensor([9.0, 9.0])}
    assert start.combine(logits).tolist() == [2.0, 3.5]
    assert starting_prediction("none", ["dot"]) is PLAIN and PLAIN.combine(logits) is logits[OVER]
    with pytest.raises(ConfigError, match=r"trainer\.blend=half: valid are none, mean, fitted"):
        starting_prediction("half", [])


def test_fitted_weights_leave_out_what_predicts_badly_and_beat_each_part() -> None:
    logits, labels, weights = rows()
    found = fit_prediction(
        starting_prediction("fitted", ["dot", "bad"]), logits, labels, weights, blend="fitted", calibrate=False
    )
    assert sum(found.weights.values()) == pytest.approx(1.0) and found.weights["bad"] < 0.05
    assert found.weights[OVER] == pytest.approx(found.weights["dot"], abs=0.15)
    blended = found.combine({name: torch.from_numpy(z) for name, z in logits.items()}).numpy()
    nes = [compute_metrics(z, labels, weights).ne for z in (blended, logits[OVER], logits["dot"])]
    assert None not in nes and nes[0] < min(nes[1:])  # type: ignore[operator, type-var]


def test_the_correction_makes_the_mean_prediction_the_mean_label_of_the_rows_it_saw() -> None:
    logits, labels, weights = rows()
    shifted = {OVER: 2 * logits[OVER] + 1}
    found = fit_prediction(PLAIN, shifted, labels, weights, blend="none", calibrate=True)
    corrected = found.combine({OVER: torch.from_numpy(shifted[OVER])}).numpy()
    assert compute_metrics(corrected, labels, weights).calibration == pytest.approx(1.0, abs=1e-4)
    unshifted = fit_prediction(PLAIN, {OVER: logits[OVER]}, labels, weights, blend="none", calibrate=True)
    assert found.scale == pytest.approx(unshifted.scale / 2, rel=1e-3)


def test_evaluation_scores_the_blend_and_keeps_the_over_arch_beside_it() -> None:
    model, source = make_model(cuts_for(("cross", "dot"))), toy_source(50, 16)
    plain = evaluate(model, source, CPU)
    blended = evaluate(model, source, CPU, prediction=Prediction({OVER: 0.5, "dot": 0.5}, scale=2.0, bias=-1.0))
    assert list(blended.compute_heads()) == [OVER, "cross", "dot"]
    assert blended.compute_heads()[OVER] == plain.compute()
    expected = plain.predictions()[0] + plain.head_logits()["dot"] - 1.0
    np.testing.assert_allclose(blended.predictions()[0], expected, rtol=1e-6)
