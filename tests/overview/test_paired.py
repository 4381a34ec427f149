"""Gaps of runs to their own baselines: the same figures that a comparison of them would give."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.compare import rows
from recsys.compare.verdict import Word
from recsys.overview.entries import make_entries
from recsys.overview.gather import gather
from recsys.overview.paired import of_comparison, of_entries
from recsys.report.predictions import BASELINE_PREDICTIONS_NPZ, Predictions
from tests.overview.conftest import made_up_comparison, write_made_up_run


def test_gaps_pair_each_run_with_its_baseline(desk: Path) -> None:
    found = gather([desk / "sweep"])
    gaps, remarks = of_entries(make_entries(found.runs), 0.02)
    assert [pair.gap.label for pair in gaps] == ["erase6 detach=[mlp]", "erase6 detach=[mlp,cross]"] and not remarks
    expected = []
    for name in ("1-0", "1-1"):
        folder = desk / "sweep" / name
        base = Predictions.read(folder / BASELINE_PREDICTIONS_NPZ)
        expected.append(rows.gap_percent(rows.read(folder), base)[0])
    gap = gaps[0].gap
    assert gap.values == [pytest.approx(expected)] and gap.mean == pytest.approx(sum(expected) / 2)
    assert gap.interval[0] < gap.mean < gap.interval[1] and gap.basis == "seeds and rows"
    assert gaps[0].reference == "baseline" and gaps[0].runs == 2
    reports = [run.report.ne_gap_percent for run in found.runs[:2]]
    assert expected == pytest.approx(reports, rel=1e-4)


def test_one_run_gives_an_interval_and_no_verdict(tmp_path: Path) -> None:
    write_made_up_run(tmp_path / "run", name="erase6", seed=0, noise=2.0, detach=["mlp"])
    (pair,) = of_entries(make_entries(gather([tmp_path]).runs), 0.02)[0]
    assert pair.gap.basis == "rows" and pair.gap.verdict.word is Word.OPEN and pair.gap.interval[0] > 0


def test_one_run_of_data_that_can_be_folded_is_one_fold(tmp_path: Path) -> None:
    folder = write_made_up_run(tmp_path / "run", name="erase6", seed=0, noise=2.0, detach=["mlp"])
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("data:", "data:\n  folds: null"))
    (entry,) = (e for e in make_entries(gather([tmp_path]).runs) if e.has_own_baseline)
    assert "data.folds" in entry.config
    (pair,) = of_entries([entry], 0.02)[0]
    assert pair.gap.wide_interval is None and pair.gap.basis == "rows"


def test_runs_without_predictions_are_told(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        write_made_up_run(folder, name="erase6", seed=seed, noise=0.4, detach=["mlp"], with_predictions=seed == 0)
    gaps, remarks = of_entries(make_entries(gather([tmp_path]).runs), 0.02)
    assert [pair.runs for pair in gaps] == [1]
    assert remarks == ["erase6: 1 of 2 runs hold no predictions; run them again"]


def test_a_comparison_keeps_its_own_gaps(tmp_path: Path) -> None:
    comparison = made_up_comparison(tmp_path)
    (pair,) = of_comparison(comparison)
    assert pair.gap is comparison.gaps[0] and (pair.reference, pair.margin, pair.runs) == ("heads6", 0.5, 4)
