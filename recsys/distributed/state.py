"""A model's state under one set of names, whatever the plan of its tables, and whole on one rank."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from recsys.distributed.world import World

_TWICE = re.compile(r"^(.+\.collection\.)\1")


def under_any_plan(name: str) -> str:
    """A name in the ``state_dict`` without a trace of how the tables are laid out."""
    # Below another module torchrec's wrapper puts the prefix in front of its tables' names twice.
    return _TWICE.sub(r"\1", name).replace(".replicated.collection.", ".collection.")


def whole_state(model: nn.Module, world: World) -> dict[str, torch.Tensor]:
    """The ``state_dict`` that a process alone would have, on rank 0's host; elsewhere empty. A collective."""
    state: dict[str, torch.Tensor] = {}
    for name, value in model.state_dict().items():
        if hasattr(value, "local_shards"):
            value = _gathered(value, world)
        if world.is_main:
            state[under_any_plan(name)] = value.detach()
    return state


def _gathered(value: Any, world: World) -> Any:
    own = [(tuple(s.metadata.shard_offsets), s.tensor.detach().cpu()) for s in value.local_shards()]
    pieces = world.gather(own)
    if not world.is_main:
        return None
    whole = torch.empty(value.metadata().size, dtype=value.metadata().tensor_properties.dtype)
    for offset, piece in (entry for rank in pieces for entry in rank):
        whole[tuple(slice(at, at + size) for at, size in zip(offset, piece.shape, strict=True))] = piece
    return whole
