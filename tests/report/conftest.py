"""A made-up run."""

from __future__ import annotations

import pytest

from recsys.report import CurvePoint, LearningCurve, ModelReport, RunReport, Speedup


def model(ne: float | None, config_hash: str, **heads: float | None) -> ModelReport:
    return ModelReport(
        ne=ne,
        logloss=0.45,
        auc=0.78125,
        calibration=1.0123,
        base_rate=0.25622,
        entropy=0.56907,
        rows=15_339,
        coverage=1.0,
        rows_per_s=12_345.6,
        peak_memory_bytes=600 * 2**20,
        seed=3,
        config_hash=config_hash,
        heads=heads,
    )


@pytest.fixture
def report() -> RunReport:
    return RunReport(
        baseline=model(0.8, "b" * 8),
        erase=model(0.804, "e" * 8, cross=0.82, dot=None),
        experiment="erase6",
        baseline_name="baseline6",
        schedule="erase",
        baseline_schedule="sequential",
        detached=("cross", "dot"),
        speedup=Speedup.from_pairs([1.1, 1.2, 1.3], [1.0, 1.0, 1.0]),
        bayes_ne=0.75,
        data_notes={"rows": 1000},
        environment={"torch": "2.13.0", "git_commit": None},
    )


@pytest.fixture
def curve() -> LearningCurve:
    return LearningCurve(
        baseline=[CurvePoint(0, None), CurvePoint(100, 1.5), CurvePoint(2000, 0.9), CurvePoint(4000, 0.81)],
        erase=[CurvePoint(100, 1.6), CurvePoint(2000, 0.91), CurvePoint(4000, 0.8 + 1e-16)],
    )
