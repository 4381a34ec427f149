"""When a job is run, and when an earlier one is taken for it. The runs are made up; their fingerprints are real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import recsys.run
from recsys.report import LearningCurve, ModelReport, RunReport
from recsys.report.curve import CurvePoint
from recsys.sweep.job import JobEnd, run_job
from tests.reference.tiny_run import changed, tiny_config


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds of the runs that were really made."""
    seeds: list[int] = []

    def run(cfg: dict[str, Any], folder: Path, data: object) -> None:
        seeds.append(cfg["seed"])
        if cfg["optim"]["lr"] > 1:
            raise RuntimeError("out of\n memory")
        model = ModelReport(
            ne=0.8, logloss=0.5, auc=0.7, calibration=1.0, base_rate=0.3, entropy=0.6, rows=10, coverage=1.0,
            rows_per_s=1.0, peak_memory_bytes=None, seed=cfg["seed"], config_hash="x",
        )  # fmt: skip
        LearningCurve([CurvePoint(1, 0.9)], [CurvePoint(1, 0.9)]).write(folder / "curve.csv")
        (folder / "report.json").write_text(json.dumps(RunReport(model, model).to_dict()))

    monkeypatch.setattr(recsys.run, "run", run)
    return seeds


@pytest.fixture
def cfg(tmp_path: Path) -> dict[str, Any]:
    return tiny_config("+experiment=dlrm", f"trainer.cache_dir={tmp_path / 'cache'}")


def test_a_folder_is_kept_for_its_own_fingerprint_only(tmp_path: Path, cfg: dict[str, Any], made: list[int]) -> None:
    first = run_job(cfg, tmp_path / "0")
    assert run_job(cfg, tmp_path / "0") == first and made == [0]
    other = run_job(changed(cfg, "seed", 1), tmp_path / "0")
    assert made == [0, 1] and other.fingerprint != first.fingerprint and other.reused_from is None
    # The folder now holds the other one, so the first is not taken from there.
    assert run_job(cfg, tmp_path / "1").reused_from is None and made == [0, 1, 0]


def test_what_does_not_change_the_figures_does_not_matter(tmp_path: Path, cfg: dict[str, Any], made: list[int]) -> None:
    run_job(cfg, tmp_path / "0")
    again = run_job(changed(cfg, "trainer.quiet", False), tmp_path / "1")
    assert again.reused_from == str(tmp_path / "0") and (tmp_path / "1" / "report.json").exists()
    assert run_job(changed(cfg, "trainer.timing.rounds", 3), tmp_path / "2").reused_from is None
    assert run_job(changed(cfg, "trainer.reuse_jobs", False), tmp_path / "3").reused_from is None
    assert made == [0, 0, 0]


def test_a_failure_is_written_down_and_leaves_no_report(tmp_path: Path, cfg: dict[str, Any], made: list[int]) -> None:
    run_job(cfg, tmp_path / "0")
    bad = run_job(changed(cfg, "optim.lr", 2.0), tmp_path / "0")
    assert (bad.status, bad.error) == ("failed", "RuntimeError: out of memory")
    assert JobEnd.read(tmp_path / "0") == bad and "out of\n memory" in (bad.traceback or "")
    assert not (tmp_path / "0" / "report.json").exists()
    assert run_job(changed(cfg, "optim.lr", 2.0), tmp_path / "0").status == "failed" and made == [0, 0, 0]
    wrong = run_job(changed(cfg, "trainer.batch_size", 0), tmp_path / "4")
    assert wrong.error == "trainer.batch_size=0: must be at least 1", "a user's mistake has no name of a class"
