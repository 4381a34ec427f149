"""The sparse arch of one process: pooled embeddings with the optimizer fused into the backward."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.sparse.arch import TableArch, TablePiece, init_table, table_configs

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "rowwise_adagrad": RowWiseAdagrad,
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}


@dataclass(frozen=True)
class SparseConfig:
    """Embedding tables and their optimizer (config group ``sparse``).

    Attributes:
        embedding_dim: D of every table; a multiple of 4, as fbgemm's kernels want it.
        optimizer: ``rowwise_adagrad``, ``sgd``, or ``adam`` (on a GPU only).
        lr: learning rate of the tables.
        eps: added to the root of the accumulated squares (not for ``sgd``).
        init_scale: a table's rows start uniform in ``[-s, s]`` with ``s = init_scale / sqrt(num_embeddings)``, as in
            DLRM (Naumov et al., 2019).
    """

    embedding_dim: int = 16
    optimizer: str = "rowwise_adagrad"
    lr: float = 0.05
    eps: float = 1e-8
    init_scale: float = 3.0

    def __post_init__(self) -> None:
        if self.embedding_dim < 4 or self.embedding_dim % 4:
            raise ConfigError(f"sparse.embedding_dim={self.embedding_dim}: use a multiple of 4, such as 16")
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"sparse.optimizer={self.optimizer}: valid are {', '.join(sorted(OPTIMIZERS))}")
        if not self.lr > 0:
            raise ConfigError(f"sparse.lr={self.lr}: must be above 0")
        if not self.eps >= 0 or not self.init_scale >= 0:
            raise ConfigError(f"sparse.eps={self.eps} and sparse.init_scale={self.init_scale}: must be at least 0")

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Arguments of the fused optimizer in torchrec's words."""
        return {"lr": self.lr} if self.optimizer == "sgd" else {"lr": self.lr, "eps": self.eps}


class SparseArch(TableArch):
    """One table a feature, sum-pooled, in one table-batched kernel.

    The backward applies the optimizer, so it must be entered once a step; no gradient of the size of
    a table ever exists.

    Raises:
        ConfigError: Adam on a CPU, which fbgemm's CPU kernels do not have.
    """

    def __init__(self, spec: FeatureSpec, config: SparseConfig, *, seed: int, device: torch.device) -> None:
        super().__init__()
        if config.optimizer == "adam" and device.type == "cpu":
            raise ConfigError(
                "sparse.optimizer=adam: fbgemm has it on a GPU only; use sparse.optimizer=rowwise_adagrad"
            )
        self.num_features = len(spec.sparse)
        self.dim = config.embedding_dim
        self.base_lr = config.lr
        self.lr = config.lr
        self.collection = FusedEmbeddingBagCollection(
            tables=table_configs(spec, config.embedding_dim),
            optimizer_type=OPTIMIZERS[config.optimizer],
            optimizer_kwargs=config.optimizer_kwargs(),
            device=device,
        )
        # Large tables take seconds each to draw, and a table has a generator of its own.
        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda piece: init_table([piece], seed, config.init_scale), self.pieces()))

    def pieces(self) -> Iterator[TablePiece]:
        """Every table, whole."""
        for name, bag in self.collection.embedding_bags.items():
            weight = bag.weight
            assert isinstance(weight, torch.Tensor)
            yield TablePiece(name, weight.data, 0, 0, weight.shape[0], weight.shape[1])

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """Look up ``features`` (F keys in the spec's order) and give ``(B, F, D)``."""
        # One pooling and data type makes one kernel, and keys in table order make torchrec's
        # per-feature split and concatenation (2 F copies) the identity: enter the kernel directly.
        (kernel,) = self.collection._emb_modules
        pooled_BFD: torch.Tensor = kernel(features.values(), features.offsets(), None)
        return pooled_BFD.view(-1, self.num_features, self.dim)

    def set_lr_factor(self, factor: float) -> None:
        """Set the learning rate to ``factor`` times the configured one."""
        self.lr = self.base_lr * factor
        for group in self.collection.fused_optimizer().param_groups:
            group["lr"] = self.lr
        self.collection.fused_optimizer().step()
