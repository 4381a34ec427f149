"""Chains for the schedule tools: models, batches and runners on one GPU."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from recsys.chains.base import Chain, ChainBatch, ChainModel, StaticChainBatches
from recsys.chains.wire import build_stepper
from recsys.config.target import build_target
from recsys.config.wire import Config
from recsys.schedule.step import ModuleParts
from scripts.schedule_lab import Runner


@dataclass
class ChainContender:
    """A chain with its parts, ready to be driven by any schedule."""

    label: str
    cfg: Config
    model: ChainModel
    parts: ModuleParts
    inputs: StaticChainBatches
    device: torch.device


def chain_pool(cfg: Config, number: int, device: torch.device) -> list[ChainBatch]:
    """``number`` batches on the device."""
    size = cfg["trainer"]["batch_size"]
    chain = build_target(cfg["chain"] | {"train_rows": number * size}, "chain")
    return [b.to(device) for b in chain.make_data(cfg["seed"]).batches(size, cfg["seed"], 0)]


def chain_runner(cfg: Config, label: str, device: torch.device, *, cut: bool, **schedule: Any) -> Runner:
    """A fresh model under ``schedule``, which changes the configured one."""
    cfg = copy.deepcopy(cfg)
    num_lanes = schedule.pop("num_lanes", cfg["chain"]["num_lanes"])
    cfg["schedule"].update({"compile": True, "strict": True, **schedule})
    chain: Chain = build_target(cfg["chain"] | {"num_lanes": num_lanes, "train_rows": 1}, "chain")
    model = chain.build(chain.make_data(cfg["seed"]), cfg["seed"], cut=cut)
    model.modules.to(device).train()
    stepper = build_stepper(cfg, model, device, 1)
    assert isinstance(stepper.parts, ModuleParts)
    contender = ChainContender(label, cfg, model, stepper.parts, StaticChainBatches(), device)
    return Runner(label, contender, stepper.program, stepper.executor)
