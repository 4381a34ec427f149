"""The calibration curve: observed click rate over predicted probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from recsys.report.predictions import Predictions

_Z = 1.959963984540054  # two-sided 95 % of the normal distribution


@dataclass(frozen=True)
class Bin:
    """Rows of neighbouring predictions.

    Attributes:
        predicted: weighted mean probability.
        observed: weighted click rate.
        low, high: its 95 % interval (Wilson, 1927), with the effective number of rows (sum w)^2 / sum w^2.
        rows: number of rows.
    """

    predicted: float
    observed: float
    low: float
    high: float
    rows: int


def reliability(predictions: Predictions, num_bins: int = 12) -> list[Bin]:
    """Bins of as many rows each, in the order of their predictions; rows of one prediction share a bin's edge only.

    Args:
        predictions: R rows, weights above 0.
        num_bins: at most; fewer where there are fewer rows.
    """
    z = predictions.logits.astype(np.float64)
    order = np.argsort(z, kind="stable")
    p, y, w = (1 / (1 + np.exp(-z[order])), predictions.labels[order], predictions.weights[order].astype(np.float64))
    return [_bin(p[i], y[i], w[i]) for i in np.array_split(np.arange(len(z)), min(num_bins, len(z))) if len(i)]


def _bin(p: np.ndarray, y: np.ndarray, w: np.ndarray) -> Bin:
    total = float(w.sum())
    observed = float((w * y).sum()) / total
    low, high = _wilson(observed, total**2 / float((w**2).sum()))
    return Bin(float((w * p).sum()) / total, observed, low, high, len(p))


def _wilson(rate: float, n: float) -> tuple[float, float]:
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
