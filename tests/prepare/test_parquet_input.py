"""Parquet of every type: used as its role needs, or refused with file, row, column and remedy."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.errors import DataError
from recsys.prepare.schema import Schema, parse_schema
from tests.reference.clicks import click_schema, click_table, read_split, run_prepare, slow_dense, slow_ids

N = 50
SCHEMA = parse_schema({"label": "y", "categorical": ["c"]}, "schema")


def write(path: Path, c: Any, y: Any = None, **more: Any) -> str:
    y = pa.array([i % 2 for i in range(N)]) if y is None else y
    pq.write_table(pa.table({"y": y, "c": c, **more}), path)
    return str(path)


def refused(tmp_path: Path, c: Any, pattern: str, y: Any = None, schema: Schema = SCHEMA) -> None:
    path = write(tmp_path / "t.parquet", c, y)
    with pytest.raises(DataError, match=rf"t\.parquet{pattern}"):
        run_prepare("parquet", path, tmp_path / "out", schema)


WORDS = [None if i % 9 == 0 else "abc"[i % 3] for i in range(N)]
WHOLE = [None if i % 9 == 0 else i % 5 for i in range(N)]
DAYS = [datetime.datetime(2020, 1, 1 + i % 7) for i in range(N)]
CATEGORIES: dict[str, tuple[Any, list[Any]]] = {
    "dictionary": (pa.array(WORDS).dictionary_encode(), WORDS),
    "large_string": (pa.array(WORDS, pa.large_string()), WORDS),
    "string_view": (pa.array(WORDS, pa.string_view()), WORDS),
    "binary": (pa.array([None if w is None else w.encode() for w in WORDS], pa.binary()), WORDS),
    "int8": (pa.array(WHOLE, pa.int8()), WHOLE),
    "uint64": (pa.array(WHOLE, pa.uint64()), WHOLE),
    "uint32": (pa.array(WHOLE, pa.uint32()), WHOLE),
    "whole doubles": (pa.array(WHOLE, pa.float64()), WHOLE),
    "bool": (pa.array([i % 3 == 0 for i in range(N)]), [int(i % 3 == 0) for i in range(N)]),
    "decimal": (pa.array([decimal.Decimal(i % 4) for i in range(N)], pa.decimal128(9, 2)), [i % 4 for i in range(N)]),
    "timestamp": (pa.array(DAYS, pa.timestamp("ms")), DAYS),
    "date": (pa.array([d.date() for d in DAYS], pa.date32()), DAYS),
    "all missing": (pa.array([None] * N, pa.string()), [None] * N),
    "null type": (pa.nulls(N), [None] * N),
    "one value": (pa.array(["x"] * N), ["x"] * N),
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_types_of_categories(tmp_path: Path, name: str) -> None:
    array, values = CATEGORIES[name]
    run_prepare("parquet", write(tmp_path / "t.parquet", array), tmp_path / "out", SCHEMA)
    assert read_split(tmp_path / "out", "train")["c"].to_pylist() == slow_ids(values[:40], values[:40], 1)


def test_refused_types_and_values(tmp_path: Path) -> None:
    nested = pa.array([[["a"]]] * N)
    refused(tmp_path, nested, ": column c: is list.*; name a list of plain values under multi_hot")
    lists = parse_schema({"label": "y", "multi_hot": ["c"]}, "schema")
    refused(tmp_path, nested, ": column c: is list.*flatten anything else", schema=lists)
    refused(tmp_path, pa.array(["a b"] * N), ": column c: is string, no list; give the separator", schema=lists)
    refused(tmp_path, pa.array([{"k": 1}] * N), ": column c: is struct")
    refused(tmp_path, pa.array([b"\xff"] * N), ": column c: holds bytes that are no UTF-8 text")
    refused(tmp_path, pa.array([0.5] * N), ", row 1: column c: '0.5' is not a whole number")
    refused(
        tmp_path,
        pa.array([1] * 49 + [2**63], pa.uint64()),
        ", row 50: column c: '9223372036854775808' is beyond 64 bits",
    )
    dense = parse_schema({"label": "y", "dense": ["c"]}, "schema")
    refused(tmp_path, pa.array(DAYS), ": column c: is timestamp.*, which is no number", schema=dense)
    refused(
        tmp_path, pa.array([1.0] * 7 + [float("inf")] * 43), ", row 8: column c: 'inf' is not a finite", schema=dense
    )


LABELS = [
    (pa.array([0.0, 1.0] * 25), None),
    (pa.array([True, False] * 25), None),
    (pa.array([decimal.Decimal(1), decimal.Decimal(0)] * 25), None),
    (pa.array([0, 1] * 24 + [0, 2]), ", row 50: column y: '2' is not 0 or 1"),
    (pa.array([0, 1] * 24 + [-1, 1]), ", row 49: column y: '-1' is not 0 or 1"),
    (pa.array([0, None] * 25), ", row 2: column y: '' is not 0 or 1"),
    (pa.array([0.0, 0.5] * 25), ", row 2: column y: '0.5' is not 0 or 1"),
]


@pytest.mark.parametrize(("labels", "pattern"), LABELS, ids=lambda v: str(v)[:20])
def test_labels(tmp_path: Path, labels: Any, pattern: str | None) -> None:
    if pattern is not None:
        refused(tmp_path, pa.array(["a"] * N), pattern, y=labels)
    else:
        run_prepare("parquet", write(tmp_path / "t.parquet", pa.array(["a"] * N), labels), tmp_path / "out", SCHEMA)
        assert set(read_split(tmp_path / "out", "train")["label"].to_pylist()) == {0.0, 1.0}


def test_dense_nulls_and_nans_are_missing(tmp_path: Path) -> None:
    values = [None, float("nan"), 3.0, -4.0, 5.5] * 10
    schema = parse_schema({"label": "y", "dense": [{"name": "c", "transform": "standardize", "indicator": True}]}, "s")
    run_prepare("parquet", write(tmp_path / "t.parquet", pa.array(values)), tmp_path / "out", schema)
    table = read_split(tmp_path / "out", "train")
    clean = [None if v is None or v != v else v for v in values[:40]]
    assert table["c"].to_pylist() == pytest.approx(slow_dense(clean, clean, log=False), abs=1e-6)
    assert table["c_missing"].to_pylist() == [1.0, 1.0, 0.0, 0.0, 0.0] * 8


def test_dense_without_values_or_with_one(tmp_path: Path) -> None:
    schema = parse_schema({"label": "y", "dense": ["c", "d"]}, "schema")
    path = write(tmp_path / "t.parquet", pa.nulls(N), d=pa.array([0.1] * N))
    content = run_prepare("parquet", path, tmp_path / "out", schema)
    table = read_split(tmp_path / "out", "test")
    assert set(table["c"].to_pylist()) == {0.0} and table["d"].to_pylist() == pytest.approx([0.0] * 5, abs=1e-6)
    assert content["notes"]["constant"] == ["c", "d"]


def test_missing_policies(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.array(WORDS), d=pa.array(WHOLE, pa.int64()))
    raw: dict[str, Any] = {"label": "y", "categorical": [{"name": "c", "missing": "oov"}]}
    raw["dense"] = [{"name": "d", "transform": "raw", "missing": -7}]
    run_prepare("parquet", path, tmp_path / "a", parse_schema(raw, "schema"))
    table = read_split(tmp_path / "a", "train")
    assert [i for i, v in enumerate(table["c"].to_pylist()) if v == 0] == [i for i in range(40) if i % 9 == 0]
    assert table["d"].to_pylist() == [-7.0 if v is None else v for v in WHOLE[:40]]
    for kind in ("categorical", "dense"):
        name = raw[kind][0]["name"]
        strict = raw | {kind: [{"name": name, "missing": "error"}]}
        with pytest.raises(DataError, match=f"row 1: column {name}: '' is missing"):
            run_prepare("parquet", path, tmp_path / kind, parse_schema(strict, "schema"))


def test_several_files(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    table = click_table(90)
    pq.write_table(table.slice(0, 40), folder / "part-2.parquet")
    pq.write_table(table.slice(0, 0), folder / "part-9.parquet")
    # Another order of the columns, and narrower types, are the same data.
    rest = table.slice(40).select(table.column_names[::-1])
    rest = rest.set_column(rest.schema.get_field_index("user"), "user", rest["user"].cast(pa.int16()))
    pq.write_table(rest, folder / "part-10.parquet")
    run_prepare("parquet", str(folder), tmp_path / "out", click_schema())
    pq.write_table(table, tmp_path / "one.parquet")
    run_prepare("parquet", str(tmp_path / "one.parquet"), tmp_path / "one", click_schema())
    for split in ("train", "valid", "test"):
        assert read_split(tmp_path / "out", split).equals(read_split(tmp_path / "one", split))


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.parquet", pa.array(["1"] * N)), write(tmp_path / "b.parquet", pa.array([1] * N))
    with pytest.raises(DataError, match=r"b\.parquet: column 'c' is numbers, but text in .*a\.parquet; convert one"):
        run_prepare("parquet", [a, b], tmp_path / "out", SCHEMA)
    pq.write_table(pa.table({"y": [1], "d": [2]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d\.parquet: there is no column 'c' in the file; valid: y, d"):
        run_prepare("parquet", [a, str(tmp_path / "d.parquet")], tmp_path / "out", SCHEMA)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1]), pa.array([2])], names=["y", "c", "c"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="column 'c' stands twice in the file"):
        run_prepare("parquet", str(tmp_path / "twice.parquet"), tmp_path / "out", SCHEMA)


def test_no_row_at_all(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": pa.array([], pa.int64()), "c": pa.array([], pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="there is no row in the input"):
        run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", SCHEMA)


def test_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("y,c\n1,2\n")
    with pytest.raises(DataError, match=r"t\.parquet: cannot be read as parquet \(.*\); get a new copy"):
        run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", SCHEMA)


def test_text_times(tmp_path: Path) -> None:
    times = [f"2014-06-{1 + i // 3:02d} 12:00:00" for i in range(N)]
    schema = parse_schema({"label": "y", "categorical": ["c"], "time": "t"}, "schema")
    path = write(tmp_path / "t.parquet", pa.array(["a"] * N), t=pa.array(times))
    run_prepare("parquet", path, tmp_path / "out", schema)
    first = datetime.datetime(2014, 6, 1, 12, tzinfo=datetime.UTC).timestamp() * 1e6
    assert read_split(tmp_path / "out", "train")["time"][0].as_py() == first
    times[30] = "yesterday"
    path = write(tmp_path / "t.parquet", pa.array(["a"] * N), t=pa.array(times))
    with pytest.raises(
        DataError, match="row 31: column t: 'yesterday' is neither a whole number .* nor a time such as"
    ):
        run_prepare("parquet", path, tmp_path / "bad", schema)
