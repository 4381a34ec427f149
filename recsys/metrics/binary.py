"""Metrics of click predictions, exact over all rows given, in float64.

Shapes: ``logits``, ``labels`` and ``weights`` are numpy arrays ``(R,)`` of R rows; labels are 0 or 1,
weights are finite and not negative (``None``: all 1), logits are finite. A metric that the rows do not
define is ``None``. Units: log loss and entropy are in nats, every other figure is a ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Metrics:
    """Quality of one predictor over the evaluated rows.

    Attributes:
        ne: normalized entropy, ``logloss / entropy``; 1 is the best constant predictor; None on one-class rows.
        logloss: weighted mean cross-entropy, nats.
        auc: probability that a click scores above a non-click, ties counted half; None on one-class rows.
        calibration: mean prediction / mean label; None without a click.
        base_rate: click rate p of the evaluated rows.
        entropy: H(p), nats.
        rows: evaluated rows, those of weight 0 not counted.
        coverage: ``rows`` / rows that the source holds; None where that number is not known.
    """

    ne: float | None
    logloss: float | None
    auc: float | None
    calibration: float | None
    base_rate: float | None
    entropy: float | None
    rows: int
    coverage: float | None


def logloss(logits: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Weighted mean binary cross-entropy in nats; None without weight."""
    z, y, w = _as_rows(logits, labels, weights)
    total = float(w.sum())
    if total == 0:
        return None
    # -log sigmoid(z) for a click and -log sigmoid(-z) otherwise: no subtraction, so no cancellation at large |z|.
    return float((w * np.logaddexp(0.0, np.where(y == 1, -z, z))).sum()) / total


def base_rate(labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Weighted click rate p; None without weight."""
    _, y, w = _as_rows(labels, labels, weights)
    total = float(w.sum())
    return float((w * y).sum()) / total if total > 0 else None


def entropy(p: float) -> float:
    """H(p) of a coin in nats: the log loss of the best constant predictor; 0 at ``p`` of 0 and 1."""
    if not 0 < p < 1:
        return 0.0
    return -p * math.log(p) - (1 - p) * math.log1p(-p)


def ne(logits: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Normalized entropy, ``logloss / H(p)``; None where H(p) is 0 (one-class rows).

    He et al., "Practical lessons from predicting clicks on ads at Facebook", ADKDD 2014, equation 3.
    """
    return compute_ne(logloss(logits, labels, weights), base_rate(labels, weights))


def compute_ne(mean_logloss: float | None, p: float | None) -> float | None:
    """``mean_logloss / H(p)``, both in nats; None where it is undefined."""
    if mean_logloss is None or p is None or entropy(p) == 0:
        return None
    return mean_logloss / entropy(p)


def calibration(logits: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Mean prediction / mean label, both weighted; None without a click."""
    z, y, w = _as_rows(logits, labels, weights)
    clicks = float((w * y).sum())
    # exp(log sigmoid): finite for every logit, and exact also where the prediction is tiny.
    return float((w * np.exp(-np.logaddexp(0.0, -z))).sum()) / clicks if clicks > 0 else None


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Area under the ROC curve, weighted, ties counted half, in O(R log R); None on one-class rows.

    The Mann-Whitney form: sum over distinct scores s of ``pos(s) * (neg(< s) + neg(s) / 2)``, over ``P * N``,
    with pos, neg, P and N sums of weights. Logits and probabilities rank alike, but logits tie less often.
    """
    s, y, w = _as_rows(scores, labels, weights)
    order = np.argsort(s, kind="stable")
    s, y, w = s[order], y[order], w[order]
    starts = np.flatnonzero(np.concatenate(([True], s[1:] != s[:-1]))) if s.size else np.zeros(0, np.intp)
    positives = np.add.reduceat(w * y, starts)
    negatives = np.add.reduceat(w * (1 - y), starts)
    num_pairs = float(positives.sum()) * float(negatives.sum())
    if num_pairs == 0:
        return None
    negatives_below = np.concatenate(([0.0], np.cumsum(negatives)[:-1]))
    return float((positives * (negatives_below + negatives / 2)).sum()) / num_pairs


def compute_metrics(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    expected_rows: int | None = None,
) -> Metrics:
    """All metrics of one predictor; ``expected_rows`` are the rows that the source holds."""
    z, y, w = _as_rows(logits, labels, weights)
    rows = int(np.count_nonzero(w))
    mean_logloss, p = logloss(z, y, w), base_rate(y, w)
    return Metrics(
        ne=compute_ne(mean_logloss, p),
        logloss=mean_logloss,
        auc=auc(z, y, w),
        calibration=calibration(z, y, w),
        base_rate=p,
        entropy=None if p is None else entropy(p),
        rows=rows,
        coverage=rows / expected_rows if expected_rows else None,
    )


def _as_rows(
    logits: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    z = np.asarray(logits, dtype=np.float64)
    y = np.asarray(labels, dtype=np.float64)
    w = np.ones_like(y) if weights is None else np.asarray(weights, dtype=np.float64)
    assert z.ndim == 1 and z.shape == y.shape == w.shape, f"rows differ: {z.shape}, {y.shape}, {w.shape}"
    assert bool(((y == 0) | (y == 1)).all()), "labels are 0 or 1; the reader refuses any other"
    assert bool((w >= 0).all()), "weights are not negative"
    return z, y, w
