"""The statistics, on simulated comparisons whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from recsys.compare.inference import (
    Components,
    Design,
    Estimate,
    components,
    estimate,
    runs_to_resolve,
    shared_rows_factor,
)
from recsys.compare.rows import gap_percent, over_seeds
from recsys.compare.verdict import Word, judge

from .conftest import predictions

Floats = NDArray[np.float64]
NO_ROWS = np.zeros(99)


def layout(rng: np.random.Generator, folds: int, seeds: int, *, mean: float, fold: float, seed: float) -> Floats:
    """K x N gaps; ``fold`` and ``seed`` are standard deviations."""
    return mean + fold * rng.normal(size=(folds, 1)) + seed * rng.normal(size=(folds, seeds))


def test_folds_are_a_t_test_and_tost_two_of_them() -> None:
    values = layout(np.random.default_rng(0), 6, 3, mean=0.1, fold=0.1, seed=0.2)
    found = estimate(values, NO_ROWS[:6], 1000)
    means = values.mean(axis=1)
    plain = stats.ttest_1samp(means, 0)
    low, high = plain.confidence_interval(0.95)
    assert found.interval() == pytest.approx((low, high))
    assert found.p_difference() == pytest.approx(plain.pvalue)
    for margin in (0.05, 0.3):
        above = stats.ttest_1samp(means, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(means, margin, alternative="less").pvalue
        assert found.p_equivalence(margin) == pytest.approx(max(above, below))


def test_interval_over_folds_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        values = layout(rng, 5, 3, mean=0.1, fold=0.3, seed=0.5)
        low, high = estimate(values, NO_ROWS[:5], 1000).interval()
        covered += low <= 0.1 <= high
    assert 0.925 <= covered / 400 <= 0.975


def simulate_rows(rng: np.random.Generator, num_rows: int, seeds: int) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Labels from a known logit; a reference and a model, each with errors of its own in rows and in seeds."""
    truth = rng.normal(size=num_rows)
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-truth))
    pairs = []
    for _ in range(seeds):
        reference = truth + 0.5 * rng.normal(size=num_rows) + 0.3 * rng.normal()
        model = truth + 0.9 * np.tanh(truth) + 0.3 * rng.normal(size=num_rows) + 0.3 * rng.normal()
        pairs.append((predictions(model, labels), predictions(reference, labels)))
    return truth, labels, pairs


def test_interval_over_seeds_and_rows_covers_the_truth() -> None:
    rng = np.random.default_rng(2)
    losses = np.zeros(2)
    for _ in range(300):
        for side, rows in enumerate(simulate_rows(rng, 3000, 1)[2][0]):
            losses[side] += np.logaddexp(0, np.where(rows.labels == 1, -rows.logits, rows.logits)).mean()
    truth = 100 * (losses[0] / losses[1] - 1)
    covered = narrow = 0
    for _ in range(400):
        values, variance = over_seeds(gap_percent, simulate_rows(rng, 400, 4)[2])
        found = estimate(np.array([values]), np.array([variance]), 400)
        low, high = found.interval()
        covered += low <= truth <= high
        low, high = estimate(np.array([values]), np.zeros(1), 400).interval()
        narrow += low <= truth <= high
    assert 0.925 <= covered / 400 <= 0.975
    assert narrow < covered, "leaving the rows out must show"


def test_equivalence_test_keeps_its_size() -> None:
    rng = np.random.default_rng(3)
    claims = [
        judge(estimate(layout(rng, 6, 2, mean=0.02, fold=0.003, seed=0.004), NO_ROWS[:6], 100), 0.02)
        for _ in range(600)
    ]
    # At the very edge of the margin the claim is false, and TOST makes it in 5 % of all cases.
    assert 0.03 <= claims.count(Word.EQUIVALENT) / 600 <= 0.07


def test_difference_keeps_its_size() -> None:
    rng = np.random.default_rng(4)
    words = [
        judge(estimate(layout(rng, 5, 2, mean=0.0, fold=0.3, seed=0.3), NO_ROWS[:5], 100), 0.001) for _ in range(600)
    ]
    wrong = words.count(Word.BETTER) + words.count(Word.WORSE)
    assert 0.03 <= wrong / 600 <= 0.07


def test_variance_components_are_found() -> None:
    rng = np.random.default_rng(5)
    found = [components(layout(rng, 8, 4, mean=1, fold=0.3, seed=0.5), np.full(8, 0.01)) for _ in range(300)]
    assert np.mean([c.seed for c in found if c.seed is not None]) == pytest.approx(0.25, rel=0.05)
    assert np.mean([c.fold for c in found if c.fold is not None]) == pytest.approx(0.09, rel=0.1)
    assert [c.row for c in found] == pytest.approx([0.01] * 300)


def test_what_a_design_cannot_show_is_none() -> None:
    assert components(np.ones((1, 1)), np.ones(1)) == Components(None, None, 1.0)
    assert components(np.ones((1, 3)), np.ones(1)) == Components(0.0, None, 1.0)
    assert components(np.ones((3, 1)), np.ones(3)) == Components(None, 0.0, 1.0)


def test_one_run_knows_its_rows_only() -> None:
    found = estimate(np.array([[0.5]]), np.array([0.04]), 100)
    assert found.se == pytest.approx(0.2)
    assert found.basis == "rows"


def test_no_spread_at_all() -> None:
    zero = estimate(np.zeros((3, 2)), NO_ROWS[:3], 100)
    assert zero.interval() == (0, 0)
    assert (zero.p_difference(), zero.p_equivalence(0.02)) == (1, 0)
    one = estimate(np.ones((1, 3)), NO_ROWS[:1], 100)
    assert (one.p_difference(), one.p_equivalence(0.02)) == (0, 1)


def test_shared_training_rows_widen_the_interval() -> None:
    # Nadeau and Bengio for 10-fold cross-validation: variance * (1/10 + 1/9).
    assert shared_rows_factor(10) ** 2 / 10 == pytest.approx(1 / 10 + 1 / 9)
    found = Estimate(1.0, 0.1, 9, "folds")
    assert found.widened(2).interval()[0] == pytest.approx(1 - 2 * (1 - found.interval()[0]))


@pytest.mark.parametrize(
    ("mean", "margin", "design", "parts"),
    [
        (0.3, 0.02, Design(4, 2, 1000), Components(0.16, 0.05, 0.01)),
        (0.0, 0.1, Design(5, 2, 1000), Components(0.04, 0.01, 0.005)),
        (-0.2, 0.02, Design(1, 3, 1000), Components(0.09, None, 0.002)),
    ],
)
def test_promised_runs_resolve_as_often_as_promised(
    mean: float, margin: float, design: Design, parts: Components
) -> None:
    needed = runs_to_resolve(parts, mean, design, margin)
    rng = np.random.default_rng(6)
    assert parts.seed is not None
    ways = [(needed.folds, design.seeds), (design.folds, needed.seeds)]
    tried = 0
    for folds, seeds in ways:
        if folds is None or seeds is None:
            continue
        tried += 1
        fold = parts.fold if parts.fold is not None else parts.row
        resolved = 0
        for _ in range(300):
            values = layout(rng, folds, seeds, mean=mean, fold=fold**0.5, seed=parts.seed**0.5)
            found = estimate(values, np.full(folds, parts.row), design.rows)
            resolved += judge(found, margin) is not Word.OPEN
        assert 0.73 <= resolved / 300 <= 0.93, (folds, seeds)
    assert tried >= 1


def test_rows_that_are_too_few_cannot_be_made_up_for() -> None:
    few_rows = Components(0.0001, None, 0.04)
    assert runs_to_resolve(few_rows, 0.0, Design(1, 5, 1000), 0.02).seeds is None
    # The blocks of one file: more of them are smaller ones.
    parts = Components(0.0001, 0.04, 0.04)
    assert runs_to_resolve(parts, 0.0, Design(5, 2, 1000, fixed_rows=True), 0.02).folds is None
    assert runs_to_resolve(parts, 0.0, Design(5, 2, 1000), 0.02).folds is not None


def test_fewer_runs_than_needed_are_not_enough() -> None:
    parts, design = Components(0.16, 0.05, 0.01), Design(4, 2, 1000)
    folds = runs_to_resolve(parts, 0.3, design, 0.02).folds
    assert folds is not None
    assert folds > 4
    smaller = runs_to_resolve(parts, 0.6, design, 0.02).folds
    assert smaller is not None
    assert smaller < folds
