"""The processes that train together."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from recsys.distributed import launch
from recsys.errors import ConfigError, UserError

T = TypeVar("T")

# Seconds between two looks of a rank that waits for another one's long work.
_POLL_S = 0.2
_PATIENCE = timedelta(days=7)
# Ranks wait for each other at the store under names that are used once; all ranks count alike.
_meetings = itertools.count()


@dataclass(frozen=True)
class World:
    """This process among those of its job.

    Attributes:
        rank: of this process over all nodes, from 0.
        size: processes in all.
        local_rank: of this process on its node; also its GPU.
        local_size: processes on a node.
        group: of the tables' exchanges and of small objects; None for a process alone.
        dense_group: of the dense parts' reductions, which must not queue behind exchanges of ids; None alone.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    group: Any = None
    dense_group: Any = None

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the run's folder and talks to the user."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether torchrun started the job, if only with one process."""
        return self.group is not None

    def broadcast(self, value: T) -> T:
        """Rank 0's ``value`` on every rank."""
        if not self.is_distributed:
            return value
        box = [value if self.is_main else None]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]  # type: ignore[return-value]

    def all_gather(self, value: T) -> list[T]:
        """Every rank's ``value`` in order of ranks, on every rank."""
        if not self.is_distributed:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather(self, value: T) -> list[T]:
        """Every rank's ``value`` in order of ranks, on rank 0; elsewhere an empty list."""
        if not self.is_distributed:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, values, dst=0, group=self.group)
        return values or []

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's ``tensor``, in place."""
        if self.is_distributed:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def on_main(self, work: Callable[[], T]) -> T:
        """Run ``work`` on rank 0 alone and give its result on every rank, however long it takes.

        The others wait at the store, not in a collective, whose timeout is there to notice a rank that hangs.

        Raises:
            UserError: of ``work``, on rank 0, which tells it.
            SystemExit: on the other ranks then.

        Args:
            work: whose result can be pickled; the ranks are one job, and trust each other.
        """
        if not self.is_distributed:
            return work()
        store: Any = dist.distributed_c10d._get_default_store()
        key = f"on_main/{next(_meetings)}"
        if self.is_main:
            try:
                result = work()
            except UserError:
                store.set(key, b"")
                raise
            store.set(key, pickle.dumps(result))
            return result
        end = time.monotonic() + _PATIENCE.total_seconds()
        while not store.check([key]):
            assert time.monotonic() < end, "rank 0 has not ended its work"
            time.sleep(_POLL_S)
        answer = store.get(key)
        if not answer:
            sys.exit(1)
        value: T = pickle.loads(answer)
        return value


ALONE = World()


@contextmanager
def open_world(device: str, timeout_s: float) -> Iterator[World]:
    """Join the processes of this job, gloo on a CPU and NCCL on GPUs, and leave them at the end.

    Without torchrun this is :data:`ALONE`.

    Args:
        device: ``trainer.device``.
        timeout_s: a collective that takes longer is an error: some rank hangs.

    Raises:
        ConfigError: more processes on a node than GPUs.
    """
    if not launch.is_launched():
        yield ALONE
        return
    env = os.environ
    local_rank = int(env["LOCAL_RANK"])
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"torchrun --nproc_per_node {env['LOCAL_WORLD_SIZE']}: this node has {torch.cuda.device_count()} GPUs; "
                "start as many processes as GPUs, or use trainer.device=cpu"
            )
        torch.cuda.set_device(local_rank)
    if dist.is_initialized():
        raise ConfigError("another run of this process is still open; one process trains one job at a time")
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout_s))
    try:
        yield World(
            rank=int(env["RANK"]),
            size=int(env["WORLD_SIZE"]),
            local_rank=local_rank,
            local_size=int(env["LOCAL_WORLD_SIZE"]),
            group=dist.group.WORLD,
            dense_group=dist.new_group(timeout=timedelta(seconds=timeout_s)),
        )
        _leave_together()
    finally:
        with warnings.catch_warnings():
            # After an error other ranks are gone, and a clean goodbye cannot be had.
            warnings.simplefilter("ignore")
            dist.destroy_process_group()


def _leave_together() -> None:
    """Rank 0's report may take longer than a collective may; nobody pulls the store away before everyone is done."""
    store, key = dist.distributed_c10d._get_default_store(), f"leave/{next(_meetings)}"
    store.add(key, 1)
    while store.add(key, 0) < dist.get_world_size():
        time.sleep(_POLL_S)
