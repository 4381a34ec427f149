"""Every rank's share of every batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recsys.data.slices import split_evenly
from recsys.data.source import BatchSource, DataSplits
from recsys.distributed.world import World
from recsys.types import Batch


class RankBatches(BatchSource):
    """One rank's slice of each batch of another source.

    ``batch_size``, ``num_rows``, length and position are those of the whole: a run means the same on any number of
    processes, and a position saved on one number of them is good on any other. Every rank gets as many batches of as
    many rows; a slice that is short or empty is padded with rows of weight 0 (see :func:`split_evenly`). Each rank
    reads every row of the source.

    Args:
        source: whole batches, the same ones on every rank.
        world: the ranks.
    """

    def __init__(self, source: BatchSource, world: World) -> None:
        self.spec, self.num_rows, self.batch_size = source.spec, source.num_rows, source.batch_size
        self._source = source
        self._world = world

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self._source)

    def __iter__(self) -> Iterator[Batch]:
        """Yield this rank's slices of the rest of this epoch."""
        for batch in self._source:
            (mine,) = split_evenly(batch, self._world.size, only=self._world.rank)
            yield mine

    def state_dict(self) -> dict[str, int]:
        """Position in the whole."""
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Move to a position in the whole."""
        self._source.load_state_dict(state)


def share_splits(data: DataSplits, world: World) -> DataSplits:
    """``data`` with every split cut over the ranks; as it is for a process alone."""
    if world.size == 1:
        return data
    train, valid, test = (RankBatches(s, world) for s in (data.train, data.valid, data.test))
    return replace(data, train=train, valid=valid, test=test)
