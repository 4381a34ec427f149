"""Target means and counts: what they are, and that no row's own label is in them."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.errors import ConfigError
from recsys.prepare.encoding import Encoding
from recsys.prepare.schema import Schema, parse_schema
from recsys.prepare.settings import Engine
from recsys.prepare.target_mean import NUM_BLOCKS, blocks_of
from tests.reference.clicks import click_table, folder_bytes, read_split, run_prepare

ADDED = {"target_mean": True, "count": True, "smoothing": 3.0}
SCHEMA = {"label": "click", "categorical": [{"name": "user", "min_count": 4, **ADDED}, {"name": "shop", **ADDED}]}
NUM_ROWS = 400


def schema() -> Schema:
    return parse_schema(SCHEMA, "schema")


def prepared(folder: Path, table: Any | None = None, **more: Any) -> Path:
    folder.mkdir()
    pq.write_table(click_table(NUM_ROWS) if table is None else table, folder / "t.parquet")
    run_prepare("parquet", str(folder / "t.parquet"), folder / "out", schema(), **more)
    return folder / "out"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("target") / "a")


def expected_log_odds(ids: list[int], clicks: list[float], id_: int) -> float:
    """The definition, row by row."""
    rate = (sum(clicks) + 0.5) / (len(clicks) + 1)
    own = [y for i, y in zip(ids, clicks, strict=True) if i == id_]
    mean = (sum(own) + 3.0 * rate) / (len(own) + 3.0)
    return math.log(mean / (1 - mean))


@pytest.mark.parametrize("name", ["user", "shop"])
def test_features_follow_their_definition(out: Path, name: str) -> None:
    train, test = read_split(out, "train"), read_split(out, "test")
    ids, clicks = train[name].to_pylist(), train["label"].to_pylist()
    odds = [expected_log_odds(ids, clicks, i) for i in ids]
    mean, sd = np.mean(odds), np.std(odds)
    wanted = [(expected_log_odds(ids, clicks, i) - mean) / sd for i in test[name].to_pylist()]
    np.testing.assert_allclose(test[f"{name}_target_mean"].to_numpy(), wanted, rtol=1e-4, atol=1e-5)
    block = blocks_of(train["row"].to_numpy())
    for row in range(0, len(ids), 7):
        others = [i for i in range(len(ids)) if block[i] != block[row]]
        value = expected_log_odds([ids[i] for i in others], [clicks[i] for i in others], ids[row])
        assert train[f"{name}_target_mean"][row].as_py() == pytest.approx((value - mean) / sd, abs=1e-4)
    counts = Counter(ids) | {0: 0}
    counts[0] = 0  # rare values are none of them frequent
    logs = np.log1p([counts[i] for i in ids])
    wanted = [(math.log1p(max(counts[i] - 1, 0)) - logs.mean()) / logs.std() for i in ids]
    np.testing.assert_allclose(train[f"{name}_count"].to_numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_rows_own_label_does_not_move_its_features(out: Path, tmp_path: Path) -> None:
    table = click_table(NUM_ROWS)
    flipped = table["click"].to_pylist()
    flipped[11] = not flipped[11]
    other = prepared(tmp_path / "b", table.set_column(0, "click", pa.array(flipped)))
    names = ["user_target_mean", "user_count", "shop_target_mean", "shop_count"]
    means = [{n: read_split(folder, "train")[n].to_numpy() for n in names} for folder in (out, other)]
    same_block = blocks_of(np.arange(320)) == blocks_of(np.arange(320))[11]
    for name in names:
        # Standardising sees all labels; undone by the line through the block's values, the row's own are the same.
        a, b = means[0][name][same_block], means[1][name][same_block]
        slope, shift = np.polyfit(a, b, 1)
        np.testing.assert_allclose(slope * a + shift, b, atol=2e-5)
        assert name.endswith("count") or not np.allclose(slope * means[0][name] + shift, means[1][name], atol=1e-3)


def test_valid_and_test_labels_do_not_matter(out: Path, tmp_path: Path) -> None:
    table = click_table(NUM_ROWS)
    clicks = table["click"].to_pylist()
    clicks[320:] = [not y for y in clicks[320:]]
    other = prepared(tmp_path / "b", table.set_column(0, "click", pa.array(clicks)))
    for split in ("train", "valid", "test"):
        for name in ("user_target_mean", "shop_count"):
            assert read_split(out, split)[name].equals(read_split(other, split)[name])


def test_scoring_encodes_as_the_test_rows_were(out: Path) -> None:
    scored = Encoding.read(out).encode_table(click_table(NUM_ROWS).slice(360))
    test = read_split(out, "test")
    for name in Encoding.read(out).spec.dense:
        np.testing.assert_array_equal(scored[name].to_numpy(), test[name].to_numpy())


def test_chunks_and_workers_do_not_matter(out: Path, tmp_path: Path) -> None:
    other = prepared(tmp_path / "b", engine=Engine(workers=1, chunk_mib=0.002))
    left, right = folder_bytes(out), folder_bytes(other)
    left.pop("manifest.json"), right.pop("manifest.json")
    assert left == right


def test_blocks_share_the_rows_evenly() -> None:
    counts = np.bincount(blocks_of(np.arange(50_000)), minlength=NUM_BLOCKS)
    assert len(counts) == NUM_BLOCKS and counts.min() > 9_500


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"multi_hot": [{"name": "tags", "target_mean": True}]}, r"multi_hot\.tags\.target_mean: a list has no single"),
        ({"categorical": [{"name": "a", "count": 1}]}, r"categorical\.a\.count: 1 must be true or false"),
        ({"categorical": [{"name": "a", "smoothing": 0}]}, r"categorical\.a\.smoothing: 0 must be a number of rows"),
    ],
)
def test_refused(column: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_schema({"label": "y", **column}, "schema")


def test_a_schema_without_them_is_told_as_before() -> None:
    plain = parse_schema({"label": "y", "categorical": ["a"]}, "schema").to_plain()
    assert not {"target_mean", "count", "smoothing"} & plain["categorical"][0].keys()
