"""Rows that are seen when a run goes on with another number of processes: every one as often as without the stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from recsys.config.wire import build_data
from recsys.data.source import BatchSource, DataSplits
from recsys.distributed.rank_batches import share_splits
from recsys.distributed.world import World
from recsys.types import Batch
from tests.reference.tiny_run import tiny_config

SIZES = (1, 2, 4)
EPOCHS, STEPS_BEFORE = 2, 3


def two_epochs(source: BatchSource) -> Iterator[Batch]:
    while source.state_dict()["epoch"] < EPOCHS:
        yield from source


def shares(data: DataSplits, size: int) -> list[BatchSource]:
    return [share_splits(data, World(rank=rank, size=size)).train for rank in range(size)]


def rows(batches: Iterator[Batch]) -> Counter[bytes]:
    """Rows by their dense values; those of weight 0 only pad."""
    return Counter(
        row.numpy().tobytes() for batch in batches for row in batch.dense_features[batch.weights > 0].unbind()
    )


@pytest.mark.parametrize("after", SIZES)
@pytest.mark.parametrize("before", SIZES)
def test_every_ordered_pair_of_sizes(before: int, after: int) -> None:
    # 7 batches an epoch, the last one of a single row.
    data = build_data(tiny_config("+experiment=dlrm", "data.train_rows=61", "trainer.batch_size=10"))
    whole = rows(two_epochs(data.train))
    assert sum(whole.values()) == EPOCHS * 61 and set(whole.values()) == {EPOCHS}
    seen: Counter[bytes] = Counter()
    positions = []
    for rank in range(before):
        source = shares(data, before)[rank]
        source.load_state_dict({"epoch": 0, "batch": 0})
        seen += rows(islice(two_epochs(source), STEPS_BEFORE))
        positions.append(source.state_dict())
    assert all(position == positions[0] for position in positions)
    for rank in range(after):
        source = shares(data, after)[rank]
        source.load_state_dict(positions[0])
        seen += rows(two_epochs(source))
    assert seen == whole
