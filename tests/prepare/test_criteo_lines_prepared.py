"""Criteo's compiled parser agrees with a plain one on every line, clean or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys.errors import DataError
from recsys.prepare.criteo import COLUMN_NAMES, fault_of, read_block
from recsys.prepare.schema import read_schema
from scripts.make_fixtures import fixture_text
from tests.reference.clicks import run_prepare

LINES = fixture_text(40, seed=4).encode().splitlines()
ROOT = Path(__file__).resolve().parents[2]


def plainly(line: bytes) -> list[int | None]:
    fields = line.decode("ascii").split("\t")
    integers = [int(f) if f else None for f in fields[:14]]
    return integers + [int(f, 16) if f else None for f in fields[14:]]


def assert_agrees(lines: list[bytes]) -> None:
    table, bad = read_block(b"".join(line + b"\n" for line in lines))
    assert table.num_rows == len(lines)
    rows = table.to_pylist()
    for i, line in enumerate(lines):
        message = fault_of(line, i + 1)
        assert bool(bad[i]) == (message is not None), (line, message)
        if not bad[i]:
            assert [rows[i][name] for name in COLUMN_NAMES] == plainly(line)


def test_clean_lines() -> None:
    assert_agrees(LINES)


EDGES = [
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"-0",
    b"007",
]
EDGES += [
    b"0" * 30 + b"1",
    b"9" * 5000,
    b"-",
    b"--1",
    b"1-",
    b"\xff",
    b"1e3",
    b" 1",
    b"1 ",
    b"ffffffff",
    b"F",
    b"0x1",
    b"",
]


@pytest.mark.parametrize("column", [0, 1, 13, 14, 39])
@pytest.mark.parametrize("value", EDGES, ids=lambda v: v[:12].decode("latin1"))
def test_edges(column: int, value: bytes) -> None:
    fields = LINES[0].split(b"\t")
    fields[column] = value
    assert_agrees([LINES[1], b"\t".join(fields), LINES[2]])


@given(st.integers(0, 39), st.data())
def test_mutations(i: int, data: st.DataObject) -> None:
    line = bytearray(LINES[i])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        what = data.draw(st.sampled_from(["set", "drop", "insert"]))
        byte = data.draw(st.sampled_from(b"\t\r\0 -+.019afAFgz\x80\xff"))
        if what == "set":
            line[at] = byte
        elif what == "drop":
            del line[at]
        else:
            line.insert(at, byte)
    assert_agrees([LINES[0], bytes(line), LINES[1]])


def test_line_numbers_hold_whatever_the_chunk(tmp_path: Path) -> None:
    from recsys.prepare.settings import Engine

    schema = read_schema(ROOT / "data/schemas/criteo.yaml")
    lines = fixture_text(200, seed=3).splitlines()
    lines[137] += "\t"
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines))
    for chunk_bytes in (100, 1_000, 4_099):
        with pytest.raises(DataError, match="line 138: has 41 columns"):
            engine = Engine(workers=1, chunk_mib=chunk_bytes / 2**20)
            run_prepare("criteo_kaggle", str(path), tmp_path / "out", schema, engine=engine)


def test_kaggles_test_file_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_bytes(b"".join(line[2:] + b"\n" for line in LINES))
    with pytest.raises(DataError, match=r"line 1: has 39 columns.*test\.txt has no labels"):
        run_prepare("criteo_kaggle", str(path), tmp_path / "out", read_schema(ROOT / "data/schemas/criteo.yaml"))
