"""The sparse arch of one process: pooled embeddings with the optimizer fused into the backward."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.optim.keyed import KeyedOptimizer
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.sparse.arch import TableArch, TablePiece, init_table, table_configs

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "rowwise_adagrad": RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}

# One would do, but fbgemm's kernels want a multiple of 4.
FIRST_ORDER_WIDTH = 4

MAX_WIDTH_ON_GPU = 1024
"""fbgemm's CUDA kernels have given zeros for wider tables, without a word (torchrec, issue 3673)."""


@dataclass(frozen=True)
class SparseConfig:
    """Embedding tables and their optimizer (config group ``sparse``).

    Attributes:
        embedding_dim: D of every table; a multiple of 4, as fbgemm's kernels want it.
        optimizer: ``rowwise_adagrad``, ``adagrad`` (a sum for every weight), ``sgd``, or ``adam`` (on a GPU only).
        lr: learning rate of the tables.
        eps: added to the root of the accumulated squares (not for ``sgd``).
        init_scale: a table's rows start uniform in ``[-s, s]`` with ``s = init_scale / sqrt(num_embeddings)``, as in
            DLRM (Naumov et al., 2019).
        l2: adds ``l2`` times the squared length of a row's pooled embeddings to its loss, once a step. fbgemm ignores
            ``weight_decay`` on a CPU without a word; this acts on every device, and on the looked-up rows only.
        first_order: gives every id a weight of its own (the wide part of Cheng et al., 2016) in
            :data:`FIRST_ORDER_WIDTH` more coordinates, which start at 0 and whose mean is the weight.
        first_order_l2: as ``l2``, of these weights.
    """

    embedding_dim: int = 16
    optimizer: str = "rowwise_adagrad"
    lr: float = 0.05
    eps: float = 1e-8
    init_scale: float = 3.0
    l2: float = 0.0
    first_order: bool = False
    first_order_l2: float = 0.0

    def __post_init__(self) -> None:
        if self.embedding_dim < 4 or self.embedding_dim % 4:
            raise ConfigError(f"sparse.embedding_dim={self.embedding_dim}: use a multiple of 4, such as 16")
        if self.optimizer not in OPTIMIZERS:
            raise ConfigError(f"sparse.optimizer={self.optimizer}: valid are {', '.join(sorted(OPTIMIZERS))}")
        if not self.lr > 0:
            raise ConfigError(f"sparse.lr={self.lr}: must be above 0")
        if not self.eps >= 0 or not self.init_scale >= 0:
            raise ConfigError(f"sparse.eps={self.eps} and sparse.init_scale={self.init_scale}: must be at least 0")
        for name in ("l2", "first_order_l2"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"sparse.{name}={getattr(self, name)}: must be at least 0 and finite")
        if self.first_order_l2 and not self.first_order:
            raise ConfigError(f"sparse.first_order_l2={self.first_order_l2}: needs sparse.first_order=true")

    @property
    def width(self) -> int:
        """Columns of every table: D, and behind them the first-order coordinates."""
        return self.embedding_dim + (FIRST_ORDER_WIDTH if self.first_order else 0)

    def check_device(self, device: torch.device) -> None:
        """Refuse what fbgemm's kernels cannot do on ``device``.

        Raises:
            ConfigError: Adam on a CPU, or tables wider than :data:`MAX_WIDTH_ON_GPU` on a GPU.
        """
        if self.optimizer == "adam" and device.type == "cpu":
            raise ConfigError(
                "sparse.optimizer=adam: fbgemm has it on a GPU only; use sparse.optimizer=rowwise_adagrad"
            )
        if self.width > MAX_WIDTH_ON_GPU and device.type == "cuda":
            raise ConfigError(
                f"sparse.embedding_dim={self.embedding_dim}: fbgemm may read zeros from tables of more than "
                f"{MAX_WIDTH_ON_GPU} columns on a GPU; use at most {MAX_WIDTH_ON_GPU - self.width + self.embedding_dim}"
            )

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Arguments of the fused optimizer in torchrec's words."""
        return {"lr": self.lr} if self.optimizer == "sgd" else {"lr": self.lr, "eps": self.eps}


class SparseArch(TableArch):
    """One table a feature, sum-pooled, in one table-batched kernel.

    The backward applies the optimizer, so it must be entered once a step; no gradient of the size of
    a table ever exists.

    Raises:
        ConfigError: fbgemm has no kernel for this on ``device``.
    """

    def __init__(self, spec: FeatureSpec, config: SparseConfig, *, seed: int, device: torch.device) -> None:
        super().__init__()
        config.check_device(device)
        self.num_features = len(spec.sparse)
        self.dim = config.embedding_dim
        self.width = config.width
        self.base_lr = config.lr
        self.lr = config.lr
        self.collection = FusedEmbeddingBagCollection(
            tables=table_configs(spec, config.width),
            optimizer_type=OPTIMIZERS[config.optimizer],
            optimizer_kwargs=config.optimizer_kwargs(),
            device=device,
        )
        # Large tables take seconds each to draw, and a table has a generator of its own.
        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda piece: init_table([piece], seed, config.init_scale, self.dim), self.pieces()))

    def pieces(self) -> Iterator[TablePiece]:
        """Every table, whole."""
        for name, bag in self.collection.embedding_bags.items():
            weight = bag.weight
            assert isinstance(weight, torch.Tensor)
            yield TablePiece(name, weight.data, 0, 0, weight.shape[0], weight.shape[1])

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """Look up ``features`` (F keys in the spec's order) and give ``(B, F, width)``."""
        # One pooling and data type makes one kernel, and keys in table order make torchrec's
        # per-feature split and concatenation (2 F copies) the identity: enter the kernel directly.
        (kernel,) = self.collection._emb_modules
        pooled_BFD: torch.Tensor = kernel(features.values(), features.offsets(), None)
        return pooled_BFD.view(-1, self.num_features, self.width)

    def fused_optimizer(self) -> KeyedOptimizer:
        """The optimizer inside the backward; its state lives in tensors of the kernels."""
        return self.collection.fused_optimizer()

    def iteration(self) -> int:
        """Steps that the kernels have counted; Adam's bias correction goes by it."""
        return max((int(k.iter.item()) for k in self._kernels()), default=0)

    def set_iteration(self, step: int) -> None:
        """Set the kernels' count of steps."""
        for kernel in self._kernels():
            kernel.iter.fill_(step)
            kernel.iter_cpu.fill_(step)

    def _kernels(self) -> list[Any]:
        lookups = self.collection._emb_modules
        return [m for lookup in lookups for m in lookup.modules() if hasattr(m, "iter_cpu")]

    def set_lr_factor(self, factor: float) -> None:
        """Set the learning rate to ``factor`` times the configured one."""
        self.lr = self.base_lr * factor
        for group in self.collection.fused_optimizer().param_groups:
            group["lr"] = self.lr
        self.collection.fused_optimizer().step()
