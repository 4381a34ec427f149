"""The blocks of an epoch that are in memory: the current one, and the next as far as it is needed soon."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from recsys.data.parquet_block import Block
from recsys.data.shuffle import EpochOrder, Rows, Span

# Reads a span and fills its rows, in the order of the last argument, into a block at a position.
Fill = Callable[[Block, int, Span, Rows | None], None]


@dataclass
class _Loading:
    block: Block
    fills: list[Future[None]] = field(default_factory=list)
    joined: Future[Block] | None = None


class BlockWindow:
    """Loads blocks in a pool of threads, once each and in order.

    The pool must begin tasks in the order in which they were submitted: a task waits only for earlier ones, so any
    number of threads, one included, gets to the end.

    Args:
        order: the blocks of the epoch.
        pool: threads.
        new_block: an empty block for so many rows.
        fill: what reads a span.
    """

    def __init__(self, order: EpochOrder, pool: Executor, new_block: Callable[[int], Block], fill: Fill) -> None:
        self._order, self._pool, self._new_block, self._fill = order, pool, new_block, fill
        self._loading: dict[int, _Loading] = {}

    def get(self, index: int) -> Future[Block]:
        """Block ``index``, every span of it submitted; earlier blocks are let go."""
        for passed in [i for i in self._loading if i < index]:
            del self._loading[passed]
        loading = self._submit(index, 1.0)
        if loading.joined is None:
            loading.joined = self._pool.submit(self._join, loading, index)
        return loading.joined

    def prepare_next(self, index: int, position: int) -> None:
        """Submit as large a share of the block after ``index`` as is used of ``index`` up to ``position``."""
        if index + 1 < len(self._order.blocks):
            self._submit(index + 1, position / self._order.block_rows(index))

    def close(self) -> None:
        """Cancel what no thread has begun."""
        for loading in self._loading.values():
            for fill in loading.fills:
                fill.cancel()
            if loading.joined:
                loading.joined.cancel()

    def _submit(self, index: int, share: float) -> _Loading:
        if index not in self._loading:
            self._loading[index] = _Loading(self._new_block(self._order.block_rows(index)))
        loading, spans = self._loading[index], self._order.blocks[index]
        for number in range(len(loading.fills), math.ceil(share * len(spans))):
            at = sum(span.num_rows for span in spans[:number])
            loading.fills.append(self._pool.submit(self._read, loading.block, at, index, number))
        return loading

    def _read(self, block: Block, at: int, index: int, number: int) -> None:
        self._fill(block, at, self._order.blocks[index][number], self._order.within_span(index, number))

    def _join(self, loading: _Loading, index: int) -> Block:
        for fill in loading.fills:
            fill.result()
        return loading.block.join(self._order.interleaving(index))
