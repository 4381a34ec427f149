"""Tables of which every process holds a copy: a dense gradient and an optimizer outside the backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.features import FeatureSpec
from recsys.sparse.arch import TableArch, TablePiece, init_table, table_configs
from recsys.sparse.sparse_arch import OPTIMIZERS, SparseConfig


class ReplicatedTables(TableArch):
    """Sum-pooled tables with a dense gradient, for small tables and for accumulated gradients.

    A step costs memory and time of the size of the tables, not of the batch. SGD and rowwise Adagrad give the
    numbers of the fused kernels; Adam moves rows that a batch does not touch, which the fused one does not.

    Args:
        tables: which; in the order of the features that ``forward`` gets.
        dim: D.
        width: columns of every table.
        lr: learning rate, as reported; the optimizer is the caller's (``make_optimizer``).
        seed: of the initial values.
        init_scale: as in :class:`~recsys.sparse.sparse_arch.SparseConfig`.
        device: where they live.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        dim: int,
        width: int,
        lr: float,
        seed: int,
        init_scale: float,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.num_features, self.dim, self.width = len(tables), dim, width
        self.lr = self.base_lr = lr
        self.collection = EmbeddingBagCollection(tables=list(tables), device=device)
        for piece in self.pieces():
            init_table([piece], seed, init_scale, dim)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """See :class:`TableArch`."""
        pooled_BFD: torch.Tensor = self.collection(features).values()
        return pooled_BFD.view(-1, self.num_features, self.width)

    def set_lr_factor(self, factor: float) -> None:
        """Only for the record: the optimizer outside has its own rate."""
        self.lr = self.base_lr * factor

    def pieces(self) -> Iterator[TablePiece]:
        """See :class:`TableArch`."""
        for name, bag in self.collection.embedding_bags.items():
            weight = bag.weight
            assert isinstance(weight, torch.Tensor)
            yield TablePiece(name, weight.data, 0, 0, weight.shape[0], weight.shape[1])

    def dense_parameters(self) -> list[nn.Parameter]:
        """Every table."""
        return list(self.collection.parameters())


def replicate(spec: FeatureSpec, config: SparseConfig, *, seed: int, device: torch.device) -> ReplicatedTables:
    """Every table of ``spec``, replicated."""
    return ReplicatedTables(
        table_configs(spec, config.width),
        dim=config.embedding_dim,
        width=config.width,
        lr=config.lr,
        seed=seed,
        init_scale=config.init_scale,
        device=device,
    )


def make_optimizer(config: SparseConfig, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of the group ``sparse`` for tables with dense gradients."""
    return OPTIMIZERS[config.optimizer](parameters, **config.optimizer_kwargs())
