"""Pass 4: write the parquet parts of a split; where a part begins and ends does not depend on the chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys.prepare.count import rows_of, split_of
from recsys.prepare.encoding import Encoding, cut_lists
from recsys.prepare.fit import read_features, read_ids
from recsys.prepare.settings import SPLITS
from recsys.prepare.split import Place, Rule
from recsys.prepare.stage import Chunk, open_rows
from recsys.prepare.target_mean import NUM_BLOCKS, blocks_of
from recsys.prepare.work import atomic


@dataclass(frozen=True)
class Slice:
    """Rows of a chunk that a part begins, holds or ends with.

    Attributes:
        first, last: counted among the chunk's rows of the split.
        ids_at: where the chunk's ids begin in the ids of each categorical column.
    """

    chunk: Chunk
    place: Place
    first: int
    last: int
    ids_at: tuple[int, ...]


@dataclass(frozen=True)
class PartJob:
    """A part to write.

    Attributes:
        encoding: with empty vocabularies: ids come from pass 3.
        rows: of the part.
    """

    folder: str
    path: str
    split: int
    rule: Rule
    encoding: Encoding
    slices: tuple[Slice, ...]
    rows: int
    rows_per_group: int
    compression: str


@dataclass(frozen=True)
class Part:
    """A written part, as the manifest tells it.

    Attributes:
        cut_lists: by categorical column, lists that were longer than the column's length.
    """

    rows: int
    bytes: int
    sha256: str
    cut_lists: tuple[int, ...]


@dataclass
class _Columns:
    """Raw columns of some rows: ``keys`` with row, label and roles, dense values, ids or (lengths, ids) of lists.

    ``added`` are the dense features that categorical columns add.
    """

    keys: dict[str, NDArray[Any]]
    dense: list[NDArray[np.float64]]
    added: list[NDArray[np.float32]]
    ids: list[NDArray[np.int32]]
    lengths: list[NDArray[np.int32] | None]
    cut: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def num_rows(self) -> int:
        return len(self.keys["row"])


def write_part(job: PartJob) -> Part:
    """Write one part, row group by row group."""
    path = Path(job.path)
    schema = part_schema(job.encoding)
    rows = 0
    cut = np.zeros(len(job.encoding.sparse), np.int64)
    with atomic(path) as draft:
        with pq.ParquetWriter(
            draft,
            schema,
            compression=job.compression,
            use_dictionary=False,
            write_statistics=["row"],
            write_page_checksum=True,
        ) as writer:
            for columns in _grouped(job):
                table = _encode(job.encoding, columns, schema)
                assert np.isfinite(
                    [c.to_numpy().sum(dtype=np.float64) for c in table.columns if c.type == pa.float32()]
                ).all()
                writer.write_table(table, row_group_size=job.rows_per_group)
                rows += table.num_rows
                cut += columns.cut
        assert rows == job.rows, f"{path}: {rows} rows instead of {job.rows}"
        with draft.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        num_bytes = draft.stat().st_size
    return Part(rows, num_bytes, sha256, tuple(cut.tolist()))


def part_schema(encoding: Encoding) -> Any:
    """The Arrow schema of a part."""
    roles = {"weight": pa.float32(), "group": pa.int64(), "time": pa.int64()}
    fields = [("label", pa.float32()), ("row", pa.int64())]
    fields += [(role, kind) for role, kind in roles.items() if getattr(encoding.schema, role) is not None]
    fields += [(name, pa.float32()) for name in encoding.spec.dense]
    fields += [(e.column.name, pa.list_(pa.int32()) if e.column.multi_hot else pa.int32()) for e in encoding.sparse]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def _grouped(job: PartJob) -> Iterator[_Columns]:
    """Row groups of exactly ``rows_per_group`` rows, whatever pieces the chunks give; the last may be short."""
    waiting: list[_Columns] = []
    num_waiting = 0
    for piece in job.slices:
        columns = _read(job, piece)
        while num_waiting + columns.num_rows >= job.rows_per_group:
            room = job.rows_per_group - num_waiting
            yield _join([*waiting, _rows(columns, 0, room)])
            waiting, num_waiting = [], 0
            columns = _rows(columns, room, columns.num_rows)
        if columns.num_rows:
            waiting.append(columns)
            num_waiting += columns.num_rows
    if waiting:
        yield _join(waiting)


def _read(job: PartJob, piece: Slice) -> _Columns:
    """The rows of a slice, ids looked up, dense values still raw."""
    batch = open_rows(job.folder, piece.chunk)
    splits = split_of(job.rule, piece.place, batch)
    index = np.flatnonzero(splits == job.split)[piece.first : piece.last]
    names = batch.schema.names
    keys: dict[str, NDArray[Any]] = {"row": rows_of(piece.place, batch)[index]}
    for name in ("label", "weight", "group", "time"):
        if name in names:
            keys[name] = batch.column(name).to_numpy(zero_copy_only=False)[index]
    dense = [batch.column(f"d{i}").to_numpy(zero_copy_only=False)[index] for i in range(len(job.encoding.dense))]
    ids: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int32] | None] = []
    cut = np.zeros(len(job.encoding.sparse), np.int64)
    for i, encoder in enumerate(job.encoding.sparse):
        by_code = read_ids(job.folder, i)[piece.ids_at[i] : piece.ids_at[i] + piece.chunk.sizes[i] + 1]
        codes = batch.column(f"c{i}")
        if not encoder.column.multi_hot:
            ids.append(by_code[codes.to_numpy(zero_copy_only=False)[index]])
            lengths.append(None)
            continue
        lists = codes.take(pa.array(index))
        offsets, flat = cut_lists(lists, encoder.max_length)
        cut[i] = int((np.diff(lists.offsets.to_numpy()) > encoder.max_length).sum())
        ids.append(by_code[flat])
        lengths.append(np.diff(offsets))
    return _Columns(keys, dense, _added(job, keys["row"], ids), ids, lengths, cut)


def _added(job: PartJob, rows: NDArray[np.int64], ids: list[NDArray[np.int32]]) -> list[NDArray[np.float32]]:
    """The dense features that categorical columns add: of train rows from the other blocks' rows."""
    added: list[NDArray[np.float32]] = []
    blocks = blocks_of(rows) if SPLITS[job.split] == "train" else np.full(len(rows), NUM_BLOCKS)
    for i, encoder in enumerate(job.encoding.sparse):
        if encoder.column.adds_dense:
            added += [by_id[blocks, ids[i]] for by_id in read_features(job.folder, i)]
    return added


def _rows(columns: _Columns, first: int, last: int) -> _Columns:
    ids = []
    for values, lengths in zip(columns.ids, columns.lengths, strict=True):
        a, b = (first, last) if lengths is None else (int(lengths[:first].sum()), int(lengths[:last].sum()))
        ids.append(values[a:b])
    return _Columns(
        {name: values[first:last] for name, values in columns.keys.items()},
        [values[first:last] for values in columns.dense],
        [values[first:last] for values in columns.added],
        ids,
        [None if lengths is None else lengths[first:last] for lengths in columns.lengths],
        # Counted once, with the first of the pieces.
        columns.cut if first == 0 else np.zeros_like(columns.cut),
    )


def _join(pieces: list[_Columns]) -> _Columns:
    one = pieces[0]

    def join(arrays: list[Any]) -> Any:
        return np.concatenate(arrays) if len(arrays) > 1 else np.ascontiguousarray(arrays[0])

    return _Columns(
        {name: join([p.keys[name] for p in pieces]) for name in one.keys},
        [join([p.dense[i] for p in pieces]) for i in range(len(one.dense))],
        [join([p.added[i] for p in pieces]) for i in range(len(one.added))],
        [join([p.ids[i] for p in pieces]) for i in range(len(one.ids))],
        [None if x is None else join([p.lengths[i] for p in pieces]) for i, x in enumerate(one.lengths)],
        np.sum([p.cut for p in pieces], axis=0),
    )


def _encode(encoding: Encoding, columns: _Columns, schema: Any) -> Any:
    arrays = {"row": columns.keys["row"]}
    arrays |= {name: columns.keys[name].astype(np.float32) for name in ("label", "weight") if name in columns.keys}
    arrays |= {name: columns.keys[name] for name in ("group", "time") if name in columns.keys}
    encoded = encoding.encode_dense(columns.dense) + columns.added
    arrays |= dict(zip(encoding.spec.dense, encoded, strict=True))
    result = {name: pa.array(values) for name, values in arrays.items()}
    for encoder, ids, lengths in zip(encoding.sparse, columns.ids, columns.lengths, strict=True):
        assert not len(ids) or (ids.min() >= 0 and ids.max() < encoder.cardinality), "an id beyond its table"
        if lengths is None:
            result[encoder.column.name] = pa.array(ids)
            continue
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        result[encoder.column.name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.table([result[name] for name in schema.names], schema=schema)


def cut_parts(rows_of: list[int], rows_per_part: int) -> list[list[tuple[int, int, int]]]:
    """Cut a split to parts.

    Args:
        rows_of: rows of the split in each chunk.
        rows_per_part: rows of a part; the last may have fewer.

    Returns:
        for each part, (chunk, first, last) with rows counted among the chunk's rows of the split.
    """
    parts: list[list[tuple[int, int, int]]] = []
    room = 0
    for chunk, rows in enumerate(rows_of):
        first = 0
        while first < rows:
            if not room:
                parts.append([])
                room = rows_per_part
            last = min(rows, first + room)
            parts[-1].append((chunk, first, last))
            room -= last - first
            first = last
    return parts


def part_name(split: int, number: int) -> str:
    """The name of a part, relative to the output folder."""
    return f"{SPLITS[split]}/part-{number:05d}.parquet"
