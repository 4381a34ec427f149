"""The weights of the best model so far, in memory: of sharded tables, this rank's pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

Best = Mapping[str, Any]
"""Name in the model's ``state_dict`` -> a copy of the tensor, or a :class:`ShardedCopy`."""


@dataclass(frozen=True)
class ShardedCopy:
    """A copy of what this rank holds of torch's ``ShardedTensor``, which cannot be copied as such.

    Attributes:
        of: metadata of the whole tensor.
        pieces: torch's ``Shard`` each, with memory of its own.
    """

    of: Any
    pieces: list[Any]

    def metadata(self) -> Any:
        """Of the whole tensor."""
        return self.of

    def local_shards(self) -> list[Any]:
        """This rank's pieces."""
        return self.pieces


def copy_state(model: nn.Module) -> Best:
    """A copy of the model's state."""
    return {name: _copy(value) for name, value in model.state_dict().items()}


def _copy(value: Any) -> Any:
    if not hasattr(value, "local_shards"):
        return value.detach().clone()
    pieces = [replace(shard, tensor=shard.tensor.detach().clone()) for shard in value.local_shards()]
    return ShardedCopy(value.metadata(), pieces)


@torch.no_grad()
def refresh(best: Best, model: nn.Module) -> None:
    """Let ``best`` hold the model's state of now."""
    for kept, now in _pairs(best, model):
        kept.copy_(now)


@torch.no_grad()
def write_back(best: Best, model: nn.Module) -> None:
    """Let the model have the state of ``best``."""
    for kept, now in _pairs(best, model):
        now.copy_(kept)


def _pairs(best: Best, model: nn.Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for name, value in model.state_dict().items():
        yield from zip(_local(best[name]), _local(value), strict=True)


def _local(value: Any) -> Iterator[torch.Tensor]:
    if hasattr(value, "local_shards"):
        yield from (shard.tensor.detach() for shard in value.local_shards())
    else:
        yield value.detach()
