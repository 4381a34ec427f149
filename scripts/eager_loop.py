"""The loop that a torchrec user writes today: one eager sharded model, one backward, torchrec's own pipeline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

from recsys.config.wire import Config, build_autocast, build_model
from recsys.features import FeatureSpec, SparseFeature
from recsys.models.recommender import DENSE, OVER, SPARSE, TOKENS, Recommender
from recsys.types import Batch


class EndToEnd(nn.Module):
    """A recommender with nothing detached, as one ``forward`` that gives (loss, logits)."""

    def __init__(self, cfg: Config, spec: FeatureSpec, device: torch.device) -> None:
        super().__init__()
        # The dense parts are the product's own; the tables are torchrec's, so that it can shard them.
        small = FeatureSpec(spec.dense, tuple(SparseFeature(f.name, 2) for f in spec.sparse))
        model = build_model(cfg, small, device).train()
        self.num_features, self.dim = len(spec.sparse), cfg["sparse"]["embedding_dim"]
        self.collection = EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(name=f.name, feature_names=[f.name], num_embeddings=f.cardinality,
                                   embedding_dim=self.dim) for f in spec.sparse
            ],
        )  # fmt: skip
        rate = {"lr": cfg["sparse"]["lr"], "eps": cfg["sparse"]["eps"]}
        apply_optimizer_in_backward(RowWiseAdagrad, self.collection.parameters(), rate)
        self.rest = _Rest(model, build_autocast(cfg, device) or nullcontext)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Forward of the whole model."""
        pooled = self.collection(batch.sparse_features).values().view(-1, self.num_features, self.dim)
        result: tuple[torch.Tensor, torch.Tensor] = self.rest(batch, pooled)
        return result


class _Rest(nn.Module):
    """All but the tables; torchrec's pipeline traces the forward of modules that hold tables, and no others."""

    def __init__(self, model: Recommender, autocast: Callable[[], Any]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({n: m for n, m in model.parts.items() if n != SPARSE})
        self._reads_tokens = [n for n in model.graph.names if n not in (SPARSE, DENSE, TOKENS, OVER)]
        self._autocast = autocast

    def forward(self, batch: Batch, pooled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and logits from pooled embeddings ``(B, F, D)``."""
        with self._autocast():
            tokens = self.parts[TOKENS](batch, pooled, self.parts[DENSE](batch).out).out
            outs = [self.parts[n](batch, tokens).out for n in self._reads_tokens]
            over = self.parts[OVER](batch, *outs)
        return over.loss, over.logits


def sparse_dist_step(
    cfg: Config, spec: FeatureSpec, device: torch.device, host_pool: Sequence[Batch]
) -> Callable[[], Any]:
    """A function that trains one step through ``TrainPipelineSparseDist``, batches coming from (pinned) host memory.

    Starts a process group of this process alone, which ``torch.distributed.destroy_process_group`` ends.
    """
    rendezvous = Path(tempfile.mkdtemp()) / "store"
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, init_method=f"file://{rendezvous}", rank=0, world_size=1)
    model = DistributedModelParallel(
        EndToEnd(cfg, spec, device), device=device, sharders=[EmbeddingBagCollectionSharder()]
    )
    dense = [p for n, p in model.named_parameters() if "collection" not in n]
    optimizer = torch.optim.Adam(dense, lr=cfg["optim"]["lr"], fused=True)
    pipeline = TrainPipelineSparseDist(model, optimizer, device)

    def endless() -> Iterator[Batch]:
        while True:
            yield from host_pool

    batches = endless()
    return lambda: pipeline.progress(batches)
