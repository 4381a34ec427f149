"""The pointwise transforms of numbers; the same bits for a value wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def transform(values: Float64, names: Sequence[str], shift: float) -> Float64:
    """Apply transforms in order to ``(V,)`` values; NaN (missing) stays NaN."""
    for name in names:
        values = _apply(np.ascontiguousarray(values), name, shift)
    return values


def buckets(values: Float64, name: str) -> NDArray[np.int64]:
    """A bucket transform as whole numbers; what is missing gets a number that means nothing."""
    return transform(np.where(np.isnan(values), 0.0, values), (name,), 1.0).astype(np.int64)


def log_bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bins of heavy-tailed integers for use as a categorical column; any shape.

    ``floor(ln(x)^2) + 2`` for x > 2, the value itself below; from the "3 Idiots" solution of the Criteo contest
    (Juan, Chin, Zhuang, 2014).
    """
    x = np.maximum(values, 1).astype(np.float64)
    # ln(3)^2 is 1.2: the + 2 keeps the bins of larger values apart from 0, 1 and 2 themselves.
    return np.where(values > 2, np.floor(np.log(x) ** 2).astype(np.int64) + 2, values)


def _apply(x: Float64, name: str, shift: float) -> Float64:
    if name == "signed_log":
        # sign(x) log(1 + |x|): log1p for counts, finite and monotone for negative values too.
        return np.sign(x) * np.log1p(np.abs(x))
    if name == "shifted_log":
        return np.log(np.maximum(x + shift, 1.0))
    if name == "log_square":
        # Of the x4 protocol (Zhu et al., BARS, 2022), after Juan, Chin and Zhuang, 2014.
        return np.where(x > 2, np.floor(np.log(np.maximum(x, 1.0)) ** 2), np.trunc(x))
    assert name == "log_bins", name
    # Buckets above 2 that share no number with the values up to 2.
    missing = np.isnan(x)
    whole = np.clip(np.trunc(np.where(missing, 0.0, x)), -(2.0**62), 2.0**62).astype(np.int64)
    return np.where(missing, np.nan, log_bins(whole).astype(np.float64))
