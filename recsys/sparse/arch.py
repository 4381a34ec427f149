"""What the model asks of its embedding tables, wherever they lie."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizer
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.features import FeatureSpec
from recsys.seeding import keyed_generator

# Random numbers drawn at a time: a table of any size is drawn in little memory.
_BLOCK_ELEMENTS = 1 << 22


class TablePiece(NamedTuple):
    """A rectangle of a table that this process holds.

    Attributes:
        table: name.
        weight: ``(rows, columns)``; writes go to the table.
        row: first row.
        column: first column.
        num_rows: of the whole table.
        width: columns of the whole table.
    """

    table: str
    weight: torch.Tensor
    row: int
    column: int
    num_rows: int
    width: int


class TableArch(nn.Module, ABC):
    """Pooled embeddings of every sparse feature.

    Attributes:
        lr: the tables' learning rate now.
        dim: D.
        width: columns of every table: D, and behind them first-order coordinates.
    """

    lr: float
    dim: int
    width: int

    @abstractmethod
    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """Look up ``features`` (F keys in the spec's order) and give ``(B, F, width)``."""

    @abstractmethod
    def set_lr_factor(self, factor: float) -> None:
        """Set the learning rate of what the backward updates to ``factor`` times the configured one."""

    @abstractmethod
    def pieces(self) -> Iterator[TablePiece]:
        """What this process holds of the tables."""

    def fused_optimizer(self) -> KeyedOptimizer:
        """The optimizer inside the backward; one without parameters by default."""
        return CombinedOptimizer([])

    def iteration(self) -> int:
        """Steps that the kernels have counted; Adam's bias correction goes by it."""
        return 0

    def set_iteration(self, step: int) -> None:
        """Set the kernels' count of steps; by default there are none."""

    def dense_parameters(self) -> list[nn.Parameter]:
        """Tables that have a gradient and an optimizer outside the backward; none by default."""
        return []


def table_configs(spec: FeatureSpec, width: int) -> list[EmbeddingBagConfig]:
    """A sum-pooled table of ``width`` columns for each sparse feature, in torchrec's words."""
    return [
        EmbeddingBagConfig(
            name=feature.name,
            feature_names=[feature.name],
            num_embeddings=feature.cardinality,
            embedding_dim=width,
            pooling=PoolingType.SUM,
        )
        for feature in spec.sparse
    ]


@torch.no_grad()
def init_table(pieces: list[TablePiece], seed: int, scale: float, dim: int) -> None:
    """Fill pieces of one table, uniform in ``[-s, s]`` with ``s = scale / sqrt(num_rows)``, behind column D with 0.

    The numbers are drawn on the CPU from a generator keyed by (seed, table), row by row from the first: whatever
    piece of the table a process holds, on whatever device, gets the numbers it would have anywhere else.

    Args:
        pieces: all of one table.
        seed: of the run.
        scale: see :class:`~recsys.sparse.sparse_arch.SparseConfig`.
        dim: D.
    """
    first = pieces[0]
    bound = scale / math.sqrt(first.num_rows)
    draw = keyed_generator(seed, f"table/{first.table}", torch.device("cpu"))
    last_row = max(p.row + p.weight.shape[0] for p in pieces)
    block_rows = max(1, _BLOCK_ELEMENTS // dim)
    for start in range(0, last_row, block_rows):
        stop = min(start + block_rows, last_row)
        block = torch.zeros(stop - start, first.width)
        block[:, :dim] = torch.empty(stop - start, dim).uniform_(-bound, bound, generator=draw)
        for piece in pieces:
            low, high = max(start, piece.row), min(stop, piece.row + piece.weight.shape[0])
            if low < high:
                columns = slice(piece.column, piece.column + piece.weight.shape[1])
                piece.weight[low - piece.row : high - piece.row].copy_(block[low - start : high - start, columns])
