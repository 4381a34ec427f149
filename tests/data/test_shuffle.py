from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys.data.shuffle import EpochOrder, Piece, Span, rank_share

groups = st.lists(st.integers(0, 9), max_size=12).map(lambda rows: np.array(rows, np.int64))


def rows_in_order(group_rows: list[int], order: EpochOrder) -> list[int]:
    """Global row numbers, position by position."""
    first = np.cumsum([0, *group_rows])
    rows: list[int] = []
    for number, block in enumerate(order.blocks):
        spans = []
        for i, span in enumerate(block):
            within = order.within_span(number, i)
            spans.append(first[span.group] + (np.arange(span.start, span.stop) if within is None else within))
        read, interleaving = np.concatenate(spans), order.interleaving(number)
        rows += (read if interleaving is None else read[interleaving]).tolist()
    return rows


@given(groups, st.integers(1, 5), st.none() | st.integers(0, 3), st.integers(0, 2), st.integers(1, 6))
def test_ranks_share_every_row_once(
    group_rows: list[int], mix_groups: int, seed: int | None, epoch: int, world_size: int
) -> None:
    rows = np.asarray(group_rows, np.int64)
    orders = [
        EpochOrder(rows, mix_groups=mix_groups, seed=seed, epoch=epoch, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    seen = [rows_in_order(group_rows, order) for order in orders]
    assert sorted(row for rank in seen for row in rank) == list(range(int(rows.sum())))
    assert [order.num_rows for order in orders] == [len(rank) for rank in seen]
    assert max(map(len, seen)) - min(map(len, seen)) <= 1
    for order in orders:
        assert all(span.num_rows > 0 for block in order.blocks for span in block)
        assert all(len(block) <= (1 if seed is None else mix_groups) for block in order.blocks)


@given(groups, st.integers(1, 5), st.integers(1, 7))
def test_pieces_are_the_positions_in_turn(group_rows: list[int], mix_groups: int, batch_size: int) -> None:
    order = EpochOrder(np.asarray(group_rows, np.int64), mix_groups=mix_groups, seed=1)
    positions: list[int] = []
    for start in range(0, order.num_rows, batch_size):
        for piece in order.pieces(start, min(start + batch_size, order.num_rows)):
            assert 0 <= piece.start < piece.stop <= order.block_rows(piece.block)
            positions += range(
                int(order.starts[piece.block]) + piece.start, int(order.starts[piece.block]) + piece.stop
            )
    assert positions == list(range(order.num_rows))


def test_file_order_without_a_seed() -> None:
    order = EpochOrder(np.array([3, 0, 2]), mix_groups=8, seed=None, epoch=4)
    assert order.blocks == [[Span(0, 0, 3)], [Span(2, 0, 2)]]
    assert order.within_span(0, 0) is None
    assert order.interleaving(0) is None
    assert order.pieces(2, 4) == [Piece(0, 2, 3), Piece(1, 0, 1)]


def test_an_order_for_every_seed_and_epoch() -> None:
    group_rows = [50] * 6

    def order(seed: int, epoch: int) -> tuple[int, ...]:
        made = EpochOrder(np.array(group_rows), mix_groups=2, seed=seed, epoch=epoch)
        return tuple(rows_in_order(group_rows, made))

    keys = [(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({order(*key) for key in keys}) == len(keys)
    assert [order(*key) for key in keys] == [order(*key) for key in keys]


def test_rows_mix_across_the_groups_of_a_block_and_ranks_differ() -> None:
    group_rows = [100] * 8
    rows = rows_in_order(group_rows, EpochOrder(np.array(group_rows), mix_groups=8, seed=0))
    assert len({row // 100 for row in rows[:60]}) >= 6, "the first rows come from nearly all groups"
    orders = [EpochOrder(np.array(group_rows), mix_groups=4, seed=0, rank=rank, world_size=2) for rank in range(2)]
    first, second = (order.interleaving(0) for order in orders)
    assert first is not None
    assert second is not None
    assert not np.array_equal(first, second)


def test_a_rank_touches_its_own_groups_and_one_more_at_either_end() -> None:
    for rank in range(4):
        order = EpochOrder(np.full(40, 10), mix_groups=4, seed=3, rank=rank, world_size=4)
        assert sum(map(len, order.blocks)) == 10


@pytest.mark.parametrize(("num_rows", "world_size"), [(0, 3), (2, 3), (10, 3), (12, 3)])
def test_rank_shares_are_adjacent(num_rows: int, world_size: int) -> None:
    shares = [rank_share(num_rows, rank, world_size) for rank in range(world_size)]
    assert shares[0][0] == 0
    assert shares[-1][1] == num_rows
    assert all(left[1] == right[0] for left, right in itertools.pairwise(shares))


def test_a_block_is_permuted_uniformly() -> None:
    group_rows = [2, 1, 2]
    counts = Counter(
        tuple(rows_in_order(group_rows, EpochOrder(np.array(group_rows), mix_groups=3, seed=seed)))
        for seed in range(3000)
    )
    assert len(counts) == math.factorial(5)
    expected = 3000 / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 180, "119 degrees of freedom: 0.9998 of uniform draws stay below"
