"""Batches at fixed addresses, for captured steps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.features import FeatureSpec
from recsys.types import Batch

_INT32_MAX = 2**31 - 1


class StaticBatches:
    """Copies batches to where a captured step reads them.

    With one id a feature and row the lengths are constants, and only ids travel: as int32 where every
    table has fewer than 2^31 rows, which halves what the table kernels sort. Otherwise the ids stay out of the capture
    (:attr:`has_static_ids` is false) and the sparse part has to run outside of it.

    Args:
        spec: the columns.
        keep_ids: whether ids stay out of the capture although each row has one of each feature; so where other
            ranks look them up.
    """

    def __init__(self, spec: FeatureSpec, *, keep_ids: bool = False) -> None:
        self.has_static_ids = spec.is_one_hot and not keep_ids
        rows = max((f.cardinality for f in spec.sparse), default=0)
        self._index_dtype = torch.int32 if rows <= _INT32_MAX else torch.int64

    def signature(self, batch: Batch) -> Hashable:
        """Shapes and types of a batch."""
        ids = batch.sparse_features.values()
        dense = batch.dense_features
        shapes = (dense.shape, dense.dtype, batch.labels.shape, batch.labels.dtype, batch.weights.dtype, dense.device)
        own = (ids.shape, ids.dtype) if self.has_static_ids else None
        return (*shapes, batch.weight_sum is None, own)

    def allocate(self, batch: Batch) -> Batch:
        """A batch like ``batch`` with tensors of its own."""
        sparse = batch.sparse_features
        if self.has_static_ids:
            values = torch.empty_like(sparse.values(), dtype=self._index_dtype)
            num = values.numel()
            sparse = KeyedJaggedTensor(
                keys=sparse.keys(),
                values=values,
                lengths=torch.ones(num, dtype=self._index_dtype, device=values.device),
                offsets=torch.arange(num + 1, dtype=self._index_dtype, device=values.device),
                stride=sparse.stride(),
            )
        return Batch(
            torch.empty_like(batch.dense_features),
            sparse,
            torch.empty_like(batch.labels),
            torch.empty_like(batch.weights),
            None if batch.weight_sum is None else torch.empty_like(batch.weight_sum),
            batch.whole_rows,
        )

    def load(self, static: Batch, batch: Batch) -> None:
        """Copy in two kernels: the floats, and the ids."""
        targets = [static.dense_features, static.labels, static.weights]
        sources = [batch.dense_features, batch.labels, batch.weights]
        if static.weight_sum is not None and batch.weight_sum is not None:
            targets.append(static.weight_sum)
            sources.append(batch.weight_sum)
        torch._foreach_copy_(targets, sources)
        if self.has_static_ids:
            static.sparse_features.values().copy_(batch.sparse_features.values())

    def copy_labels(self, static: Batch) -> Batch:
        """``static`` with labels and weights of its own."""
        weight_sum = None if static.weight_sum is None else static.weight_sum.clone()
        return replace(static, labels=static.labels.clone(), weights=static.weights.clone(), weight_sum=weight_sum)
