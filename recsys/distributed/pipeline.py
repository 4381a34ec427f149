"""Copies and exchanges of the next batches beside the current step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.source import BatchSource
from recsys.types import Batch


class Exchange(Protocol):
    """Sends ids to the ranks that hold their tables, in two steps before the lookup."""

    def start(self, features: KeyedJaggedTensor) -> None:
        """Exchange how many ids go where."""

    def send(self, features: KeyedJaggedTensor) -> None:
        """Exchange the ids."""

    def settle(self) -> None:
        """Let all that is under way arrive and forget it."""


@dataclass
class _Ahead:
    batch: Batch
    position: dict[str, int]
    stages: int = 0
    copied: torch.cuda.Event | None = None


class PipelinedBatches(BatchSource):
    """Batches on the device of the model, prepared while earlier ones are trained on.

    When batch i is handed out, batch i + 1 has its ids under way, batch i + 2 the numbers of its ids, and batch i + 3
    is being copied to the device: the stages of torchrec's ``TrainPipelineSparseDist``, which runs a model of one
    forward and one backward and so cannot drive a schedule. On a GPU copies and exchanges have streams of their own.
    The position is that of the batch that was handed out last, whatever was read ahead.

    Args:
        source: this rank's batches.
        device: of the model.
        exchange: the sharded tables; None where they are not sharded.
    """

    def __init__(self, source: BatchSource, device: torch.device, exchange: Exchange | None) -> None:
        self.spec, self.num_rows, self.batch_size = source.spec, source.num_rows, source.batch_size
        self._source = source
        self._device = device
        self._exchange = exchange
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._position: dict[str, int] | None = None

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self._source)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of this epoch; nothing is read ahead of its end."""
        batches = iter(self._source)
        stages: list[Callable[[_Ahead], None]] = [self._copy]
        if self._exchange is not None:
            stages += [self._start, self._send]
        queue: deque[_Ahead] = deque()
        try:
            while True:
                while len(queue) <= len(stages) and (fresh := self._read(batches)) is not None:
                    queue.append(fresh)
                if not queue:
                    return
                # The oldest first: exchanges of one batch come before those of the next on every rank.
                for place, ahead in enumerate(queue):
                    due = len(stages) - max(0, place - 1)
                    for stage in stages[ahead.stages : due]:
                        stage(ahead)
                    ahead.stages = max(ahead.stages, due)
                head = queue.popleft()
                self._position = head.position
                yield self._handed_out(head)
        finally:
            if self._exchange is not None and queue:
                self._exchange.settle()

    def state_dict(self) -> dict[str, int]:
        """Position behind the batch that was handed out last."""
        return dict(self._position) if self._position is not None else self._source.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Move to a position that ``state_dict`` gave."""
        self._source.load_state_dict(state)
        self._position = None

    def _read(self, batches: Iterator[Batch]) -> _Ahead | None:
        batch = next(batches, None)
        return None if batch is None else _Ahead(batch, self._source.state_dict())

    def _copy(self, ahead: _Ahead) -> None:
        if self._stream is None:
            ahead.batch = ahead.batch.to(self._device)
            return
        with torch.cuda.stream(self._stream):
            # Pageable memory would make the copy wait for the device.
            pinned = ahead.batch if ahead.batch.labels.is_pinned() else ahead.batch.pin_memory()
            ahead.batch = pinned.to(self._device, non_blocking=True)
            ahead.copied = self._stream.record_event()

    def _start(self, ahead: _Ahead) -> None:
        assert self._exchange is not None
        if ahead.copied is not None:
            ahead.copied.synchronize()  # numbers of ids are needed on the host anyway
        self._exchange.start(ahead.batch.sparse_features)

    def _send(self, ahead: _Ahead) -> None:
        assert self._exchange is not None
        self._exchange.send(ahead.batch.sparse_features)

    def _handed_out(self, ahead: _Ahead) -> Batch:
        if self._stream is not None and ahead.copied is not None:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(ahead.copied)
            ahead.batch.record_stream(here)
        return ahead.batch
