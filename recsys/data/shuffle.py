"""The order of the rows of an epoch: a pure function of (seed, epoch), known before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

# Streams of random numbers under one seed that must not meet.
_GROUP_ORDER, _ROW_ORDER, _MIX_ORDER = 0, 1, 2


@dataclass(frozen=True)
class Span:
    """Rows ``[start, stop)`` of row group ``group``."""

    group: int
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        """Rows of the span; never 0."""
        return self.stop - self.start


@dataclass(frozen=True)
class Piece:
    """Positions ``[start, stop)`` of block ``block``."""

    block: int
    start: int
    stop: int


def rank_share(num_rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """Positions ``[first, last)`` of an epoch that a rank gets; two ranks' counts differ by 1 at the most."""
    each, more = divmod(num_rows, world_size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


class EpochOrder:
    """Which rows a rank sees in an epoch, and in what order.

    The row groups are put in a random order, which is cut into one stretch of rows a rank; ``mix_groups`` groups
    of a stretch at a time make a block, whose rows are permuted. So a rank reads its own row groups and keeps a few
    of them, and the order depends neither on the batch size nor on who reads when.

    A block's permutation is uniform, but drawn in two steps, for the sake of the processor's caches: every span's
    rows are permuted as they come (:meth:`within_span`), and then the spans are interleaved (:meth:`interleaving`).

    Args:
        group_rows: rows of every row group, in file order.
        mix_groups: row groups of a block.
        seed: of the order; None keeps the file order, in blocks of one group.
        epoch: counted from 0.
        rank: whose share.
        world_size: number of ranks.

    Attributes:
        blocks: the spans of every block; no span is empty.
        starts: int64 ``(blocks + 1,)``, the position in the rank's epoch where a block begins, and their end.
    """

    def __init__(
        self,
        group_rows: Rows,
        *,
        mix_groups: int,
        seed: int | None,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._key = None if seed is None else (seed, epoch, rank)
        order = np.arange(len(group_rows))
        if seed is not None:
            order = np.random.default_rng([_GROUP_ORDER, seed, epoch]).permutation(len(group_rows))
        share = rank_share(int(group_rows.sum()), rank, world_size)
        spans = _cut(order, group_rows, *share)
        size = 1 if seed is None else mix_groups
        self.blocks = [spans[i : i + size] for i in range(0, len(spans), size)]
        self.starts = np.cumsum([0, *(sum(s.num_rows for s in block) for block in self.blocks)], dtype=np.int64)
        assert self.num_rows == share[1] - share[0], f"{self.num_rows} rows in blocks, the share is {share}"

    @property
    def num_rows(self) -> int:
        """Rows of this rank."""
        return int(self.starts[-1])

    def block_rows(self, block: int) -> int:
        """Rows of a block."""
        return int(self.starts[block + 1] - self.starts[block])

    def within_span(self, block: int, number: int) -> Rows | None:
        """Rows of the ``number``-th span of a block in the order in which the block has them; None: as read."""
        if self._key is None:
            return None
        span = self.blocks[block][number]
        random = np.random.default_rng([_ROW_ORDER, *self._key, block, number])
        return span.start + random.permutation(span.num_rows)

    def interleaving(self, block: int) -> Rows | None:
        """Which row of the spans, laid end to end, stands at each position of a block; None: as they lie."""
        if self._key is None:
            return None
        spans = self.blocks[block]
        span_of = np.repeat(np.arange(len(spans), dtype=np.uint16), [span.num_rows for span in spans])
        span_of = np.random.default_rng([_MIX_ORDER, *self._key, block]).permutation(span_of)
        order = np.empty(len(span_of), np.int64)
        order[np.argsort(span_of, kind="stable")] = np.arange(len(span_of))
        return order

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Positions ``[start, stop)`` of the rank's epoch, block by block."""
        pieces = []
        block = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            first, last = int(self.starts[block]), int(self.starts[block + 1])
            pieces.append(Piece(block, start - first, min(stop, last) - first))
            start, block = last, block + 1
        return pieces


def _cut(order: Rows, group_rows: Rows, first: int, last: int) -> list[Span]:
    """Rows ``[first, last)`` of the groups laid end to end in ``order``."""
    ends = np.cumsum(group_rows[order])
    begins = ends - group_rows[order]
    touched = np.flatnonzero(np.maximum(begins, first) < np.minimum(ends, last))
    return [
        Span(int(order[i]), max(first - int(begins[i]), 0), min(last, int(ends[i])) - int(begins[i])) for i in touched
    ]
