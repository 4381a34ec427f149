"""What the single test rows say: paired differences, and how far they would move with other rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions

Floats = NDArray[np.float64]


def read(folder: Path) -> Predictions:
    """The predictions of a run's folder.

    Raises:
        DataError: they are missing or damaged.
    """
    return Predictions.read(folder / PREDICTIONS_NPZ)


def largest_difference(left: Path, right: Path) -> float:
    """Largest absolute difference between two runs' logits; 0 only if all bits agree.

    Raises:
        DataError: their rows are not the same.
    """
    a, b = read(left), read(right)
    check_same_rows(a, b, left, right)
    return float(np.abs(a.logits.astype(np.float64) - b.logits).max(initial=0.0))


def check_same_rows(a: Predictions, b: Predictions, left: Path, right: Path) -> None:
    """Raise DataError unless both have the same labels and weights in the same order."""
    if not (np.array_equal(a.labels, b.labels) and np.array_equal(a.weights, b.weights)):
        raise DataError(
            f"{left} and {right} were tested on different rows ({len(a.labels)} and {len(b.labels)}), so nothing can "
            "be paired; compare experiments that read the same test rows"
        )


def loss_R(rows: Predictions) -> Floats:
    """Cross-entropy of each row in nats, times its weight, ``(R,)``."""
    z, w = rows.logits.astype(np.float64), rows.weights.astype(np.float64)
    loss: Floats = w * np.logaddexp(0.0, np.where(rows.labels == 1, -z, z))
    return loss


def gap_percent(model: Predictions, reference: Predictions) -> tuple[float, Floats]:
    """By how much the NE of ``model`` lies above that of ``reference``, in percent of the latter.

    H(p) is the same for both and drops out.

    Returns:
        The gap, and each row's part in it as in ``ratio_of_means``.
    """
    ratio, influence_R = ratio_of_means(loss_R(model), loss_R(reference))
    return 100 * (ratio - 1), 100 * influence_R


def calibration(model: Predictions, _: Predictions) -> tuple[float, Floats]:
    """Mean prediction / mean label, and each row's part in it."""
    z, w = model.logits.astype(np.float64), model.weights.astype(np.float64)
    return ratio_of_means(w * np.exp(-np.logaddexp(0.0, -z)), w * model.labels)


def ratio_of_means(numerator_R: Floats, denominator_R: Floats) -> tuple[float, Floats]:
    """``mean(numerator) / mean(denominator)`` and its linearisation in the rows.

    The influence ``(n_i - ratio * d_i) / mean(d)`` has mean 0, and its variance over R is the variance of the
    ratio under sampling of rows, to first order (delta method; the infinitesimal jackknife).
    """
    mean = float(denominator_R.mean())
    ratio = float(numerator_R.mean()) / mean
    return ratio, (numerator_R - ratio * denominator_R) / mean


Statistic = Callable[[Predictions, Predictions], tuple[float, Floats]]


def over_seeds(statistic: Statistic, pairs: list[tuple[Predictions, Predictions]]) -> tuple[list[float], float]:
    """A statistic of the runs of one fold.

    Args:
        statistic: of a model and a reference on the same rows.
        pairs: the two, for each seed.

    Returns:
        Its value for each seed, and the variance of each under sampling of rows, as far as the seeds have it in common:
        they share their rows, so averaging over seeds does not make it smaller. What rows do to one seed and not to
        another is in the spread of the values already, and left out here (two-way layout, seeds x rows). With a
        single seed the two cannot be told apart, and all of it is given.
    """
    values, alone = [], 0.0
    num_seeds, num_rows = len(pairs), len(pairs[0][0].labels)
    mean_R = np.zeros(num_rows)
    for model, reference in pairs:
        value, influence_R = statistic(model, reference)
        values.append(value)
        alone += float(influence_R.var(ddof=1)) / num_seeds
        mean_R += influence_R / num_seeds
    variance = float(mean_R.var(ddof=1))
    if num_seeds > 1:
        variance -= (alone - variance) / (num_seeds - 1)
    return values, max(0.0, variance) / num_rows
