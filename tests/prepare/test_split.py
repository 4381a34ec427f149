"""Splits are disjoint, cover every row, have the promised sizes and do not overlap in time."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys.errors import ConfigError, DataError
from recsys.prepare.kernels import permute
from recsys.prepare.schema import parse_schema, read_schema
from recsys.prepare.settings import Engine, Expected, Split
from scripts.make_fixtures import fixture_text
from tests.reference.clicks import click_schema, click_table, read_split, run_prepare

SCHEMA = read_schema(Path(__file__).resolve().parents[2] / "data/schemas/criteo.yaml").with_min_count(2)
# Quick: one column.
SMALL = parse_schema({"label": "label", "dense": ["I2"], "categorical": ["C1"]}, "schema")
SPLITS = ("train", "valid", "test")


def rows_of(output: Path) -> list[list[int]]:
    rows = [read_split(output, name)["row"].to_pylist() for name in SPLITS]
    assert all(part == sorted(part) for part in rows), "rows are kept in input order"
    return rows


def criteo(path: Path, num_rows: int, seed: int = 0) -> str:
    path.write_text(fixture_text(num_rows, seed))
    return str(path)


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_permutation_is_one(n: int, key: int) -> None:
    places = np.empty(n, np.int64)
    permute(np.arange(n), np.uint64(n), np.uint64(key), places)
    assert sorted(places.tolist()) == list(range(n))


def test_random_is_exact_disjoint_and_by_seed(tmp_path: Path) -> None:
    path = criteo(tmp_path / "train.txt", 333)
    seen = []
    for seed in (1, 2):
        split = Split("random", (0.8, 0.1, 0.1), seed=seed)
        run_prepare("criteo_kaggle", path, tmp_path / str(seed), SMALL, split=split)
        rows = rows_of(tmp_path / str(seed))
        assert [len(part) for part in rows] == [266, 34, 33]
        assert sorted(n for part in rows for n in part) == list(range(333))
        seen.append(rows)
    assert seen[0] != seen[1]
    # Not the order of the file: the test rows come from all over it.
    assert min(seen[0][2]) < 100 and max(seen[0][2]) > 233


def test_order_and_folds_tile_the_file(tmp_path: Path) -> None:
    path = criteo(tmp_path / "train.txt", 100)
    run_prepare("criteo_kaggle", path, tmp_path / "plain", SMALL, split=Split("order"))
    assert rows_of(tmp_path / "plain") == [list(range(80)), list(range(80, 90)), list(range(90, 100))]
    held_out: list[int] = []
    for fold in range(3):
        run_prepare("criteo_kaggle", path, tmp_path / str(fold), SMALL, split=Split("order", folds=3, fold=fold))
        train, valid, test = rows_of(tmp_path / str(fold))
        assert sorted(train + valid + test) == list(range(100))
        # Valid ends where test begins, round the end of the file.
        assert (max(valid) + 1) % 100 == test[0] or valid[-1] == 99
        held_out += test
    assert held_out == list(range(100))


def test_time_keeps_rows_of_one_time_together(tmp_path: Path) -> None:
    table = click_table(301)
    order = np.random.default_rng(0).permutation(301)
    pq.write_table(table.take(order), tmp_path / "t.parquet", row_group_size=50)
    run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", click_schema(), split=Split("time"))
    times = [read_split(tmp_path / "out", name)["time"].to_numpy() for name in SPLITS]
    assert times[0].max() < times[1].min() and times[1].max() < times[2].min()
    assert sum(len(t) for t in times) == 301 and 240 <= len(times[0]) <= 243


# Steps between rows, steps between blocks of 40 rows: in the last two a bin of the first histogram holds many times.
@pytest.mark.parametrize(("step", "block"), [(1, 0), (3_000_000_000, 0), (2**55, 0), (1, 2**40), (70_000, 2**60)])
def test_time_cut_with_any_range(tmp_path: Path, step: int, block: int) -> None:
    table = click_table(120)
    times = [(i - 60) * step + (i // 40 - 1) * block for i in range(120)]
    table = table.set_column(table.schema.get_field_index("at"), "at", pa.array(times, pa.int64()))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=31)
    run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", click_schema(), split=Split("time"))
    assert [len(part) for part in rows_of(tmp_path / "out")] == [96, 12, 12]


def test_days_halve_the_last_file(tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.mkdir()
    for i, n in ((0, 40), (2, 30), (10, 21)):
        criteo(days / f"day_{i}", n, seed=i)
    run_prepare("criteo_1tb", str(days), tmp_path / "out", SMALL, split=Split("days"))
    assert rows_of(tmp_path / "out") == [list(range(70)), list(range(70, 81)), list(range(81, 91))]


def test_given_files(tmp_path: Path) -> None:
    files = {name: criteo(tmp_path / f"{name}.txt", n, n) for name, n in (("train", 50), ("valid", 20), ("test", 30))}
    run_prepare("criteo_kaggle", files, tmp_path / "three", SMALL)
    assert [len(part) for part in rows_of(tmp_path / "three")] == [50, 20, 30]
    del files["valid"]
    run_prepare("criteo_kaggle", files, tmp_path / "two", SMALL)
    assert [len(part) for part in rows_of(tmp_path / "two")] == [45, 5, 30]


def test_published_files_are_compared(tmp_path: Path) -> None:
    files = {name: criteo(tmp_path / f"{name}.txt", n, n) for name, n in (("train", 50), ("valid", 20), ("test", 30))}
    sums = {name: hashlib.md5(Path(path).read_bytes()).hexdigest() for name, path in files.items()}
    good = {name: Expected(sums[name], n) for name, n in (("train", 50), ("valid", 20), ("test", 30))}
    run_prepare("criteo_kaggle", files, tmp_path / "good", SMALL, expected=good)
    with pytest.raises(
        DataError, match=r"test\.txt: its MD5 is .* but the published test file's is 00; get a new copy"
    ):
        run_prepare("criteo_kaggle", files, tmp_path / "a", SMALL, expected=good | {"test": Expected("00", 30)})
    with pytest.raises(DataError, match=r"test\.txt: has 30 rows, but the published file has 31"):
        run_prepare("criteo_kaggle", files, tmp_path / "b", SMALL, expected=good | {"test": Expected(sums["test"], 31)})


def test_the_same_file_twice_is_a_leak(tmp_path: Path) -> None:
    files = {name: criteo(tmp_path / f"{name}.txt", 50) for name in ("train", "test")}
    with pytest.raises(DataError, match="has the same content as .*another split"):
        run_prepare("criteo_kaggle", files, tmp_path / "out", SMALL)


def test_empty_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few rows: of 4 rows the test split gets none"):
        run_prepare("criteo_kaggle", criteo(tmp_path / "t.txt", 4), tmp_path / "out", SMALL)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"split": Split("random", (0.5, 0.5))}, r"split\.shares=\[0\.5, 0\.5\] must be 3 positive shares"),
    ({"split": Split("random", (0.5, 0.2, 0.2))}, "that sum to 1"),
    ({"split": Split("shuffle")}, r"split\.kind=shuffle: there is no such choice"),
    ({"split": Split("time")}, "needs the time column"),
    ({"split": Split("days", folds=3)}, r"needs split\.kind=order"),
    ({"split": Split("order", folds=3, fold=3)}, r"split\.fold=3 must be from 0 to 2"),
    ({"split": Split("order", fold=1)}, r"split\.fold=1 needs split\.folds"),
    ({"rows_per_part": 100}, "must be a multiple"),
    ({"bad_rows": "skip"}, r"bad_rows\.policy=skip"),
    ({"engine": Engine("ray")}, r"engine\.name=ray"),
    ({"engine": Engine(workers=0)}, r"engine\.workers=0"),
    ({"compression": "gzip"}, r"parts\.compression=gzip"),
]


@pytest.mark.parametrize(("more", "pattern"), BAD, ids=[p for _, p in BAD])
def test_bad_settings(tmp_path: Path, more: dict[str, Any], pattern: str) -> None:
    path = criteo(tmp_path / "train.txt", 20)
    with pytest.raises(ConfigError, match=pattern):
        run_prepare("criteo_kaggle", path, tmp_path / "out", SMALL, **more)
    assert not (tmp_path / "out").exists()


def test_a_copy_among_shared_files_is_a_leak(tmp_path: Path) -> None:
    files = [criteo(tmp_path / f"{name}.txt", 60, seed) for name, seed in (("a", 1), ("b", 2), ("c", 1))]
    with pytest.raises(DataError, match=r"c\.txt: has the same content as .*a\.txt, so rows of the one"):
        run_prepare("criteo_kaggle", files, tmp_path / "out", SMALL, split=Split("random"))
    # Of files that train by name a copy is no leak, and files without rows are all alike.
    given = {"train": [files[0], files[2]], "valid": criteo(tmp_path / "v.txt", 9, 3), "test": files[1]}
    run_prepare("criteo_kaggle", given, tmp_path / "given", SMALL)
    for i, table in enumerate((click_table(60), click_table(9).slice(0, 0), click_table(9).slice(0, 0))):
        pq.write_table(table, tmp_path / f"{i}.parquet")
    run_prepare("parquet", str(tmp_path / "*.parquet"), tmp_path / "empty", click_schema())


def test_packed_and_unpacked_is_a_leak(tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.mkdir()
    for i in range(2):
        criteo(days / f"day_{i}", 40, seed=i)
    (days / "day_1.gz").write_bytes(gzip.compress((days / "day_1").read_bytes()))
    with pytest.raises(DataError, match=r"day_1\.gz: the same file as .*day_1, packed and unpacked; name one"):
        run_prepare("criteo_1tb", str(days), tmp_path / "out", SMALL, split=Split("days"))


def test_random_folds_tile_the_rows(tmp_path: Path) -> None:
    path = criteo(tmp_path / "t.txt", 103)
    tests: list[int] = []
    for fold in range(3):
        output = tmp_path / f"fold-{fold}"
        run_prepare("criteo_kaggle", path, output, SMALL, split=Split("random", folds=3, fold=fold))
        train, valid, test = rows_of(output)
        assert sorted([*train, *valid, *test]) == list(range(103))
        assert test != list(range(test[0], test[0] + len(test))), "the order is random"
        tests += test
    assert sorted(tests) == list(range(103))
