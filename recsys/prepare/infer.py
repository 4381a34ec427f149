"""Propose a schema from the first rows of a parquet or CSV file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import yaml

from recsys.errors import DataError
from recsys.prepare.convert import normal
from recsys.prepare.inputs import begins_as_parquet, check_file, is_packed
from recsys.prepare.text import byte_fault, fail, range_block, stream_blocks, unreadable

_SAMPLE_ROWS = 100_000
_SAMPLE_BYTES = 16 << 20
_LABEL_NAMES = ("label", "click", "clicked", "is_click", "y", "target", "conversion")
_TIME_NAMES = ("timestamp", "time", "datetime", "date")
# Whole numbers with at most so many distinct values in the sample are taken for categories.
_FEW = 64
_MIN_COUNT = 2
_HEAD = """\
# Proposed from the first {rows} rows of {name}; the reasons stand behind each column. Check above all that no
# feature knows the label's outcome, and what docs/data.md says about min_count and hash_size.
"""


def infer_schema(path: Path) -> str:
    """A YAML schema with the reason for each choice, for the user to check.

    Raises:
        DataError: the file cannot be read, or no column of 0 and 1 can be found for the label.
    """
    table, delimiter = _sample(path)
    if len(set(table.column_names)) < table.num_columns:
        raise DataError(f"{path}: two columns have one name; rename one")
    columns = {name: _array(table[name]) for name in table.column_names}
    label = _label(path, columns)
    lines = [_HEAD.format(rows=table.num_rows, name=path.name), f"label: {_plain(label)}\n"]
    roles: dict[str, list[str]] = {"dense": [], "categorical": [], "multi_hot": [], "left out": []}
    for name, array in columns.items():
        if name == label:
            continue
        role, entry, reason = _role(name, array)
        if role != "left out" and _gives_away(array, columns[label]):
            role, reason = "left out", "every value goes with one label only: it gives the label away"
        if role == "time" and not any(line.startswith("time:") for line in lines):
            lines.append(f"time: {_plain(name)} # {reason}\n")
        elif role == "time":
            roles["left out"].append(f"# {name}: a second time column")
        else:
            roles[role].append(f"  - {entry} # {reason}" if role != "left out" else f"# {name}: {reason}")
    for role in ("dense", "categorical", "multi_hot"):
        if roles[role]:
            lines.append("\n".join([f"{role}:", *roles[role], ""]))
    if roles["left out"]:
        lines.append("\n".join(["# Left out:", *roles["left out"], ""]))
    if delimiter is not None:
        lines.append(f"csv:\n  delimiter: {'tab' if delimiter == chr(9) else _plain(delimiter)}\n")
    return "".join(lines)


def _sample(path: Path) -> tuple[Any, str | None]:
    if path.is_dir():
        raise DataError(f"{path}: is a directory; name one of its parquet or CSV files")
    if not path.is_file():
        raise DataError(f"{path}: no such file; name a parquet or CSV file")
    is_parquet = path.suffix in (".parquet", ".parq") or begins_as_parquet(path)
    check_file("parquet" if is_parquet else "csv", path)
    try:
        if is_parquet:
            with pq.ParquetFile(path) as file:
                batch = next(file.iter_batches(_SAMPLE_ROWS, use_threads=False), None)
                empty = file.schema_arrow.empty_table()
            return empty if batch is None else pa.Table.from_batches([batch]), None
        if is_packed(str(path)):
            text = next(stream_blocks(path, _SAMPLE_BYTES), (1, b""))[1]
        else:
            text = range_block(path, 0, _SAMPLE_BYTES)
        head = text[: text.find(b"\n")]
        delimiter = max("\t,;|", key=lambda c: head.count(c.encode()))
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=True, null_values=[""]),
        )
        if any(pa.types.is_binary(field.type) for field in table.schema):
            _refuse_bytes(path, text)
        return table.slice(0, _SAMPLE_ROWS), delimiter
    except OSError as error:
        raise unreadable(path, error) from error
    except pa.ArrowException as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error


def _refuse_bytes(path: Path, text: bytes) -> None:
    """Tell which line is not UTF-8."""
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        if line and (problem := byte_fault(line, number, ascii_only=False)) is not None:
            fail(path, number, problem)


def _array(column: Any) -> Any:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return normal(array)


def _label(path: Path, columns: dict[str, Any]) -> str:
    binary = [name for name, array in columns.items() if _is_binary(array)]
    named = [name for name in binary if name.lower() in _LABEL_NAMES]
    if named or len(binary) == 1:
        return (named or binary)[0]
    raise DataError(
        f"{path}: the label cannot be told: {len(binary)} columns hold just 0 and 1 ({', '.join(binary[:5])}); name "
        "the column `label`, or write the schema by hand (docs/data.md)"
    )


def _is_binary(array: Any) -> bool:
    if array.null_count or not len(array) or not _is_number(array.type):
        return False
    return set(pc.unique(array).to_pylist()) <= {0, 1}


def _gives_away(array: Any, label: Any) -> bool:
    """Whether a column of few values settles the label."""
    if pa.types.is_nested(array.type):
        return False
    table = pa.table({"value": array, "label": label}).group_by("value", use_threads=False)
    table = table.aggregate([("label", "min"), ("label", "max")])
    return 1 < table.num_rows <= _FEW and pc.all(pc.equal(table["label_min"], table["label_max"])).as_py() is True


def _is_number(kind: Any) -> bool:
    tests: tuple[Callable[[Any], bool], ...] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _has_fractions(array: Any) -> bool:
    if not pa.types.is_floating(array.type):
        return False
    values = array.cast(pa.float64())
    return pc.any(pc.not_equal(pc.floor(values), values)).as_py() is True


def _role(name: str, array: Any) -> tuple[str, str, str]:
    """Role, YAML entry and the reason of a column that is not the label."""
    kind = array.type
    category = f"{{name: {_plain(name)}, min_count: {_MIN_COUNT}}}"
    number = f"{{name: {_plain(name)}, transform: [signed_log, standardize]}}"
    if pa.types.is_null(kind) or array.null_count == len(array):
        return "left out", "", "no value in the sample"
    if pa.types.is_list(kind):
        if pa.types.is_nested(kind.value_type):
            return "left out", "", f"{kind}; flatten it first"
        if _has_fractions(array.flatten()):
            return "left out", "", f"{kind} of numbers that are not whole; give each place a column to use it as dense"
        return "multi_hot", category, str(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "time", "", str(kind)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return "left out", "", f"{kind}; convert it first"
    distinct = len(pc.unique(array))
    if distinct == 1:
        return "left out", "", "one value in the sample"
    if pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return "categorical", category, f"{kind}, {distinct} values"
    if pa.types.is_integer(kind) and name.lower() in _TIME_NAMES:
        return "time", "", f"{kind}, by its name"
    if pa.types.is_integer(kind) and (name.lower().endswith("id") or distinct <= _FEW):
        return "categorical", category, f"{kind}, {distinct} values"
    if _is_number(kind) or pa.types.is_decimal(kind):
        return "dense", number, f"{kind}, {distinct} values"
    return "left out", "", f"{kind}; convert it first"


def _plain(text: str) -> str:
    """The text as YAML writes it."""
    return yaml.safe_dump(text, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
