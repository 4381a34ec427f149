"""Pieces of the input that are read apart from each other, and how each is read to checked rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys.errors import DataError
from recsys.prepare import criteo, csv_lines
from recsys.prepare.convert import Rows, convert, normal
from recsys.prepare.faults import Fault
from recsys.prepare.inputs import InputFile, is_packed
from recsys.prepare.schema import CsvFormat, Schema, nearest
from recsys.prepare.text import (
    BOM,
    fail,
    first_lines,
    lines_before,
    lines_end,
    range_block,
    stream_blocks,
    unreadable,
)

# A row of click data has about so many bytes; it turns a chunk's bytes into rows of a parquet file.
_ROW_BYTES = 256


@dataclass(frozen=True)
class Unit:
    """A piece of the input that one task reads.

    Attributes:
        file: index of the file.
        path: of the file.
        kind: ``lines`` (bytes ``start`` to ``stop`` of plain text), ``stream`` (a whole compressed text file) or
            ``group`` (row group ``start`` of a parquet file).
        start, stop: see ``kind``.
        first_row: of a parquet group: rows of the file before it.
        names: columns of a CSV file, in order.
        max_rows: of a stream: rows after which it is left; None reads to the end.
    """

    file: int
    path: str
    kind: str
    start: int = 0
    stop: int = 0
    first_row: int = 0
    names: tuple[str, ...] = ()
    max_rows: int | None = None


@dataclass(frozen=True)
class Piece:
    """Rows of a unit.

    Attributes:
        num_input: rows in the input, with those that have a fault.
        kept: int64, the index in ``0 .. num_input`` of each good row.
        rows: the good rows.
        faults: of the others, in order.
        places: the place of every fault, for messages.
        place: file and line (or row) of an index in ``0 .. num_input``, for messages.
        carried: Arrow columns of the good rows that were asked for, as they stand in the input.
    """

    num_input: int
    kept: Any
    rows: Rows
    faults: list[Fault]
    places: list[str]
    place: Callable[[int], str]
    carried: dict[str, Any] = field(default_factory=dict)


def make_units(
    source: str,
    files: list[InputFile],
    schema: Schema,
    chunk_bytes: int,
    max_rows: int | None = None,
    carried: Sequence[str] = (),
) -> list[Unit]:
    """Cut the input, or the first ``max_rows`` rows of each text file, into units, in order.

    Args:
        source: what the files are.
        files: the input.
        schema: the columns that are read.
        chunk_bytes: of a unit, about.
        max_rows: of each text file; None reads all.
        carried: further columns that must be there.

    Raises:
        DataError: a column of the schema is not there, stands twice, or is not of one kind in all files.
    """
    wanted = list(dict.fromkeys([*schema.sources, *carried]))
    if source == "parquet":
        return _parquet_units(files, wanted)
    units: list[Unit] = []
    for i, file in enumerate(files):
        path = Path(file.path)
        if source == "csv":
            start, names = _csv_head(path, schema.csv, wanted)
        else:
            start, names = 0, ()
            _checked_names(path, criteo.COLUMN_NAMES, wanted, "Criteo's format")
        if is_packed(file.path):
            units.append(Unit(i, file.path, "stream", names=names, max_rows=max_rows))
            continue
        stop = file.num_bytes if max_rows is None else lines_end(path, start, max_rows)
        cuts = [*range(start, stop, chunk_bytes), stop]
        units += [Unit(i, file.path, "lines", a, b, names=names) for a, b in pairwise(cuts)]
    return units


def read_unit(
    source: str, unit: Unit, schema: Schema, chunk_bytes: int, carried: Sequence[str] = ()
) -> Iterator[Piece]:
    """Yield the rows of a unit, checked, in pieces of about ``chunk_bytes``.

    Args:
        source, unit, schema, chunk_bytes: as in :func:`make_units`.
        carried: columns to hand on as they are.

    Raises:
        DataError: the file as a whole is damaged.
    """
    if unit.kind == "group":
        yield from _read_group(unit, schema, max(1, chunk_bytes // _ROW_BYTES), carried)
    elif unit.kind == "stream":
        for line, text in read_stream(source, unit, schema, chunk_bytes):
            yield read_text(source, unit, schema, text, line, carried)
    elif text := range_block(Path(unit.path), unit.start, unit.stop):
        yield read_text(source, unit, schema, text, None, carried)


def read_stream(source: str, unit: Unit, schema: Schema, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines of rows) of a compressed text file."""
    skip = int(source == "csv" and schema.csv.header)
    line, left = 0, unit.max_rows
    for line, text in stream_blocks(Path(unit.path), chunk_bytes):
        if line <= skip:
            line, text = line + 1, text[text.index(b"\n") + 1 :]
        if left is not None:
            text = first_lines(text, left)
            left -= text.count(b"\n")
        if text:
            yield line, text
        if left == 0:
            return
    if not line:
        fail(Path(unit.path), 1, "the file is empty; get a new copy of it or name another file")


def read_text(
    source: str, unit: Unit, schema: Schema, text: bytes, first_line: int | None, carried: Sequence[str] = ()
) -> Piece:
    """Check and convert whole lines; ``first_line`` None looks their number up in the file when it is needed."""
    wanted = list(dict.fromkeys([*schema.sources, *carried]))
    if source == "csv":
        table, bad = csv_lines.read_block(text, list(unit.names), wanted, schema.csv)
    else:
        text = text if schema.label else criteo.labelled(text)
        table, bad = criteo.read_block(text)
    line_numbers: list[int] = []

    def first() -> int:
        # The lines before a unit are only counted when there is a fault to tell of.
        if not line_numbers:
            line_numbers.append(lines_before(Path(unit.path), unit.start) + 1 if first_line is None else first_line)
        return line_numbers[0]

    faults: list[Fault] = []
    if bad.any() and source == "csv":
        faults = csv_lines.faults_of(text, bad, first(), len(unit.names), schema.csv)
    elif bad.any():
        faults = criteo.faults_of(text, bad, first())
        table = table.filter(pa.array(~bad))
    kept = np.flatnonzero(~bad)
    piece = _piece(unit, schema, table, kept, len(bad), faults, lambda i: f"line {first() + i}")
    piece = _carry(piece, table, kept, carried)
    if source == "csv":
        return piece
    texts = {n: criteo.as_tokens(a) if n in criteo.TOKEN_NAMES else a for n, a in piece.carried.items()}
    return replace(piece, carried=texts)


def _carry(piece: Piece, table: Any, kept: Any, carried: Sequence[str]) -> Piece:
    """The piece with columns of its table; ``kept`` are the table's rows in the input."""
    if not carried:
        return piece
    rows = pa.array(np.searchsorted(kept, piece.kept))
    columns = table.select(list(carried)).take(rows)
    return replace(piece, carried={name: columns.column(name).combine_chunks() for name in carried})


def _piece(unit: Unit, schema: Schema, table: Any, kept: Any, num_input: int, faults: list[Fault], place: Any) -> Piece:
    try:
        rows, more = convert(table.select(schema.sources), schema)
    except DataError as error:
        raise DataError(f"{unit.path}: {error}") from error
    more = [Fault(int(kept[f.index]), f.message, f.text) for f in more]
    if more:
        kept = np.setdiff1d(kept, [f.index for f in more], assume_unique=True)
    faults = sorted([*faults, *more], key=lambda f: f.index)
    assert rows.num_rows == len(kept) == num_input - len(faults), "rows were lost in the conversion"
    return Piece(
        num_input,
        kept,
        rows,
        faults,
        [f"{unit.path}, {place(f.index)}" for f in faults],
        lambda i: f"{unit.path}, {place(i)}",
    )


def _csv_head(path: Path, form: CsvFormat, wanted: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """Where the rows of a CSV file begin (in a plain file), and its column names."""
    if not form.header:
        return 0, _checked_names(path, form.columns, wanted, "csv.columns of the schema")
    line = next(stream_blocks(path, 1), (1, b""))[1] if is_packed(str(path)) else range_block(path, 0, 1)
    line = line[: line.find(b"\n") + 1]
    if line.startswith(BOM):
        fail(path, 1, "begins with a byte-order mark (BOM); remove it: `tail -c +4 FILE > NEW`")
    if b"\r" in line:
        fail(path, 1, "has a carriage return (CRLF line ends?); remove them: `tr -d '\\r' < FILE > NEW`")
    try:
        names = csv_lines.split_header(line, form)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        fail(path, 1, f"cannot be read as a header ({' '.join(str(error).split())}); mend it")
    return len(line), _checked_names(path, tuple(names), wanted, "the header")


def _checked_names(path: Path, names: tuple[str, ...], wanted: Sequence[str], where: str) -> tuple[str, ...]:
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise DataError(f"{path}: column {twice[0]!r} stands twice in {where}; rename one of the two")
    if lacking := [name for name in wanted if name not in names]:
        raise DataError(f"{path}: there is no column {lacking[0]!r} in {where}; {nearest(lacking[0], names)}")
    return names


def _parquet_units(files: list[InputFile], wanted: Sequence[str]) -> list[Unit]:
    units: list[Unit] = []
    kinds: dict[str, tuple[str, str]] = {}
    for i, file in enumerate(files):
        path = Path(file.path)
        with _parquet(path) as parquet:
            arrow = parquet.schema_arrow
            _checked_names(path, tuple(arrow.names), wanted, "the file")
            for name in wanted:
                kind = _kind(arrow.field(name).type)
                known, where = kinds.setdefault(name, (kind, file.path))
                if "nothing" not in (kind, known) and kind != known:
                    raise DataError(
                        f"{path}: column {name!r} is {kind}, but {known} in {where}; convert one of the two"
                    )
                if known == "nothing":
                    kinds[name] = (kind, file.path)
            first = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                if rows:
                    units.append(Unit(i, file.path, "group", group, first_row=first))
                first += rows
    return units


def _kind(kind: Any) -> str:
    """What a parquet column holds, so that files of one input can be compared."""
    kind = normal(pa.nulls(0, kind)).type
    if pa.types.is_list(kind):
        return f"a list of {_kind(kind.value_type)}"
    if pa.types.is_null(kind):
        return "nothing"
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return "numbers"
    return str(kind)


def _read_group(unit: Unit, schema: Schema, batch_rows: int, carried: Sequence[str]) -> Iterator[Piece]:
    path = Path(unit.path)
    columns = list(dict.fromkeys([*schema.sources, *carried]))
    first = unit.first_row
    with _parquet(path) as parquet:
        wanted = parquet.metadata.row_group(unit.start).num_rows
        try:
            batches = parquet.iter_batches(batch_rows, row_groups=[unit.start], columns=columns, use_threads=False)
            for batch in batches:
                table = pa.Table.from_batches([batch])
                start = first
                kept = np.arange(table.num_rows)
                piece = _piece(unit, schema, table, kept, table.num_rows, [], lambda i, n=start: f"row {n + i + 1}")
                yield _carry(piece, table, kept, carried)
                first += table.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from error
    if first - unit.first_row != wanted:
        raise DataError(
            f"{path}: row group {unit.start} gave {first - unit.first_row} rows of {wanted}; get a new copy"
        )


class _parquet:
    """A parquet file that is closed in the end, its page checksums compared where it has them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Any:
        try:
            self.file = pq.ParquetFile(self.path, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error
        return self.file

    def __exit__(self, *_: object) -> None:
        self.file.close()


def _damaged(path: Path, error: Exception) -> DataError:
    if isinstance(error, OSError) and error.errno:
        return unreadable(path, error)
    reason = " ".join(str(error).split())
    return DataError(f"{path}: cannot be read as parquet ({reason}); get a new copy of the file")
