"""Which rank holds which rows and columns of which table: constraints in, a plan and its memory out."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError, ShardingOption
from torchrec.distributed.types import CacheParams, ModuleSharder, ShardingPlan

from recsys.distributed.capacity import free_bytes
from recsys.distributed.world import World
from recsys.errors import ConfigError

AUTO, DATA_PARALLEL, COLUMN_WISE = "auto", "data_parallel", "column_wise"
# What the planner may choose by itself: kinds that give one process's numbers.
_EXACT = ("table_wise", "row_wise", "table_row_wise")
KINDS = (*_EXACT, COLUMN_WISE, DATA_PARALLEL)
KERNELS = {"fused": "fused", "uvm_caching": "fused_uvm_caching"}
# fbgemm's kernels want widths that are multiples of this.
_MIN_COLUMNS = 4


@dataclass(frozen=True)
class ShardingConfig:
    """Where embedding tables lie (config group ``sharding``).

    Attributes:
        default: kind of the tables that ``tables`` does not name: ``auto`` leaves the choice among the exact ones to
            torchrec's planner.
        tables: table -> kind.
        kernel: ``fused``, or ``uvm_caching``: tables in host memory with a cache of rows on the GPU.
        cache_load_factor: rows of a table that the cache holds, as a share of all.
        memory_gib_per_rank: what a rank may use for tables; None: what its device has free.
        reserve: share of that memory left to activations, dense parts and the process.
    """

    default: str = AUTO
    tables: Mapping[str, str] = field(default_factory=dict)
    kernel: str = "fused"
    cache_load_factor: float = 0.2
    memory_gib_per_rank: float | None = None
    reserve: float = 0.15

    def __post_init__(self) -> None:
        for key, kind in {"default": self.default, **{f"tables.{t}": k for t, k in self.tables.items()}}.items():
            if kind not in (AUTO, *KINDS):
                near = difflib.get_close_matches(str(kind), KINDS, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise ConfigError(f"sharding.{key}={kind}: {hint}Valid: {', '.join((AUTO, *KINDS))}")
        if self.kernel not in KERNELS:
            raise ConfigError(f"sharding.kernel={self.kernel}: valid are {', '.join(KERNELS)}")
        if not 0 < self.cache_load_factor <= 1:
            raise ConfigError(f"sharding.cache_load_factor={self.cache_load_factor}: must be in (0, 1]")
        if not 0 <= self.reserve < 1:
            raise ConfigError(f"sharding.reserve={self.reserve}: must be in [0, 1)")
        if self.memory_gib_per_rank is not None and not self.memory_gib_per_rank > 0:
            raise ConfigError(f"sharding.memory_gib_per_rank={self.memory_gib_per_rank}: must be above 0")

    @property
    def replicates_all(self) -> bool:
        """Whether every table is data-parallel, so that no optimizer is fused into the backward."""
        return self.default == DATA_PARALLEL and all(k == DATA_PARALLEL for k in self.tables.values())

    def kind_of(self, table: str) -> str:
        """The kind that is asked for."""
        return self.tables.get(table, self.default)

    def check_tables(self, names: Sequence[str]) -> None:
        """Check that the tables named exist.

        Raises:
            ConfigError: one does not; names the nearest.
        """
        for name in self.tables:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=3) or list(names)[:3]
                raise ConfigError(f"sharding.tables.{name}: there is no such table; nearest: {', '.join(near)}")


@dataclass(frozen=True)
class TablePlan:
    """One table in a plan.

    Attributes:
        kernel: in torchrec's words.
        ranks: of its shards, in order.
        shard_bytes: estimated memory of each shard, with optimizer state and buffers of its exchange.
    """

    table: str
    rows: int
    dim: int
    kind: str
    kernel: str
    ranks: list[int]
    shard_bytes: list[int]


@dataclass(frozen=True)
class Plan:
    """A plan of all tables, as it is printed and saved.

    Attributes:
        rank_bytes: estimated memory of each rank.
        capacity_bytes: what a rank may use.
    """

    tables: list[TablePlan]
    rank_bytes: list[int]
    capacity_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON wants it."""
        return asdict(self)

    def render(self) -> str:
        """A table, a line a table, and the memory of every rank."""
        head = f"{'table':<14} {'rows':>12} {'dim':>4} {'kind':<15} {'kernel':<17} {'MiB':>10}  ranks"
        lines = ["sharding plan (estimated memory)", head]
        for t in self.tables:
            ranks, size = ",".join(map(str, t.ranks)), _mib(sum(t.shard_bytes))
            lines.append(f"{t.table:<14} {t.rows:>12,} {t.dim:>4} {t.kind:<15} {t.kernel:<17} {size}  {ranks}")
        for rank, used in enumerate(self.rank_bytes):
            lines.append(f"rank {rank}: {_mib(used).strip()} of {_mib(self.capacity_bytes).strip()} MiB")
        return "\n".join(lines)


class AnyKindSharder(EmbeddingBagCollectionSharder):
    """Offers row-wise kinds on a CPU too, where they work and torchrec's own sharder leaves them out."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """The kinds that the planner may consider."""
        kinds = super().sharding_types(compute_device_type)
        return [*kinds, *(k for k in ("row_wise", "table_row_wise") if k not in kinds)]


def make_plan(
    collection: nn.Module,
    sharder: ModuleSharder[Any],
    config: ShardingConfig,
    world: World,
    device: torch.device,
    batch_rows: int,
) -> tuple[ShardingPlan, Plan]:
    """Let torchrec's planner place the tables of ``collection``; rank 0 plans for all.

    Args:
        collection: torchrec's, on the meta device: nothing is allocated.
        sharder: what it will be sharded by.
        config: the constraints.
        world: the ranks.
        device: where tables live.
        batch_rows: rows of a batch on each rank.

    Raises:
        ConfigError: the tables cannot fit; says what is needed and what there is.
    """
    own = free_bytes(device) // (world.local_size if device.type == "cpu" else 1)
    if config.memory_gib_per_rank is not None:
        own = int(config.memory_gib_per_rank * 2**30)
    capacity = min(world.all_gather(own))
    return world.on_main(lambda: _plan(collection, sharder, config, world, device, batch_rows, capacity))


def _plan(
    collection: Any,
    sharder: ModuleSharder[Any],
    config: ShardingConfig,
    world: World,
    device: torch.device,
    batch_rows: int,
    capacity: int,
) -> tuple[ShardingPlan, Plan]:
    on_gpu = device.type == "cuda"
    topology = Topology(
        world_size=world.size,
        local_world_size=world.local_size,
        compute_device=device.type,
        hbm_cap=capacity if on_gpu else 0,
        ddr_cap=free_bytes(torch.device("cpu")) // world.local_size if on_gpu else capacity,
    )
    constraints = {t.name: _constraint(config, t.name, t.embedding_dim) for t in collection.embedding_bag_configs()}
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=batch_rows,
        constraints=constraints,
        # On a CPU the planner counts all memory as DDR, from which this takes nothing: the capacity is cut instead.
        storage_reservation=FixedPercentageStorageReservation(config.reserve),
        debug=False,
    )
    try:
        with _without_notes():
            plan = planner.plan(collection, [sharder])
    except PlannerError as error:
        need = sum(t.num_embeddings * t.embedding_dim * 4 for t in collection.embedding_bag_configs())
        raise ConfigError(
            f"sharding: no plan fits: the tables' weights alone are {need / 2**20:,.0f} MiB, and each of {world.size} "
            f"ranks may use {capacity / 2**20:,.0f} MiB, of which sharding.reserve={config.reserve} is kept free; "
            "use more processes, sharding=row_wise for tables larger than a rank's memory, sharding=uvm_caching on "
            f"GPUs, or a smaller sparse.embedding_dim (the planner: {' '.join(str(error).split())[:200]})"
        ) from error
    options: list[ShardingOption] = list(planner._best_plan or [])
    return plan, _describe(options, world.size, capacity)


@contextmanager
def _without_notes() -> Iterator[None]:
    """torchrec notes on the root logger that data-parallel tables have no shards."""
    root = logging.getLogger()

    def keep(record: logging.LogRecord) -> bool:
        return "Sharding spec not found" not in str(record.msg)

    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)


def _constraint(config: ShardingConfig, table: str, dim: int) -> ParameterConstraints:
    kind = config.kind_of(table)
    kernel = "dense" if kind == DATA_PARALLEL else KERNELS[config.kernel]
    half = dim // 2 if dim % (2 * _MIN_COLUMNS) == 0 else dim
    return ParameterConstraints(
        sharding_types=list(_EXACT) if kind == AUTO else [kind],
        compute_kernels=[kernel],
        min_partition=half if kind == COLUMN_WISE else None,
        pooling_factors=[1.0],
        cache_params=CacheParams(load_factor=config.cache_load_factor) if kernel == "fused_uvm_caching" else None,
    )


def _describe(options: Sequence[ShardingOption], size: int, capacity: int) -> Plan:
    used = [0] * size
    tables = []
    for option in options:
        sizes = [int(s.storage.hbm + s.storage.ddr) if s.storage is not None else 0 for s in option.shards]
        ranks = [int(s.rank) for s in option.shards if s.rank is not None]
        for rank, num_bytes in zip(ranks, sizes, strict=True):
            used[rank] += num_bytes
        rows, dim = option.tensor.shape
        tables.append(TablePlan(option.name, rows, dim, option.sharding_type, option.compute_kernel, ranks, sizes))
    return Plan(sorted(tables, key=lambda t: t.table), used, capacity)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:>10,.2f}"
