"""The loop that a torchrec user writes today: one eager model, one backward, one optimizer, torchrec's pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torchrec.distributed.train_pipeline import TrainPipelineBase

from recsys.models.recommender import DENSE, INTERACTION, OVER, SPARSE, TOKENS, Recommender
from recsys.types import Batch


class EndToEnd(nn.Module):
    """A recommender with nothing detached, as one ``forward`` that gives (loss, logits)."""

    def __init__(self, model: Recommender, autocast: Callable[[], Any] | None) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast or torch.enable_grad
        self._archs = [n for n in model.graph.names if n not in (SPARSE, DENSE, TOKENS, INTERACTION, OVER)]

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Forward of the whole model through torchrec's own embedding collection."""
        parts = self.model.parts
        with self._autocast():
            sparse = self.model.sparse_arch
            pooled = sparse.collection(batch.sparse_features).values().view(-1, sparse.num_features, sparse.dim)
            tokens = parts[TOKENS](batch, pooled, parts[DENSE](batch).out).out
            outs = [parts[n](batch, tokens).out for n in (INTERACTION, *self._archs)]
            over = parts[OVER](batch, *outs)
        return over.loss, over.logits


def pipelined_step(model: EndToEnd, lr: float, device: torch.device, host_pool: Sequence[Batch]) -> Callable[[], None]:
    """A function that trains one step through ``TrainPipelineBase``, batches coming from pinned host memory."""
    dense = [p for n in model.model.graph.names for p in model.model.dense_parameters(n)]
    optimizer = torch.optim.Adam(dense, lr=lr, fused=True)
    pipeline = TrainPipelineBase(model, optimizer, device)

    def endless() -> Iterator[Batch]:
        while True:
            yield from host_pool

    batches = endless()

    def step() -> None:
        pipeline.progress(batches)

    return step
