"""Encodings fitted on train rows only: log and standardise the dense columns, number the categorical values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUT_OF_VOCABULARY = 0
MISSING = 1
NUM_RESERVED_IDS = 2


def signed_log(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """``sign(x) * log(1 + |x|)``: log1p for counts, and finite and monotone for the few negative values too."""
    x = values.astype(np.float64)
    return np.sign(x) * np.log1p(np.abs(x))


def log_bins(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bins of heavy-tailed integers for use as a categorical column; any shape.

    ``floor(ln(x)^2) + 2`` for x > 2, the value itself below; from the "3 Idiots" solution of the Criteo contest
    (Juan, Chin, Zhuang, 2014).
    """
    x = np.maximum(values, 1).astype(np.float64)
    # ln(3)^2 is 1.2: the + 2 keeps the bins of larger values apart from 0, 1 and 2 themselves.
    return np.where(values > 2, np.floor(np.log(x) ** 2).astype(np.int64) + 2, values)


@dataclass(frozen=True)
class DenseEncoder:
    """``(signed_log(x) - mean) / sd``; a missing value becomes 0, the mean.

    Attributes:
        mean: float64 ``(N,)``, of ``signed_log`` of the values that are present in the train rows; 0 if none is.
        sd: float64 ``(N,)``, likewise; 1 for a constant column.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]

    @staticmethod
    def fit(values: NDArray[np.int64], missing: NDArray[np.bool_]) -> DenseEncoder:
        """Fit on train rows, both arguments ``(N, R)``."""
        mean = np.zeros(len(values))
        sd = np.ones(len(values))
        for i in range(len(values)):
            present = signed_log(values[i][~missing[i]])
            if len(present):
                mean[i] = present.mean()
                sd[i] = present.std() or 1.0
        return DenseEncoder(mean, sd)

    def encode(self, values: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Encode ``(N, R)`` columns to float32 ``(R, N)`` rows, all finite."""
        dense = np.empty((values.shape[1], values.shape[0]), np.float32)
        for i in range(len(values)):
            dense[:, i] = np.where(missing[i], 0.0, (signed_log(values[i]) - self.mean[i]) / self.sd[i])
        return dense


@dataclass(frozen=True)
class Vocabulary:
    """Ids of one categorical column: 0 out of vocabulary, 1 missing, then the values by falling frequency.

    Falling frequency puts the rows of an embedding table that are used most next to each other.

    Attributes:
        values: ``(V,)``, distinct; ``values[i]`` has id ``i + 2``.
        rare: ``(W,)``, sorted; the train values below the minimum count, which have id 0.
    """

    values: NDArray[Any]
    rare: NDArray[Any]

    @staticmethod
    def fit(values: NDArray[Any], missing: NDArray[np.bool_], min_count: int) -> Vocabulary:
        """Fit on the train rows of a column; a value seen fewer than ``min_count`` times gets no id of its own."""
        distinct, counts = np.unique(values[~missing], return_counts=True)
        kept = counts >= min_count
        order = np.argsort(-counts[kept], kind="stable")
        return Vocabulary(distinct[kept][order], distinct[~kept])

    @property
    def cardinality(self) -> int:
        """Ids in all, the two reserved ones included."""
        return NUM_RESERVED_IDS + len(self.values)

    def encode(self, values: NDArray[Any], missing: NDArray[np.bool_]) -> tuple[NDArray[np.int32], int]:
        """Encode ``(R,)`` values.

        Returns:
            int32 ids ``(R,)``, and the number of rows whose value occurs nowhere in the train rows.
        """
        by_value = np.argsort(self.values)
        ids = np.full(len(values), OUT_OF_VOCABULARY, np.int32)
        if len(by_value):
            slot = np.searchsorted(self.values, values, sorter=by_value)
            candidate = by_value[np.minimum(slot, len(by_value) - 1)]
            known = self.values[candidate] == values
            ids[known] = candidate[known] + NUM_RESERVED_IDS
        ids[missing] = MISSING
        unseen = (ids == OUT_OF_VOCABULARY) & ~np.isin(values, self.rare)
        return ids, int(unseen.sum())
