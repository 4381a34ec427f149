"""Making any range of rows of the synthetic data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys.data.synthetic_columns import ColumnSettings
from recsys.data.synthetic_kernels import (
    NUM_DENSE,
    NUM_PARTS,
    NUM_SPARSE,
    Columns,
    Float32,
    Float64,
    Int32,
    Int64,
    Teacher,
    fill_lengths,
    fill_rows,
)


@dataclass(frozen=True)
class Rows:
    """Consecutive rows.

    Attributes:
        dense: float32 ``(B, NUM_DENSE)``; log1p of the count, -1 where it is missing.
        lengths: int32 ``(NUM_SPARSE, B)``, ids per column and row.
        offsets: int64 ``(NUM_SPARSE * B + 1,)``, running sum of ``lengths``.
        ids: int64, feature-major.
        labels: float32 ``(B,)``.
        probability: float64 ``(B,)``, the true click probability.
        parts: float64 ``(B, NUM_PARTS)``, the teacher's parts before scaling.
    """

    dense: Float32
    lengths: Int32
    offsets: Int64
    ids: Int64
    labels: Float32
    probability: Float64
    parts: Float64


def make_rows(settings: ColumnSettings, columns: Columns, teacher: Teacher, start: int, stop: int) -> Rows:
    """Rows ``start .. stop``, the same bits whichever range they are asked for in."""
    num_rows = stop - start
    lengths = np.ones((NUM_SPARSE, num_rows), dtype=np.int32)
    if settings.max_length == 1:
        offsets = np.arange(NUM_SPARSE * num_rows + 1, dtype=np.int64)
    else:
        fill_lengths(start, columns, settings.max_lengths, lengths)
        offsets = np.zeros(NUM_SPARSE * num_rows + 1, dtype=np.int64)
        np.cumsum(lengths.reshape(-1), out=offsets[1:])
    rows = Rows(
        dense=np.empty((num_rows, NUM_DENSE), dtype=np.float32),
        lengths=lengths,
        offsets=offsets,
        ids=np.empty(offsets[-1], dtype=np.int64),
        labels=np.empty(num_rows, dtype=np.float32),
        probability=np.empty(num_rows, dtype=np.float64),
        parts=np.empty((num_rows, NUM_PARTS), dtype=np.float64),
    )
    fill_rows(
        start, columns, teacher, offsets, rows.ids, rows.dense, rows.labels, rows.probability, rows.parts
    )  # fmt: skip
    return rows
