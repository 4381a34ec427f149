from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from recsys.errors import DataError
from recsys.prepare.infer import infer_schema
from recsys.prepare.schema import parse_schema
from tests.reference.clicks import click_table, run_prepare

N = 200
TABLE: dict[str, Any] = {
    "click": [(i // 3) % 2 for i in range(N)],
    "user_id": [i % 90 for i in range(N)],
    "price": [i * 0.37 for i in range(N)],
    "age": [i * 7 % 80 for i in range(N)],
    "shop": [f"s{i % 5}" for i in range(N)],
    "on": [f"v{i % 2}" for i in range(N)],
    "tags": [["a", "b"][: i % 3] for i in range(N)],
    "when": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i) for i in range(N)],
    "outcome": ["bought" if (i // 3) % 2 else "left" for i in range(N)],
    "same": ["x"] * N,
    "none": pa.nulls(N),
}


def test_every_role_is_proposed_and_can_be_prepared(tmp_path: Path) -> None:
    pq.write_table(pa.table(TABLE), tmp_path / "t.parquet")
    text = infer_schema(tmp_path / "t.parquet")
    raw = yaml.safe_load(text)
    assert (raw["label"], raw["time"]) == ("click", "when")
    assert [c["name"] for c in raw["dense"]] == ["price", "age"]
    # `on` would be a truth value if YAML were not told.
    assert [c["name"] for c in raw["categorical"]] == ["user_id", "shop", "on"]
    assert [c["name"] for c in raw["multi_hot"]] == ["tags"]
    assert "# outcome: every value goes with one label only: it gives the label away" in text
    assert "# same: one value in the sample" in text and "# none: no value in the sample" in text
    run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", parse_schema(raw, "proposal"))


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_csv(tmp_path: Path, delimiter: str) -> None:
    flat = {k: v for k, v in TABLE.items() if k not in ("tags", "none")}
    options = pa.csv.WriteOptions(delimiter=delimiter)
    pa.csv.write_csv(pa.table(flat), tmp_path / "t.csv", options)
    raw = yaml.safe_load(infer_schema(tmp_path / "t.csv"))
    assert [c["name"] for c in raw["categorical"]] == ["user_id", "shop", "on"]
    run_prepare("csv", str(tmp_path / "t.csv"), tmp_path / "out", parse_schema(raw, "proposal"))


def test_what_cannot_be_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [0, 1] * 9, "b": [1, 0] * 9, "c": list(range(18))}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"the label cannot be told: 2 columns hold just 0 and 1 \(a, b\)"):
        infer_schema(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no such file"):
        infer_schema(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a directory; name one of its"):
        infer_schema(tmp_path)
    (tmp_path / "latin.csv").write_bytes(b"click,shop\n0,a\n1,\xe9\n")
    with pytest.raises(DataError, match=r"latin\.csv, line 3: has byte 0xe9, which is not UTF-8"):
        infer_schema(tmp_path / "latin.csv")
    (tmp_path / "bad.parquet").write_text("nothing")
    with pytest.raises(DataError, match="cannot be read"):
        infer_schema(tmp_path / "bad.parquet")


def test_made_up_clicks(tmp_path: Path) -> None:
    pq.write_table(click_table(300), tmp_path / "t.parquet")
    raw = yaml.safe_load(infer_schema(tmp_path / "t.parquet"))
    assert raw["label"] == "click" and [c["name"] for c in raw["multi_hot"]] == ["tags"]


def test_parquet_by_its_content_and_lists_of_fractions(tmp_path: Path) -> None:
    more = {"whole": [[1.0, 2.0]] * N, "vector": [[0.5, None]] * N}
    pq.write_table(pa.table(TABLE | more), tmp_path / "clicks")
    text = infer_schema(tmp_path / "clicks")
    assert [c["name"] for c in yaml.safe_load(text)["multi_hot"]] == ["tags", "whole"]
    assert "# vector: list<element: double> of numbers that are not whole" in text
