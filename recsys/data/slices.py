"""Slices of a batch: what a rank trains on, and what one pass of an accumulated step takes."""

from __future__ import annotations

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.types import Batch


def split_evenly(batch: Batch, num: int, *, only: int | None = None) -> list[Batch]:
    """Cut ``batch`` into ``num`` slices of equal length, the last ones padded.

    Every slice has ``max(1, ceil(rows / num))`` rows, so that whoever takes them in step does equal work and never
    meets an empty batch. Padding repeats the batch's first row with weight 0: its ids are looked up in this step
    anyway, so no other row of a table is touched. Each slice carries the weight sum of the whole: losses and
    gradients of all slices add up to those of ``batch``.

    Args:
        batch: rows of weight 0 at its own end count as rows.
        num: number of slices, at least 1.
        only: give this slice alone.

    Raises:
        ValueError: the batch has no row at all.
    """
    rows = batch.num_rows
    if rows == 0:
        raise ValueError("a batch without rows cannot be cut")
    length = -(-rows // num)
    weight_sum = batch.weights.sum() if batch.weight_sum is None else batch.weight_sum
    chosen = range(num) if only is None else [only]
    return [_slice(batch, min(i * length, rows), min((i + 1) * length, rows), length, weight_sum) for i in chosen]


def _slice(batch: Batch, start: int, stop: int, length: int, weight_sum: torch.Tensor) -> Batch:
    device = batch.labels.device
    rows = torch.zeros(length, dtype=torch.int64, device=device)
    rows[: stop - start] = torch.arange(start, stop, device=device)
    weights = batch.weights.index_select(0, rows)
    weights[stop - start :] = 0.0
    return Batch(
        batch.dense_features.index_select(0, rows),
        _select_ids(batch.sparse_features, rows),
        batch.labels.index_select(0, rows),
        weights,
        weight_sum,
        batch.step_rows,
    )


def _select_ids(ids: KeyedJaggedTensor, rows: torch.Tensor) -> KeyedJaggedTensor:
    """The ids of ``rows`` of every feature, in that order."""
    num, rows_before, length = len(ids.keys()), ids.stride(), rows.shape[0]
    starts = torch.arange(num, device=rows.device).unsqueeze(1) * rows_before
    bags = (starts + rows).reshape(-1)
    lengths = ids.lengths().index_select(0, bags)
    first = ids.offsets().index_select(0, bags)
    offsets = torch.zeros(num * length + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(lengths, 0, out=offsets[1:])
    # Position of every id: its bag's first id, and how far it lies behind the start of its bag.
    within = torch.arange(int(offsets[-1]), device=rows.device) - offsets[:-1].repeat_interleave(lengths)
    values = ids.values().index_select(0, first.repeat_interleave(lengths) + within)
    return KeyedJaggedTensor(
        keys=ids.keys(), values=values, lengths=lengths, offsets=offsets.to(ids.offsets().dtype), stride=length
    )
