"""Criteo's Kaggle rows as arrays: a label, 13 integer columns, 26 columns of 32-bit hex tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from recsys.data.criteo_lines import Block, fail, read_blocks

INTEGER_NAMES = tuple(f"I{i}" for i in range(1, 14))
CATEGORY_NAMES = tuple(f"C{i}" for i in range(1, 27))
COLUMN_NAMES = ("label", *INTEGER_NAMES, *CATEGORY_NAMES)

_INTEGER = re.compile(r"-?[0-9]+")
_CATEGORY = re.compile(r"[0-9a-fA-F]{1,8}")
_HEADER = re.compile(r"[A-Za-z_]")
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class CriteoRows:
    """R rows as they stand in the file; columns first.

    Attributes:
        labels: uint8 ``(R,)``, 0 or 1.
        integers: int64 ``(13, R)``; 0 where missing.
        integers_missing: bool ``(13, R)``.
        categories: uint32 ``(26, R)``; 0 where missing.
        categories_missing: bool ``(26, R)``.
    """

    labels: NDArray[np.uint8]
    integers: NDArray[np.int64]
    integers_missing: NDArray[np.bool_]
    categories: NDArray[np.uint32]
    categories_missing: NDArray[np.bool_]

    @property
    def num_rows(self) -> int:
        """R."""
        return self.labels.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> CriteoRows:
        """The given rows, as views where a slice gives them."""
        return CriteoRows(
            self.labels[rows],
            self.integers[:, rows],
            self.integers_missing[:, rows],
            self.categories[:, rows],
            self.categories_missing[:, rows],
        )


def read_rows(path: Path, max_rows: int | None = None) -> CriteoRows:
    """Read a whole file (plain or .gz), or its first ``max_rows`` rows.

    Raises:
        DataError: any fault of the file or of a value; names file, line, column and value.
    """
    num_lines = 0
    parsed: list[CriteoRows] = []
    for block in read_blocks(path, max_rows):
        parsed.append(_parse_block(path, block))
        num_lines += block.num_lines
    rows = CriteoRows(
        np.concatenate([p.labels for p in parsed]),
        np.concatenate([p.integers for p in parsed], axis=1),
        np.concatenate([p.integers_missing for p in parsed], axis=1),
        np.concatenate([p.categories for p in parsed], axis=1),
        np.concatenate([p.categories_missing for p in parsed], axis=1),
    )
    assert rows.num_rows == num_lines, f"{num_lines} lines gave {rows.num_rows} rows"
    return rows


@dataclass(frozen=True)
class _BadValue:
    row: int
    column: str
    text: str
    problem: str


def _parse_block(path: Path, block: Block) -> CriteoRows:
    table = pa.csv.read_csv(
        pa.BufferReader(block.text),
        read_options=pa.csv.ReadOptions(column_names=list(COLUMN_NAMES), block_size=len(block.text) + 1),
        parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in COLUMN_NAMES}, strings_can_be_null=False
        ),
    )
    assert table.num_rows == block.num_lines, f"{block.num_lines} lines gave {table.num_rows} rows"
    labels, _, bad_labels = _decode(table, ("label",), _parse_label)
    integers, integers_missing, bad_integers = _decode(table, INTEGER_NAMES, _parse_integer)
    categories, categories_missing, bad_categories = _decode(table, CATEGORY_NAMES, _parse_category)
    bad = [*bad_labels, *bad_integers, *bad_categories]
    if bad:
        _refuse(path, block.first_line, min(bad, key=lambda b: b.row))
    return CriteoRows(
        labels[0].astype(np.uint8), integers, integers_missing, categories.astype(np.uint32), categories_missing
    )


def _decode(
    table: pa.Table, names: tuple[str, ...], parse: Callable[[str], int]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[_BadValue]]:
    """Parse each distinct text of a column once; the first bad value of every column is returned."""
    values = np.zeros((len(names), table.num_rows), np.int64)
    missing = np.zeros((len(names), table.num_rows), np.bool_)
    bad: list[_BadValue] = []
    for i, name in enumerate(names):
        column = table[name].combine_chunks().dictionary_encode()
        codes: NDArray[Any] = column.indices.to_numpy()
        texts: list[str] = column.dictionary.to_pylist()
        parsed = np.zeros(len(texts), np.int64)
        problems: dict[int, str] = {}
        for code, text in enumerate(texts):
            try:
                parsed[code] = parse(text)
            except ValueError as error:
                problems[code] = str(error)
        if problems:
            row = int(np.flatnonzero(np.isin(codes, list(problems)))[0])
            bad.append(_BadValue(row, name, texts[codes[row]], problems[int(codes[row])]))
        values[i] = parsed[codes]
        missing[i] = np.array([text == "" for text in texts], np.bool_)[codes]
    return values, missing, bad


def _parse_label(text: str) -> int:
    if text not in ("0", "1"):
        raise ValueError("is not 0 or 1")
    return int(text)


def _parse_integer(text: str) -> int:
    if text == "":
        return 0
    if not _INTEGER.fullmatch(text):
        raise ValueError("is not an integer such as -1, 0 or 1536 (empty if missing)")
    value = int(text)
    if not _INT64.min <= value <= _INT64.max:
        raise ValueError("is beyond 64 bits")
    return value


def _parse_category(text: str) -> int:
    if text == "":
        return 0
    if not _CATEGORY.fullmatch(text):
        raise ValueError("is not a token of 1 to 8 hexadecimal digits (empty if missing)")
    return int(text, 16)


def _refuse(path: Path, first_line: int, bad: _BadValue) -> None:
    text = bad.text if len(bad.text) <= 40 else bad.text[:40] + "..."
    line = first_line + bad.row
    if line == 1 and bad.column == "label" and _HEADER.match(bad.text):
        fail(path, line, f"is a header (its label is {text!r}); remove it: `tail -n +2 FILE > NEW`")
    fail(path, line, f"column {bad.column}: {text!r} {bad.problem}; mend the value or get a new copy of the file")
