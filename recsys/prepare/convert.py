"""From an Arrow table of source columns to checked columns of the roles that the schema gives them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.prepare.faults import Fault, bad_value
from recsys.prepare.kernels import hash_texts
from recsys.prepare.numeric import Float64, buckets
from recsys.prepare.schema import FLOAT32_MAX, CategoricalColumn, Schema

Mask = NDArray[np.bool_]
# A column's bad rows and what is wrong with them.
Problem = tuple[Mask, str]

_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_WHOLE = r"^[+-]?[0-9]+$"
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1, "False": 0, "True": 1}
_NO_NUMBER = "is not a finite number of float32's range"
_BEYOND = "is beyond 64 bits"


class WrongTypeError(Exception):
    """A column's type does not suit its role; the message says what to do."""


@dataclass
class Rows:
    """Checked rows, columns first.

    Attributes:
        label: uint8 ``(R,)``.
        dense: float64 ``(R,)`` for each dense column, NaN where missing; not transformed.
        categorical: an Arrow array for each categorical column: integers or strings, or lists of them; null where
            missing.
        roles: ``weight`` float64, ``group`` and ``time`` int64 ``(R,)``, those that the schema has.
        calendar: whether a time was a date or timestamp, not a whole number, ``(R,)``; None without a time column.
    """

    label: NDArray[np.uint8]
    dense: list[Float64]
    categorical: list[Any]
    roles: dict[str, NDArray[Any]] = field(default_factory=dict)
    calendar: Mask | None = None

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.label)

    def keep(self, mask: Mask) -> Rows:
        """The rows where ``mask`` is true."""
        arrow_mask = pa.array(mask)
        return Rows(
            self.label[mask],
            [column[mask] for column in self.dense],
            [column.filter(arrow_mask) for column in self.categorical],
            {role: column[mask] for role, column in self.roles.items()},
            None if self.calendar is None else self.calendar[mask],
        )


def convert(table: Any, schema: Schema) -> tuple[Rows, list[Fault]]:
    """Check and convert a table; rows with a fault are left out.

    Args:
        table: the columns ``schema.sources``.
        schema: the roles; without a label the labels are 0.

    Returns:
        the good rows, and the first fault of every other row, its index counted in ``table``.

    Raises:
        DataError: a column's type cannot be used in its role.
    """
    columns = {name: _one_array(table.column(name)) for name in table.column_names}
    problems: list[tuple[str, Problem]] = []

    def take(name: str, action: Callable[[Any], tuple[Any, list[Problem]]]) -> Any:
        try:
            values, found = action(columns[name])
        except WrongTypeError as error:
            raise DataError(f"column {name}: {error}") from error
        problems.extend((name, problem) for problem in found)
        return values

    label = take(schema.label, labels) if schema.label else np.zeros(table.num_rows, np.uint8)
    actions = {"weight": weights, "group": groups}
    roles = {role: take(name, actions[role]) for role in actions if (name := getattr(schema, role)) is not None}
    time = take(schema.time, times) if schema.time is not None else None
    if time is not None:
        roles["time"] = time.values
    dense = []
    for column in schema.dense:
        values = take(column.source, numbers)
        if column.missing == "error":
            problems.append((column.source, (np.isnan(values), "is missing")))
        dense.append(values)
    categorical = [take(c.source, lambda array, c=c: categories_of(array, c)) for c in schema.categorical]  # type: ignore[misc]
    rows = Rows(label, dense, categorical, roles, time.calendar if time is not None else None)
    bad = np.zeros(table.num_rows, np.bool_)
    for _, (mask, _) in problems:
        bad |= mask
    return (rows.keep(~bad), _faults(columns, problems, bad)) if bad.any() else (rows, [])


def _faults(columns: dict[str, Any], problems: list[tuple[str, Problem]], bad: Mask) -> list[Fault]:
    faults = []
    for i in np.flatnonzero(bad).tolist():
        name, text = next((name, text) for name, (mask, text) in problems if mask[i])
        row = {key: _plain(array[i]) for key, array in columns.items()}
        faults.append(Fault(i, bad_value(name, row[name], text), repr(row)))
    return faults


def _plain(scalar: Any) -> str:
    value = scalar.as_py()
    return "" if value is None else str(value)


def _one_array(column: Any) -> Any:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return normal(array)


def normal(array: Any) -> Any:
    """The array without dictionaries, views, large offsets and extension types."""
    kind = array.type
    if isinstance(kind, pa.ExtensionType):
        return normal(array.storage)
    if pa.types.is_dictionary(kind):
        return normal(array.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        try:
            return array.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return array
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return array.cast(pa.list_(kind.value_type))
    return array


def labels(array: Any) -> tuple[NDArray[np.uint8], list[Problem]]:
    """Labels as uint8, from 0, 1, 0.0, 1.0, true or false."""
    if pa.types.is_string(array.type):
        encoded = array.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        known = np.array([_LABELS.get(text, 2) for text in encoded.dictionary.to_pylist()] + [2], np.uint8)
        values = known[codes]
    else:
        raw, _ = numbers(array)
        values = np.where(raw == 1, 1, np.where(raw == 0, 0, 2)).astype(np.uint8)
    return values, [(values == 2, "is not 0 or 1")]


def weights(array: Any) -> tuple[Float64, list[Problem]]:
    """Weights as float64, finite and above 0: a loader marks padding by 0."""
    values, problems = numbers(array)
    return values, [*problems, (np.isnan(values), "is missing"), (values <= 0, "is not a weight above 0")]


class Times(NamedTuple):
    """Times of rows.

    Attributes:
        values: int64 ``(R,)``: whole numbers as they are, dates and timestamps as microseconds since 1970.
        calendar: bool ``(R,)``, whether it was a date or timestamp.
    """

    values: NDArray[np.int64]
    calendar: Mask


def times(array: Any) -> tuple[Times, list[Problem]]:
    """Times as int64; what a text is depends on the text alone, never on those around it."""
    if pa.types.is_string(array.type):
        return _text_times(array)
    calendar = pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)
    if calendar:
        array = array.cast(pa.timestamp("us", getattr(array.type, "tz", None)), safe=False).cast(pa.int64())
    values, problems = whole_numbers(array)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return Times(values, np.full(len(array), calendar)), [*problems, (missing, "is missing")]


def _text_times(array: Any) -> tuple[Times, list[Problem]]:
    missing = array.is_null().to_numpy(zero_copy_only=False)
    whole = pc.match_substring_regex(array, _WHOLE).fill_null(True).to_numpy(zero_copy_only=False).astype(np.bool_)
    values, problems = whole_numbers(pc.if_else(pa.array(whole), array, None))
    bad = np.zeros(len(array), np.bool_)
    if not whole.all():
        values = values.copy()
        values[~whole], bad[~whole] = _timestamps(array.filter(pa.array(~whole)))
    problems += [(bad, "is neither a whole number of 64 bits nor a time such as 2014-06-01 12:00:00")]
    return Times(values, ~whole), [*problems, (missing, "is missing")]


def _timestamps(texts: Any) -> tuple[NDArray[np.int64], Mask]:
    """Microseconds since 1970 of texts without nulls, and which of them are no times."""
    try:
        values = texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        values = pa.array([_timestamp(text) for text in texts], pa.timestamp("us"))
    numbers = values.cast(pa.int64())
    bad = numbers.is_null().to_numpy(zero_copy_only=False)
    return numbers.fill_null(0).to_numpy(zero_copy_only=False), bad


def _timestamp(text: Any) -> Any:
    try:
        return text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None


def groups(array: Any) -> tuple[NDArray[np.int64], list[Problem]]:
    """Groups as int64: whole numbers as they are, texts as their hash."""
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type):
        return text_hashes(array.fill_null("")).view(np.int64), [(missing, "is missing")]
    values, problems = whole_numbers(array)
    return values, [*problems, (missing, "is missing")]


def numbers(array: Any) -> tuple[Float64, list[Problem]]:
    """Numbers as float64, NaN where missing; infinite ones and those beyond float32 are problems."""
    kind = array.type
    if pa.types.is_string(kind):
        return _parsed_numbers(array)
    if pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or pa.types.is_float16(kind):
        array = array.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.float64())
    elif pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise WrongTypeError(f"is {kind}, which is no number; use it as a category or a time, or convert it first")
    if pa.types.is_integer(array.type):
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    else:
        values = array.fill_null(np.nan).to_numpy(zero_copy_only=False).astype(np.float64)
    if array.null_count:
        values[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values, [(np.abs(values) > FLOAT32_MAX, _NO_NUMBER)]


def _parsed_numbers(array: Any) -> tuple[Float64, list[Problem]]:
    encoded = array.dictionary_encode()
    good = pc.match_substring_regex(encoded.dictionary, _NUMBER)
    parsed = pc.if_else(good, encoded.dictionary, None).cast(pa.float64()).fill_null(np.nan)
    by_code = np.append(parsed.to_numpy(zero_copy_only=False), np.nan)
    bad_code = np.append(~good.to_numpy(zero_copy_only=False).astype(np.bool_), False)
    bad_code |= np.abs(by_code) > FLOAT32_MAX
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return by_code[codes], [(bad_code[codes], _NO_NUMBER)]


def whole_numbers(array: Any) -> tuple[NDArray[np.int64], list[Problem]]:
    """Whole numbers as int64, 0 where missing."""
    kind = array.type
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(kind):
        parsed = [int(t) if t is not None and re.match(_WHOLE, t) else None for t in array.to_pylist()]
        fits = [v is not None and -(2**63) <= v < 2**63 for v in parsed]
        values = np.array([v if ok else 0 for v, ok in zip(parsed, fits, strict=True)], np.int64)
        return values, [(~np.array(fits, np.bool_) & ~missing, "is not a whole number of 64 bits")]
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    if pa.types.is_temporal(kind):
        array = _temporal(array)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    if pa.types.is_null(kind):
        array = array.cast(pa.int64())
    if pa.types.is_integer(array.type):
        raw = array.fill_null(0).to_numpy(zero_copy_only=False)
        return raw.astype(np.int64), [(raw > np.iinfo(np.int64).max, _BEYOND)] if raw.dtype == np.uint64 else []
    if not pa.types.is_floating(array.type):
        raise WrongTypeError(f"is {kind}, which is no whole number; convert it first")
    values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), 0.0, values)
    whole = (np.floor(values) == values) & (np.abs(values) < 2.0**63)
    return np.where(whole, values, 0.0).astype(np.int64), [(~whole, "is not a whole number of 64 bits")]


def _temporal(array: Any) -> Any:
    narrow = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
    return array.cast(pa.int32()).cast(pa.int64()) if narrow else array.cast(pa.int64())


def categories_of(array: Any, column: CategoricalColumn) -> tuple[Any, list[Problem]]:
    """A categorical column's values, as the schema wants them."""
    values, problems = _lists(array, column) if column.multi_hot else _categories(array, column)
    if column.missing == "error":
        problems.append((values.is_null().to_numpy(zero_copy_only=False), "is missing"))
    return values, problems


def _categories(array: Any, column: CategoricalColumn) -> tuple[Any, list[Problem]]:
    kind = array.type
    if pa.types.is_nested(kind):
        raise WrongTypeError(f"is {kind}; name a list of plain values under multi_hot, and flatten anything else")
    if column.transform is not None:
        values, problems = numbers(array)
        return pa.array(buckets(values, column.transform), mask=np.isnan(values)), problems
    if pa.types.is_string(kind) or pa.types.is_uint32(kind) or pa.types.is_int64(kind):
        return array, []
    if pa.types.is_null(kind):
        return array.cast(pa.int64()), []
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        raise WrongTypeError("holds bytes that are no UTF-8 text; convert them to text or numbers first")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        missing = missing | np.isnan(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    whole, problems = whole_numbers(array)
    return pa.array(whole, mask=missing), [(mask & ~missing, text) for mask, text in problems]


def _lists(array: Any, column: CategoricalColumn) -> tuple[Any, list[Problem]]:
    if pa.types.is_string(array.type) and column.separator is not None:
        array = pc.split_pattern(pc.if_else(pc.equal(array, ""), None, array), column.separator)
    elif pa.types.is_null(array.type):
        array = array.cast(pa.list_(pa.int64()))
    if not pa.types.is_list(array.type):
        raise WrongTypeError(f"is {array.type}, no list; give the separator of its values, or move it to categorical")
    if array.null_count and array.offset:
        array = pa.concat_arrays([array])
    flat = normal(array.flatten())
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    values, flat_problems = _categories(flat, column)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    owner = np.repeat(np.arange(len(array)), lengths)
    problems = []
    for mask, text in flat_problems:
        bad = np.zeros(len(array), np.bool_)
        bad[owner[mask]] = True
        problems.append((bad, f"holds a value that {text}"))
    missing = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=missing), problems


def text_hashes(array: Any) -> NDArray[np.uint64]:
    """64-bit hashes of a string array without nulls."""
    array = pa.concat_arrays([array]) if array.offset else array
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)
    data = array.buffers()[2]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    hashes = np.empty(len(array), np.uint64)
    hash_texts(offsets, text, hashes)
    return hashes
