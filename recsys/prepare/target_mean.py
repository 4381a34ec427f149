"""Smoothed target means and log counts of categorical ids, as dense features that leak no label.

A train row's mean comes from the train rows of other blocks, and its count leaves the row itself out; a row that is
not of the train split is given what all train rows say. Blocks are a pure function of the row's number in the input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys.prepare.kernels import hash_numbers
from recsys.prepare.schema import CategoricalColumn
from recsys.prepare.work import atomic

NUM_BLOCKS = 5
_OUT_OF_VOCABULARY = 0

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


def blocks_of(rows: Int64) -> NDArray[np.uint8]:
    """The block, from 0 to ``NUM_BLOCKS - 1``, of each row number."""
    hashed = np.empty(len(rows), np.uint64)
    hash_numbers(np.ascontiguousarray(rows, np.int64), hashed)
    return (hashed % np.uint64(NUM_BLOCKS)).astype(np.uint8)


def tally(codes: NDArray[Any], labels: NDArray[Any], blocks: NDArray[np.uint8], size: int) -> Any:
    """Rows and clicks of every code in every block: a record batch of ``size`` rows, columns ``n0`` .. and ``k0`` .."""
    key = codes.astype(np.int64) + blocks.astype(np.int64) * size
    rows = np.bincount(key, minlength=NUM_BLOCKS * size).reshape(NUM_BLOCKS, size)
    clicks = np.bincount(key[labels == 1], minlength=NUM_BLOCKS * size).reshape(NUM_BLOCKS, size)
    columns = {f"n{b}": pa.array(rows[b].astype(np.int32)) for b in range(NUM_BLOCKS)}
    return pa.record_batch(columns | {f"k{b}": pa.array(clicks[b].astype(np.int32)) for b in range(NUM_BLOCKS)})


def add_tally(total: Int64, batch: Any, ids: NDArray[np.int32]) -> None:
    """Add a chunk's tally, whose code ``i`` has id ``ids[i]``, to ``(2, NUM_BLOCKS, cardinality)`` rows and clicks."""
    for kind, letter in enumerate("nk"):
        for block in range(NUM_BLOCKS):
            np.add.at(total[kind, block], ids, batch.column(f"{letter}{block}").to_numpy())


def features_by_id(column: CategoricalColumn, rows: Int64, clicks: Int64) -> Float32:
    """The added features of every id: float32 ``(features, NUM_BLOCKS + 1, cardinality)``.

    At ``[.., b, ..]`` stands what a train row of block b is given, at the end what rows of other splits are given.
    Means are log odds (Micci-Barreca, 2001, smoothed towards the click rate), counts ``log(1 + count)``; both are
    standardised by mean and deviation over the train rows.

    Args:
        column: says which features, and the smoothing.
        rows, clicks: of the train split, ``(NUM_BLOCKS, cardinality)``.
    """
    total = rows.sum(axis=0)
    added = []
    if column.target_mean:
        outside_rows = np.concatenate([total - rows, total[None]])
        outside_clicks = np.concatenate([clicks.sum(axis=0) - clicks, clicks.sum(axis=0)[None]])
        # A half click and a half row without one: a rate of 0 or 1 has no log odds.
        rate = (outside_clicks.sum(axis=1, keepdims=True) + 0.5) / (outside_rows.sum(axis=1, keepdims=True) + 1)
        mean = (outside_clicks + column.smoothing * rate) / (outside_rows + column.smoothing)
        added.append(_standardised(np.log(mean / (1 - mean)), total))
    if column.count:
        known = total.copy()
        # What is rare shares this id; no value of it is frequent.
        known[_OUT_OF_VOCABULARY] = 0
        others = np.log1p(np.maximum(known - 1, 0))
        added.append(_standardised(np.stack([others] * NUM_BLOCKS + [np.log1p(known)]), total))
    return np.stack(added).astype(np.float32)


def _standardised(values: NDArray[np.float64], rows: Int64) -> NDArray[np.float64]:
    everyone = values[-1]
    mean = np.average(everyone, weights=rows)
    sd = np.sqrt(np.average((everyone - mean) ** 2, weights=rows))
    # An id's own value is exact only up to rounding: a constant column must not become noise.
    return (values - mean) / (sd if sd > 1e-9 else 1.0)


def path_of(folder: Path, name: str) -> Path:
    """The file that keeps a column's rows and clicks by id."""
    return folder / "vocab" / f"{quote(name, safe='')}.clicks.parquet"


def write(path: Path, total: Int64) -> None:
    """Write ``(2, NUM_BLOCKS, cardinality)`` rows and clicks."""
    columns = {f"{letter}{b}": pa.array(total[k, b]) for k, letter in enumerate("nk") for b in range(NUM_BLOCKS)}
    with atomic(path) as draft:
        pq.write_table(pa.table(columns), draft, compression="zstd", write_page_checksum=True)


def read(path: Path, column: CategoricalColumn, cardinality: int) -> Float32:
    """The features of every id, from what ``write`` wrote.

    Raises:
        ValueError: the file is of another cardinality.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read(use_threads=False)
    if table.num_rows != cardinality:
        raise ValueError(f"{path} has {table.num_rows} ids, not {cardinality}")
    total = np.stack([[table[f"{letter}{b}"].to_numpy() for b in range(NUM_BLOCKS)] for letter in "nk"])
    return features_by_id(column, total[0], total[1])
