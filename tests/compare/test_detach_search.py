from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from recsys.compare.detach_search import Measured, greedy_detach_set, measured_sets
from recsys.errors import ConfigError, DataError
from recsys.report import ModelReport, RunRecord, RunReport

# NE lost and milliseconds saved by detaching each part; they add up.
COSTS = {
    "free": (-0.001, 1.0),
    "cheap": (0.0004, 2.0),
    "dear": (0.0009, 0.5),
    "ruinous": (0.05, 3.0),
    "idle": (0.0, 0.0),
}
TABLE = {
    frozenset(chosen): Measured(0.8 + sum(COSTS[c][0] for c in chosen), 10 - sum(COSTS[c][1] for c in chosen))
    for size in range(len(COSTS) + 1)
    for chosen in itertools.combinations(COSTS, size)
}


def test_the_best_set_of_a_made_table_is_found() -> None:
    path = greedy_detach_set(TABLE, list(COSTS), max_gap_percent=0.05)
    # What costs nothing first; then by NE per millisecond; dear fits the budget, ruinous saves most and does not.
    assert [set(step.detach) for step in path] == [set(), {"free"}, {"free", "cheap"}, {"free", "cheap", "dear"}]
    assert path[-1].gap_percent == pytest.approx(100 * 0.0003 / 0.8)
    assert path[-1].measured.step_ms == pytest.approx(6.5)
    affordable = [m for s, m in TABLE.items() if 100 * (m.ne / 0.8 - 1) <= 0.05]
    assert path[-1].measured.step_ms == min(m.step_ms for m in affordable)


def test_the_budget_holds() -> None:
    assert set(greedy_detach_set(TABLE, list(COSTS), max_gap_percent=0.0)[-1].detach) == {"free", "cheap"}
    assert "ruinous" in greedy_detach_set(TABLE, list(COSTS), max_gap_percent=10.0)[-1].detach


def test_a_function_is_asked_for_no_more_than_the_path_needs() -> None:
    asked = []

    def measure(detach: frozenset[str]) -> Measured:
        asked.append(detach)
        return TABLE[detach]

    greedy_detach_set(measure, list(COSTS), max_gap_percent=0.05)
    assert len(asked) == len(set(asked)) == 1 + 5 + 4 + 3 + 2


def test_a_set_that_was_not_measured_is_named() -> None:
    table = {s: m for s, m in TABLE.items() if s != {"free", "dear"}}
    with pytest.raises(DataError, match=r"no measured run with model\.detach=\[dear,free\]"):
        greedy_detach_set(table, list(COSTS))


def write_run(folder: Path, detached: list[str], ne: float, rows_per_s: float | None, lr: float = 0.1) -> RunRecord:
    model = ModelReport(
        ne=ne, logloss=0.5, auc=0.7, calibration=1.0, base_rate=0.3, entropy=0.6, rows=10, coverage=1.0,
        rows_per_s=rows_per_s, peak_memory_bytes=None, seed=0, config_hash="x",
    )  # fmt: skip
    folder.mkdir()
    (folder / "report.json").write_text(json.dumps(RunReport(model, model, detached=detached).to_dict()))
    config = {"seed": ne, "name": "x", "model": {"detach": detached, "lr": lr}, "trainer": {"batch_size": 500}}
    (folder / "config.yaml").write_text(json.dumps(config))
    return RunRecord(folder)


def test_runs_become_a_table(tmp_path: Path) -> None:
    records = [
        write_run(tmp_path / "a", [], 0.8, 1000),
        write_run(tmp_path / "b", [], 0.9, 2000),
        write_run(tmp_path / "c", ["cross"], 0.7, 5000),
    ]
    found = measured_sets(records)
    assert found.keys() == {frozenset(), frozenset({"cross"})}
    assert dataclasses.astuple(found[frozenset()]) == pytest.approx((0.85, 375))
    assert dataclasses.astuple(found[frozenset({"cross"})]) == pytest.approx((0.7, 100))


def test_runs_that_differ_in_more_are_refused(tmp_path: Path) -> None:
    records = [write_run(tmp_path / "a", [], 0.8, 1000), write_run(tmp_path / "b", [], 0.8, 1000, lr=0.2)]
    with pytest.raises(ConfigError, match=r"/b: differs from the runs before it in more than model\.detach and seed"):
        measured_sets(records)
    with pytest.raises(DataError, match="/c: holds no NE or no speed"):
        measured_sets([write_run(tmp_path / "c", [], 0.8, None)])
