"""Sums that do not depend on the order of their terms, so that a mean is the same however rows are cut to chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from recsys.prepare.kernels import exact_sums

# A float64 is mantissa * 2 ** (exponent - _BIAS), its exponent field taken as 1 for subnormal numbers.
_BIAS = 1075


@dataclass(frozen=True)
class Moments:
    """Count, extremes, and the exact sums of values and squares.

    Attributes:
        count: values.
        total, squares: sums in units of ``2 ** -_BIAS`` and ``2 ** (-2 * _BIAS)``, whole numbers.
        low, high: extremes; infinite when there is no value.
    """

    count: int = 0
    total: int = 0
    squares: int = 0
    low: float = math.inf
    high: float = -math.inf

    @staticmethod
    def of(values: NDArray[np.float64]) -> Moments:
        """The moments of finite values ``(V,)``, at most 2^31 of them."""
        if not len(values):
            return Moments()
        values = np.ascontiguousarray(values, np.float64)
        limbs = np.zeros((2048, 8), np.int64)
        exact_sums(values, values.view(np.uint64), limbs)
        total = squares = 0
        for exponent in np.flatnonzero(limbs.any(axis=1)).tolist():
            a, b, c, d, e, f, g, h = limbs[exponent].tolist()
            total += (a + (b << 32)) << exponent
            square = ((c + (d << 32)) << 54) + ((e + (f << 32)) << 28) + g + (h << 32)
            squares += square << (2 * exponent)
        return Moments(len(values), total, squares, float(values.min()), float(values.max()))

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    @property
    def mean(self) -> float:
        """The correctly rounded mean; 0 of nothing."""
        if not self.count:
            return 0.0
        return float(Fraction(self.total, self.count << _BIAS))

    @property
    def sd(self) -> float:
        """Population standard deviation; 1 when there are fewer than two different values."""
        if self.low >= self.high:
            return 1.0
        variance = Fraction(self.squares * self.count - self.total**2, self.count**2 << (2 * _BIAS))
        # The variance is exact, so it is above zero; it may be too small for a float64.
        return math.sqrt(float(variance)) or 1.0
