"""A run's folder is read again; what is missing or damaged is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.errors import DataError
from recsys.report import LearningCurve, RunRecord, RunReport, write_run


@pytest.fixture
def run(tmp_path: Path, report: RunReport, curve: LearningCurve) -> Path:
    folder = tmp_path / "runs" / "one"
    write_run(folder, report, curve)
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text("optim:\n  lr: 1e-3\nseed: ${oc.env:NOT_SET}\n")
    return folder


def test_round_trip(run: Path, report: RunReport, curve: LearningCurve) -> None:
    record = RunRecord(run)
    assert record.report.to_dict() == report.to_dict()
    assert record.fingerprint == "e" * 8
    assert record.curve == curve
    assert record.config == {"optim": {"lr": 0.001}, "seed": "${oc.env:NOT_SET}"}


def test_resolved_config_comes_first(run: Path) -> None:
    (run / "config.yaml").write_text("seed: 5\n")
    assert RunRecord(run).config == {"seed": 5}


def test_side_with_fingerprint(run: Path) -> None:
    record = RunRecord(run)
    assert record.side_with("b" * 8) == "baseline"
    assert record.side_with("e" * 8) == "erase"
    assert record.side_with("other") is None


def test_find_gives_finished_runs_in_order(run: Path, report: RunReport, curve: LearningCurve) -> None:
    root = run.parent
    write_run(root / "multirun" / "0", report, curve)
    (root / "unfinished").mkdir()
    (root / "unfinished" / "curve.csv").write_text("model,rows,ne\n")
    assert [record.folder for record in RunRecord.find(root)] == [root / "multirun" / "0", run]


def test_find_in_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent: no such folder; give the folder that holds the runs"):
        list(RunRecord.find(tmp_path / "absent"))


def test_damaged_run_harms_only_who_reads_it(run: Path) -> None:
    (run / "report.json").write_text("{")
    (record,) = RunRecord.find(run.parent)
    assert record.config
    with pytest.raises(DataError, match=r"one/report\.json: not a report \(.*line 1.*\); run again"):
        _ = record.report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not a JSON object"),
        ("{}", "object 'baseline' is missing"),
        ('{"baseline": {"ne": NaN}}', "NaN is not JSON"),
        ('{"baseline": {"ne": 1.0}, "erase": {}}', "in object 'baseline': key 'logloss' is missing"),
    ],
)
def test_malformed_report(run: Path, text: str, message: str) -> None:
    (run / "report.json").write_text(text)
    with pytest.raises(DataError, match=rf"report\.json: not a report \({message}"):
        _ = RunRecord(run).report


def test_missing_files(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    with pytest.raises(DataError, match=r"report\.json: no such file; the run has not finished"):
        _ = record.report
    with pytest.raises(DataError, match=r"holds neither config\.yaml nor \.hydra/config\.yaml"):
        _ = record.config
    with pytest.raises(DataError, match=r"curve\.csv: the learning curve cannot be read"):
        _ = record.curve


@pytest.mark.parametrize(("text", "message"), [("a: [", "cannot be read"), ("- 1\n", "is not a mapping")])
def test_malformed_config(run: Path, text: str, message: str) -> None:
    (run / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=rf"config\.yaml: the configuration {message}"):
        _ = RunRecord(run).config
