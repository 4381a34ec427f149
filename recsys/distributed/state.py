"""A model's state in the tensors that this process holds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor


def local_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters and buffers of ``model``, of sharded tables this rank's shards; writes go to the model.

    The same tensors in the same order each time.
    """
    for value in model.state_dict().values():
        if isinstance(value, ShardedTensor):
            yield from (shard.tensor.detach() for shard in value.local_shards())
        else:
            yield value.detach()
