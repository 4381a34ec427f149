"""Evaluation in all and by slice."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.errors import ConfigError, DataError
from recsys.metrics.binary import Metrics, compute_metrics
from recsys.report import RunRecord
from recsys.serve.pipeline import ScoreSettings
from recsys.serve.slices import SliceBy, _days, evaluate_files
from tests.serve.conftest import Run, synthetic_table


def test_the_whole_is_what_the_report_says(criteo_run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_bytes(criteo_run.test_lines)
    found = evaluate_files(ScoreSettings(criteo_run.folder, str(tmp_path / "rows.tsv")))
    report = RunRecord(criteo_run.folder).report.erase
    for name in ("ne", "logloss", "auc", "calibration", "base_rate", "rows"):
        assert getattr(found.total, name) == getattr(report, name)
    assert {name: m.ne for name, m in found.heads.items()} == report.heads


def test_slices_add_up_and_are_those_of_the_rows(text_run: Run, tmp_path: Path) -> None:
    header, *lines = text_run.test_lines.splitlines(keepends=True)
    (tmp_path / "b.csv").write_bytes(header + b"".join(lines[:10]))
    (tmp_path / "a.csv").write_bytes(header + b"".join(lines[10:]))
    by = (SliceBy("note"), SliceBy("at", per_day=True), SliceBy(":file"), SliceBy("city"))
    files = [str(tmp_path / "b.csv"), str(tmp_path / "a.csv")]
    found = evaluate_files(ScoreSettings(text_run.folder, files, format="csv"), by, top=4)
    fields = [line.decode().rstrip("\n").split(",") for line in lines]
    labels = np.array([int(f[0]) for f in fields], np.float32)

    def check(metrics: Metrics, rows: list[int]) -> None:
        # Two files are other batches than the evaluation's, and round differently.
        wanted = compute_metrics(text_run.logits[rows], labels[rows], None, len(rows))
        for name, value in asdict(wanted).items():
            found_value = getattr(metrics, name)
            assert found_value is None if value is None else found_value == pytest.approx(value, rel=1e-6), name

    notes = {s.value: s.metrics for s in found.slices["note"]}
    assert set(notes) == {"n0", "n1", "n2"}
    for note, metrics in notes.items():
        check(metrics, [i for i, f in enumerate(fields) if f[6] == note])
    days = [datetime.fromtimestamp(int(f[1]), UTC).strftime("%Y-%m-%d") for f in fields]
    found_days = found.slices["at:day"]
    assert [s.value for s in found_days[:-1]] == sorted(s.value for s in found_days[:-1]) and len(found_days) == 5
    for day in found_days[:-1]:
        check(day.metrics, [i for i, d in enumerate(days) if d == day.value])
    rest = found_days[-1]
    assert rest.value == "(others)" and rest.num_values == len(set(days)) - 4
    files_found = found.slices[":file"]
    assert [(s.value, s.metrics.rows) for s in files_found] == [("a.csv", 20), ("b.csv", 10)]
    for slices in found.slices.values():
        assert sum(s.metrics.rows for s in slices) == 30
    cities = [s.metrics.rows for s in found.slices["city"][:-1]]
    assert cities == sorted(cities, reverse=True)

    found.write(tmp_path / "found.json")
    raw = json.loads((tmp_path / "found.json").read_text())
    assert (
        raw["total"]["rows"] == 30 and raw["slices"]["note"][0]["metrics"]["ne"] == found.slices["note"][0].metrics.ne
    )


def test_labels_are_needed_and_checked(text_run: Run, synthetic_run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"price,city,user,tags\n1,nowhere,u,t1\n")
    with pytest.raises(DataError, match="there is no column 'click' in the header"):
        evaluate_files(ScoreSettings(text_run.folder, str(tmp_path / "rows.csv")))
    table = synthetic_table(synthetic_run)
    pq.write_table(table, tmp_path / "rows.parquet")
    found = evaluate_files(ScoreSettings(synthetic_run.folder, str(tmp_path / "rows.parquet")), (SliceBy("C1"),), top=2)
    assert found.total.ne == pytest.approx(RunRecord(synthetic_run.folder).report.erase.ne, rel=1e-6)
    assert len(found.slices["C1"]) == 3


DAY = 86_400
TIMES = [
    pa.array([0, DAY - 1, DAY, None]),
    pa.array([0, DAY - 1, DAY, None], pa.timestamp("s")),
    pa.array(["0", str(DAY - 1), str(DAY), None]),
    pa.array(["1970-01-01 00:00:00", "1970-01-01 23:59:59", "1970-01-02 00:00:00", None]),
    pa.array([0, 0, 1, None], pa.date32()),
]


@pytest.mark.parametrize("array", TIMES, ids=lambda a: str(a.type))
def test_days(array: object) -> None:
    assert _days(array, "at").to_pylist() == ["1970-01-01", "1970-01-01", "1970-01-02", None]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6])
def test_the_unit_of_whole_numbers_goes_by_their_size(unit: int) -> None:
    assert _days(pa.array([1_700_000_000 * unit]), "at").to_pylist() == ["2023-11-14"]


def test_slices_that_cannot_be() -> None:
    assert SliceBy.parse("at:day") == SliceBy("at", True) and SliceBy.parse(":file") == SliceBy(":file")
    with pytest.raises(ConfigError, match="--by at:week: write COLUMN, COLUMN:day or :file"):
        SliceBy.parse("at:week")
    with pytest.raises(DataError, match="needs times"):
        _days(pa.array(["noon"]), "at")
