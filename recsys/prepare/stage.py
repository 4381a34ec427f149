"""Pass 1: a unit of the input to chunks of checked columns, dictionary-coded, in the work folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys.errors import DataError
from recsys.prepare.faults import QuarantinedRow
from recsys.prepare.schema import CategoricalColumn, Schema
from recsys.prepare.units import Piece, Unit, read_unit
from recsys.prepare.work import Batches, write_batches


@dataclass(frozen=True)
class StageJob:
    """A unit to stage.

    Attributes:
        folder: of the staged chunks.
        name: of the unit's chunks, unique.
        limit: more bad rows than this stop the run; -1 is the policy `error`.
    """

    source: str
    unit: Unit
    schema: Schema
    chunk_bytes: int
    folder: str
    name: str
    limit: int


@dataclass(frozen=True)
class Chunk:
    """Staged rows.

    Attributes:
        name: of the files ``<name>.rows`` and ``<name>.values``.
        file: index of the input file.
        num_input: rows of the input, with those that were quarantined.
        num_rows: rows that are staged.
        sizes: distinct values of each categorical column.
        times: the least and the greatest time; (0, -1) if there is no row or no time column.
        clocks: what the times are written as: ``number``, ``calendar`` (dates, timestamps), both or nothing.
        rows_sha256, values_sha256: of the two files.
    """

    name: str
    file: int
    num_input: int
    num_rows: int
    sizes: tuple[int, ...]
    times: tuple[int, int]
    clocks: frozenset[str]
    rows_sha256: str
    values_sha256: str


@dataclass(frozen=True)
class Staged:
    """What became of a unit."""

    chunks: tuple[Chunk, ...]
    quarantined: tuple[QuarantinedRow, ...]


def stage(job: StageJob) -> Staged:
    """Read, check and store a unit.

    Raises:
        DataError: damaged input; with the policy `error` the first bad row, with `quarantine` too many of them.
    """
    chunks: list[Chunk] = []
    quarantined: list[QuarantinedRow] = []
    for piece in read_unit(job.source, job.unit, job.schema, job.chunk_bytes):
        faults = zip(piece.places, piece.faults, strict=True)
        quarantined += [QuarantinedRow(place, fault.message, fault.text) for place, fault in faults]
        if len(quarantined) > job.limit and quarantined:
            refuse(quarantined, job.limit)
        chunks.append(_store(job, f"{job.name}-{len(chunks):05d}", piece))
    return Staged(tuple(chunks), tuple(quarantined))


def refuse(quarantined: list[QuarantinedRow], limit: int) -> None:
    """Stop at the first bad row, or at more of them than the limit allows."""
    first = quarantined[0]
    if limit < 0:
        raise DataError(f"{first.place}: {first.problem}")
    raise DataError(
        f"{quarantined[limit].place}: more than bad_rows.limit={limit} bad rows; {quarantined[limit].problem}; the "
        f"first is {first.place}: {first.problem}"
    )


def open_rows(folder: str, chunk: Chunk) -> Any:
    """The record batch of a chunk's rows: ``label``, ``d0``.. dense, ``c0``.. codes, ``kept``, and the roles."""
    return Batches(Path(folder) / f"{chunk.name}.rows", chunk.rows_sha256)[0]


def open_values(folder: str, chunk: Chunk) -> Batches:
    """The distinct values of a chunk: a record batch with the column ``value`` for each categorical column."""
    return Batches(Path(folder) / f"{chunk.name}.values")


def _store(job: StageJob, name: str, piece: Piece) -> Chunk:
    rows = piece.rows
    columns: dict[str, Any] = {"label": pa.array(rows.label)}
    if piece.faults:
        columns["kept"] = pa.array(piece.kept.astype(np.int64))
    columns |= {role: pa.array(values) for role, values in rows.roles.items()}
    columns |= {f"d{i}": pa.array(values) for i, values in enumerate(rows.dense)}
    values = []
    for i, (column, array) in enumerate(zip(job.schema.categorical, rows.categorical, strict=True)):
        columns[f"c{i}"], distinct = encode_chunk(array, column)
        values.append(distinct)
    folder = Path(job.folder)
    rows_sha256 = write_batches(folder / f"{name}.rows", [pa.record_batch(columns)])
    batches = [pa.record_batch({"value": array}) for array in values]
    values_sha256 = write_batches(folder / f"{name}.values", batches)
    times = rows.roles.get("time")
    span = (int(times.min()), int(times.max())) if times is not None and len(times) else (0, -1)
    calendar = rows.calendar if rows.calendar is not None else np.zeros(0, np.bool_)
    clocks = frozenset("calendar" if kind else "number" for kind in np.unique(calendar))
    sizes = tuple(len(array) for array in values)
    return Chunk(name, job.unit.file, piece.num_input, rows.num_rows, sizes, span, clocks, rows_sha256, values_sha256)


def encode_chunk(array: Any, column: CategoricalColumn) -> tuple[Any, Any]:
    """Codes into the distinct values of a column (their number is the code of a missing value), and these values."""
    if not column.multi_hot:
        return _codes(array)
    # A missing list is a list of one missing value; an empty list stays empty.
    lengths = pc.list_value_length(array).fill_null(1).to_numpy(zero_copy_only=False)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    flat = array.flatten()
    if missing.any():
        source = np.where(np.repeat(missing, lengths), -1, 0)
        source[source == 0] = np.arange(len(flat))
        flat = (
            flat.take(pa.array(np.maximum(source, 0), mask=source < 0))
            if len(flat)
            else pa.nulls(len(source), flat.type)
        )
    codes, distinct = _codes(flat)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), codes), distinct


def _codes(array: Any) -> tuple[Any, Any]:
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary
    kind = np.uint8 if len(distinct) < 256 else np.uint16 if len(distinct) < 65536 else np.int32
    indices = encoded.indices if not encoded.indices.null_count else encoded.indices.fill_null(len(distinct))
    codes = indices.to_numpy(zero_copy_only=False).astype(kind)
    return pa.array(codes), distinct if pa.types.is_string(distinct.type) else distinct.cast(pa.int64())
