"""From values over folds and seeds to an estimate with an interval, variance components and a verdict.

Shapes: ``values_KN`` holds one value for each of N seeds in each of K folds. Folds share no test row and no seed;
the seeds of a fold share their rows.

* K >= 2: seeds are averaged within their fold, and the K fold means are a sample, Student's t with K - 1 degrees of
  freedom. Their spread holds everything: seeds, test rows, and training rows as far as folds differ in them.
* K = 1: nothing replicates the rows. The variance is that between seeds / N plus that of the rows (delta method),
  Student's t with the degrees of freedom of Welch and Satterthwaite.
* One run: only the rows' variance is known; no verdict is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and the degrees of freedom of the latter.

    Attributes:
        basis: what the error was estimated from: ``folds``, ``seeds and rows``, or ``rows`` alone.
    """

    mean: float
    se: float
    df: float
    basis: str

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided confidence interval."""
        if self.se == 0:
            return self.mean, self.mean
        low, high = stats.t.interval(confidence, self.df, self.mean, self.se)
        return float(low), float(high)

    def p_difference(self) -> float:
        """Two-sided p-value of "the true mean is 0"."""
        if self.se == 0:
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.se, self.df))

    def p_equivalence(self, margin: float) -> float:
        """p-value of "the true mean is ``margin`` or more away from 0", the larger of two one-sided tests.

        TOST: Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987.
        """
        distance = margin - abs(self.mean)
        if self.se == 0:
            return float(distance <= 0)
        return float(stats.t.sf(distance / self.se, self.df))

    def widened(self, factor: float) -> Estimate:
        """The same with ``factor`` times the standard error."""
        return Estimate(self.mean, self.se * factor, self.df, self.basis)


def estimate(values_KN: Floats, row_variance_K: Floats, num_rows: int) -> Estimate:
    """The mean over folds and seeds.

    Args:
        values_KN: see above.
        row_variance_K: variance that sampling of test rows gives to all values of a fold alike.
        num_rows: test rows of a fold.
    """
    num_folds, num_seeds = values_KN.shape
    fold_means = values_KN.mean(axis=1)
    mean = float(fold_means.mean())
    if num_folds >= 2:
        return Estimate(mean, float(stats.sem(fold_means)), num_folds - 1, "folds")
    rows = float(row_variance_K[0])
    if num_seeds == 1:
        return Estimate(mean, math.sqrt(rows), num_rows - 1, "rows")
    seeds = float(values_KN[0].var(ddof=1)) / num_seeds
    return Estimate(mean, math.sqrt(seeds + rows), _satterthwaite(seeds, num_seeds, rows, num_rows), "seeds and rows")


def _satterthwaite(seeds: float, num_seeds: int, rows: float, num_rows: int) -> float:
    """Degrees of freedom of the sum of two estimated variances of means."""
    if seeds + rows == 0:
        return num_seeds - 1
    return (seeds + rows) ** 2 / (seeds**2 / (num_seeds - 1) + rows**2 / (num_rows - 1))


def shared_rows_factor(num_folds: int) -> float:
    """By how much to widen the error of K fold means where folds train on each other's test rows.

    Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52, 2003: variance / K becomes
    variance * (1 / K + test rows / training rows), and with K blocks the second term is 1 / (K - 1). It assumes a
    correlation of 1 / K between folds, a caution where seeds and test rows make up most of the variance.
    """
    return math.sqrt(1 + num_folds / (num_folds - 1))


@dataclass(frozen=True)
class Components:
    """Variances of a single value, apart; None where the design cannot show one.

    Attributes:
        seed: between seeds of a fold.
        fold: between folds beyond that, the test rows' part included; with one seed a fold, seeds are in it, too.
        row: sampling of one fold's test rows, as far as it moves all its seeds alike.
    """

    seed: float | None
    fold: float | None
    row: float


def components(values_KN: Floats, row_variance_K: Floats) -> Components:
    """Variance components of a balanced one-way layout (analysis of variance)."""
    num_folds, num_seeds = values_KN.shape
    seed = float(values_KN.var(axis=1, ddof=1).mean()) if num_seeds >= 2 else None
    fold = None
    if num_folds >= 2:
        fold = max(0.0, float(values_KN.mean(axis=1).var(ddof=1)) - (seed or 0.0) / num_seeds)
    return Components(seed, fold, float(row_variance_K.mean()))


@dataclass(frozen=True)
class Design:
    """How values were gathered, or would be.

    Attributes:
        folds, seeds: K and N.
        rows: test rows of a fold.
        fixed_rows: whether more folds means smaller ones, for they are blocks of one file.
    """

    folds: int
    seeds: int
    rows: int
    fixed_rows: bool = False


@dataclass(frozen=True)
class Needed:
    """What would settle an open question with the wanted probability; None: no number of them would.

    Attributes:
        seeds: in each fold, with the folds as they are.
        folds: with the seeds in each as they are.
    """

    seeds: int | None
    folds: int | None


_MOST = 1000


def runs_to_resolve(
    parts: Components, mean: float, design: Design, margin: float, alpha: float = 0.05, power: float = 0.8
) -> Needed:
    """Least seeds, or folds, at which a verdict comes out with probability ``power`` if the true mean is ``mean``.

    A verdict is "the mean is not 0" (two-sided ``alpha``) or, inside the margin, "it is within the margin" (TOST), the
    easier one. Power is that of the noncentral t distribution.
    """
    # The bounds that the mean must be shown to keep away from, by their distance, and the level of each test.
    goals = [((abs(mean),), alpha / 2), ((margin - mean, margin + mean), alpha)]

    def resolves(folds: int, seeds: int) -> bool:
        variance, df = _predict(parts, design, folds, seeds)
        return any(_power(distances, math.sqrt(variance), df, level) >= power for distances, level in goals)

    seeds = _least(2, lambda n: resolves(design.folds, n)) if parts.seed is not None else None
    folds = _least(2, lambda k: resolves(k, design.seeds)) if parts.fold is not None else None
    return Needed(seeds, folds)


def _predict(parts: Components, design: Design, folds: int, seeds: int) -> tuple[float, float]:
    """Variance of the mean and degrees of freedom under another number of folds and seeds."""
    seed = (parts.seed or 0.0) / seeds
    if parts.fold is None:
        return seed + parts.row, _satterthwaite(seed, seeds, parts.row, design.rows)
    other = max(0.0, parts.fold - parts.row)  # the estimated sum may fall below a part of it that is known better
    smaller = folds / design.folds if design.fixed_rows else 1.0
    return (other + parts.row * smaller + seed) / folds, folds - 1


def _power(distances: tuple[float, ...], se: float, df: float, level: float) -> float:
    """Probability that one-sided t tests against bounds so far away all reject, at least (Bonferroni)."""
    missed = 0.0
    critical = float(stats.t.isf(level, df))
    for distance in distances:
        if distance <= 0:
            return 0.0
        # Far out the noncentral distribution has no digits left, and nothing is missed.
        if se > 0 and distance / se < critical + 30:
            missed += float(stats.nct.cdf(critical, df, distance / se))
    return 1 - missed


def _least(low: int, holds: Callable[[int], bool]) -> int | None:
    """Least number from ``low`` on at which ``holds``, which stays true once it is; None above a thousand."""
    high = low
    while not holds(high):
        if high >= _MOST:
            return None
        low, high = high + 1, min(2 * high, _MOST)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
