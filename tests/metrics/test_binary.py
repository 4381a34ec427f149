"""Metrics against scikit-learn, torchrec and properties that hold for every set of rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score
from torchrec.metrics.ne import compute_logloss, compute_ne, get_ne_states

from recsys.metrics import auc, base_rate, calibration, compute_metrics, entropy, logloss, ne

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def random_rows(seed: int, rows: int, *, ties: bool = False) -> Rows:
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 2, rows)
    if ties:
        logits = np.round(logits)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(float)
    return logits, labels, rng.exponential(1.0, rows)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


@st.composite
def small_rows(draw: st.DrawFn) -> Rows:
    """Few rows, many ties, weights that are whole numbers, extreme logits among them; often one-class."""
    row = st.tuples(st.sampled_from([-100.0, -3.0, -0.5, 0.0, 0.5, 2.0, 100.0]), st.integers(0, 1), st.integers(0, 3))
    rows = draw(st.lists(row, min_size=1, max_size=30))
    logits, labels, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return logits, labels, weights


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_auc_and_logloss_equal_scikit_learn(ties: bool, weighted: bool) -> None:
    for seed in range(5):
        logits, labels, weights = random_rows(seed, 2_000, ties=ties)
        w = weights if weighted else None
        assert auc(logits, labels, w) == pytest.approx(roc_auc_score(labels, logits, sample_weight=w), abs=1e-12)
        assert logloss(logits, labels, w) == pytest.approx(
            log_loss(labels, sigmoid(logits), sample_weight=w), abs=1e-12
        )


def test_auc_equals_scikit_learn_on_many_float32_rows() -> None:
    logits, labels, _ = random_rows(7, 300_000)
    scores = logits.astype(np.float32)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ([0, 1, 2, 3], [0, 0, 1, 1], 1.0),
        ([3, 2, 1, 0], [0, 0, 1, 1], 0.0),
        ([1, 1, 1, 1], [0, 1, 0, 1], 0.5),
        ([0, 1, 1, 2], [0, 0, 1, 1], 0.875),  # of four pairs three are won and one is a tie
    ],
)
def test_auc_by_hand(scores: list[float], labels: list[int], expected: float) -> None:
    assert auc(scores, labels) == expected


def test_ne_by_hand() -> None:
    # A predictor that always says p has the log loss H(p), so NE is exactly 1.
    labels = [1, 0, 0, 0]
    assert ne([math.log(1 / 3)] * 4, labels) == pytest.approx(1, abs=1e-15)
    assert entropy(0.25) == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), abs=1e-15)
    assert ne([0.0] * 4, labels) == pytest.approx(math.log(2) / entropy(0.25), abs=1e-15)


def test_entropy_of_criteo_click_rate() -> None:
    assert entropy(0.256223) == pytest.approx(0.569070, abs=1e-6)
    assert entropy(0.0) == entropy(1.0) == 0.0


def test_ne_equals_torchrec() -> None:
    logits, labels, weights = random_rows(3, 5_000)
    tensors = [torch.from_numpy(rows) for rows in (labels, sigmoid(logits), weights)]
    states = get_ne_states(*tensors, eta=1e-12)
    sums = [states[key] for key in ("cross_entropy_sum", "weighted_num_samples", "pos_labels", "neg_labels")]
    assert ne(logits, labels, weights) == pytest.approx(float(compute_ne(*sums, 1e-12)), rel=1e-12)
    bits = float(compute_logloss(sums[0], sums[2], sums[3], 1e-12))
    assert logloss(logits, labels, weights) == pytest.approx(bits * math.log(2), rel=1e-12)


def test_calibration_is_mean_prediction_over_mean_label() -> None:
    logits, labels, weights = random_rows(4, 1_000)
    expected = np.average(sigmoid(logits), weights=weights) / np.average(labels, weights=weights)
    assert calibration(logits, labels, weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_is_undefined_not_a_half(label: int) -> None:
    metrics = compute_metrics([0.1, 0.2, 0.3], [label] * 3)
    assert metrics.auc is None
    assert metrics.ne is None
    assert metrics.entropy == 0.0
    assert metrics.base_rate == label
    assert metrics.logloss is not None
    assert (metrics.calibration is None) == (label == 0)


def test_no_weight_is_undefined() -> None:
    for metrics in (compute_metrics([], []), compute_metrics([1.0, 2.0], [0, 1], [0, 0])):
        assert metrics.rows == 0
        assert {metrics.ne, metrics.logloss, metrics.auc, metrics.calibration, metrics.base_rate} == {None}
        assert metrics.entropy is None


def test_class_without_weight_is_undefined() -> None:
    metrics = compute_metrics([1.0, 2.0, 3.0], [0, 1, 0], [1, 0, 1])
    assert metrics.auc is None
    assert metrics.ne is None


def test_rows_and_coverage() -> None:
    metrics = compute_metrics([1.0, 2.0, 3.0], [0, 1, 0], [1, 2, 0], expected_rows=4)
    assert (metrics.rows, metrics.coverage) == (2, 0.5)
    assert compute_metrics([1.0], [0]).coverage is None


def test_small_losses_keep_their_digits() -> None:
    assert logloss([40.0], [1]) == pytest.approx(math.exp(-40), rel=1e-12)
    assert logloss([-100.0], [0]) == pytest.approx(math.exp(-100), rel=1e-12)
    assert logloss([-100.0], [1]) == 100.0


def test_label_other_than_0_or_1_is_refused() -> None:
    with pytest.raises(AssertionError, match="labels are 0 or 1"):
        logloss([0.0], [0.5])


@settings(max_examples=60, deadline=None)
@given(small_rows(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: Rows, random: object) -> None:
    order = np.arange(len(rows[0]))
    random.shuffle(order)  # type: ignore[attr-defined]
    logits, labels, weights = rows
    assert_close(compute_metrics(*rows), compute_metrics(logits[order], labels[order], weights[order]))


@settings(max_examples=60, deadline=None)
@given(small_rows())
def test_weights_are_repeated_rows(rows: Rows) -> None:
    logits, labels, weights = rows
    repeat = weights.astype(int)
    repeated = compute_metrics(np.repeat(logits, repeat), np.repeat(labels, repeat))
    assert_close(compute_metrics(logits, labels, weights), repeated)


@settings(max_examples=60, deadline=None)
@given(small_rows())
def test_defined_metrics_are_finite_and_in_range(rows: Rows) -> None:
    metrics = compute_metrics(*rows)
    for name in ("ne", "logloss", "auc", "calibration", "base_rate", "entropy"):
        value = getattr(metrics, name)
        assert value is None or (math.isfinite(value) and value >= 0)
    assert metrics.auc is None or metrics.auc <= 1


@settings(max_examples=60, deadline=None)
@given(small_rows())
def test_auc_of_negated_scores_is_the_complement(rows: Rows) -> None:
    logits, labels, weights = rows
    value, negated = auc(logits, labels, weights), auc(-logits, labels, weights)
    assert (value is None) == (negated is None)
    if value is not None and negated is not None:
        assert value + negated == pytest.approx(1, abs=1e-12)


def test_no_constant_predictor_beats_ne_of_one() -> None:
    _, labels, weights = random_rows(5, 500)
    p = base_rate(labels, weights)
    assert p is not None
    best = math.log(p / (1 - p))
    for shift in (-0.5, -0.01, 0.01, 0.5):
        worse = ne(np.full(500, best + shift), labels, weights)
        assert worse is not None
        assert worse > 1
    assert ne(np.full(500, best), labels, weights) == pytest.approx(1, abs=1e-12)


def assert_close(one: object, other: object) -> None:
    for name in ("ne", "logloss", "auc", "calibration", "base_rate", "entropy"):
        left, right = getattr(one, name), getattr(other, name)
        assert left == (None if right is None else pytest.approx(right, rel=1e-12, abs=1e-15)), name
