"""The ranks that write and read a checkpoint together."""

from __future__ import annotations

from typing import Any, Protocol

from recsys.errors import CheckpointError


class Peers(Protocol):
    """What a checkpoint needs of the processes that make it.

    Attributes:
        rank: this process, of ``size``.
        size: number of processes.
    """

    rank: int
    size: int

    def gather(self, text: str) -> list[str]:
        """Every rank's text in order of ranks, on every rank."""


class Alone:
    """A single process."""

    rank = 0
    size = 1

    def gather(self, text: str) -> list[str]:
        """The text alone."""
        return [text]


class GroupPeers:
    """The ranks of a ``torch.distributed`` group.

    Writes in the background talk from their own thread: give them a gloo group that nobody else uses.

    Args:
        group: of every rank; None is the default group.
    """

    def __init__(self, group: Any = None) -> None:
        import torch.distributed as dist

        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def gather(self, text: str) -> list[str]:
        """Every rank's text in order of ranks, on every rank."""
        import torch.distributed as dist

        texts: list[Any] = [None] * self.size
        dist.all_gather_object(texts, text, group=self._group)
        return texts


def agree(peers: Peers, problem: str) -> None:
    """Meet; every rank raises if one has a problem.

    Args:
        peers: the ranks.
        problem: of this rank; empty if it has none.

    Raises:
        CheckpointError: the first problem, with its rank where there are several.
    """
    for rank, text in enumerate(peers.gather(problem)):
        if text:
            raise CheckpointError(f"rank {rank}: {text}" if peers.size > 1 else text)
