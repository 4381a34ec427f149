from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from recsys.compare.forest import draw_forest
from recsys.compare.plan import Experiment, Plan, make_plan
from recsys.compare.result import Comparison, analyse
from recsys.compare.runner import Finished, Key
from recsys.compare.tables import print_comparison, write_comparison
from recsys.compare.verdict import Word
from recsys.errors import DataError
from recsys.report.plots import style

from .conftest import MakeRun, config_of

NUM_ROWS = 400
FOLDS, SEEDS = 3, 2


def make_comparison_plan(*names: str, folds: int = FOLDS, seeds: int = SEEDS, common: tuple[str, ...] = ()) -> Plan:
    experiments = [Experiment(name) for name in names]
    return make_plan(experiments, common, num_seeds=seeds, num_folds=folds, compose_config=config_of)


def made_up(plan: Plan, make_run: MakeRun) -> dict[Key, Finished]:
    """Runs in which baseline6 is right, heads6 a little too sure of itself, and late6 and erase6 noisy alike."""
    finished = {}
    for cell in plan.cells:
        truth = np.random.default_rng([cell.fold]).normal(size=NUM_ROWS)
        labels = np.random.default_rng([cell.fold, 1]).random(NUM_ROWS) < 1 / (1 + np.exp(-truth))
        own = np.random.default_rng([cell.fold, cell.index, 2]).normal(size=NUM_ROWS)
        logits = truth + 0.01 * own
        if cell.label == "heads6":
            logits = logits * 1.001
        if cell.label in ("late6", "erase6"):
            logits = logits + 0.8 * own
        finished[cell.key] = Finished(make_run("-".join(map(str, cell.key)), logits, labels), False, 1.0)
    return finished


@pytest.fixture
def comparison(make_run: MakeRun) -> Comparison:
    plan = make_comparison_plan("baseline6", "heads6", "late6", "erase6", common=("data=blocks",))
    return analyse(plan, made_up(plan, make_run), margin=0.5)


def test_gaps_are_paired_and_judged(comparison: Comparison, make_run: MakeRun) -> None:
    heads, late, early = comparison.gaps
    assert [gap.label for gap in comparison.gaps] == ["heads6", "late6", "erase6"]
    assert [gap.verdict.word for gap in comparison.gaps] == [Word.EQUIVALENT, Word.WORSE, Word.WORSE]
    assert late.values == early.values
    by_key = {(run.label, run.fold, run.seed): run.ne for run in comparison.runs}
    assert late.values[1][1] == pytest.approx(
        100 * (by_key["late6", 1, 1001] / by_key["baseline6", 1, 1001] - 1), abs=1e-9
    )
    assert late.mean == pytest.approx(np.mean(late.values))
    assert late.interval[0] < late.mean < late.interval[1]
    assert late.wide_interval is not None
    assert late.wide_interval[0] < late.interval[0]
    assert (late.df, late.basis) == (2, "folds")
    assert heads.sd_row < 0.1 < late.sd_row


def test_qualities_are_means_over_runs(comparison: Comparison) -> None:
    base = comparison.qualities[0]
    assert base.label == comparison.reference == "baseline6"
    assert base.ne.mean == pytest.approx(np.mean([run.ne for run in comparison.runs if run.label == "baseline6"]))
    assert base.ne.sd_seed is not None
    assert base.ne.sd_fold is not None
    assert base.ne.sd_seed < base.ne.sd_fold
    assert base.calibration_interval[0] < 1 < base.calibration_interval[1]
    assert comparison.test_rows == FOLDS * NUM_ROWS


def test_twins_are_found_to_agree(comparison: Comparison) -> None:
    assert comparison.twins == [("late6", "erase6", 0.0)]


def test_one_split_rests_on_seeds_and_rows(make_run: MakeRun) -> None:
    plan = make_comparison_plan("baseline6", "erase6", folds=1, seeds=3)
    gap = analyse(plan, made_up(plan, make_run), margin=0.02).gaps[0]
    assert gap.basis == "seeds and rows"
    assert (gap.sd_fold, gap.wide_interval) == (None, None)
    assert gap.se**2 == pytest.approx((gap.sd_seed or 0) ** 2 / 3 + gap.sd_row**2)


def test_one_run_a_side_is_not_resolved(make_run: MakeRun) -> None:
    plan = make_comparison_plan("baseline6", "erase6", folds=1, seeds=1)
    gap = analyse(plan, made_up(plan, make_run), margin=0.02).gaps[0]
    assert gap.verdict.word is Word.OPEN
    assert gap.seeds_needed is gap.folds_needed is None


def test_runs_on_other_rows_are_not_paired(make_run: MakeRun) -> None:
    plan = make_comparison_plan("baseline6", "erase6", folds=1, seeds=1)
    finished = made_up(plan, make_run)
    ones = np.arange(NUM_ROWS) % 2
    finished["erase6", 0, 0] = Finished(make_run("other", np.zeros(NUM_ROWS), ones), False, 1.0)
    with pytest.raises(DataError, match="were tested on different rows"):
        analyse(plan, finished, margin=0.02)


def test_undefined_ne_is_refused(make_run: MakeRun) -> None:
    plan = make_comparison_plan("baseline6", "erase6", folds=1, seeds=1)
    run = Finished(make_run("one-class", np.zeros(NUM_ROWS), np.zeros(NUM_ROWS)), False, 1.0)
    with pytest.raises(DataError, match="one-class: NE is undefined on test rows of one class; take more test rows"):
        analyse(plan, {cell.key: run for cell in plan.cells}, margin=0.02)


def test_speed_is_a_ratio_of_the_same_turn(comparison: Comparison) -> None:
    speeds = {"baseline6": [100, 200, 300], "heads6": [100, 200, 300], "late6": [1, 1, 1], "erase6": [200, 300, 300]}
    erase = comparison.with_speed(speeds).qualities[-1]
    assert (erase.rows_per_s, erase.speedup) == (300, 1.5)


def test_files_hold_the_same_figures(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(tmp_path / "out", comparison)
    raw = json.loads((tmp_path / "out" / "comparison.json").read_text())
    late = comparison.gaps[1]
    assert raw["gaps"][1]["mean"] == late.mean
    assert raw["gaps"][1]["verdict"]["word"] == "worse"
    assert len(raw["runs"]) == 4 * FOLDS * SEEDS
    text = (tmp_path / "out" / "comparison.md").read_text()
    assert f"| late6 | {late.mean:+.3f} | {late.interval[0]:+.3f} .. {late.interval[1]:+.3f}, wide " in text
    assert "late6 and erase6 differ in their schedule only and agree bit for bit" in text
    assert "`+experiment=erase6 data=blocks seed=2001 data.folds=3 data.fold=2`" in text
    assert "Nadeau and Bengio" in text
    assert (tmp_path / "out" / "gaps.png").read_bytes().startswith(b"\x89PNG")


def test_console_shows_every_verdict(comparison: Comparison) -> None:
    text = io.StringIO()
    print_comparison(comparison, Console(file=text))
    assert "against baseline6: 3 folds x 2 seeds, 1,200 test rows, margin 0.5 % of NE" in text.getvalue()
    for gap in comparison.gaps:
        assert f"{gap.label}: {gap.verdict.sentence}" in text.getvalue()
        assert f"{gap.mean:+.3f}" in text.getvalue()
    assert "…" not in text.getvalue(), "no figure is cut off"


def test_forest_shows_intervals_and_margin(comparison: Comparison) -> None:
    with style():
        axes = Figure().subplots()
        draw_forest(axes, comparison)
    drawn = [tuple(np.asarray(line.get_xdata())) for line in axes.get_lines()]
    for gap in comparison.gaps:
        assert tuple(gap.interval) in drawn
        assert tuple(np.mean(gap.values, axis=1)) in drawn
    assert [label.get_text() for label in axes.get_yticklabels()][1] == "late6\nworse"
    assert axes.patches[0].get_xy() == (-0.5, 0)  # type: ignore[attr-defined]
