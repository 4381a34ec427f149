"""Slices of a batch add up to the batch."""

from __future__ import annotations

import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.slices import split_evenly
from recsys.types import Batch
from tests.reference.toy import make_batch


def jagged(rows: int) -> Batch:
    """Two features, 0 to 3 ids a row."""
    draw = torch.Generator().manual_seed(rows)
    lengths = torch.randint(0, 4, (2 * rows,), generator=draw)
    ids = KeyedJaggedTensor(
        keys=["a", "b"],
        values=torch.randint(0, 50, (int(lengths.sum()),), generator=draw),
        lengths=lengths,
        stride=rows,
    )
    weights = torch.rand(rows, generator=draw) + 0.5
    return Batch(torch.randn(rows, 3, generator=draw), ids, (weights > 1).float(), weights)


def bags(batch: Batch) -> list[list[list[int]]]:
    """Ids of every feature and row."""
    return [[t.tolist() for t in batch.sparse_features[k].to_dense()] for k in batch.sparse_features.keys()]  # noqa: SIM118


@pytest.mark.parametrize("num", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("make", [jagged, make_batch])
def test_slices_hold_every_row_once_and_padding_has_no_weight(num: int, make: object) -> None:
    batch = make(7)  # type: ignore[operator]
    slices = split_evenly(batch, num)
    assert len({s.num_rows for s in slices}) == 1 and slices[0].num_rows == -(-7 // num)
    real = [s.weights > 0 for s in slices]
    assert sum(int(r.sum()) for r in real) == 7
    for field in ("dense_features", "labels", "weights"):
        joined = torch.cat([getattr(s, field)[r] for s, r in zip(slices, real, strict=True)])
        assert torch.equal(joined, getattr(batch, field))
    for feature, whole in enumerate(bags(batch)):
        pieces = [bag for s, r in zip(slices, real, strict=True) for bag in bags(s)[feature][: int(r.sum())]]
        assert pieces == whole
    for piece in slices:
        assert piece.weight_sum is not None and torch.equal(piece.weight_sum, batch.weights.sum())
        assert piece.step_rows == 7
        padding = piece.weights == 0
        assert torch.equal(piece.dense_features[padding], batch.dense_features[:1].expand(int(padding.sum()), -1))


def test_one_slice_alone_and_a_slice_of_a_slice() -> None:
    batch = make_batch(10)
    (second,) = split_evenly(batch, 3, only=1)
    assert torch.equal(second.labels, batch.labels[4:8])
    for piece in split_evenly(second, 2):
        assert piece.step_rows == 10 and torch.equal(piece.weight_sum, torch.tensor(10.0))  # type: ignore[arg-type]


def test_no_row_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="without rows"):
        split_evenly(make_batch(0), 2)
