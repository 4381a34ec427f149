"""Any schema of 0 to 40 dense and 1 to 60 categorical columns: ids and numbers are those of the slow preparation."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsys.features import FeatureSpec
from recsys.prepare.schema import parse_schema
from recsys.prepare.settings import Engine, Split
from tests.reference.clicks import read_split, run_prepare, slow_dense, slow_ids

NAMES = st.text("abcXYZ019_-./ é", min_size=1, max_size=6)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_dense=st.integers(0, 40),
    num_sparse=st.integers(1, 60),
    num_rows=st.integers(30, 90),
    min_count=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    source=st.sampled_from(["csv", "parquet"]),
    odd_name=NAMES,
)
def test_any_schema(
    num_dense: int, num_sparse: int, num_rows: int, min_count: int, seed: int, source: str, odd_name: str
) -> None:
    r = np.random.default_rng(seed)
    dense, sparse = [f"d{i}" for i in range(num_dense)], [*(f"c{i}" for i in range(1, num_sparse)), f"c0{odd_name}"]
    columns: dict[str, list[Any]] = {"y": [i % 2 for i in range(num_rows)]}
    for name in dense:
        columns[name] = [None if r.random() < 0.2 else round(float(x), 3) for x in r.normal(0, 50, num_rows)]
    for i, name in enumerate(sparse):
        drawn = r.zipf(1.5, num_rows) % 50
        columns[name] = [None if r.random() < 0.1 else (f"v{x}" if i % 2 or source == "csv" else int(x)) for x in drawn]
    raw = {"label": "y", "dense": dense, "categorical": [{"name": n, "min_count": min_count} for n in sparse]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / f"t.{source}"
        table = pa.table(columns)
        if source == "csv":
            pa.csv.write_csv(table, path)
        else:
            pq.write_table(table, path, row_group_size=17)
        engine = Engine(workers=1, chunk_mib=max(1, seed % 9) * 1e-3)
        run_prepare(source, str(path), folder / "out", parse_schema(raw, "s"), engine=engine, split=Split("order"))
        spec = FeatureSpec.read(folder / "out/features.json")
        assert (list(spec.dense), spec.sparse_names) == (dense, sparse)
        cuts = [0, round(num_rows * 0.8), round(num_rows * 0.9), num_rows]
        for split, (a, b) in zip(("train", "valid", "test"), pairwise(cuts), strict=True):
            part = read_split(folder / "out", split)
            assert part["row"].to_pylist() == list(range(a, b))
            for column in dense:
                values = columns[column]
                expected = slow_dense(values[: cuts[1]], values[a:b], log=True)
                assert part[column].to_pylist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
            for feature in spec.sparse:
                values = columns[feature.name]
                ids = part[feature.name].to_pylist()
                assert ids == slow_ids(values[: cuts[1]], values[a:b], min_count)
                assert max(ids) < feature.cardinality
