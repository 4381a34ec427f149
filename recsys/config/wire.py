"""The one place where a resolved configuration becomes objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch

from recsys.config.cuts import resolve_cuts
from recsys.config.target import build_factory, build_target
from recsys.data.source import BatchSource, DataSplits
from recsys.distributed.pipeline import PipelinedBatches
from recsys.distributed.rank_batches import share_splits
from recsys.distributed.reduce import make_reduction
from recsys.distributed.sharding import Plan, ShardingConfig
from recsys.distributed.sparse import ShardedSparseArch, choose_tables, plan_for
from recsys.distributed.world import ALONE, World
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.dense_arch import DenseArch
from recsys.models.local_head import LocalHead
from recsys.models.recommender import DENSE, MAIN_PATH, SPARSE, Recommender
from recsys.optim.clip import make_clip
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.device_lr import LearningRates, make_capturable
from recsys.optim.fused_updates import FusedUpdates
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule import factory
from recsys.schedule.compile import compile_parts
from recsys.schedule.executors.guarded import GuardedExecutor
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.factory import ScheduleConfig
from recsys.schedule.graph import PartGraph
from recsys.schedule.program import Program
from recsys.schedule.step import ModuleParts, Reduction
from recsys.schedule.weights import CastWeights
from recsys.sparse.replicated import make_optimizer as make_table_optimizer
from recsys.sparse.sparse_arch import SparseConfig
from recsys.train.loop import LoopConfig
from recsys.train.static_batch import StaticBatches
from recsys.train.stepper import Stepper

Config = dict[str, Any]


def build_device(name: str) -> torch.device:
    """``auto`` takes a GPU if there is one.

    Raises:
        ConfigError: another word, or ``cuda`` where torch sees no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"trainer.device={name}: valid are auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("trainer.device=cuda: torch sees no GPU; see `make doctor`, or use trainer.device=cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def build_data(cfg: Config, world: World = ALONE) -> DataSplits:
    """Instantiate the group ``data``, cut it into splits, and these into shares of ranks.

    What is prepared into a cache is prepared by rank 0, before the others read it.
    """
    data = build_target(cfg["data"], "data")

    def splits() -> DataSplits:
        made: DataSplits = data.splits(batch_size=cfg["trainer"]["batch_size"], seed=cfg["seed"])
        return made

    made: list[DataSplits] = []
    world.on_main(lambda: made.append(splits()))
    return share_splits(made[0] if made else splits(), world)


def build_model(cfg: Config, spec: FeatureSpec, device: torch.device, world: World = ALONE) -> Recommender:
    """The recommender of the groups ``model``, ``sparse`` and ``sharding``, initialised from ``seed``."""
    model = cfg["model"]
    return Recommender(
        spec,
        SparseConfig(**cfg["sparse"]),
        {name: build_factory(arch, f"model.archs.{name}") for name, arch in model["archs"].items()},
        build_factory(model["interaction"], "model.interaction"),
        partial(LocalHead, hidden=model["local_head"]["hidden"]),
        resolve_cuts(model),
        dense=dense_factory(model["dense_arch"], spec),
        over_hidden=model["over_arch"]["hidden"],
        over_dropout=model["over_arch"]["dropout"],
        seed=cfg["seed"],
        device=device,
        tables=choose_tables(ShardingConfig(**cfg["sharding"]), world, cfg["trainer"]["batch_size"]),
    )


def build_loop(cfg: Config, world: World = ALONE) -> LoopConfig:
    """What the training loop itself decides, of the groups ``trainer`` and ``metrics``."""
    trainer = cfg["trainer"]
    return LoopConfig(
        **{k: trainer[k] for k in ("epochs", "evals_per_epoch", "keep_best", "patience")},
        quiet=trainer["quiet"] or not world.is_main,
        window_rows=cfg["metrics"]["window_rows"],
        max_skipped_steps=trainer["max_skipped_steps"] if trainer["on_nonfinite"] == "skip" else None,
    )


def dense_factory(dense_arch: Config, spec: FeatureSpec) -> Callable[[int, int], DenseArch]:
    """The bottom MLP of ``model.dense_arch``.

    Raises:
        ConfigError: ``binned`` names a feature that the data do not have.
    """
    patterns = dense_arch["binned"]
    for pattern in patterns:
        if dense_arch["bins"] and not any(fnmatchcase(name, pattern) for name in spec.dense):
            raise ConfigError(
                f"model.dense_arch.binned: no dense feature is called {pattern!r}; the data have "
                f"{', '.join(spec.dense[:20]) or 'none'}"
            )
    binned = [i for i, name in enumerate(spec.dense) if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return partial(
        DenseArch,
        hidden=dense_arch["hidden"],
        num_tokens=dense_arch["tokens"],
        num_bins=dense_arch["bins"],
        binned=binned,
    )


def plan_tables(cfg: Config, spec: FeatureSpec, device: torch.device, world: World) -> Plan | None:
    """Where the tables of ``build_model`` will lie; None where they lie in one piece. Allocates nothing."""
    if not world.is_distributed:
        return None
    sparse, sharding = SparseConfig(**cfg["sparse"]), ShardingConfig(**cfg["sharding"])
    return plan_for(spec, sparse, sharding, world, -(-cfg["trainer"]["batch_size"] // world.size), device)[1]


def build_input(cfg: Config, source: BatchSource, model: Recommender, device: torch.device) -> BatchSource:
    """``source`` with what can be prepared beside the current step; as it is where there is nothing to overlap."""
    exchange = model.sparse_arch if isinstance(model.sparse_arch, ShardedSparseArch) else None
    if exchange is None or not cfg["trainer"]["overlap_input"]:
        return source  # the loop's own feed copies beside the step
    return PipelinedBatches(source, device, exchange)


def build_program(cfg: Config, graph: PartGraph, *, reduces: bool = False, updates: bool = True) -> Program:
    """The program of the group ``schedule``; the dense arch has a lane beside the embedding lookup."""
    schedule = ScheduleConfig(**cfg["schedule"])
    return factory.build_program(schedule, graph, MAIN_PATH - {DENSE}, reduces=reduces, updates=updates)


def build_stepper(
    cfg: Config, model: Recommender, device: torch.device, total_steps: int, world: World = ALONE
) -> Stepper:
    """Model, optimizers, program and executor as one callable step.

    Raises:
        ConfigError: ``schedule.strict`` and the device or an optimizer cannot give what the schedule's name says, or
            settings that do not go together.
    """
    schedule = ScheduleConfig(**cfg["schedule"])
    lr_schedule = LrSchedule(**cfg["optim"]["lr_schedule"])
    optim = DenseOptimConfig(**{k: v for k, v in cfg["optim"].items() if k != "lr_schedule"})
    sparse = SparseConfig(**cfg["sparse"])
    optimizers = {
        n: make_table_optimizer(sparse, p) if n == SPARSE else optim.build(p)
        for n in model.graph.names
        if (p := model.dense_parameters(n))
    }
    has_dense_tables = SPARSE in optimizers
    capturable = {n: o for n, o in optimizers.items() if n != SPARSE}
    on_host = make_capturable(capturable, device) if device.type == "cuda" and schedule.captures else []
    reduces, passes = world.size > 1, cfg["trainer"]["accumulate_steps"]
    program = build_program(cfg, model.graph, reduces=reduces)
    skips = skips_nonfinite(cfg, device, world)
    sharded = isinstance(model.sparse_arch, ShardedSparseArch)
    inputs = StaticBatches(model.spec, keep_ids=sharded or has_dense_tables)
    executor = factory.build_executor(
        schedule,
        program,
        device,
        inputs,
        # fbgemm gives its kernel the learning rate by value and sorts as many ids as there are; exchanges of ids
        # read their numbers on the host.
        outside=frozenset() if inputs.has_static_ids and lr_schedule.is_constant else frozenset({SPARSE}),
        uncapturable=_why_uncapturable(optim, on_host, passes, clips_tables=has_dense_tables),
    )
    if isinstance(executor, SerialExecutor) and passes == world.size == 1:
        fused = frozenset() if has_dense_tables else frozenset({SPARSE})
        executor = GuardedExecutor(fused, whole=skips)
    reduction = make_reduction(schedule.reduce, world.dense_group) if reduces else None
    return Stepper(
        parts=_build_parts(cfg, model, optimizers, device, compiled=schedule.compile, reduction=reduction),
        program=program,
        executor=executor,
        rates=LearningRates(optimizers),
        set_sparse_lr_factor=model.sparse_arch.set_lr_factor,
        lr_schedule=lr_schedule,
        total_steps=total_steps,
        accumulate=build_program(cfg, model.graph, reduces=reduces, updates=False) if passes > 1 else None,
        passes=passes,
    )


def skips_nonfinite(cfg: Config, device: torch.device, world: World = ALONE) -> bool:
    """Whether steps with numbers that are not finite are skipped.

    Raises:
        ConfigError: they cannot be, for something would have been written before it is known.
    """
    if cfg["trainer"]["on_nonfinite"] != "skip":
        return False
    if device.type != "cpu":
        raise ConfigError(
            "trainer.on_nonfinite=skip: on a GPU the tables are written before a loss can be read; "
            "use trainer.on_nonfinite=stop, or trainer.device=cpu"
        )
    if world.size > 1 or cfg["trainer"]["accumulate_steps"] > 1:
        raise ConfigError(
            "trainer.on_nonfinite=skip: other ranks, or earlier slices of the batch, have added gradients by then; "
            "use trainer.on_nonfinite=stop, or one process and trainer.accumulate_steps=1"
        )
    if cfg["schedule"]["early_update"]:
        raise ConfigError(
            "trainer.on_nonfinite=skip: with schedule.early_update=true parts are written before later ones have run; "
            "add schedule.early_update=false"
        )
    return True


def _why_uncapturable(optim: DenseOptimConfig, on_host: list[str], passes: int, *, clips_tables: bool) -> str | None:
    if passes > 1:
        return f"trainer.accumulate_steps={passes} leaves gradients behind, which a graph would overwrite"
    if optim.clip_norm is not None and clips_tables:
        return "optim.clip_norm needs the gradients of data-parallel tables, which stay out of the graph"
    return f"optim.name={optim.name} counts its steps on the host" if on_host else None


def _build_parts(
    cfg: Config,
    model: Recommender,
    optimizers: Mapping[str, torch.optim.Optimizer],
    device: torch.device,
    *,
    compiled: bool,
    reduction: Reduction | None,
) -> ModuleParts:
    modules = dict(model.parts.items())
    options: dict[str, Any] = {
        "autocast": build_autocast(cfg, device),
        "reduction": reduction,
        "clip": make_clip(cfg["optim"]["clip_norm"], early_update=cfg["schedule"]["early_update"]),
    }
    if not compiled:
        return ModuleParts(model.graph, modules, optimizers, **options)
    if device.type != "cuda":
        raise ConfigError("schedule.compile=true: parts are compiled on a GPU only; leave it out on a CPU")
    weights = None
    if cfg["trainer"]["precision"] == "bf16":
        weights = CastWeights({n: m for n, m in modules.items() if n != SPARSE}, torch.bfloat16)
    add = compile_parts(model.graph, modules, weights=weights)
    updates = FusedUpdates(optimizers, weights)
    return ModuleParts(model.graph, modules, optimizers, add=add, weights=weights, updates=updates, **options)


def build_autocast(cfg: Config, device: torch.device) -> Callable[[], Any] | None:
    """The context that ``trainer.precision`` asks for, or None.

    Raises:
        ConfigError: an unknown word, or TF32 where there is no GPU.
    """
    precision = cfg["trainer"]["precision"]
    if precision not in ("fp32", "tf32", "bf16"):
        raise ConfigError(f"trainer.precision={precision}: valid are fp32, tf32, bf16")
    if precision == "tf32" and device.type != "cuda":
        raise ConfigError("trainer.precision=tf32: only a GPU has it; use fp32 or bf16")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision != "bf16":
        return None
    return partial(torch.autocast, device.type, dtype=torch.bfloat16)
