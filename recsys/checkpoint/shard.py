"""A piece of a tensor: what ranks save, and where they want it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from recsys.errors import CheckpointError

Box = tuple[tuple[int, int], ...]
"""Begin and end along every dimension of the whole tensor."""


@dataclass(frozen=True)
class Shard:
    """A rank's piece of a tensor.

    Attributes:
        name: of the tensor, the same on every rank.
        shape: of the whole tensor.
        offset: where the piece begins in it.
        tensor: the piece itself; a load writes into it.
        replicated: whether every rank holds the same piece; rank 0 saves it, and every rank loads it.
    """

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    tensor: torch.Tensor
    replicated: bool = False

    @property
    def box(self) -> Box:
        """The piece's place in the whole tensor."""
        return box_of(self.offset, tuple(self.tensor.shape))

    @property
    def is_whole(self) -> bool:
        """Whether the piece is the whole tensor."""
        return tuple(self.tensor.shape) == self.shape

    def copy_to_host(self) -> Shard:
        """The same piece in memory of its own."""
        copy = torch.empty(self.tensor.shape, dtype=self.tensor.dtype, device="cpu")
        return replace(self, tensor=copy.copy_(self.tensor.detach()))


def shards_of(name: str, value: Any) -> Iterator[Shard]:
    """The local pieces of ``value``: a tensor that every rank holds, or torch's ``ShardedTensor``.

    Raises:
        CheckpointError: another kind of distributed tensor.
    """
    if hasattr(value, "local_shards"):
        shape = tuple(value.metadata().size)
        for piece in value.local_shards():
            yield Shard(name, shape, tuple(piece.metadata.shard_offsets), piece.tensor)
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        yield Shard(name, tuple(value.shape), (0,) * value.dim(), value.detach(), replicated=True)
    else:
        raise CheckpointError(f"{name}: a tensor of type {type(value).__name__} cannot be saved")


def box_of(offset: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    """The place of a piece of ``shape`` at ``offset``."""
    return tuple((at, at + size) for at, size in zip(offset, shape, strict=True))


def overlap(a: Box, b: Box) -> Box | None:
    """What two places share, or None."""
    common = tuple((max(x, u), min(y, v)) for (x, y), (u, v) in zip(a, b, strict=True))
    return common if all(begin < end for begin, end in common) else None


def volume(box: Box) -> int:
    """Elements in a place; 1 for that of a scalar."""
    total = 1
    for begin, end in box:
        total *= end - begin
    return total


def relative(box: Box, offset: tuple[int, ...]) -> tuple[slice, ...]:
    """``box`` as an index into the piece that begins at ``offset``."""
    return tuple(slice(begin - at, end - at) for (begin, end), at in zip(box, offset, strict=True))
