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

from dataclasses import dataclass

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
    """

    dense_features: torch.Tensor
    sparse_features: KeyedJaggedTensor
    labels: torch.Tensor
    weights: torch.Tensor

    @property
    def num_rows(self) -> int:
        """B, padding included."""
        return self.labels.shape[0]

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """Copy to ``device`` (torchrec's ``Pipelineable``)."""
        return Batch(
            dense_features=self.dense_features.to(device, non_blocking=non_blocking),
            sparse_features=self.sparse_features.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
            weights=self.weights.to(device, non_blocking=non_blocking),
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Tell the allocator that ``stream`` uses this batch (torchrec's ``Pipelineable``)."""
        self.dense_features.record_stream(stream)
        self.sparse_features.record_stream(stream)
        self.labels.record_stream(stream)
        self.weights.record_stream(stream)

    def pin_memory(self) -> Batch:
        """Copy into page-locked memory (torchrec's ``Pipelineable``); needs an accelerator."""
        return Batch(
            dense_features=self.dense_features.pin_memory(),
            sparse_features=self.sparse_features.pin_memory(),
            labels=self.labels.pin_memory(),
            weights=self.weights.pin_memory(),
        )
