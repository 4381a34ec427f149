"""The pointwise transforms of numbers; the same bits for a value wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recsys.data.encode import log_bins as _log_bins

Float64 = NDArray[np.float64]


def transform(values: Float64, names: Sequence[str], shift: float) -> Float64:
    """Apply transforms in order to ``(V,)`` values; NaN (missing) stays NaN."""
    for name in names:
        values = _apply(np.ascontiguousarray(values), name, shift)
    return values


def buckets(values: Float64, name: str) -> NDArray[np.int64]:
    """A bucket transform as whole numbers; what is missing gets a number that means nothing."""
    return transform(np.where(np.isnan(values), 0.0, values), (name,), 1.0).astype(np.int64)


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
    return np.where(missing, np.nan, _log_bins(whole).astype(np.float64))
