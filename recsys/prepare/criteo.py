"""Criteo's lines: a compiled parser for clean ones, a slow one that says what is wrong with the others."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from recsys.prepare.faults import Fault, bad_value, shown
from recsys.prepare.kernels import NUM_INTEGERS, NUM_TOKENS, parse_criteo
from recsys.prepare.text import byte_fault, line_ends, line_of

INTEGER_NAMES = tuple(f"I{i + 1}" for i in range(NUM_INTEGERS))
TOKEN_NAMES = tuple(f"C{i + 1}" for i in range(NUM_TOKENS))
COLUMN_NAMES = ("label", *INTEGER_NAMES, *TOKEN_NAMES)

_INTEGER = re.compile(r"-?[0-9]+")
_TOKEN = re.compile(r"[0-9a-fA-F]{1,8}")
_HEADER = re.compile(r"[A-Za-z_]")
_INT64 = np.iinfo(np.int64)


def read_block(text: bytes) -> tuple[Any, Any]:
    """Parse whole lines.

    Returns:
        an Arrow table of all lines (``label`` uint8, ``I*`` int64, ``C*`` uint32, null where missing), and a bool
        array ``(L,)`` of the lines that :func:`fault_of` has something to say about; their values mean nothing.
    """
    ends = line_ends(text)
    n = len(ends)
    labels, bad = np.zeros(n, np.uint8), np.zeros(n, np.bool_)
    integers, no_integer = np.zeros((NUM_INTEGERS, n), np.int64), np.zeros((NUM_INTEGERS, n), np.bool_)
    tokens, no_token = np.zeros((NUM_TOKENS, n), np.uint32), np.zeros((NUM_TOKENS, n), np.bool_)
    parse_criteo(np.frombuffer(text, np.uint8), ends, labels, integers, no_integer, tokens, no_token, bad)
    columns = [pa.array(labels)]
    columns += [pa.array(integers[c], mask=no_integer[c]) for c in range(NUM_INTEGERS)]
    columns += [pa.array(tokens[c], mask=no_token[c]) for c in range(NUM_TOKENS)]
    return pa.table(columns, names=list(COLUMN_NAMES)), bad


def as_tokens(values: Any) -> Any:
    """Token columns (uint32) as their text of 8 digits."""
    encoded = values.dictionary_encode()
    texts = pa.array([f"{value:08x}" for value in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def labelled(text: bytes) -> bytes:
    """Whole lines, those without a label (as in Kaggle's ``test.txt``) with a label of 0 in front."""
    lines = text[:-1].split(b"\n")
    wanted = len(COLUMN_NAMES) - 2  # tabs of an unlabelled line
    return b"".join((b"0\t" if line.count(b"\t") == wanted else b"") + line + b"\n" for line in lines)


def faults_of(text: bytes, bad: Any, first_line: int) -> list[Fault]:
    """The faults of the flagged lines of a block."""
    ends = line_ends(text)
    faults = []
    for i in np.flatnonzero(bad).tolist():
        line = line_of(text, ends, i)
        message = fault_of(line, first_line + i)
        assert message is not None, f"the compiled parser refused the good line {line!r}"
        faults.append(Fault(i, message, line.decode("utf-8", "backslashreplace")))
    return faults


def fault_of(line: bytes, number: int) -> str | None:
    """What is wrong with a line (without its newline) and what to do; None if it is good."""
    if problem := byte_fault(line, number, ascii_only=True):
        return problem
    fields = line.decode("ascii").split("\t")
    if len(fields) != len(COLUMN_NAMES):
        return _wrong_columns(len(fields))
    if fields[0] not in ("0", "1"):
        if number == 1 and _HEADER.match(fields[0]):
            return f"is a header (its label is {shown(fields[0])}); remove it: `tail -n +2 FILE > NEW`"
        return bad_value("label", fields[0], "is not 0 or 1")
    for name, field in zip(COLUMN_NAMES[1:], fields[1:], strict=True):
        if field and (problem := _value_problem(name, field)):
            return bad_value(name, field, problem)
    return None


def _value_problem(name: str, field: str) -> str | None:
    if name[0] == "C":
        return None if _TOKEN.fullmatch(field) else "is not a token of 1 to 8 hexadecimal digits (empty if missing)"
    if not _INTEGER.fullmatch(field):
        return "is not an integer such as -1, 0 or 1536 (empty if missing)"
    # Python refuses to read a number of thousands of digits.
    digits = field.lstrip("-").lstrip("0") or "0"
    if len(digits) > 19 or not _INT64.min <= int(field[0].strip("0123456789") + digits) <= _INT64.max:
        return "is beyond 64 bits"
    return None


def _wrong_columns(found: int) -> str:
    if found == len(COLUMN_NAMES) - 1:
        hint = "Kaggle's test.txt has no labels: use (a part of) train.txt; if it is another file, mend this line"
    else:
        hint = "mend the line or get a new copy of the file"
    return f"has {found} columns, not {len(COLUMN_NAMES)} (label, I1..I13, C1..C26, tabs between them); {hint}"
