"""The guided search: asked, told, stopped, gone on with; what fails does not end it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys.compare import study as study_module
from recsys.compare.plan import Experiment
from recsys.compare.ranges import read_ranges
from recsys.compare.search import Outcome, Trial, conclude
from recsys.compare.search_tables import front_table
from recsys.compare.study import Goal, Question, ended, open_study, search, told
from recsys.errors import ConfigError, UserError

RANGES = "optim.lr: [1e-4, 1e-3, 1e-2, 1e-1]\ntrainer.batch_size: [64, 128, 256]\n"
# Valid NE by learning rate; the last one is lost.
NE = {1e-4: 0.9, 1e-3: 0.8, 1e-2: 0.85, 1e-1: math.nan}


@pytest.fixture
def question(tmp_path: Path) -> Callable[..., Question]:
    (tmp_path / "ranges.yaml").write_text(RANGES)

    def make(**goal: Any) -> Question:
        return Question(Experiment("dlrm"), (), read_ranges(tmp_path / "ranges.yaml"), Goal(**goal))

    return make


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings as they are, without Hydra."""

    def plan(experiments: Any, common: Any, settings: Any) -> list[Trial]:
        cfg = {key: value for choice in settings[0].values() for key, value in choice.items()}
        return [Trial(experiments[0].label, 0, cfg, tuple(f"{k}={v}" for k, v in cfg.items()))]

    monkeypatch.setattr(study_module, "plan_trials", plan)


def pretend(cfg: dict[str, Any], store: Path, threads: int, timed: bool) -> Outcome:
    """A larger batch is slower and a little better."""
    ne = NE[cfg["optim.lr"]] - cfg["trainer.batch_size"] / 1e5
    if cfg["optim.lr"] == 1e-4 and cfg["trainer.batch_size"] == 64:
        return Outcome(error="RuntimeError: no memory")
    step_ms = cfg["trainer.batch_size"] / 10 if timed else None
    return Outcome(1.0, False, ne, config_hash="h", folder="f", step_ms=step_ms)


def run(path: Path, question: Question, total: int, seed: int = 0) -> Iterator[Any]:
    done: list[Trial] = []
    with open_study(path, question, seed) as study:
        search(study, question, total, path.parent, jobs=1, threads=1, on_done=lambda t, o: done.append(t))
        yield study, done


def test_it_finds_the_best_and_what_fails_does_not_end_it(
    tmp_path: Path, question: Callable[..., Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "attempt_and_time", pretend)
    asked = question()
    for study, done in run(tmp_path / "s.db", asked, 30):
        states = [trial.state.name for trial in study.get_trials()]
        assert len(done) == 30 and 0 < states.count("PRUNED") < 10
        assert study.best_params == {"optim.lr": "0.001", "trainer.batch_size": "256"}
        # It follows the results: more than the quarter that chance would give.
        assert sum(trial.params["optim.lr"] == "0.001" for trial in study.get_trials()) > 12


def test_stopped_and_gone_on_with(
    tmp_path: Path, question: Callable[..., Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def stopping(cfg: dict[str, Any], **rest: Any) -> Outcome:
        calls.append(cfg)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pretend(cfg, **rest)

    monkeypatch.setattr(study_module, "attempt_and_time", stopping)
    asked, path = question(), tmp_path / "s.db"
    with pytest.raises(KeyboardInterrupt):
        list(run(path, asked, 5))
    for study, done in run(path, asked, 5):
        assert len(done) == 3 and len(ended(study)) == 5
        assert calls[3] == calls[2], "what was stopped in the middle is asked first"
        trials, outcomes, settings = told(study, asked)
        assert [t.index for t in trials] == list(range(5)) and len(outcomes) == len(settings) == 5
        assert [s["optim.lr"]["optim.lr"] for s in settings] == [c["optim.lr"] for c in [*calls[:2], *calls[3:]]]
    assert len({tuple(call.items()) for call in [*calls[:2], *calls[4:]]}) > 2, "no session draws the others' again"
    with (
        pytest.raises(ConfigError, match=r"s\.db: holds a search for something else"),
        open_study(path, question(max_step_ms=3.0), 0),
    ):
        pass


def test_a_limit_and_a_front(
    tmp_path: Path, question: Callable[..., Question], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "attempt_and_time", pretend)
    limited = question(max_step_ms=13.0)
    for study, _ in run(tmp_path / "limit.db", limited, 25):
        feasible = [t for t in study.get_trials() if all(v <= 0 for v in t.constraints.values())]
        assert {t.params["trainer.batch_size"] for t in feasible if t.values} <= {"64", "128"}
    both = question(pareto=True)
    for study, _ in run(tmp_path / "front.db", both, 25):
        front = {(t.params["optim.lr"], t.params["trainer.batch_size"]) for t in study.best_trials}
        assert front == {("0.001", "64"), ("0.001", "128"), ("0.001", "256")}


def test_a_file_is_searched_by_one_process(tmp_path: Path, question: Callable[..., Question]) -> None:
    asked = question()
    with (
        open_study(tmp_path / "s.db", asked, 0),
        pytest.raises(UserError, match="another process is searching in it"),
        open_study(tmp_path / "s.db", asked, 0),
    ):
        pass


@pytest.mark.parametrize(
    ("goal", "message"),
    [({"max_step_ms": 0.0}, "must be above 0"), ({"max_step_ms": 1.0, "pareto": True}, "choose one of them")],
)
def test_goals_that_make_no_sense(goal: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Goal(**goal)


def test_the_limit_rules_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Record:
        def __init__(self, folder: Path) -> None:
            figures = {"ne": 0.5, "auc": None, "logloss": 0.3, "calibration": 1.0, "rows": 9}
            self.report = type("Report", (), {"erase": type("Model", (), figures)})

    monkeypatch.setattr("recsys.compare.search.RunRecord", Record)
    figures = ((0.7, 20), (0.8, 10), (0.9, 11))
    figures = ((0.7, 20), (0.8, 10), (0.9, 11))
    outcomes = [Outcome(valid_ne=ne, step_ms=ms, folder="f", config_hash="h") for ne, ms in figures]
    trials = [Trial("a", i, {}, ()) for i in range(3)]
    settings = [{"k": {"k": i}} for i in range(3)]
    found = conclude(trials, outcomes, settings, seed=0, ranges="r", sampler="tpe", max_step_ms=12.0)
    assert found.experiments[0].chosen.index == 1
    assert [row[1] for row in front_table(found)[1]] == ["1", "0"]
    with pytest.raises(UserError, match="no trial's step takes 5 ms or less; the fastest takes 10"):
        conclude(trials, outcomes, settings, seed=0, ranges="r", max_step_ms=5.0)
