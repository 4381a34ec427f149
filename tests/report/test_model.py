"""The dataclasses behind ``report.json``."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from recsys.metrics import compute_metrics
from recsys.report import ModelReport, RunReport, Speedup

REQUIRED = (
    "ne logloss auc calibration base_rate entropy rows coverage rows_per_s peak_memory_bytes seed config_hash heads "
    "prediction"
)


def test_keys_of_report_json(report: RunReport) -> None:
    raw = report.to_dict()
    assert list(raw["baseline"]) == list(raw["erase"]) == REQUIRED.split()
    assert raw["baseline"]["heads"] == {}
    assert raw["erase"]["heads"] == {"cross": 0.82, "dot": None}
    assert raw["ne_gap_percent"] == pytest.approx(0.5)


def test_written_and_read_again_is_the_same(report: RunReport) -> None:
    raw = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert RunReport.from_dict(raw).to_dict() == raw
    assert RunReport.from_dict(raw).speedup == report.speedup


def test_a_report_from_before_blends_is_read(report: RunReport) -> None:
    raw = report.to_dict()
    del raw["erase"]["prediction"], raw["baseline"]["prediction"]
    assert RunReport.from_dict(raw).to_dict() == report.to_dict()


def test_keys_of_a_later_version_are_left_out(report: RunReport) -> None:
    raw = report.to_dict()
    raw["new"] = raw["erase"]["new"] = 1
    assert RunReport.from_dict(raw).to_dict() == report.to_dict()


def test_nan_and_infinity_become_null(report: RunReport) -> None:
    broken = dataclasses.replace(report.erase, ne=math.nan, auc=math.inf, heads={"dot": math.nan})
    changed = dataclasses.replace(report, erase=broken, data_notes={"a": [np.float64("nan"), (np.int64(3),)]})
    raw = changed.to_dict()
    assert (raw["erase"]["ne"], raw["erase"]["auc"], raw["erase"]["heads"]) == (None, None, {"dot": None})
    assert raw["ne_gap_percent"] is None
    assert raw["data_notes"] == {"a": [None, [3]]}
    json.dumps(raw, allow_nan=False)


def test_gap_without_ne_is_undefined(report: RunReport) -> None:
    undefined = dataclasses.replace(report.baseline, ne=None)
    assert dataclasses.replace(report, baseline=undefined).ne_gap_percent is None
    assert dataclasses.replace(report, erase=undefined).ne_gap_percent is None


def test_from_metrics() -> None:
    metrics = compute_metrics([0.0, 1.0, 2.0], [0, 1, 0], expected_rows=6)
    one_class = compute_metrics([0.0], [1])
    model = ModelReport.from_metrics(
        metrics, rows_per_s=5.0, peak_memory_bytes=7, seed=1, config_hash="x", heads={"dot": metrics, "mlp": one_class}
    )
    assert (model.ne, model.auc, model.rows, model.coverage) == (metrics.ne, 0.5, 3, 0.5)
    assert model.heads == {"dot": metrics.ne, "mlp": None}


def test_speedup_is_over_pairs() -> None:
    speedup = Speedup.from_pairs([2.0, 30.0, 2.2], [1.0, 10.0, 2.0])  # the second pair fell into a slow moment
    assert (speedup.median, speedup.pairs) == (2.0, 3)
    assert speedup.p10 == pytest.approx(1.1 + 0.2 * 0.9)
    assert speedup.p90 == pytest.approx(2.0 + 0.8 * 1.0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("erase",), None, "object 'erase' is missing"),
        (("erase", "ne"), "0.8", "in object 'erase': 'ne' is '0.8', neither a number nor null"),
        (("baseline", "auc"), True, "in object 'baseline': 'auc' is True"),
        (("baseline", "rows"), 1.5, "'rows' is 1.5, not a whole number"),
        (("baseline", "config_hash"), 5, "'config_hash' is 5, not a string"),
        (("baseline", "heads"), [1], "'heads' is .1., not an object"),
        (("erase", "heads", "dot"), "x", "'dot' is 'x', neither"),
        (("speedup",), {"median": 1.0}, "in object 'speedup': .*missing"),
    ],
)
def test_malformed_value_is_named(report: RunReport, path: tuple[str, ...], value: Any, message: str) -> None:
    raw = report.to_dict()
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        RunReport.from_dict(raw)


def test_missing_key_is_named(report: RunReport) -> None:
    raw = report.to_dict()
    del raw["erase"]["coverage"]
    with pytest.raises(ValueError, match="in object 'erase': key 'coverage' is missing"):
        RunReport.from_dict(raw)
