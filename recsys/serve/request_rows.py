"""Rows of a request: checked value by value, so that an error names row and field."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recsys.features import SparseFeature
from recsys.prepare.faults import shown
from recsys.prepare.schema import CategoricalColumn
from recsys.serve.row_encoder import FittedEncoder, IdentityEncoder, RowEncoder

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_TOKEN = re.compile(r"[0-9a-fA-F]{1,8}")
_MAX_ERRORS = 20


@dataclass(frozen=True)
class RowError:
    """What is wrong with a request; ``row`` counts from 0, ``field`` is None where the whole row is wrong."""

    row: int
    field: str | None
    message: str


@dataclass(frozen=True)
class Field:
    """A column of a request.

    Attributes:
        name: of the column.
        kind: as documented: ``number``, ``whole number``, ``text``, ``token``, ``text or whole number`` or ``id``.
        is_list: whether a row holds a list of such values.
        nullable: whether null, a missing value, is allowed.
        problem: what is wrong with a value that is not null; None if nothing is.
        max_length: of a list; None is any.
    """

    name: str
    kind: str
    is_list: bool
    nullable: bool
    problem: Callable[[Any], str | None]
    max_length: int | None = None

    def error(self, value: Any) -> str | None:
        """What is wrong with a row's value."""
        if value is None:
            return None if self.nullable else "null, but a value is needed"
        if not self.is_list:
            return self.problem(value)
        if not isinstance(value, list):
            return f"{shown(str(value))} is no list"
        if self.max_length is not None and len(value) > self.max_length:
            return f"a list of {len(value)}, more than {self.max_length}"
        return next((p for v in value if v is not None and (p := self.problem(v)) is not None), None)


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{shown(str(value))} is no number"
    return None if abs(value) <= _FLOAT32_MAX else f"{shown(str(value))} is no finite number of float32's range"


def _whole(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{shown(str(value))} is no whole number"
    return None if -(2**63) <= value < 2**63 else f"{shown(str(value))} is beyond 64 bits"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{shown(str(value))} is no text; put it in quotes"


def _token(value: Any) -> str | None:
    is_token = isinstance(value, str) and _TOKEN.fullmatch(value) is not None
    return None if is_token else f"{shown(str(value))} is no token of 1 to 8 hexadecimal digits"


def _text_or_whole(value: Any) -> str | None:
    return None if isinstance(value, str) else _whole(value)


def _id_of(cardinality: int) -> Callable[[Any], str | None]:
    def problem(value: Any) -> str | None:
        if (wrong := _whole(value)) is not None:
            return wrong
        return None if 0 <= value < cardinality else f"{value} is no id of the table of {cardinality} rows"

    return problem


_PROBLEM = {
    "number": _number,
    "whole number": _whole,
    "text": _text,
    "token": _token,
    "text or whole number": _text_or_whole,
}


def fields_of(encoder: RowEncoder) -> list[Field]:
    """The columns that a row of a request has, all of them."""
    schema = encoder.schema
    found: dict[str, Field] = {}
    for dense in schema.dense:
        found.setdefault(dense.source, Field(dense.source, "number", False, dense.missing != "error", _number))
    for i, column in enumerate(schema.categorical):
        if column.source not in found:
            found[column.source] = _categorical(encoder, column, i)
    return list(found.values())


def _categorical(encoder: RowEncoder, column: CategoricalColumn, i: int) -> Field:
    if isinstance(encoder, IdentityEncoder):
        feature: SparseFeature = encoder.spec.sparse[i]
        longest = feature.max_length if column.multi_hot else None
        return Field(column.source, "id", column.multi_hot, False, _id_of(feature.cardinality), longest)
    assert isinstance(encoder, FittedEncoder)
    vocabulary = encoder.encoding.sparse[i].values
    if column.transform is not None:
        kind = "number"
    elif encoder.trained_on.startswith("criteo"):
        kind = "token"
    elif len(vocabulary):
        kind = "text" if pa.types.is_string(vocabulary.type) else "whole number"
    else:
        kind = "text" if encoder.trained_on == "csv" else "text or whole number"
    return Field(column.source, kind, column.multi_hot, column.missing != "error", _PROBLEM[kind])


def check_rows(fields: list[Field], rows: list[Any]) -> list[RowError]:
    """What is wrong with the rows, the first 20 mistakes; empty if nothing is."""
    errors: list[RowError] = []
    names = {field.name for field in fields}
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            errors.append(RowError(i, None, "is no object of fields"))
        else:
            errors += [RowError(i, str(key), "there is no such field") for key in row if key not in names]
            for field in fields:
                if field.name not in row:
                    errors.append(RowError(i, field.name, "is absent; send null for a missing value"))
                elif (problem := field.error(row[field.name])) is not None:
                    errors.append(RowError(i, field.name, problem))
        if len(errors) >= _MAX_ERRORS:
            break
    return errors[:_MAX_ERRORS]


def table_of(fields: list[Field], rows: list[dict[str, Any]]) -> Any:
    """Checked rows as an Arrow table of raw columns."""
    columns = {}
    for field in fields:
        values = [row[field.name] for row in rows]
        kind = _arrow_type(field, values)
        if field.kind == "token":
            values = [_parsed(value) for value in values]
        columns[field.name] = pa.array(values, pa.list_(kind) if field.is_list else kind)
    return pa.table(columns)


def _parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [_parsed(one) for one in value]
    return None if value is None else int(value, 16)


def _arrow_type(field: Field, values: list[Any]) -> Any:
    if field.kind == "text or whole number":
        flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
        return pa.string() if any(isinstance(v, str) for v in flat) else pa.int64()
    kinds = {"number": pa.float64(), "text": pa.string(), "token": pa.uint32()}
    return kinds.get(field.kind, pa.int64())
