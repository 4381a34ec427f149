"""A run from its configuration to its report."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recsys import run as module
from recsys import trial as trial_module
from recsys.errors import ConfigError
from recsys.metrics import compute_metrics
from recsys.report import RunRecord, RunReport
from recsys.report.predictions import Predictions
from recsys.run import baseline_config, run
from recsys.train import loop
from recsys.train.timing import Timing
from recsys.trial import read_trial
from tests.reference.tiny_run import tiny_config

ROOT = Path(__file__).parents[1]
SIX = {"mlp", "cross", "dot", "wukong", "attention", "masknet"}
SIDE = {
    *("ne", "logloss", "auc", "calibration", "base_rate", "entropy", "rows", "coverage", "rows_per_s"),
    *("peak_memory_bytes", "seed", "config_hash", "heads", "prediction"),
}
QUALITY = sorted(SIDE - {"rows_per_s", "peak_memory_bytes"})

TWO = tuple(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet"))  # leaves cross and dot

Start = Callable[..., RunReport]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run with these overrides in the folder ``run``; the cache is the test's own."""

    def go(*overrides: str) -> RunReport:
        cfg = tiny_config(f"trainer.cache_dir={tmp_path / 'cache'}", *overrides)
        return run(cfg, tmp_path / "run")

    return go


def quality(side: dict[str, Any]) -> dict[str, Any]:
    return {key: side[key] for key in QUALITY}


def test_erase6_end_to_end(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = start("+experiment=erase6", "data.test_rows=100", "trainer.quiet=false")
    folder = tmp_path / "run"
    assert {p.name for p in folder.iterdir()} == {
        "report.json",
        "report.md",
        "curve.csv",
        "learning_curve.png",
        "config.yaml",
        "features.json",
        "model.json",
        "model.safetensors",
        "baseline.safetensors",
        "test_predictions.npz",
        "baseline_predictions.npz",
    }
    raw = json.loads((folder / "report.json").read_text())
    assert set(raw["baseline"]) == set(raw["erase"]) == SIDE
    for side, heads in (("baseline", set()), ("erase", SIX)):
        figures = raw[side]
        assert set(figures["heads"]) == heads
        assert figures["rows"] == 100 and figures["coverage"] == 1.0 and figures["seed"] == 0
        assert 0 < figures["ne"] < 2 and 0 < figures["auc"] < 1 and figures["rows_per_s"] > 0
        assert figures["logloss"] == pytest.approx(figures["ne"] * figures["entropy"])
        assert figures["peak_memory_bytes"] > 1e6
    assert raw["baseline"]["config_hash"] != raw["erase"]["config_hash"]
    assert raw["ne_gap_percent"] == pytest.approx(100 * (raw["erase"]["ne"] / raw["baseline"]["ne"] - 1))
    assert raw["detached"] == sorted(SIX) and raw["baseline_name"] == "baseline6" and raw["schedule"] == "erase"
    assert raw["bayes_ne"] < 1 and raw["speedup"]["pairs"] == 2
    record = RunRecord(folder)
    assert record.config["model"]["detach"] == "all"
    assert record.report == report and [p.rows for p in record.curve.erase] == [64, 192]
    assert all(set(point.heads) == SIX for point in record.curve.erase)
    for side, name in (("baseline", "baseline_predictions.npz"), ("erase", "test_predictions.npz")):
        found = Predictions.read(folder / name)
        metrics = compute_metrics(found.logits, found.labels, found.weights)
        assert metrics.ne == pytest.approx(raw[side]["ne"]) and metrics.rows == 100
    shown = capsys.readouterr().out
    assert "baseline6 (sequential)" in shown and f"written to {folder}" in shown


def test_the_baseline_comes_from_the_cache_but_its_speed_never(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seconds = iter(range(1, 100))

    def scripted(steppers: object, *_: object, **__: object) -> Timing:
        return Timing(([float(next(seconds))], [float(next(seconds))]), rows=100)

    trained: list[str] = []
    train = trial_module.train_trial

    def spy(cfg: dict[str, Any], *rest: Any) -> Any:
        trained.append(cfg["name"])
        return train(cfg, *rest)

    monkeypatch.setattr(module, "time_interleaved", scripted)
    monkeypatch.setattr(trial_module, "train_trial", spy)
    first = start("+experiment=erase6", *TWO)
    # Another experiment with the same baseline finds it, too.
    second = start("+experiment=heads6", *TWO)
    assert trained == ["baseline6", "erase6", "heads6"]
    assert not first.baseline_from_cache and second.baseline_from_cache
    one, two = first.to_dict()["baseline"], second.to_dict()["baseline"]
    assert quality(one) == quality(two)
    assert (one["rows_per_s"], two["rows_per_s"]) == (100.0, pytest.approx(100 / 3))
    assert (tmp_path / "run" / "curve.csv").read_text().count("baseline,") == 2

    third = start("+experiment=erase6", *TWO, "trainer.reuse_baseline=false")
    assert not third.baseline_from_cache and trained[3:] == ["baseline6", "erase6"]
    assert quality(third.to_dict()["baseline"]) == quality(one), "a run repeats bit for bit"
    assert quality(third.to_dict()["erase"]) == quality(first.to_dict()["erase"])
    assert not start("+experiment=erase6", *TWO, "seed=1").baseline_from_cache


def test_a_damaged_cache_is_told_and_trained_again(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start("+experiment=dlrm")
    (path,) = (tmp_path / "cache" / "baselines").glob("*.json")
    intact, predictions = path.read_text(), path.with_suffix(".npz").read_bytes()
    assert read_trial(path, path.stem, True) is not None
    path.with_suffix(".npz").write_bytes(predictions[:100])
    assert read_trial(path, path.stem, True) is None and "damaged" in capsys.readouterr().out
    path.with_suffix(".npz").write_bytes(predictions)
    for damage in ("{", "null", "[]", '{"report": {}, "curve": []}', intact.replace(path.stem, "0" * 16)):
        path.write_text(damage)
        assert read_trial(path, path.stem, True) is None, damage
        assert capsys.readouterr().out == f"{path}: damaged; the model is trained again\n"
    second = start("+experiment=dlrm")
    assert capsys.readouterr().out.startswith(f"{path}: damaged")
    assert not second.baseline_from_cache
    assert quality(second.to_dict()["baseline"]) == quality(first.to_dict()["baseline"])
    assert json.loads(path.read_text())["curve"] == json.loads(intact)["curve"]


def test_baseline6_is_its_own_baseline(start: Start) -> None:
    report = start("+experiment=baseline6")
    raw = report.to_dict()
    assert quality(raw["erase"]) == quality(raw["baseline"])
    assert raw["ne_gap_percent"] == 0.0 and raw["erase"]["heads"] == {} and raw["detached"] == []


def test_the_baseline_detaches_nothing_and_has_no_local_losses() -> None:
    cfg = tiny_config(
        *(
            "+experiment=erase6",
            "model.embedding_grad_from=main",
            "+model.loss_weights.cross=2",
            "seed=5",
            "optim.lr=0.5",
        )
    )
    base = baseline_config(cfg)
    assert base["model"]["detach"] == base["model"]["local_losses"] == [] and base["model"]["loss_weights"] == {}
    assert base["schedule"]["name"] == "sequential" and base["name"] == "baseline6"
    assert base["model"]["archs"] == cfg["model"]["archs"]
    for key in ("data", "sparse", "optim", "trainer", "seed"):
        assert base[key] == cfg[key]
    assert cfg["model"]["detach"] == "all", "the experiment's own configuration stays"


def test_the_baseline_of_another_experiment_has_another_name() -> None:
    assert baseline_config(tiny_config("+experiment=dlrm"))["name"] == "dlrm end to end"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.timing.rounds=0", r"trainer\.timing\.rounds=0"),
        ("trainer.precision=fp8", r"trainer\.precision=fp8"),
        ("trainer.device=tpu", r"trainer\.device=tpu"),
        ("model.detach=[mpl]", r"model\.detach: there is no part 'mpl'; did you mean mlp"),
        ("+data.foo=1", r"no config key 'data\.foo'"),
    ],
)
def test_a_wrong_value_is_told_before_data_is_made(
    override: str, message: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build_data", lambda cfg: pytest.fail("data was made"))
    with pytest.raises(ConfigError, match=message):
        start("+experiment=erase6", override)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_told_before_training(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(trial_module, "train_trial", lambda *_: pytest.fail("trained"))
    with pytest.raises(ConfigError, match=r"trainer\.cache_dir=.*file: cannot be made .*name a writable folder"):
        start("+experiment=dlrm", f"trainer.cache_dir={tmp_path / 'file'}")


def test_a_batch_larger_than_the_data(start: Start) -> None:
    report = start("+experiment=dlrm", "trainer.batch_size=1000", "trainer.evals_per_epoch=7", "trainer.timing.steps=1")
    assert report.baseline.rows == 80 and report.baseline.coverage == 1.0


def test_blend_and_correction_are_fitted_on_valid_rows_and_told_beside_the_raw_figures(start: Start) -> None:
    report = start("+experiment=erase6", *TWO, "trainer.blend=fitted", "trainer.calibrate=true")
    told = dict(report.erase.prediction)
    assert sum(told[f"weight of {name}"] or 0 for name in ("over", "cross", "dot")) == pytest.approx(1.0)
    assert told["raw_ne"] == report.erase.heads["over"] != report.erase.ne
    assert told["scale"] != 1.0 and told["raw_calibration"] != report.erase.calibration
    # The baseline has one logit, which is corrected, too.
    assert report.baseline.prediction["weight of over"] == 1.0 and report.baseline.prediction["scale"] != 1.0


def test_the_curve_marks_where_the_reported_state_was(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    curves: list[Any] = []
    monkeypatch.setattr(module, "write_run", lambda folder, report, curve: curves.append(curve))
    scripted = iter((0.9, 0.8, 0.7, 0.9))  # the baseline is best in the end, the experiment is not
    found = SimpleNamespace(compute=lambda: SimpleNamespace(ne=next(scripted)), heads_ne=dict)
    monkeypatch.setattr(loop, "evaluate", lambda *_: found)
    start("+experiment=dlrm", "model.skip_tokens=true", "model.embedding_grad_from=interaction")
    (curve,) = curves
    assert [[(p.rows, p.ne) for p in side] for side in (curve.baseline, curve.erase)] == [
        [(64, 0.9), (192, 0.8)],
        [(64, 0.7), (192, 0.9)],
    ]
    assert curve.best_rows == {"baseline": 192, "erase": 64}


def test_the_process_ends_with_status_1_and_one_message(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "train.py"), "data=criteo_kaggle", "data.path=nowhere.tsv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stderr.splitlines()[-1].startswith("error: ") and "nowhere.tsv" in done.stderr
