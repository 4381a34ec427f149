"""Pieces of the input that are read apart from each other, and how each is read to checked rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from recsys.prepare.schema import Schema, nearest
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
    """

    num_input: int
    kept: Any
    rows: Rows
    faults: list[Fault]
    places: list[str]


def make_units(
    source: str, files: list[InputFile], schema: Schema, chunk_bytes: int, max_rows: int | None = None
) -> list[Unit]:
    """Cut the input, or the first ``max_rows`` rows of each text file, into units, in order.

    Raises:
        DataError: a column of the schema is not there, stands twice, or is not of one kind in all files.
    """
    if source == "parquet":
        return _parquet_units(files, schema)
    units: list[Unit] = []
    for i, file in enumerate(files):
        start, names = _csv_head(Path(file.path), schema) if source == "csv" else (0, ())
        if is_packed(file.path):
            units.append(Unit(i, file.path, "stream", names=names, max_rows=max_rows))
            continue
        stop = file.num_bytes if max_rows is None else lines_end(Path(file.path), start, max_rows)
        cuts = [*range(start, stop, chunk_bytes), stop]
        units += [Unit(i, file.path, "lines", a, b, names=names) for a, b in pairwise(cuts)]
    return units


def read_unit(source: str, unit: Unit, schema: Schema, chunk_bytes: int) -> Iterator[Piece]:
    """Yield the rows of a unit, checked, in pieces of about ``chunk_bytes``.

    Raises:
        DataError: the file as a whole is damaged.
    """
    if unit.kind == "group":
        yield from _read_group(unit, schema, max(1, chunk_bytes // _ROW_BYTES))
    elif unit.kind == "stream":
        skip = int(source == "csv" and schema.csv.header)
        line, left = 0, unit.max_rows
        for line, text in stream_blocks(Path(unit.path), chunk_bytes):
            if line <= skip:
                line, text = line + 1, text[text.index(b"\n") + 1 :]
            if left is not None:
                text = first_lines(text, left)
                left -= text.count(b"\n")
            if text:
                yield _read_text(source, unit, schema, text, line)
            if left == 0:
                return
        if not line:
            fail(Path(unit.path), 1, "the file is empty; get a new copy of it or name another file")
    elif text := range_block(Path(unit.path), unit.start, unit.stop):
        yield _read_text(source, unit, schema, text, None)


def _read_text(source: str, unit: Unit, schema: Schema, text: bytes, first_line: int | None) -> Piece:
    if source == "csv":
        table, bad = csv_lines.read_block(text, list(unit.names), schema.sources, schema.csv)
    else:
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
    return _piece(unit, schema, table, kept, len(bad), faults, lambda i: f"line {first() + i}")


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
    return Piece(num_input, kept, rows, faults, [f"{unit.path}, {place(f.index)}" for f in faults])


def _csv_head(path: Path, schema: Schema) -> tuple[int, tuple[str, ...]]:
    """Where the rows of a CSV file begin (in a plain file), and its column names."""
    form = schema.csv
    if not form.header:
        return 0, _checked_names(path, form.columns, schema, "csv.columns of the schema")
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
    return len(line), _checked_names(path, tuple(names), schema, "the header")


def _checked_names(path: Path, names: tuple[str, ...], schema: Schema, where: str) -> tuple[str, ...]:
    if twice := [name for name in schema.sources if names.count(name) > 1]:
        raise DataError(f"{path}: column {twice[0]!r} stands twice in {where}; rename one of the two")
    if lacking := [name for name in schema.sources if name not in names]:
        raise DataError(f"{path}: there is no column {lacking[0]!r} in {where}; {nearest(lacking[0], names)}")
    return names


def _parquet_units(files: list[InputFile], schema: Schema) -> list[Unit]:
    units: list[Unit] = []
    kinds: dict[str, tuple[str, str]] = {}
    for i, file in enumerate(files):
        path = Path(file.path)
        with _parquet(path) as parquet:
            arrow = parquet.schema_arrow
            _checked_names(path, tuple(arrow.names), schema, "the file")
            for name in schema.sources:
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


def _read_group(unit: Unit, schema: Schema, batch_rows: int) -> Iterator[Piece]:
    path = Path(unit.path)
    first = unit.first_row
    with _parquet(path) as parquet:
        wanted = parquet.metadata.row_group(unit.start).num_rows
        try:
            batches = parquet.iter_batches(
                batch_rows, row_groups=[unit.start], columns=schema.sources, use_threads=False
            )
            for batch in batches:
                table = pa.Table.from_batches([batch])
                start = first
                kept = np.arange(table.num_rows)
                yield _piece(unit, schema, table, kept, table.num_rows, [], lambda i, n=start: f"row {n + i + 1}")
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
