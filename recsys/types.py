"""The batch, and the legend of the shape suffixes used in tensor names.

==  ======================================================
B   samples in the batch (per rank)
N   dense features
F   sparse (categorical) features
D   embedding dimension
T   tokens: F sparse vectors, and the dense vector in front of them if there is one
O   output width of a sub-architecture
K   sub-architectures
==  ======================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.streamable import Pipelineable


@dataclass
class Batch(Pipelineable):
    """One batch of click logs.

    Attributes:
        dense_features: float32 ``(B, N)``; finite.
        sparse_features: ids of F features in feature-major order, ``stride() == B``.
        labels: float32 ``(B,)``, each 0 or 1.
        weights: float32 ``(B,)``; 0 marks a row that only pads the batch.
        weight_sum: float32 scalar; what losses are divided by where this batch is a slice of a larger one: the sum
            of the weights of the whole. None: the sum of ``weights``.
        whole_rows: rows of the whole batch that this one is a slice of, padding excluded. None: this is no slice.
    """

    dense_features: torch.Tensor
    sparse_features: KeyedJaggedTensor
    labels: torch.Tensor
    weights: torch.Tensor
    weight_sum: torch.Tensor | None = None
    whole_rows: int | None = None

    @property
    def num_rows(self) -> int:
        """B, padding included."""
        return self.labels.shape[0]

    @property
    def step_rows(self) -> int:
        """Rows that all ranks together train on in the step of this batch."""
        return self.num_rows if self.whole_rows is None else self.whole_rows

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """Copy to ``device`` (torchrec's ``Pipelineable``)."""
        moved = self._map(lambda t: t.to(device, non_blocking=non_blocking))
        moved.sparse_features = self.sparse_features.to(device, non_blocking=non_blocking)
        return moved

    def record_stream(self, stream: torch.Stream) -> None:
        """Tell the allocator that ``stream`` uses this batch (torchrec's ``Pipelineable``)."""
        for tensor in (self.dense_features, self.labels, self.weights, self.weight_sum):
            if tensor is not None:
                tensor.record_stream(stream)
        self.sparse_features.record_stream(stream)

    def pin_memory(self) -> Batch:
        """Copy into page-locked memory (torchrec's ``Pipelineable``); needs an accelerator."""
        pinned = self._map(lambda t: t.pin_memory())
        pinned.sparse_features = self.sparse_features.pin_memory()
        return pinned

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        return replace(
            self,
            dense_features=function(self.dense_features),
            labels=function(self.labels),
            weights=function(self.weights),
            weight_sum=None if self.weight_sum is None else function(self.weight_sum),
        )
