"""Pass 3: merge a column's counts over all chunks to a vocabulary, and number every chunk's values by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.prepare.encoding import NUM_RESERVED_IDS, SparseEncoder, positions_in, vocabulary_path
from recsys.prepare.schema import MAX_TABLE, CategoricalColumn
from recsys.prepare.settings import SPLITS
from recsys.prepare.stage import Chunk, open_values
from recsys.prepare.target_mean import NUM_BLOCKS, add_tally, features_by_id, path_of, write
from recsys.prepare.work import Batches, atomic

# Values that are merged or looked up at a time.
_BATCH = 1 << 20


@dataclass(frozen=True)
class FitJob:
    """A categorical column to fit.

    Attributes:
        folder: of the staged chunks; the column's ids go to ``<index>.ids`` in it.
        output: gets ``vocab/<name>.parquet``.
        index: of the column in the schema.
        tally: where the column's tally stands in a chunk's counts, if it adds dense features. Rows and clicks by id go
            to ``vocab/<name>.clicks.parquet``, the features to ``<index>.features``.
    """

    folder: str
    output: str
    column: CategoricalColumn
    index: int
    chunks: tuple[Chunk, ...]
    tally: int | None = None


@dataclass(frozen=True)
class Fitted:
    """Figures of a column.

    Attributes:
        vocabulary: values with an id of their own.
        distinct: distinct values of the train rows.
        unseen: occurrences, in each split, of values that no train row has.
        out_of_vocabulary: occurrences, in each split, of values without an id of their own.
    """

    vocabulary: int
    distinct: int
    unseen: tuple[int, ...]
    out_of_vocabulary: tuple[int, ...]


@dataclass
class _Tally:
    """Values and their counts, merged now and then so that it never holds much more than the distinct values."""

    merged: Any = None
    waiting: list[Any] = field(default_factory=list)
    num_waiting: int = 0

    def add(self, values: Any, counts: Any) -> None:
        seen = counts.to_numpy(zero_copy_only=False) > 0
        if not seen.any():
            return
        mask = pa.array(seen)
        self.waiting.append(pa.table({"value": values.filter(mask), "count": counts.filter(mask).cast(pa.int64())}))
        self.num_waiting += int(seen.sum())
        if self.num_waiting > max(_BATCH, self.merged.num_rows if self.merged is not None else 0):
            self.merge()

    def merge(self) -> None:
        tables = [*([self.merged] if self.merged is not None else []), *self.waiting]
        self.waiting, self.num_waiting = [], 0
        if tables:
            table = pa.concat_tables(tables)
            self.merged = table.group_by("value", use_threads=False).aggregate([("count", "sum")])
            self.merged = self.merged.rename_columns(["value", "count"])

    def by_count(self) -> Any:
        """Distinct values by falling count; values of one count in order."""
        self.merge()
        if self.merged is None:
            return pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
        return self.merged.sort_by([("count", "descending"), ("value", "ascending")]).combine_chunks()


def fit(job: FitJob) -> Fitted:
    """Fit a column.

    Raises:
        DataError: the table would have more rows than an int32 id can tell.
    """
    column = job.column
    if column.min_count is None:
        return _write_ids(job, _one_array(_Tally().by_count()["value"]), 0)
    tally = _Tally()
    for chunk in job.chunks:
        tally.add(open_values(job.folder, chunk)[job.index].column("value"), _counts(job, chunk).column("train"))
    table = tally.by_count()
    kept = int((table["count"].to_numpy() >= column.min_count).sum())
    if column.max_size is not None:
        kept = min(kept, column.max_size)
    if NUM_RESERVED_IDS + kept + (column.hash_size or 0) > MAX_TABLE:
        raise DataError(f"column {column.name}: {kept} values and its hash_size are more than an int32 id can tell")
    _write_vocabulary(vocabulary_path(Path(job.output), column.name), table.slice(0, kept))
    return _write_ids(job, _one_array(table["value"]), kept)


def read_ids(folder: str, index: int) -> NDArray[np.int32]:
    """The ids of a column's values in all chunks, one chunk after the other; each chunk ends with the missing id."""
    ids: NDArray[np.int32] = np.load(Path(folder) / f"{index}.ids", mmap_mode="r", allow_pickle=False)
    return ids


def read_features(folder: str, index: int) -> NDArray[np.float32]:
    """The dense features that a column adds, by id; see :func:`recsys.prepare.target_mean.features_by_id`."""
    features: NDArray[np.float32] = np.load(Path(folder) / f"{index}.features", mmap_mode="r", allow_pickle=False)
    return features


def _counts(job: FitJob, chunk: Chunk) -> Any:
    return Batches(Path(job.folder) / f"{chunk.name}.counts")[job.index]


def _write_vocabulary(path: Path, table: Any) -> None:
    ids = np.arange(NUM_RESERVED_IDS, NUM_RESERVED_IDS + table.num_rows, dtype=np.int32)
    table = pa.table({"value": _one_array(table["value"]), "id": pa.array(ids), "count": _one_array(table["count"])})
    with atomic(path) as draft:
        pq.write_table(
            table, draft, compression="zstd", use_dictionary=False, write_page_checksum=True, row_group_size=1 << 20
        )


def _write_ids(job: FitJob, distinct: Any, kept: int) -> Fitted:
    """Number the values of every chunk, given the train values with those of the vocabulary in front."""
    encoder = SparseEncoder(job.column, distinct.slice(0, kept), 1)
    unseen, outside = np.zeros(len(SPLITS), np.int64), np.zeros(len(SPLITS), np.int64)
    # 80 bytes an id: only where they are asked for, a hashed table may have 2^31.
    tallied = np.zeros((2, NUM_BLOCKS, encoder.cardinality if job.tally is not None else 0), np.int64)
    total = sum(chunk.sizes[job.index] + 1 for chunk in job.chunks)
    with atomic(Path(job.folder) / f"{job.index}.ids") as draft, draft.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (total,)})
        for chunks, values in _batches(job, max(_BATCH, len(distinct))):
            positions = positions_in(values, distinct)
            ids = encoder.ids(values, positions)
            begin = 0
            for chunk in chunks:
                end = begin + chunk.sizes[job.index]
                counts = _counts(job, chunk)
                table = np.stack([counts.column(name).to_numpy(zero_copy_only=False) for name in SPLITS])
                unseen += table[:, positions[begin:end] < 0].sum(axis=1)
                outside += table[:, (positions[begin:end] < 0) | (positions[begin:end] >= kept)].sum(axis=1)
                all_ids = np.append(ids[begin:end], np.int32(encoder.missing_id))
                file.write(all_ids.tobytes())
                if job.tally is not None:
                    add_tally(tallied, Batches(Path(job.folder) / f"{chunk.name}.counts")[job.tally], all_ids)
                begin = end
    if job.tally is not None:
        write(path_of(Path(job.output), job.column.name), tallied)
        with atomic(Path(job.folder) / f"{job.index}.features") as draft, draft.open("wb") as file:
            np.save(file, features_by_id(job.column, tallied[0], tallied[1]), allow_pickle=False)
    return Fitted(kept, len(distinct), tuple(unseen.tolist()), tuple(outside.tolist()))


def _batches(job: FitJob, size: int) -> Iterator[tuple[list[Chunk], Any]]:
    """The chunks' values, several chunks together: a lookup is built once for each batch."""
    chunks: list[Chunk] = []
    arrays: list[Any] = []
    for i, chunk in enumerate(job.chunks):
        chunks.append(chunk)
        arrays.append(open_values(job.folder, chunk)[job.index].column("value"))
        if sum(map(len, arrays)) >= size or i + 1 == len(job.chunks):
            kinds = {a.type for a in arrays if len(a)}
            assert len(kinds) <= 1, f"values of the types {kinds} in one column"
            full = [a for a in arrays if len(a)] or arrays[:1]
            yield chunks, pa.concat_arrays(full)
            chunks, arrays = [], []


def _one_array(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
