"""More than 300 damaged copies of sources and shards: flips, truncation, swapped blocks. None is read silently wrong.

A damaged plain text file may still be a good one. Then what is read must be what a slow and independent parser makes
of the damaged bytes; where the format has a checksum, damage that matters must be an error.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from recsys.errors import DataError
from recsys.prepare import manifest
from recsys.prepare.inputs import resolve
from recsys.prepare.schema import Schema, parse_schema, read_schema
from recsys.prepare.units import make_units, read_unit
from scripts.make_fixtures import fixture_text
from tests.reference.clicks import click_schema, click_table, run_prepare, write_clicks, zstd_packed

ROOT = Path(__file__).resolve().parents[2]
CRITEO = read_schema(ROOT / "data/schemas/criteo_x1.yaml")
CSV = parse_schema({"label": "y", "dense": [{"name": "x", "transform": "raw"}], "categorical": ["c"]}, "schema")
COPIES = 70


def damaged(content: bytes, seed: int, count: int = COPIES) -> Iterator[bytes]:
    r = random.Random(seed)
    for i in range(count):
        copy = bytearray(content)
        if i % 3 == 0:
            for _ in range(r.choice((1, 1, 3))):
                copy[r.randrange(len(copy))] ^= 1 << r.randrange(8)
        elif i % 3 == 1:
            del copy[r.randrange(1, len(copy)) :]
        else:
            size = r.randrange(4, max(5, len(copy) // 4))
            a, b = sorted(r.sample(range(0, len(copy) - size), 2))
            copy[a : a + size], copy[b : b + size] = copy[b : b + size], copy[a : a + size]
        yield bytes(copy)


def read(source: str, path: Path, schema: Schema) -> list[list[Any]]:
    """Rows as the preparation takes them in; raises for a damaged file and for the first bad row."""
    files = resolve(source, str(path))
    rows: list[list[Any]] = []
    for unit in make_units(source, files, schema, 4_000):
        for piece in read_unit(source, unit, schema, 4_000):
            if piece.faults:
                raise DataError(f"{piece.places[0]}: {piece.faults[0].message}")
            columns: list[list[Any]] = [piece.rows.label.tolist(), *(v.tolist() for v in piece.rows.roles.values())]
            columns += [[None if v != v else v for v in values.tolist()] for values in piece.rows.dense]
            columns += [array.to_pylist() for array in piece.rows.categorical]
            rows += [list(row) for row in zip(*columns, strict=True)]
    return rows


def slow_criteo(content: bytes) -> list[list[Any]]:
    rows = []
    for line in content.decode("ascii").removesuffix("\n").split("\n"):
        fields = line.split("\t")
        assert len(fields) == 40
        numbers = [float(int(f)) if f else None for f in fields[1:14]]
        rows.append([int(fields[0]), *numbers, *(int(f, 16) if f else None for f in fields[14:])])
    return rows


def slow_csv(content: bytes) -> list[list[Any]]:
    table = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    at = [table[0].index(name) for name in ("y", "x", "c")]
    assert all(len(row) == len(table[0]) for row in table)
    return [[int(r[at[0]]), float(r[at[1]]) if r[at[1]] else None, r[at[2]] or None] for r in table[1:]]


def csv_content() -> bytes:
    c = ["a,b", 'say "hi"', "plain", "", "other"]
    sink = io.StringIO()
    rows = [[i % 2, "" if i % 5 == 0 else i / 4, c[i % 5]] for i in range(200)]
    csv.writer(sink, lineterminator="\n").writerows([["y", "x", "c"], *rows])
    return sink.getvalue().encode()


def check_copies(path: Path, content: bytes, source: str, schema: Schema, truth: Any, seed: int) -> tuple[int, int]:
    """Read every damaged copy; returns how many were refused and how many were read."""
    refused = taken = 0
    for copy in damaged(content, seed):
        path.write_bytes(copy)
        try:
            rows = read(source, path, schema)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
        else:
            assert rows == truth(copy), "read silently wrong"
            taken += 1
    return refused, taken


def test_plain_criteo(tmp_path: Path) -> None:
    content = fixture_text(150, seed=8).encode()
    refused, taken = check_copies(tmp_path / "t.txt", content, "criteo_kaggle", CRITEO, slow_criteo, 1)
    assert refused > 30 and taken > 3


def test_plain_csv(tmp_path: Path) -> None:
    refused, taken = check_copies(tmp_path / "t.csv", csv_content(), "csv", CSV, slow_csv, 2)
    assert refused > 10 and taken > 10


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_criteo(tmp_path: Path, suffix: str) -> None:
    text = fixture_text(150, seed=8).encode()
    content = gzip.compress(text, mtime=0) if suffix == ".gz" else zstd_packed(text)
    refused, _ = check_copies(
        tmp_path / f"t.txt{suffix}", content, "criteo_kaggle", CRITEO, lambda _: slow_criteo(text), 3
    )
    assert refused > COPIES - 8


def test_parquet_source_with_checksums(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "t.parquet", 300, write_page_checksum=True, row_group_size=100)
    schema = click_schema()
    original = read("parquet", path, schema)

    def truth(_: bytes) -> Any:
        # Damage to the names or types in the footer has no checksum: another reader must see the same.
        table = pq.read_table(path, use_threads=False)
        return original if table.equals(click_table(300)) else "another table"

    refused, _ = check_copies(path, path.read_bytes(), "parquet", schema, truth, 4)
    assert refused > COPIES - 15


def test_prepared_folder(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "t.parquet", 300)
    run_prepare("parquet", str(path), tmp_path / "out", click_schema())
    names = sorted(p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.name != manifest.MANIFEST)
    assert len(names) > 5
    manifest.verify(tmp_path / "out")
    for i, name in enumerate(names):
        content = name.read_bytes()
        for copy in damaged(content, i, count=9):
            if copy == content:
                continue
            name.write_bytes(copy)
            with pytest.raises(DataError, match=f"{name.name}: is not what was written"):
                manifest.verify(tmp_path / "out")
        name.write_bytes(content)
    manifest.verify(tmp_path / "out")
    shutil.copy(names[-1], names[-1].with_name("part-77777.parquet"))
    with pytest.raises(DataError, match=r"part-77777\.parquet: does not belong"):
        manifest.verify(tmp_path / "out")
    names[-1].unlink()
    with pytest.raises(DataError, match="is missing; restore it"):
        manifest.verify(tmp_path / "out")
