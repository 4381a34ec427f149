"""Delimited text: what is read is what Python's csv module reads; the rest is refused with its line."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from recsys.errors import DataError
from recsys.prepare.schema import Schema, parse_schema
from recsys.prepare.settings import Engine
from tests.reference.clicks import read_split, run_prepare, slow_dense, slow_ids

ROWS = 60


def schema(**more: Any) -> Schema:
    raw = {"label": "y", "dense": ["x"], "categorical": ["c"], "multi_hot": [{"name": "tags", "separator": "|"}]}
    return parse_schema(raw | more, "schema")


def rows(n: int = ROWS) -> list[list[str]]:
    c = ["a,b", 'say "hi"', "émigré", "", "plain", " spaced "]
    return [[str(i % 2), "" if i % 7 == 0 else f"{i / 3:.3f}", c[i % 6], ["", "p|q", "q"][i % 3]] for i in range(n)]


def text_of(table: list[list[str]], delimiter: str = ",") -> str:
    sink = io.StringIO()
    csv.writer(sink, delimiter=delimiter, lineterminator="\n").writerows([["y", "x", "c", "tags"], *table])
    return sink.getvalue()


def test_reads_what_the_csv_module_reads(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text_of(rows()))
    run_prepare("csv", str(path), tmp_path / "out", schema())
    read = list(csv.DictReader(io.StringIO(path.read_text())))
    train = read[:48]
    table = read_split(tmp_path / "out", "train")
    categories = [row["c"] or None for row in train]
    assert table["c"].to_pylist() == slow_ids(categories, categories, 1)
    numbers = [float(row["x"]) if row["x"] else None for row in train]
    assert table["x"].to_pylist() == pytest.approx(slow_dense(numbers, numbers, log=True), abs=1e-6)
    assert [len(tags) for tags in table["tags"].to_pylist()] == [
        1 if not r["tags"] else len(r["tags"].split("|")) for r in train
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 50, 333])
def test_chunks_and_packing_change_nothing(tmp_path: Path, chunk_bytes: int) -> None:
    text = text_of(rows())
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
    parts = []
    for i, name in enumerate(("t.csv", "t.csv.gz")):
        run_prepare("csv", str(tmp_path / name), tmp_path / f"cut{i}", schema(), engine=engine)
        parts.append((tmp_path / f"cut{i}/train/part-00000.parquet").read_bytes())
    run_prepare("csv", str(tmp_path / "t.csv"), tmp_path / "whole", schema())
    assert parts == [(tmp_path / "whole/train/part-00000.parquet").read_bytes()] * 2


def test_without_header_tabs_and_null_values(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"{i % 2}\t{'NULL' if i % 3 else i}\tv{i % 4}\tz\n" for i in range(ROWS)))
    form = {"delimiter": "tab", "header": False, "columns": ["y", "x", "c", "tags"], "null_values": ["", "NULL"]}
    content = run_prepare("csv", str(path), tmp_path / "out", schema(csv=form))
    assert content["notes"]["missing"]["train"] == {"x": 32}


LINES = [
    ("1,2", r"line 4: has 2 columns, not 4; mend the line or the schema's csv\.delimiter"),
    ("1,2,a,b,c", "line 4: has 5 columns, not 4"),
    ("", "line 4: is blank; remove it"),
    ('1,2,"open,b', r"line 4: has an unclosed quote"),
    ("1,2,a,b\r", r"line 4: has a carriage return \(CRLF"),
    ("1,2,\0,b", "line 4: has a NUL byte"),
    ("1,2,\udce9,b", "line 4: has byte 0xe9, which is not UTF-8; convert it: `iconv"),
    ("2,2,a,b", "line 4: column y: '2' is not 0 or 1; mend"),
    ("-1,2,a,b", "line 4: column y: '-1' is not 0 or 1"),
    (",2,a,b", "line 4: column y: '' is not 0 or 1"),
    ("1,two,a,b", "line 4: column x: 'two' is not a finite number"),
    ("1,nan,a,b", "line 4: column x: 'nan' is not a finite number"),
    ("1,1e39,a,b", "line 4: column x: '1e39' is not a finite number of float32's range"),
    ("1,1_000,a,b", "line 4: column x: '1_000'"),
    ("1, 7,a,b", "line 4: column x: ' 7'"),
]


@pytest.mark.parametrize(("line", "pattern"), LINES, ids=[repr(line) for line, _ in LINES])
def test_bad_lines(tmp_path: Path, line: str, pattern: str) -> None:
    lines = text_of(rows()).splitlines()
    lines[3] = line
    lines[30] = "0"
    path = tmp_path / "t.csv"
    path.write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    for chunk_bytes in (40, 1 << 20):
        with pytest.raises(DataError, match=pattern):
            engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
            run_prepare("csv", str(path), tmp_path / "out", schema(), engine=engine)
    more: dict[str, Any] = {"bad_rows": "quarantine", "bad_rows_limit": 2}
    content = run_prepare("csv", str(path), tmp_path / "kept", schema(), **more)
    assert content["notes"]["quarantined"] == 2 and sum(content["notes"]["rows"].values()) == ROWS - 2


@pytest.mark.parametrize("label", ["1.0", "true", "True"])
def test_labels_in_other_words(tmp_path: Path, label: str) -> None:
    table = rows()
    for row in table:
        row[0] = label if row[0] == "1" else {"1.0": "0.0", "true": "false", "True": "False"}[label]
    path = tmp_path / "t.csv"
    path.write_text(text_of(table))
    run_prepare("csv", str(path), tmp_path / "out", schema())
    assert set(read_split(tmp_path / "out", "train")["label"].to_pylist()) == {0.0, 1.0}


def test_scientific_notation_is_a_number(tmp_path: Path) -> None:
    table = rows()
    table[0][1] = "-1.5e-3"
    path = tmp_path / "t.csv"
    path.write_text(text_of(table))
    run_prepare("csv", str(path), tmp_path / "out", schema(dense=[{"name": "x", "transform": "raw"}]))
    assert read_split(tmp_path / "out", "train")["x"][0].as_py() == pytest.approx(-1.5e-3)


HEADS = [
    ("y,x,c,c,tags", "column 'c' stands twice in the header"),
    ("y,x,cc,tags", "there is no column 'c' in the header; nearest: cc"),
    ("\ufeffy,x,c,tags", r"line 1: begins with a byte-order mark \(BOM\)"),
    ("y,x,c,tags\r", "line 1: has a carriage return"),
]


@pytest.mark.parametrize(("head", "pattern"), HEADS, ids=[repr(h) for h, _ in HEADS])
def test_bad_headers(tmp_path: Path, head: str, pattern: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(f"{head}\n1,2,a,b\n".encode())
    with pytest.raises(DataError, match=pattern):
        run_prepare("csv", str(path), tmp_path / "out", schema())


def test_header_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("y,x,c,tags\n")
    with pytest.raises(DataError, match="there is no row in the input"):
        run_prepare("csv", str(path), tmp_path / "out", schema())


@pytest.mark.parametrize("chunk_bytes", [40, 1 << 20])
def test_a_bad_time_costs_its_own_row_only(tmp_path: Path, chunk_bytes: int) -> None:
    timed = schema(time="x", dense=[])
    for times in ([str(i) for i in range(ROWS)], [f"2014-06-01 12:00:{i:02d}" for i in range(ROWS)]):
        times[20] = "later"
        (tmp_path / "t.csv").write_text("y,x,c,tags\n" + "".join(f"{i % 2},{t},a,b\n" for i, t in enumerate(times)))
        engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
        with pytest.raises(DataError, match="line 22: column x: 'later' is neither a whole number .* nor a time"):
            run_prepare("csv", str(tmp_path / "t.csv"), tmp_path / "bad", timed, engine=engine)
        output = tmp_path / f"out-{times[0][:4]}"
        run_prepare("csv", str(tmp_path / "t.csv"), output, timed, engine=engine, bad_rows="quarantine")
        assert (output / "quarantine.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("chunk_bytes", [40, 1 << 20])
def test_times_of_two_clocks_have_no_order(tmp_path: Path, chunk_bytes: int) -> None:
    times = [str(20140101 + i) if i < ROWS // 2 else f"2014-06-01 12:00:{i:02d}" for i in range(ROWS)]
    (tmp_path / "t.csv").write_text("y,x,c,tags\n" + "".join(f"{i % 2},{t},a,b\n" for i, t in enumerate(times)))
    engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
    with pytest.raises(DataError, match=r"t\.csv: column x: some times are whole numbers, others dates"):
        run_prepare("csv", str(tmp_path / "t.csv"), tmp_path / "out", schema(time="x", dense=[]), engine=engine)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"\xff\xfey\x00", "is UTF-16 text; convert it: `iconv"),
        (b"BZh9", "is bzip2-compressed; recompress it"),
        (b"\xfd7zXZ", "is xz-compressed; recompress it"),
        (b"PK\x03\x04", "is a zip archive; unpack it"),
    ],
)
def test_files_that_are_no_plain_text(tmp_path: Path, head: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(head)
    with pytest.raises(DataError, match=message):
        run_prepare("csv", str(tmp_path / "t.csv"), tmp_path / "out", schema())
