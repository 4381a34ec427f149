"""The one place where a resolved configuration becomes objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from recsys.config.cuts import resolve_cuts
from recsys.config.target import build_factory, build_target
from recsys.data.source import DataSplits
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.local_head import LocalHead
from recsys.models.recommender import MAIN_PATH, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.graph import PartGraph
from recsys.schedule.program import Program
from recsys.schedule.step import ModuleParts
from recsys.sparse.sparse_arch import SparseConfig
from recsys.train.stepper import Stepper

Config = dict[str, Any]
T = TypeVar("T")


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
        dense_hidden=model["dense_arch"]["hidden"],
        over_hidden=model["over_arch"]["hidden"],
        over_dropout=model["over_arch"]["dropout"],
        seed=cfg["seed"],
        device=device,
    )


def build_program(cfg: Config, graph: PartGraph) -> Program:
    """The program of the group ``schedule``."""
    schedule = cfg["schedule"]
    makers: dict[str, Callable[..., Program]] = {"sequential": builders.sequential, "erase": builders.erase}
    if schedule["name"] not in makers:
        raise ConfigError(f"schedule.name={schedule['name']}: valid are {', '.join(makers)}")
    lanes = builders.lane_per_part(graph, MAIN_PATH, schedule["lanes"])
    return makers[schedule["name"]](graph, lanes, early_update=schedule["early_update"])


def build_stepper(cfg: Config, model: Recommender, device: torch.device, total_steps: int) -> Stepper:
    """Model, optimizers, program and executor as one callable step."""
    optim = {k: v for k, v in cfg["optim"].items() if k != "lr_schedule"}
    config = DenseOptimConfig(**optim)
    optimizers = {
        name: config.build(parameters) for name in model.graph.names if (parameters := model.dense_parameters(name))
    }
    parts = ModuleParts(model.graph, dict(model.parts.items()), optimizers, autocast=build_autocast(cfg, device))
    return Stepper(
        parts=parts,
        program=build_program(cfg, model.graph),
        executor=SerialExecutor(),
        optimizers=optimizers,
        set_sparse_lr_factor=model.sparse_arch.set_lr_factor,
        lr_schedule=LrSchedule(**cfg["optim"]["lr_schedule"]),
        total_steps=total_steps,
    )


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
