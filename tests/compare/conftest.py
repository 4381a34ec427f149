"""Made-up runs with predictions, and a plan that needs no Hydra."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recsys.metrics import compute_metrics
from recsys.report import ModelReport, RunReport
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions

MakeRun = Callable[..., Path]


def predictions(logits: NDArray[Any], labels: NDArray[Any]) -> Predictions:
    weights = np.ones(len(labels), np.float32)
    return Predictions(logits.astype(np.float32), labels.astype(np.float32), weights)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write what of a run's folder a comparison reads."""

    def make(name: str, logits: NDArray[Any], labels: NDArray[Any], detached: tuple[str, ...] = ()) -> Path:
        folder = tmp_path / name
        rows = predictions(logits, labels)
        rows.write(folder / PREDICTIONS_NPZ)
        metrics = compute_metrics(rows.logits, rows.labels)
        model = ModelReport.from_metrics(metrics, rows_per_s=None, peak_memory_bytes=None, seed=0, config_hash=name)
        report = RunReport(baseline=model, erase=model, detached=detached, environment={"device": "made up"})
        (folder / "report.json").write_text(json.dumps(report.to_dict()))
        return folder

    return make


def config_of(overrides: list[str]) -> dict[str, Any]:
    """A little configuration; ``schedule=`` and ``data=`` are understood."""
    chosen = dict(override.split("=", 1) for override in overrides)
    name = chosen["+experiment"]
    data: dict[str, Any] = {"row_offset": 100, "train_rows": 60, "valid_rows": 20, "test_rows": 20}
    if chosen.get("data") == "blocks":
        data = {"folds": None, "fold": 0}
    if chosen.get("data") == "plain":
        data = {"_target_": "somewhere.Plain"}
    early = "erase" if name == "erase6" else "sequential"
    return {
        "name": name,
        "seed": int(chosen.get("seed", 0)),
        "data": data,
        "model": {"detach": name in ("late6", "erase6"), "local": name != "baseline6", "lr": chosen.get("lr")},
        "schedule": {"name": chosen.get("schedule", early)},
        "trainer": {"quiet": False},
    }
