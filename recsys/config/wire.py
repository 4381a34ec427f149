"""The one place where a resolved configuration becomes objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch

from recsys.config.cuts import resolve_cuts
from recsys.config.target import build_factory, build_target
from recsys.data.source import DataSplits
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.dense_arch import DenseArch
from recsys.models.local_head import LocalHead
from recsys.models.recommender import DENSE, MAIN_PATH, SPARSE, Recommender
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
from recsys.schedule.step import ModuleParts
from recsys.schedule.weights import CastWeights
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


def build_data(cfg: Config) -> DataSplits:
    """Instantiate the group ``data`` and cut it into splits."""
    data = build_target(cfg["data"], "data")
    splits: DataSplits = data.splits(batch_size=cfg["trainer"]["batch_size"], seed=cfg["seed"])
    return splits


def build_model(cfg: Config, spec: FeatureSpec, device: torch.device) -> Recommender:
    """The recommender of the groups ``model`` and ``sparse``, initialised from ``seed``."""
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
    )


def build_loop(cfg: Config) -> LoopConfig:
    """What the training loop itself decides, of the groups ``trainer`` and ``metrics``."""
    trainer = cfg["trainer"]
    return LoopConfig(
        **{k: trainer[k] for k in ("epochs", "evals_per_epoch", "keep_best", "patience", "quiet")},
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


def build_program(cfg: Config, graph: PartGraph) -> Program:
    """The program of the group ``schedule``; the dense arch has a lane beside the embedding lookup."""
    return factory.build_program(ScheduleConfig(**cfg["schedule"]), graph, MAIN_PATH - {DENSE})


def build_stepper(cfg: Config, model: Recommender, device: torch.device, total_steps: int) -> Stepper:
    """Model, optimizers, program and executor as one callable step.

    Raises:
        ConfigError: ``schedule.strict`` and the device or an optimizer cannot give what the schedule's name says.
    """
    schedule = ScheduleConfig(**cfg["schedule"])
    lr_schedule = LrSchedule(**cfg["optim"]["lr_schedule"])
    optim = DenseOptimConfig(**{k: v for k, v in cfg["optim"].items() if k != "lr_schedule"})
    optimizers = {n: optim.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
    on_host = make_capturable(optimizers, device) if device.type == "cuda" and schedule.captures else []
    program = build_program(cfg, model.graph)
    skips = skips_nonfinite(cfg, device)
    inputs = StaticBatches(model.spec)
    executor = factory.build_executor(
        schedule,
        program,
        device,
        inputs,
        # fbgemm gives its kernel the learning rate by value and sorts as many ids as there are.
        outside=frozenset() if inputs.has_static_ids and lr_schedule.is_constant else frozenset({SPARSE}),
        uncapturable=f"optim.name={optim.name} counts its steps on the host" if on_host else None,
    )
    if isinstance(executor, SerialExecutor):
        executor = GuardedExecutor(frozenset({SPARSE}), whole=skips)
    return Stepper(
        parts=_build_parts(cfg, model, optimizers, device, compiled=schedule.compile),
        program=program,
        executor=executor,
        rates=LearningRates(optimizers),
        set_sparse_lr_factor=model.sparse_arch.set_lr_factor,
        lr_schedule=lr_schedule,
        total_steps=total_steps,
    )


def skips_nonfinite(cfg: Config, device: torch.device) -> bool:
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
    if cfg["schedule"]["early_update"]:
        raise ConfigError(
            "trainer.on_nonfinite=skip: with schedule.early_update=true parts are written before later ones have run; "
            "add schedule.early_update=false"
        )
    return True


def _build_parts(
    cfg: Config,
    model: Recommender,
    optimizers: Mapping[str, torch.optim.Optimizer],
    device: torch.device,
    *,
    compiled: bool,
) -> ModuleParts:
    modules, autocast = dict(model.parts.items()), build_autocast(cfg, device)
    if not compiled:
        return ModuleParts(model.graph, modules, optimizers, autocast=autocast)
    if device.type != "cuda":
        raise ConfigError("schedule.compile=true: parts are compiled on a GPU only; leave it out on a CPU")
    weights = None
    if cfg["trainer"]["precision"] == "bf16":
        weights = CastWeights({n: m for n, m in modules.items() if n != SPARSE}, torch.bfloat16)
    add = compile_parts(model.graph, modules, weights=weights)
    updates = FusedUpdates(optimizers, weights)
    return ModuleParts(model.graph, modules, optimizers, autocast=autocast, add=add, weights=weights, updates=updates)


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
