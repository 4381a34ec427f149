"""Batches from arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.source import BatchSource
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.types import Batch


class MemorySource(BatchSource):
    """Rows held in RAM, one id per sparse feature.

    Args:
        spec: the columns; one-hot.
        dense: float32 ``(R, N)``, finite.
        ids: int32 ``(F, R)``, each below its feature's cardinality.
        labels: ``(R,)``, each 0 or 1.
        batch_size: B; the last batch of an epoch has the rows that are left.
        shuffle_seed: every epoch's order is a permutation drawn from (seed, epoch); None keeps the given order.
        weights: float32 ``(R,)``; None means 1 for every row.

    Raises:
        ConfigError: ``batch_size`` is below 1.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        dense: NDArray[np.float32],
        ids: NDArray[np.int32],
        labels: NDArray[Any],
        *,
        batch_size: int,
        shuffle_seed: int | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"the batch size is {batch_size}; it must be at least 1")
        num_rows = len(labels)
        assert spec.is_one_hot, "MemorySource holds exactly one id per row and feature"
        assert dense.shape == (num_rows, len(spec.dense)), f"dense {dense.shape}, labels {labels.shape}"
        assert ids.shape == (len(spec.sparse), num_rows), f"ids {ids.shape}, labels {labels.shape}"
        assert np.isfinite(dense).all(), "dense features must be finite"
        for feature, column in zip(spec.sparse, ids, strict=True):
            assert num_rows == 0 or 0 <= column.min() <= column.max() < feature.cardinality, feature.name
        self.spec = spec
        self.num_rows = num_rows
        self.batch_size = batch_size
        self._dense_RN = torch.from_numpy(dense)
        self._ids_FR = torch.from_numpy(ids)
        self._labels_R = torch.from_numpy(labels.astype(np.float32))
        self._weights_R = torch.ones(num_rows) if weights is None else torch.from_numpy(weights)
        self._shuffle_seed = shuffle_seed

    def __len__(self) -> int:
        """Batches in a whole epoch; the last may be short."""
        return (self.num_rows + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of this epoch; the position moves on before a batch is handed out."""
        epoch, first = self._epoch, self._batch
        order = self._order(epoch)
        for batch in range(first, len(self)):
            start = batch * self.batch_size
            stop = min(start + self.batch_size, self.num_rows)
            self._move_past(epoch, batch)
            yield self._slice(start, stop) if order is None else self._gather(order[start:stop])

    def _order(self, epoch: int) -> torch.Tensor | None:
        if self._shuffle_seed is None:
            return None
        return torch.from_numpy(np.random.default_rng([self._shuffle_seed, epoch]).permutation(self.num_rows))

    def _slice(self, start: int, stop: int) -> Batch:
        # Copies: a batch that aliased the rows could be written through.
        return self._batch_of(
            self._dense_RN[start:stop].clone(),
            self._ids_FR[:, start:stop],
            self._labels_R[start:stop].clone(),
            self._weights_R[start:stop].clone(),
        )

    def _gather(self, rows: torch.Tensor) -> Batch:
        return self._batch_of(
            self._dense_RN.index_select(0, rows),
            self._ids_FR.index_select(1, rows),
            self._labels_R.index_select(0, rows),
            self._weights_R.index_select(0, rows),
        )

    def _batch_of(
        self, dense_BN: torch.Tensor, ids_FB: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor
    ) -> Batch:
        num_rows = labels_B.shape[0]
        values = ids_FB.to(torch.int64).reshape(-1)
        sparse = KeyedJaggedTensor(
            keys=self.spec.sparse_names,
            values=values,
            lengths=torch.ones(values.shape[0], dtype=torch.int64),
            offsets=torch.arange(values.shape[0] + 1, dtype=torch.int64),
            stride=num_rows,
        )
        return Batch(dense_BN, sparse, labels_B, weights_B)
