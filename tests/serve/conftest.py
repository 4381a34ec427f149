from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys.prepare.schema import parse_schema
from recsys.prepare.settings import Engine, Split
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions
from recsys.run import train_model
from tests.reference.clicks import run_prepare
from tests.reference.tiny_run import TINY, tiny_config

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "data/fixtures/criteo_kaggle_500.tsv"
# A cross network and dot products beside the main path, both detached, each with a head.
SMALL = ("+experiment=erase6", *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")))
TRAINER = tuple(word for word in TINY if word.startswith("trainer."))


@dataclass(frozen=True)
class Run:
    """A trained run, and the raw rows that it was tested on."""

    folder: Path
    test_lines: bytes

    @property
    def logits(self) -> Any:
        return Predictions.read(self.folder / PREDICTIONS_NPZ).logits


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def criteo_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained on the made-up Criteo rows; the last tenth of the file are its test rows."""
    root = tmp_path_factory.mktemp("criteo")
    overrides = (*SMALL, "data=criteo_kaggle", f"data.path={FIXTURE}", f"data.cache_dir={root / 'cache'}")
    cfg = _config(overrides)
    train_model(cfg, root / "run")
    lines = FIXTURE.read_bytes().splitlines(keepends=True)
    return Run(root / "run", b"".join(lines[450:]))


@pytest.fixture(scope="session")
def synthetic_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Rows that have ids to begin with, lists among them."""
    root = tmp_path_factory.mktemp("synthetic")
    train_model(tiny_config(*SMALL, "data.multi_hot=3"), root / "run")
    return Run(root / "run", b"")


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained on a CSV file of texts, hashed values, lists and times; the last tenth are its test rows."""
    root = tmp_path_factory.mktemp("texts")
    lines = text_lines(300)
    (root / "rows.csv").write_bytes(b"".join(lines))
    schema = parse_schema(TEXT_SCHEMA, "schema")
    run_prepare("csv", str(root / "rows.csv"), root / "data", schema, engine=Engine(workers=1), split=Split("order"))
    train_model(_config((*SMALL, "data=prepared", f"data.path={root / 'data'}")), root / "run")
    return Run(root / "run", lines[0] + b"".join(lines[271:]))


TEXT_SCHEMA = {
    "label": "click",
    "time": "at",
    "dense": [{"name": "price", "missing": 0.5, "indicator": True}],
    "categorical": [{"name": "city", "min_count": 2}, {"name": "user", "min_count": None, "hash_size": 7}],
    "multi_hot": [{"name": "tags", "separator": " "}],
}


def text_lines(num_rows: int) -> list[bytes]:
    draw = np.random.default_rng(5)
    lines = [b"click,at,price,city,user,tags,note\n"]
    for i in range(num_rows):
        tags = " ".join(f"t{t}" for t in draw.integers(0, 6, draw.integers(0, 4)))
        price = "" if i % 7 == 0 else f"{draw.exponential(9):.3f}"
        city, user = f"city {draw.integers(0, 9)}", f"{draw.integers(0, 40):03}"
        lines.append(
            f"{int(draw.random() < 0.4)},{1_700_000_000 + 40_000 * i},{price},{city},{user},{tags},n{i % 3}\n".encode()
        )
    return lines


def _config(overrides: tuple[str, ...]) -> dict[str, Any]:
    from recsys.config.cli import compose, to_plain

    return to_plain(compose([*overrides, *TRAINER]))


def synthetic_table(run: Run) -> Any:
    """The test rows of a synthetic run, encoded, as an Arrow table."""
    from recsys.config.wire import build_data
    from recsys.report import RunRecord

    data = build_data(RunRecord(run.folder).config)
    columns: dict[str, list[Any]] = {}
    for batch in data.test:
        for n, name in enumerate(data.spec.dense):
            columns.setdefault(name, []).extend(batch.dense_features[:, n].tolist())
        for feature in data.spec.sparse:
            jagged = batch.sparse_features[feature.name]
            lists = [ids.tolist() for ids in jagged.to_dense()]
            columns.setdefault(feature.name, []).extend(lists if feature.max_length > 1 else [i[0] for i in lists])
        columns.setdefault("label", []).extend(batch.labels.tolist())
    return pa.table(columns)
