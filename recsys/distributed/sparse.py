"""The sparse arch of several processes: tables sharded by torchrec, the optimizer fused into the backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.comm_ops import set_gradient_division
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingEnv, ShardingPlan
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import convert_optimizer_type_and_kwargs
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizer
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.distributed.sharding import DATA_PARALLEL, AnyKindSharder, Plan, ShardingConfig, make_plan
from recsys.distributed.world import World
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.recommender import TableFactory
from recsys.sparse.arch import TableArch, TablePiece, init_table, table_configs
from recsys.sparse.replicated import ReplicatedTables, replicate
from recsys.sparse.sparse_arch import OPTIMIZERS, SparseArch, SparseConfig


@dataclass
class _Sent:
    """Ids on their way to the ranks that hold their tables: first their numbers, then they themselves."""

    values: torch.Tensor
    context: Any
    numbers: Any
    ids: Any = None


class ShardedSparseArch(TableArch):
    """Counterpart of :class:`~recsys.sparse.sparse_arch.SparseArch` for several processes.

    Tables start with the same numbers on any number of processes and under any plan. Gradients of ranks are summed,
    not averaged: losses are normalised over the global batch. Data-parallel tables have an optimizer outside the
    backward and are reduced with the dense parts.

    Args:
        spec: the columns.
        config: tables and optimizer.
        sharding: constraints of the plan.
        world: the ranks.
        batch_rows: rows of a batch on each rank, for the planner's estimates.
        seed: of the initial values.
        device: where the tables live.

    Attributes:
        plan: where every table lies.

    Raises:
        ConfigError: a kernel or an optimizer that the device does not have, or tables that cannot fit.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        config: SparseConfig,
        sharding: ShardingConfig,
        world: World,
        batch_rows: int,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__()
        # Global in torchrec: its exchanges would divide gradients by the number of ranks.
        set_gradient_division(False)
        self.lr = self.base_lr = config.lr
        self.dim, self.width = config.embedding_dim, config.width
        self._names = list(spec.sparse_names)
        self._sent: list[_Sent] = []
        # Ids of the next batch travel beside the current step.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        plan, self.plan = plan_for(spec, config, sharding, world, batch_rows, device)
        tables = table_configs(spec, config.width)
        copied = {t.table for t in self.plan.tables if t.kind == DATA_PARALLEL}
        sharded = [t for t in tables if t.name not in copied]
        self._sharded_at = [i for i, t in enumerate(tables) if t.name not in copied]
        self._copied_at = [i for i, t in enumerate(tables) if t.name in copied]
        self.collection = _shard(sharded, plan, _sharder(config), world, device) if sharded else None
        self.replicated: ReplicatedTables | None = None
        if copied:
            self.replicated = ReplicatedTables(
                [t for t in tables if t.name in copied],
                dim=self.dim,
                width=self.width,
                lr=config.lr,
                seed=seed,
                init_scale=config.init_scale,
                device=device,
            )
        by_table: dict[str, list[TablePiece]] = defaultdict(list)
        for piece in self._sharded_pieces():
            by_table[piece.table].append(piece)
        for pieces in by_table.values():
            init_table(pieces, seed, config.init_scale, self.dim)

    def start(self, features: KeyedJaggedTensor) -> None:
        """Tell the other ranks how many ids they will get; :meth:`send` and ``forward`` of the same ids follow.

        A collective, as the other two are: every rank calls it at the same place.
        """
        if self.collection is None:
            return
        with self._beside():
            context = self._lookup.create_context()
            numbers = self._lookup.input_dist(context, _choose(features, self._sharded_at))
            self._sent.append(_Sent(features.values(), context, numbers))

    def send(self, features: KeyedJaggedTensor) -> None:
        """Send the ids themselves; ``start`` of the same ids came before."""
        if self.collection is not None:
            sent = next(s for s in self._sent if s.values is features.values())
            with self._beside():
                sent.ids = sent.numbers.wait()

    def settle(self) -> None:
        """Let all that is under way arrive and forget it, because no ``forward`` will come."""
        for sent in self._sent:
            with self._beside():
                (sent.ids if sent.ids is not None else sent.numbers.wait()).wait()
        self._sent.clear()

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """See :class:`TableArch`."""
        looked_up: list[tuple[list[int], torch.Tensor]] = []
        if self.collection is not None:
            looked_up.append((self._sharded_at, self._look_up(features)))
        if self.replicated is not None:
            looked_up.append((self._copied_at, self.replicated(_choose(features, self._copied_at))))
        return _in_order(looked_up)

    def set_lr_factor(self, factor: float) -> None:
        """See :class:`TableArch`."""
        self.lr = self.base_lr * factor
        if self.collection is not None:
            for group in self.fused_optimizer().param_groups:
                group["lr"] = self.lr
            self.fused_optimizer().step()
        if self.replicated is not None:
            self.replicated.set_lr_factor(factor)

    def pieces(self) -> Iterator[TablePiece]:
        """See :class:`TableArch`."""
        yield from self._sharded_pieces()
        if self.replicated is not None:
            yield from self.replicated.pieces()

    def dense_parameters(self) -> list[nn.Parameter]:
        """The data-parallel tables."""
        return [] if self.replicated is None else self.replicated.dense_parameters()

    def fused_optimizer(self) -> KeyedOptimizer:
        """The optimizer inside the backward; its state lies where the shards lie."""
        return CombinedOptimizer([]) if self.collection is None else self.collection.fused_optimizer

    def iteration(self) -> int:
        """Steps that the kernels have counted; Adam's bias correction goes by it."""
        return max((int(k.iter.item()) for k in self._kernels()), default=0)

    def set_iteration(self, step: int) -> None:
        """Set the kernels' count of steps."""
        for kernel in self._kernels():
            kernel.iter.fill_(step)
            kernel.iter_cpu.fill_(step)

    @property
    def _lookup(self) -> Any:
        assert self.collection is not None
        return self.collection.module

    def _kernels(self) -> list[Any]:
        # torchrec keeps its lookups out of ``modules()``.
        lookups = [] if self.collection is None else self._lookup._lookups
        return [m for lookup in lookups for m in lookup.modules() if hasattr(m, "iter_cpu")]

    def _beside(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _look_up(self, features: KeyedJaggedTensor) -> torch.Tensor:
        sent = next((s for s in self._sent if s.values is features.values()), None)
        if sent is None:
            context = self._lookup.create_context()
            arrived = self._lookup.input_dist(context, _choose(features, self._sharded_at)).wait().wait()
        else:
            self._sent.remove(sent)
            context = sent.context
            with self._beside():
                arrived = (sent.ids if sent.ids is not None else sent.numbers.wait()).wait()
            if self._stream is not None:
                here = torch.cuda.current_stream(self._stream.device)
                here.wait_stream(self._stream)
                arrived.record_stream(here)
                context.record_stream(here)
        pooled = self._lookup.compute_and_output_dist(context, arrived)
        keys, values = list(pooled.keys()), pooled.values()
        wanted = [self._names[i] for i in self._sharded_at]
        values_BFD: torch.Tensor = values.view(-1, len(keys), self.width)
        return values_BFD if keys == wanted else values_BFD[:, [keys.index(n) for n in wanted]]

    def _sharded_pieces(self) -> Iterator[TablePiece]:
        if self.collection is None:
            return
        for key, value in self.collection.state_dict().items():
            assert isinstance(value, ShardedTensor), key
            table = key.split(".")[-2]
            rows, dim = value.metadata().size
            for shard in value.local_shards():
                row, column = shard.metadata.shard_offsets
                yield TablePiece(table, shard.tensor.detach(), row, column, rows, dim)


def plan_for(
    spec: FeatureSpec,
    config: SparseConfig,
    sharding: ShardingConfig,
    world: World,
    batch_rows: int,
    device: torch.device,
) -> tuple[ShardingPlan, Plan]:
    """Plan the tables, for torchrec and for people; a collective. Raises as :class:`ShardedSparseArch`."""
    _check_device(config, sharding, device)
    sharding.check_tables(spec.sparse_names)
    tables = table_configs(spec, config.width)
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return make_plan(collection, _sharder(config), sharding, world, device, batch_rows)


def choose_tables(sharding: ShardingConfig, world: World, batch_size: int) -> TableFactory:
    """The tables for this world: sharded under torchrun, also with one process, else in one piece.

    Args:
        sharding: a process alone takes from it only whether all tables are data-parallel.
        world: the ranks.
        batch_size: rows of a step on all ranks together.

    Raises:
        ConfigError: a kernel that only sharded tables have.
    """
    if world.is_distributed:
        rows = -(-batch_size // world.size)
        return partial(_make_sharded, sharding=sharding, world=world, batch_rows=rows)
    if sharding.kernel != "fused":
        raise ConfigError(
            f"sharding.kernel={sharding.kernel}: only sharded tables have it; use torchrun --nproc_per_node 1"
        )
    return replicate if sharding.replicates_all else SparseArch


def _make_sharded(
    spec: FeatureSpec,
    config: SparseConfig,
    *,
    seed: int,
    device: torch.device,
    sharding: ShardingConfig,
    world: World,
    batch_rows: int,
) -> ShardedSparseArch:
    return ShardedSparseArch(spec, config, sharding, world, batch_rows, seed=seed, device=device)


def _check_device(config: SparseConfig, sharding: ShardingConfig, device: torch.device) -> None:
    config.check_device(device)
    if device.type != "cuda" and sharding.kernel != "fused":
        raise ConfigError(f"sharding.kernel={sharding.kernel}: a cache on the GPU needs a GPU; use fused")


def _sharder(config: SparseConfig) -> AnyKindSharder:
    converted = convert_optimizer_type_and_kwargs(OPTIMIZERS[config.optimizer], config.optimizer_kwargs())
    assert converted is not None, config.optimizer
    kind, options = converted
    return AnyKindSharder(fused_params={"optimizer": kind, **options})


def _shard(
    tables: list[EmbeddingBagConfig], plan: ShardingPlan, sharder: Any, world: World, device: torch.device
) -> DistributedModelParallel:
    names = {t.name for t in tables}
    (whole,) = plan.plan.values()
    part = EmbeddingModuleShardingPlan({n: p for n, p in whole.items() if n in names})
    return DistributedModelParallel(
        module=EmbeddingBagCollection(tables=tables, device=torch.device("meta")),
        env=ShardingEnv.from_process_group(world.group),
        device=device,
        plan=ShardingPlan({"": part}),
        sharders=[sharder],
        # Its DDP joins all outputs into one graph, and a second backward of the step would fail.
        init_data_parallel=False,
        # The weights are written right after, from generators of our own.
        init_parameters=False,
    )


def _choose(features: KeyedJaggedTensor, at: list[int]) -> KeyedJaggedTensor:
    """The features at these places."""
    return features if len(at) == len(features.keys()) else features.permute(at)


def _in_order(looked_up: list[tuple[list[int], torch.Tensor]]) -> torch.Tensor:
    """Put features that were looked up in groups back into the spec's order."""
    if len(looked_up) == 1:
        return looked_up[0][1]
    order = [i for places, _ in looked_up for i in places]
    back = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat([pooled_BGD for _, pooled_BGD in looked_up], dim=1)[:, back]
