"""Pass 2: settle the split of a chunk's rows, count the values of each split, sum the dense columns of train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys.prepare.encoding import fitted_values
from recsys.prepare.moments import Moments
from recsys.prepare.schema import Schema
from recsys.prepare.settings import SPLITS
from recsys.prepare.split import Place, Rule, assign
from recsys.prepare.stage import Chunk, open_rows
from recsys.prepare.target_mean import blocks_of, tally
from recsys.prepare.work import write_batches


@dataclass(frozen=True)
class CountJob:
    """A staged chunk to count."""

    folder: str
    chunk: Chunk
    place: Place
    rule: Rule
    schema: Schema


@dataclass(frozen=True)
class Counted:
    """Figures of a chunk.

    Attributes:
        rows: of each split.
        clicks: rows with label 1 of each split.
        moments: of the train rows, of each dense column after its pointwise transforms.
        missing: of each split, missing values of each dense column.
        lengths: the longest list of the train rows of each categorical column.
    """

    rows: tuple[int, ...]
    clicks: tuple[int, ...]
    moments: tuple[Moments, ...]
    missing: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]


def split_of(job_rule: Rule, place: Place, batch: Any) -> NDArray[np.uint8]:
    """The split of each row of a staged chunk."""
    times = batch.column("time").to_numpy(zero_copy_only=False) if job_rule.kind == "time" else None
    return assign(job_rule, place, batch.num_rows, times)


def rows_of(place: Place, batch: Any) -> NDArray[np.int64]:
    """The number in the input of each row of a staged chunk."""
    kept = batch.column("kept").to_numpy() if "kept" in batch.schema.names else np.arange(batch.num_rows)
    rows: NDArray[np.int64] = place.first_input + kept.astype(np.int64)
    return rows


def count(job: CountJob) -> Counted:
    """Count one chunk; the counts of the values go to ``<name>.counts``, a column for each split.

    Behind them stand the tallies of the columns that add dense features; their last row is of the missing values.
    """
    batch = open_rows(job.folder, job.chunk)
    splits = split_of(job.rule, job.place, batch)
    train = splits == 0
    label = batch.column("label").to_numpy(zero_copy_only=False)
    moments, missing = [], []
    for i, column in enumerate(job.schema.dense):
        values = batch.column(f"d{i}").to_numpy(zero_copy_only=False)
        empty = np.isnan(values)
        missing.append(np.bincount(splits[empty], minlength=len(SPLITS)).tolist())
        moments.append(Moments.of(fitted_values(column, values[train])))
    batches, lengths, tallies = [], [], []
    rows = rows_of(job.place, batch)[train]
    for i, feature in enumerate(job.schema.categorical):
        codes, owners, longest = batch.column(f"c{i}"), splits, 1
        if feature.multi_hot:
            sizes = np.diff(codes.offsets.to_numpy())
            codes, owners = codes.flatten(), np.repeat(splits, sizes)
            longest = int(sizes[train].max(initial=0))
        lengths.append(longest)
        flat = codes.to_numpy(zero_copy_only=False)
        batches.append(_counts(flat, owners, job.chunk.sizes[i]))
        if feature.adds_dense:
            tallies.append(tally(flat[train], label[train], blocks_of(rows), job.chunk.sizes[i] + 1))
    write_batches(Path(job.folder) / f"{job.chunk.name}.counts", [*batches, *tallies])
    return Counted(
        tuple(np.bincount(splits, minlength=len(SPLITS)).tolist()),
        tuple(np.bincount(splits[label == 1], minlength=len(SPLITS)).tolist()),
        tuple(moments),
        tuple(zip(*missing, strict=True)) if missing else ((),) * len(SPLITS),
        tuple(lengths),
    )


def _counts(codes: NDArray[Any], owners: NDArray[np.uint8], size: int) -> Any:
    """Occurrences of each of ``size`` values in each split; missing values, whose code is ``size``, are not kept."""
    key = codes.astype(np.int64) + owners.astype(np.int64) * (size + 1)
    table = np.bincount(key, minlength=len(SPLITS) * (size + 1)).reshape(len(SPLITS), size + 1)
    return pa.record_batch({name: pa.array(table[i, :size].astype(np.int32)) for i, name in enumerate(SPLITS)})
