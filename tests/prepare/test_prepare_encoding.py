"""Vocabularies, hashing, transforms, and schemas that are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.errors import ConfigError, DataError
from recsys.prepare import encoding
from recsys.prepare.encoding import DenseEncoder, Encoding, SparseEncoder
from recsys.prepare.numeric import transform
from recsys.prepare.schema import CategoricalColumn, DenseColumn, parse_schema, read_schema
from tests.reference.clicks import click_schema, click_table, read_split, run_prepare, write_clicks

ROOT = Path(__file__).resolve().parents[2]
WORDS = pa.array(["a", "b", "c", None, "zz", "a"])


def encoder(**more: Any) -> SparseEncoder:
    return SparseEncoder(CategoricalColumn("c", **more), pa.array(["b", "a"]), 1)


def test_vocabulary_and_out_of_vocabulary() -> None:
    assert encoder().encode(WORDS).tolist() == [3, 2, 0, 1, 0, 3]
    assert encoder(missing="oov").encode(WORDS).tolist() == [3, 2, 0, 0, 0, 3]
    assert encoder().cardinality == 4


def test_rare_values_share_buckets() -> None:
    both = encoder(hash_size=5)
    ids = both.encode(WORDS)
    assert ids[[0, 1, 3, 5]].tolist() == [3, 2, 1, 3]
    assert both.cardinality == 9 and 4 <= ids[2] < 9 and 4 <= ids[4] < 9


@pytest.mark.parametrize(
    "values", [pa.array(range(3000)), pa.array([f"v{i}" for i in range(3000)])], ids=["int", "text"]
)
def test_hashing_fills_its_table_evenly_and_never_leaves_it(values: Any) -> None:
    hashed = SparseEncoder(CategoricalColumn("c", min_count=None, hash_size=30), pa.array([], pa.int64()), 1)
    counts = np.bincount(hashed.encode(values), minlength=32)
    assert len(counts) == hashed.cardinality == 32 and counts[:2].sum() == 0
    assert counts[2:].min() > 60 and counts[2:].max() < 140


def test_hashes_are_the_same_tomorrow() -> None:
    """They are part of the format: if this fails, raise ENCODING_VERSION."""
    hashed = SparseEncoder(CategoricalColumn("c", min_count=None, hash_size=10**6), pa.array([], pa.int64()), 1)
    assert hashed.encode(pa.array(["", "émigré", "68fd1e64"])).tolist() == HASHED_TEXTS
    assert hashed.encode(pa.array([0, -1, 2**63 - 1])).tolist() == HASHED_NUMBERS


HASHED_TEXTS = [26205, 858935, 229659]
HASHED_NUMBERS = [607537, 443938, 352041]


def test_max_size_keeps_the_most_frequent(tmp_path: Path) -> None:
    values = ["a"] * 20 + ["b"] * 12 + ["c"] * 8 + ["a", "b", "c", "d", "d"] * 2
    pq.write_table(pa.table({"y": [i % 2 for i in range(50)], "c": values}), tmp_path / "t.parquet")
    schema = parse_schema({"label": "y", "categorical": [{"name": "c", "max_size": 2}]}, "schema")
    content = run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", schema)
    vocabulary = pq.read_table(tmp_path / "out/vocab/c.parquet")
    assert vocabulary.to_pylist() == [{"value": "a", "id": 2, "count": 20}, {"value": "b", "id": 3, "count": 12}]
    assert read_split(tmp_path / "out", "test")["c"].to_pylist() == [2, 3, 0, 0, 0]
    assert content["notes"]["unseen_ids"]["test"] == {"c": 2}
    assert content["notes"]["out_of_vocabulary"]["test"] == {"c": 3}


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    lists = [["a"] * (i % 3) for i in range(40)] + [["a"] * 7] * 10
    table = pa.table({"y": [i % 2 for i in range(50)], "c": lists})
    pq.write_table(table, tmp_path / "t.parquet")
    schema = parse_schema({"label": "y", "multi_hot": ["c"]}, "schema")
    content = run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", schema)
    assert {len(ids) for ids in read_split(tmp_path / "out", "test")["c"].to_pylist()} == {2}
    assert content["notes"]["cut_lists"] == {"c": 10}


TRANSFORMS = [
    ("signed_log", 1.0, [-3.0, 0.0, 7.0], [-math.log(4), 0.0, math.log(8)]),
    ("shifted_log", 4.0, [-3.0, -9.0, 6.0], [0.0, 0.0, math.log(10)]),
    ("log_square", 1.0, [-3.0, 2.0, 3.0, 1000.0], [-3.0, 2.0, 1.0, 47.0]),
    ("log_bins", 1.0, [-3.0, 2.0, 3.0, 1000.0], [-3.0, 2.0, 3.0, 49.0]),
]


@pytest.mark.parametrize(("name", "shift", "values", "expected"), TRANSFORMS, ids=[t[0] for t in TRANSFORMS])
def test_transforms(name: str, shift: float, values: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(transform(np.array(values), (name,), shift), expected, rtol=1e-15)
    assert np.isnan(transform(np.array([np.nan]), (name,), shift)).all()


def test_dense_mean_takes_the_place_of_what_is_missing() -> None:
    column = DenseColumn("x", transform=("signed_log",))
    assert DenseEncoder(column, 2.5, 3.0).encode(np.array([np.nan, 0.0])).tolist() == [2.5, 0.0]


def test_features_json_round_trip(tmp_path: Path) -> None:
    schema = read_schema(ROOT / "data/schemas/criteo.yaml").with_min_count(2)
    run_prepare("criteo_kaggle", str(ROOT / "data/fixtures/criteo_kaggle_500.tsv"), tmp_path, schema)
    encoding = Encoding.read(tmp_path)
    assert encoding.schema == schema and len(encoding.spec.sparse) == 39
    path = tmp_path / "features.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoding": {"version": 99}}))
    with pytest.raises(DataError, match=r"version 99, not 1\); prepare"):
        Encoding.read(tmp_path)


SHIPPED = sorted((ROOT / "data/schemas").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_schemas_that_come_along(path: Path) -> None:
    schema = read_schema(path)
    assert schema.label == "label" and len(schema.categorical) > 5


SCHEMAS: list[tuple[Any, str]] = [
    ([], "s: a schema is a mapping"),
    ({"categorical": ["c"]}, "s: label: the name of the column"),
    ({"label": "y"}, "s: there is no feature"),
    ({"label": "y", "categorial": ["c"]}, "s: there is no key 'categorial'; nearest: categorical"),
    ({"label": "y", "categorical": ["c", "c"]}, "two features are named 'c'"),
    ({"label": "y", "categorical": ["y"]}, "the label 'y' is a feature too"),
    (
        {"label": "y", "categorical": ["time"]},
        r"a feature cannot be named 'time'.*\{name: time_feature, column: time\}",
    ),
    ({"label": "y", "categorical": [{"name": "c", "min_cont": 3}]}, "there is no key 'min_cont'; nearest: min_count"),
    ({"label": "y", "categorical": [{"name": "c", "min_count": 0}]}, r"categorical\.c\.min_count: 0 must be"),
    ({"label": "y", "categorical": [{"name": "c", "min_count": None}]}, "set min_count .*, hash_size .* or both"),
    ({"label": "y", "categorical": [{"name": "c", "missing": "drop"}]}, "must be id, oov or error"),
    ({"label": "y", "categorical": [{"name": "c", "separator": "|"}]}, "are for columns under multi_hot"),
    ({"label": "y", "categorical": [7]}, "an entry is a column's name"),
    ({"label": "y", "dense": [{"name": "x", "transform": ["log"]}]}, r"dense\.x\.transform: there is no 'log'"),
    ({"label": "y", "dense": [{"name": "x", "transform": ["standardize", "signed_log"]}]}, "standardize comes last"),
    ({"label": "y", "dense": [{"name": "x", "missing": "median"}]}, "'median' must be mean, error or a number"),
    ({"label": "y", "dense": ["x"], "csv": {"delimiter": "::"}}, "must be one ASCII character, or tab"),
    ({"label": "y", "dense": ["x"], "csv": {"header": False}}, "set either header: true or the names"),
    ({"label": "y", "dense": ["x"], "csv": {"header": "no"}}, r"csv\.header: 'no' must be true or false"),
    ({"label": "y", "dense": ["x"], "csv": {"null_values": "NA"}}, r"csv\.null_values: 'NA' must be a list of texts"),
    ({"label": "y", "dense": ["x"], "csv": {"null_values": [0]}}, r"csv\.null_values: \[0\] must be a list of texts"),
    ({"label": "y", "dense": ["x"], "weight": 5}, "s: weight: 5 must be the name of a column"),
    ({"label": "y", "dense": ["x"], "time": ["t"]}, r"s: time: \['t'\] must be the name of a column"),
    ({"label": "y", "dense": [{"name": "x", "column": 5}]}, r"dense\.x\.column: 5 must be the name of a column"),
    ({"label": "y", "dense": [{"name": "x", "indicator": "no"}]}, r"dense\.x\.indicator: 'no' must be true or false"),
    ({"label": "y", "dense": [{"name": "x", "shift": "1"}]}, r"dense\.x\.shift: '1' must be a number"),
    ({"label": "y", "dense": [{"name": "x", "shift": float("nan")}]}, r"dense\.x\.shift: nan must be a number"),
    ({"label": "y", "dense": [{"name": "x", "missing": float("inf")}]}, r"dense\.x\.missing: inf must be mean"),
    ({"label": "y", "dense": [{"name": "x", "missing": 1e39}]}, r"dense\.x\.missing: 1e\+39 must be mean"),
    ({"label": "y", "multi_hot": [{"name": "c", "separator": ""}]}, r"multi_hot\.c\.separator: '' must be a text"),
    ({"label": "y", "categorical": [{"names": []}]}, r"\[\] is no name"),
]


@pytest.mark.parametrize(("raw", "pattern"), SCHEMAS, ids=[p[:40] for _, p in SCHEMAS])
def test_bad_schemas(raw: Any, pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        parse_schema(raw, "s")


def test_schema_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; `infer-schema FILE` proposes one"):
        read_schema(tmp_path / "none.yaml")
    (tmp_path / "twice.yaml").write_text("label: a\ndense: [x]\nlabel: b\n")
    with pytest.raises(ConfigError, match=r"twice\.yaml: .*line 3: the key 'label' stands twice; keep one"):
        read_schema(tmp_path / "twice.yaml")
    (tmp_path / "bad.yaml").write_text("label: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml: cannot be read as YAML"):
        read_schema(tmp_path / "bad.yaml")


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("collide", [False, True])
def test_the_index_finds_what_a_search_finds(kind: Any, collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every text has the same hash."""
    if collide:
        monkeypatch.setattr(encoding, "text_hashes", lambda array: np.zeros(len(array), np.uint64))
    vocabulary = pa.array([7, -3, 12, 0, 5]).cast(kind)
    values = pa.array([5, None, 0, 99, 7, 7, -3, None]).cast(kind)
    index = encoding.VocabularyIndex(vocabulary)
    assert index.positions(values).tolist() == [4, -1, 3, -1, 0, 0, 1, -1]
    assert index.positions(values.slice(2, 3)).tolist() == [3, -1, 0]
    assert encoding.VocabularyIndex(vocabulary.slice(0, 0)).positions(values).tolist() == [-1] * 8
    assert index.positions(values.slice(0, 0)).tolist() == []


def test_a_text_that_only_shares_a_hash_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "text_hashes", lambda array: np.zeros(len(array), np.uint64))
    assert encoding.VocabularyIndex(pa.array(["a"])).positions(pa.array(["b", "a"])).tolist() == [-1, 0]


def test_a_table_of_2_31_ids_takes_no_memory(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "t.parquet", 300)
    column = {"name": "user_id", "column": "user", "min_count": None, "hash_size": 2**31 - 8}
    run_prepare("parquet", str(path), tmp_path / "out", click_schema(categorical=[column]))
    assert max(read_split(tmp_path / "out", "train")["user_id"].to_pylist()) > 2**30


def test_a_value_far_from_all_train_values_saturates(tmp_path: Path) -> None:
    values = [0.0] * 97 + [1e30, -1e30, 0.0]
    values[3] = 1e-30
    pq.write_table(pa.table({"y": [i % 2 for i in range(100)], "x": values}), tmp_path / "t.parquet")
    schema = parse_schema({"label": "y", "dense": [{"name": "x", "transform": ["standardize"]}]}, "schema")
    run_prepare("parquet", str(tmp_path / "t.parquet"), tmp_path / "out", schema)
    far = read_split(tmp_path / "out", "test")["x"].to_numpy()[-3:-1].tolist()
    assert far == [float(np.finfo(np.float32).max), float(np.finfo(np.float32).min)]


def test_rows_to_score_need_the_features_and_their_types_only(tmp_path: Path) -> None:
    path = write_clicks(tmp_path / "t.parquet", 300)
    run_prepare("parquet", str(path), tmp_path / "out", click_schema())
    encoding = Encoding.read(tmp_path / "out")
    table = click_table(300)
    whole = encoding.encode_table(table)
    features = table.select(["price", "age", "user", "shop", "tags"])
    assert all(whole[name].equals(array) for name, array in encoding.encode_table(features).items())
    with pytest.raises(DataError, match="column shop: stands 0 times in the rows; once is needed"):
        encoding.encode_table(features.drop_columns(["shop"]))
    texts = features.set_column(2, "user", features["user"].cast(pa.string()))
    with pytest.raises(DataError, match="column user: holds string, but held int64 in training; convert it"):
        encoding.encode_table(texts)
