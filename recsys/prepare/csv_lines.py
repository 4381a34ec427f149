"""Delimited text of the user's own: lines are checked as bytes, then read by Arrow as text columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from recsys.prepare.faults import Fault
from recsys.prepare.schema import CsvFormat
from recsys.prepare.text import MAX_LINE_BYTES, byte_fault, line_ends, line_of

_UNBALANCED = "has an unclosed quote (line breaks inside quotes are not supported, nor is a lone quote); mend the line"


def read_block(text: bytes, names: list[str], wanted: list[str], form: CsvFormat) -> tuple[Any, NDArray[np.bool_]]:
    """Parse whole lines.

    Args:
        text: the block.
        names: of all columns, in order.
        wanted: the columns to read.
        form: the format.

    Returns:
        an Arrow table of strings, null where missing, without the refused lines; and a bool array ``(L,)`` of the
        lines that are refused.
    """
    bad = _suspects(text, form)
    clean = text if not bad.any() else _without(text, bad)
    refused: list[int] = []
    table = _arrow(clean, names, wanted, form, refused)
    if refused:
        bad[np.flatnonzero(~bad)[refused]] = True
    assert table.num_rows == len(bad) - int(bad.sum()), "lines were lost in the CSV reader"
    return table, bad


def split_header(line: bytes, form: CsvFormat) -> list[str]:
    """The names in a header line."""
    table = pa.csv.read_csv(
        pa.BufferReader(line.rstrip(b"\n") + b"\n"),
        read_options=pa.csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=_parse_options(form),
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=False, null_values=[]),
    )
    return [str(column[0].as_py()) for column in table.columns]


def faults_of(text: bytes, bad: NDArray[np.bool_], first_line: int, num_columns: int, form: CsvFormat) -> list[Fault]:
    """The faults of the refused lines of a block."""
    ends = line_ends(text)
    faults = []
    for i in np.flatnonzero(bad).tolist():
        line = line_of(text, ends, i)
        message = byte_fault(line, first_line + i, ascii_only=False)
        if message is None and form.quote and line.count(b'"') % 2:
            message = _UNBALANCED
        if message is None:
            found = _num_fields(line, form)
            message = f"has {found} columns, not {num_columns}; mend the line or the schema's csv.delimiter"
        faults.append(Fault(i, message, line.decode("utf-8", "backslashreplace")))
    return faults


def _suspects(text: bytes, form: CsvFormat) -> NDArray[np.bool_]:
    """Lines that are no clean text, whatever their fields are."""
    ends = line_ends(text)
    lengths = np.diff(ends, prepend=-1) - 1
    bad = (lengths == 0) | (lengths > MAX_LINE_BYTES)
    chars = np.frombuffer(text, np.uint8)
    for char in (b"\r", b"\0"):
        if char in text:
            bad[np.searchsorted(ends, np.flatnonzero(chars == char[0]))] = True
    if text.startswith(b"\xef\xbb\xbf"):
        bad[0] = True
    if form.quote and b'"' in text:
        quotes_before = np.searchsorted(np.flatnonzero(chars == ord('"')), ends)
        bad |= np.diff(quotes_before, prepend=0) % 2 == 1
    if not text.isascii():
        _flag_bad_utf8(text, ends, bad)
    return bad


def _flag_bad_utf8(text: bytes, ends: NDArray[np.int64], bad: NDArray[np.bool_]) -> None:
    start = 0
    while True:
        try:
            text[start:].decode("utf-8")
            return
        except UnicodeDecodeError as error:
            line = int(np.searchsorted(ends, start + error.start))
            bad[line] = True
            start = int(ends[line]) + 1


def _without(text: bytes, bad: NDArray[np.bool_]) -> bytes:
    ends = line_ends(text)
    keep = np.repeat(~bad, np.diff(ends, prepend=-1))
    return np.frombuffer(text, np.uint8)[: len(keep)][keep].tobytes()


def _arrow(text: bytes, names: list[str], wanted: list[str], form: CsvFormat, refused: list[int]) -> Any:
    if not text:
        return pa.table({name: pa.array([], pa.string()) for name in wanted})

    def refuse(row: Any) -> str:
        refused.append(row.number - 1)
        return "skip"

    return pa.csv.read_csv(
        pa.BufferReader(text),
        read_options=pa.csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        parse_options=_parse_options(form, refuse),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in wanted},
            include_columns=wanted,
            null_values=list(form.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _parse_options(form: CsvFormat, refuse: Any = None) -> Any:
    return pa.csv.ParseOptions(
        delimiter=form.delimiter,
        quote_char='"' if form.quote else False,
        double_quote=form.quote,
        escape_char=False,
        newlines_in_values=False,
        ignore_empty_lines=False,
        invalid_row_handler=refuse,
    )


def _num_fields(line: bytes, form: CsvFormat) -> int:
    return len(split_header(line, form))
