"""The columns of the synthetic data: Criteo's shape as constants, turned into the kernels' arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys.data.synthetic_kernels import (
    GOLDEN,
    NUM_DENSE,
    NUM_SPARSE,
    NUM_STREAMS,
    Columns,
    Float64,
    Int64,
    UInt64,
    mix,
)
from recsys.features import FeatureSpec, SparseFeature

# Distinct values of C1..C26 in Criteo Kaggle's train.txt.
CRITEO_CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
# Share of rows in which I1..I13 are missing, and a scale near their median, in Criteo Kaggle's train.txt.
DENSE_MISSING = (0.45, 0.0, 0.21, 0.22, 0.03, 0.22, 0.04, 0.0005, 0.04, 0.45, 0.04, 0.77, 0.22)
DENSE_SCALE = (1.5, 4.0, 6.0, 4.0, 2500.0, 32.0, 3.0, 7.0, 38.0, 1.2, 2.0, 1.0, 4.0)
# 0, 1, 2: tail index 1/2 (heaviest), 1, 2 (lightest).
DENSE_TAIL = (2, 1, 1, 1, 1, 1, 1, 2, 1, 2, 2, 1, 1)

NONE, USER, ITEM = 0, 1, 2
DENSE_GROUP = (NONE, NONE, ITEM, NONE, USER, USER, NONE, NONE, ITEM, NONE, NONE, USER, ITEM)
SPARSE_GROUP = (
    USER, ITEM, ITEM, ITEM, USER, USER, ITEM, ITEM, NONE, ITEM, USER, ITEM, USER,
    NONE, USER, ITEM, ITEM, ITEM, USER, NONE, ITEM, NONE, NONE, ITEM, USER, USER,
)  # fmt: skip
# The columns with the largest vocabularies carry several ids where multi-hot is on.
MULTI_HOT_COLUMNS = (2, 3, 11, 15, 20)

_NUM_CELLS = 512
_NUM_LOGS = 4096


@dataclass(frozen=True)
class ColumnSettings:
    """What of the columns can be set.

    Attributes:
        seed: of every hash.
        max_cardinality: cap on Criteo's cardinalities.
        zipf_exponent: probability of the id of rank r is about r ** -exponent.
        correlation: share of a grouped column's quantile that its latent decides, in [0, 1).
        max_length: most ids per row in ``MULTI_HOT_COLUMNS``; 1 is one-hot.
    """

    seed: int
    max_cardinality: int
    zipf_exponent: float
    correlation: float
    max_length: int

    @property
    def cardinalities(self) -> Int64:
        """Ids per column, ``(NUM_SPARSE,)``."""
        return np.minimum(np.array(CRITEO_CARDINALITIES, dtype=np.int64), self.max_cardinality)

    @property
    def max_lengths(self) -> Int64:
        """Most ids per row of each column, ``(NUM_SPARSE,)``."""
        lengths = np.ones(NUM_SPARSE, dtype=np.int64)
        lengths[list(MULTI_HOT_COLUMNS)] = self.max_length
        return lengths

    def spec(self) -> FeatureSpec:
        """I1..I13 and C1..C26."""
        return FeatureSpec(
            dense=tuple(f"I{j + 1}" for j in range(NUM_DENSE)),
            sparse=tuple(
                SparseFeature(f"C{c + 1}", int(cardinality), int(length))
                for c, (cardinality, length) in enumerate(zip(self.cardinalities, self.max_lengths, strict=True))
            ),
        )

    def columns(self) -> Columns:
        """The arrays that the kernels read."""
        keys = stream_keys(self.seed)
        # Fixed shifts, not drawn from the seed: they decide which columns' heads meet, part of the task's difficulty.
        shift: Float64 = np.array([(c + 1) * 0.6180339887498949 % 1.0 for c in range(NUM_SPARSE)])
        return Columns(
            keys=keys,
            dense_group=np.array(DENSE_GROUP, dtype=np.int64),
            dense_shift=shift[:NUM_DENSE].copy(),
            dense_width=np.full(NUM_DENSE, 1.0 - self.correlation),
            dense_scale=np.array(DENSE_SCALE),
            dense_tail=np.array(DENSE_TAIL, dtype=np.int64),
            dense_missing=np.array(DENSE_MISSING),
            log1p=np.log1p(np.arange(_NUM_LOGS, dtype=np.float64)),
            quantiles=np.stack([_zipf_quantiles(int(n), self.zipf_exponent) for n in self.cardinalities]),
            cardinality=self.cardinalities,
            sparse_group=np.array(SPARSE_GROUP, dtype=np.int64),
            sparse_shift=shift,
            sparse_width=np.full(NUM_SPARSE, 1.0 - self.correlation),
        )


def stream_keys(seed: int) -> UInt64:
    """One hash key for each stream, ``(NUM_STREAMS,)``."""
    start = mix.py_func(np.array([seed], dtype=np.uint64) * GOLDEN + GOLDEN)
    keys: UInt64 = mix.py_func(start + mix.py_func(np.arange(1, NUM_STREAMS + 1, dtype=np.uint64) * GOLDEN))
    return keys


def _zipf_quantiles(cardinality: int, exponent: float) -> Float64:
    """Inverse distribution function of the density x ** -exponent on [1, cardinality + 1], at even quantiles."""
    u = np.linspace(0.0, 1.0, _NUM_CELLS + 1)
    top = float(cardinality + 1)
    if abs(exponent - 1.0) < 1e-9:
        quantiles = top**u
    else:
        power = 1.0 - exponent
        quantiles = (1.0 + u * (top**power - 1.0)) ** (1.0 / power)
    result: Float64 = np.asarray(quantiles, dtype=np.float64)
    return result
