"""From a configuration with a chain to something that trains."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from recsys.chains.base import ChainModel, StaticChainBatches
from recsys.config.wire import Config, build_autocast
from recsys.errors import ConfigError
from recsys.optim.clip import make_clip
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.device_lr import LearningRates, make_capturable
from recsys.optim.fused_updates import FusedUpdates
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule import factory
from recsys.schedule.compile import compile_parts
from recsys.schedule.factory import ScheduleConfig
from recsys.schedule.step import ModuleParts
from recsys.schedule.weights import CastWeights
from recsys.train.stepper import Stepper

# A chain without cuts has nothing to run side by side: its strongest schedule is one stream.
_END_TO_END = {"erase": "sequential_graph", "erase_graph": "sequential_graph", "branch_graph": "sequential_graph"}


def end_to_end_schedule(cfg: Config, device: torch.device) -> Config:
    """``cfg`` with the schedule of a chain without cuts."""
    base = copy.deepcopy(cfg)
    name = cfg["schedule"]["name"]
    name = _END_TO_END.get(name, name if name.startswith("sequential") else "sequential")
    base["schedule"].update(
        name=name if device.type == "cuda" else "sequential", lanes={}, trailing=False, early_update=False, gemm_sms=0
    )
    base["name"] = f"{cfg['name']} end to end"
    return base


def build_stepper(cfg: Config, model: ChainModel, device: torch.device, total_steps: int) -> Stepper:
    """Parts, optimizers, program and executor as one callable step; ``model`` is on ``device``.

    Raises:
        ConfigError: the schedule asks for what the device or an optimizer cannot give.
    """
    schedule = ScheduleConfig(**cfg["schedule"])
    schedule = dataclasses.replace(schedule, lanes=model.lanes | dict(schedule.lanes))
    lr_schedule = LrSchedule(**cfg["optim"]["lr_schedule"])
    optim = DenseOptimConfig(**{k: v for k, v in cfg["optim"].items() if k != "lr_schedule"})
    optimizers = {p.name: optim.build(model.modules[p.name].parameters()) for p in model.graph.parts if p.trainable}
    on_host = make_capturable(optimizers, device) if device.type == "cuda" and schedule.captures else []
    program = factory.build_program(schedule, model.graph, model.main)
    executor = factory.build_executor(
        schedule,
        program,
        device,
        StaticChainBatches(),
        uncapturable=f"optim.name={optim.name} counts its steps on the host" if on_host else None,
    )
    return Stepper(
        parts=_build_parts(cfg, model, optimizers, device, compiled=schedule.compile),
        program=program,
        executor=executor,
        rates=LearningRates(optimizers),
        set_sparse_lr_factor=_no_tables,
        lr_schedule=lr_schedule,
        total_steps=total_steps,
    )


def _no_tables(factor: float) -> None:
    """A chain has no tables whose learning rate would move."""


def _build_parts(
    cfg: Config,
    model: ChainModel,
    optimizers: Mapping[str, torch.optim.Optimizer],
    device: torch.device,
    *,
    compiled: bool,
) -> ModuleParts:
    modules = dict(model.modules.items())
    clip = make_clip(cfg["optim"]["clip_norm"], early_update=cfg["schedule"]["early_update"])
    autocast: Callable[[], Any] | None = build_autocast(cfg, device)
    if not compiled:
        return ModuleParts(model.graph, modules, optimizers, autocast=autocast, clip=clip)
    if device.type != "cuda":
        raise ConfigError("schedule.compile=true: parts are compiled on a GPU only; leave it out on a CPU")
    weights = CastWeights(modules, torch.bfloat16) if cfg["trainer"]["precision"] == "bf16" else None
    add = compile_parts(model.graph, modules, weights=weights)
    return ModuleParts(model.graph, modules, optimizers, autocast=autocast, add=add, weights=weights,
                       updates=FusedUpdates(optimizers, weights), clip=clip)  # fmt: skip
