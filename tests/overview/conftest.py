"""Made-up runs as they lie on disk: three models over two seeds, a comparison, a trace and a benchmark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from recsys.compare.inference import Design
from recsys.compare.result import Comparison, Quality, Run, Sample, Spread, make_gap
from recsys.compare.tables import COMPARISON_JSON
from recsys.report import CurvePoint, LearningCurve, ModelReport, RunReport, Speedup, write_run
from recsys.report.predictions import BASELINE_PREDICTIONS_NPZ, PREDICTIONS_NPZ, Predictions

ROWS = 400


def write_made_up_run(
    folder: Path, *, name: str, seed: int, noise: float, detach: list[str], with_predictions: bool = True
) -> Path:
    """A run with a baseline beside it; ``noise`` on the logits makes its NE worse."""
    rng = np.random.default_rng([seed, len(detach)])
    truth = np.random.default_rng(0).normal(-1.0, 1.0, ROWS)
    labels = (np.random.default_rng(1).random(ROWS) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    sides = {}
    for side, spread in (("baseline", 0.3), ("erase", noise)):
        logits = (truth + rng.normal(0, spread, ROWS)).astype(np.float32)
        sides[side] = Predictions(logits, labels, np.ones(ROWS, np.float32))
    heads = dict.fromkeys(detach, 0.9)
    report = RunReport(
        baseline=_model(sides["baseline"], f"base{seed}", seed, 1000.0, {}),
        erase=_model(sides["erase"], f"{name}{seed}", seed, 1100.0 + 10 * len(detach), heads),
        experiment=name,
        detached=tuple(detach),
        speedup=Speedup.from_pairs([1.1, 1.2], [1.0, 1.0]),
        bayes_ne=0.7,
        environment={"python": "3.12", "git_commit": "abc"},
    )
    curve = LearningCurve(
        baseline=[CurvePoint(100, 0.95), CurvePoint(200, 0.9)],
        erase=[CurvePoint(n, ne, dict.fromkeys(detach, ne + 0.02)) for n, ne in ((100, 0.96), (200, 0.91))],
    )
    write_run(folder, report, curve)
    config = {"name": name, "seed": seed, "data": {"rows": 7}, "model": {"detach": detach}, "optim": {"lr": 0.001}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    if with_predictions:
        sides["erase"].write(folder / PREDICTIONS_NPZ)
        sides["baseline"].write(folder / BASELINE_PREDICTIONS_NPZ)
    return folder


def _model(rows: Predictions, config_hash: str, seed: int, speed: float, heads: dict[str, float]) -> ModelReport:
    from recsys.metrics import compute_metrics

    metrics = compute_metrics(rows.logits, rows.labels, rows.weights, ROWS)
    made = ModelReport.from_metrics(
        metrics, rows_per_s=speed, peak_memory_bytes=None, seed=seed, config_hash=config_hash
    )
    return replace(made, heads=heads)


def made_up_comparison(run_folder: Path) -> Comparison:
    """Two experiments, two folds of two seeds."""
    gap = make_gap("late6", Sample([[0.1, 0.2], [0.3, 0.1]], [0.01, 0.01]), Design(2, 2, ROWS, True), 0.5)
    qualities = [
        Quality(label, Spread(ne, 0.01, None), 0.4, 0.7, 1.0, (0.9, 1.1), speed, speed / 900)
        for label, ne, speed in (("heads6", 0.8, 900.0), ("late6", 0.81, 950.0))
    ]
    run = Run("late6", 0, 3, 0.81, "hash", str(run_folder), False, ["seed=3"])
    return Comparison(
        "heads6", 2, 2, 2 * ROWS, 0.5, qualities, [gap], [("heads6", "late6", 0.0)], [run], notes=["Noted."]
    )


def trace_file(folder: Path) -> Path:
    spans = [["F:mlp@0", 0.0, 10.0, 0], ["B:mlp@0", 10.0, 20.0, 0], ["U:mlp,cross@1", 25.0, 5.0, 1], ["", 30.0, 1.0, 0]]
    raw: dict[str, Any] = {
        "median_ms": {"sequential": 0.031},
        "overlap": {"r_fb": 0.5, "hidden": 0.25, "concurrency": 1.5, "stretch": None, "busy_us": 1.0, "span_us": 1.0},
        "critical_path_us": 30.0,
        "critical_path": ["F:mlp", "B:mlp"],
        "eta": None,
        "timeline": {"sequential": spans},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overlap.json").write_text(json.dumps(raw))
    return folder


def bench_file(folder: Path, size: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        name: {"median_ms": ms, "rows_per_s": size / ms * 1e3, "speedup": 2.0 / ms}
        for name, ms in (("base", 2.0), ("erase", 1.5))
    }
    (folder / f"bench_proxy_{size}.json").write_text(json.dumps({"batch_size": size, "rows": rows, "limits": {}}))


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the page shows; tests must not change it."""
    root = tmp_path_factory.mktemp("desk")
    for seed in (0, 1):
        for name, detach, noise in (("erase6", ["mlp", "cross"], 0.5), ("erase6", ["mlp"], 0.2)):
            folder = root / "sweep" / f"{len(detach)}-{seed}"
            write_made_up_run(folder, name=name, seed=seed, noise=noise, detach=detach)
    compared = root / "compare"
    compared.mkdir()
    comparison = made_up_comparison(root / "sweep" / "1-0")
    (compared / COMPARISON_JSON).write_text(json.dumps(comparison.to_dict()))
    trace_file(root / "trace")
    for size in (256, 512):
        bench_file(root / "bench", size)
    return root
