"""The command line as a whole, on runs as small as they can be."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import recsys.run
from recsys.compare import search as search_module
from recsys.compare.plan import Experiment
from recsys.compare.ranges import draw_settings, read_ranges
from recsys.compare.search import Outcome, conclude, plan_trials, read_valid_ne
from recsys.compare.search_tables import markdown
from recsys.config.cli import compose, to_plain
from recsys.errors import DataError, UserError
from recsys.report import RunRecord
from scripts import tune

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "data.train_rows=256",
    "data.valid_rows=64",
    "data.test_rows=128",
    "data.max_cardinality=20",
    "trainer.evals_per_epoch=2",
    "trainer.device=cpu",
]
RANGES = "optim.lr: [1e-3, 1e-2]\ntrainer.batch_size: [64, 128]\n"


def arguments(tmp_path: Path, ranges: str = RANGES) -> list[str]:
    (tmp_path / "ranges.yaml").write_text(ranges)
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    threads = str(torch.get_num_threads())
    return [*TINY, *places, "--ranges", str(tmp_path / "ranges.yaml"), "--jobs", "1", "--threads", threads]


def result(tmp_path: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((tmp_path / "out" / "search.json").read_text())
    return raw


def test_a_search_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tune.main(["dlrm", "dlrm:model.over_arch.hidden=[8]", "--trials", "2", "--seed", "7", *arguments(tmp_path)])
    raw, out = result(tmp_path), capsys.readouterr().out
    first, second = raw["experiments"]
    assert [len(e["outcomes"]) for e in raw["experiments"]] == [2, 2]
    for e in raw["experiments"]:
        valid = [outcome["valid_ne"] for outcome in e["outcomes"]]
        best = e["chosen"]
        assert best["valid_ne"] == min(valid) == valid[best["index"]]
        record = RunRecord(Path(best["folder"]))
        assert best["test_ne"] == record.report.erase.ne
        assert record.report.erase.seed == 0
        # The printed command trains the chosen setting: it is the same configuration.
        (line,) = (line for line in out.splitlines() if line == f"python train.py {shlex.join(best['arguments'])}")
        cfg = to_plain(compose(shlex.split(line)[2:]))
        assert (cfg["optim"], cfg["trainer"]["batch_size"]) == (
            record.config["optim"],
            record.config["trainer"]["batch_size"],
        )
        # Test figures of what was not chosen are neither shown nor kept.
        shown = out + (tmp_path / "out" / "search.md").read_text() + json.dumps(raw)
        others = [RunRecord(Path(o["folder"])).report.erase.ne for o in e["outcomes"] if o["valid_ne"] != min(valid)]
        assert others and not any(f"{ne:.5f}" in shown or repr(ne) in shown for ne in others if ne is not None)
    gap = 100 * sum(
        b["valid_ne"] / a["valid_ne"] - 1 for a, b in zip(first["outcomes"], second["outcomes"], strict=True)
    )
    assert raw["gaps"][0]["mean"] == pytest.approx(gap / 2)

    # The second time only what is new is trained, and the first draws stay.
    made: list[str] = []
    train_model = recsys.run.train_model

    def train(cfg: dict[str, Any], *rest: Any) -> Any:
        made.append(cfg["name"])
        return train_model(cfg, *rest)

    monkeypatch.setattr(recsys.run, "train_model", train)
    tune.main(["dlrm", "--trials", "3", "--seed", "7", *arguments(tmp_path)])
    again = result(tmp_path)
    assert len(made) == 1
    assert again["settings"][:2] == raw["settings"]
    assert [o["from_cache"] for o in again["experiments"][0]["outcomes"]] == [True, True, False]
    assert "2/3 dlrm, trial 1 of 3: valid NE" in capsys.readouterr().out


def test_a_failing_trial_is_listed_and_the_search_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune.main(["dlrm", "--trials", "2", *arguments(tmp_path, "optim.lr: [-1.0, 1e-3]\n")])
    (searched,) = result(tmp_path)["experiments"]
    (failed,) = (o for o in searched["outcomes"] if o["error"])
    assert failed["valid_ne"] is None
    (done,) = (o for o in searched["outcomes"] if not o["error"])
    assert searched["chosen"]["valid_ne"] == done["valid_ne"]
    text = (tmp_path / "out" / "search.md").read_text()
    assert "## Failed trials" in text and failed["error"] in text
    assert ": failed: " in capsys.readouterr().out


def test_a_search_without_any_result_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [argument for argument in arguments(tmp_path, "data.train_rows: [-1]\n") if "train_rows" not in argument]
    with pytest.raises(SystemExit) as ended:
        tune.main(["dlrm", "--trials", "1", *data])
    assert ended.value.code == 1
    assert "error: dlrm: not one of 1 trials finished; the first says: data.train_rows is -1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ("optim.rl: [1]", "error: there is no config key 'optim.rl'"),
        ("data.train_rows: [1]", "error: data.train_rows: set on the command line and in the ranges; leave one out"),
        ("optim.lr: [1]", "error: --trials 2: must lie from 1 to 1"),
    ],
)
def test_mistakes_are_told_in_one_message(
    tmp_path: Path, ranges: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = "2" if "--trials" in message else "1"
    with pytest.raises(SystemExit) as ended:
        tune.main(["dlrm", "--trials", trials, *arguments(tmp_path, ranges)])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(message)


def test_nothing_to_tune_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tune.main(["--trials", "1", *arguments(tmp_path)])
    assert "error: nothing to tune; name an experiment, such as erase6" in capsys.readouterr().err


def test_every_experiment_gets_the_settings_of_the_campaign() -> None:
    settings = draw_settings(read_ranges(ROOT / "scripts" / "ranges" / "criteo_sample.yaml"), 2, seed=7)
    common = ["data=criteo_kaggle", "data.path=FILE"]
    trials = plan_trials([Experiment("baseline6"), Experiment("erase6"), Experiment("dlrm")], common, settings)
    assert [(t.label, t.index) for t in trials[:4]] == [("baseline6", 0), ("erase6", 0), ("dlrm", 0), ("baseline6", 1)]
    base, erase, dlrm = (trial.cfg for trial in trials[:3])
    for group in ("optim", "sparse", "data", "trainer"):
        assert base[group] == erase[group] == dlrm[group]
    assert base["model"]["archs"] == erase["model"]["archs"]
    half = base["model"]["over_arch"]["dropout"] / 2
    assert [arch["dropout"] for arch in erase["model"]["archs"].values()] == [half] * 6
    assert trials[0].arguments[1:] == trials[1].arguments[1:], "paired: nothing but the experiment differs"


def test_the_choice_and_the_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [{"k": {"k": value}, "l": {"l": 0}} for value in (1, 2, 2)]
    trials = [
        search_module.Trial(label, index, {}, (f"+experiment={label}", f"k={index}"))
        for index in range(3)
        for label in ("a", "b")
    ]
    values = {("a", 0): 0.8, ("a", 1): 0.9, ("a", 2): 0.7, ("b", 0): 0.6, ("b", 2): 0.77}
    outcomes = [
        Outcome(valid_ne=values[t.label, t.index], config_hash="h", folder=f"{t.label}{t.index}")
        if (t.label, t.index) in values
        else Outcome(error="went | wrong")
        for t in trials
    ]
    read: list[str] = []

    class Record:
        def __init__(self, folder: Path) -> None:
            read.append(str(folder))
            figures = {"ne": 0.5, "auc": None, "logloss": 0.3, "calibration": 1.0, "rows": 9}
            self.report = type("Report", (), {"erase": type("Model", (), figures)})

    monkeypatch.setattr(search_module, "RunRecord", Record)
    found = conclude(trials, outcomes, settings, seed=1, ranges="ranges.yaml")
    assert read == ["a2", "b0"], "test figures of no other run are read"
    a, b = found.experiments
    assert a.marginals["k"]["1"].mean == 0.8
    assert a.marginals["k"]["2"].mean == pytest.approx(0.8)
    assert (b.marginals["k"]["2"].trials, b.marginals["l"]["0"].trials) == (1, 2)
    (gap,) = found.gaps
    assert (gap.label, gap.reference, gap.pairs) == ("b", "a", 2)
    assert gap.mean == pytest.approx(100 * ((0.6 / 0.8 - 1) + (0.77 / 0.7 - 1)) / 2)
    assert gap.se == pytest.approx(17.5), "-25 and +10: their mean is off by half their distance"
    text = markdown(found)
    assert "b, trial 1: went | wrong" in text
    assert "| 0.83500 " not in text and "0.68500 (2)" in text

    with pytest.raises(UserError, match=r"b: not one of 3 trials finished; the first says: no"):
        conclude(trials, [o if t.label == "a" else Outcome(error="no") for t, o in zip(trials, outcomes, strict=True)],
                 settings, seed=1, ranges="x")  # fmt: skip


def test_the_valid_ne_is_that_of_the_state_reported(tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text("model,rows,ne\nerase,1,0.9\nerase,2,0.7\nerase,3,0.8\n")
    assert read_valid_ne(tmp_path, keep_best=True) == 0.7
    assert read_valid_ne(tmp_path, keep_best=False) == 0.8
    (tmp_path / "curve.csv").write_text("model,rows,ne\nerase,1,0.9\nerase,2,\n")
    assert read_valid_ne(tmp_path, keep_best=True) == 0.9
    with pytest.raises(DataError, match="holds no NE on valid rows"):
        read_valid_ne(tmp_path, keep_best=False)
