"""What a run leaves of its model, and that damage is told."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recsys import trial
from recsys.config.wire import build_data, build_model
from recsys.errors import ConfigError, DataError
from recsys.models.recommender import OVER
from recsys.report import RunRecord
from recsys.run import run, train_model
from recsys.serve.export import export_package
from recsys.serve.model_files import place_weights
from recsys.serve.trained import TrainedModel
from recsys.train.evaluator import evaluate
from tests.reference.tiny_run import tiny_config
from tests.serve.conftest import SMALL, Run


def copy_of(run: Run, folder: Path) -> Path:
    shutil.copytree(run.folder, folder)
    return folder


def test_both_sides_are_the_reported_states(tmp_path: Path) -> None:
    """A cached baseline brings its weights along, and the file is that of the best state, not of the last."""
    small = [*SMALL, f"trainer.cache_dir={tmp_path / 'cache'}", "optim.lr=0.05", "trainer.evals_per_epoch=3"]
    cfg = tiny_config(*small)
    for name in ("first", "second"):
        report = run(cfg, tmp_path / name)
        folder = tmp_path / name
        assert report.baseline_from_cache == (name == "second")
        content = json.loads((folder / "model.json").read_text())
        assert set(content["files"]) == {"model.safetensors", "baseline.safetensors", "features.json"}
        data = build_data(cfg)
        for side in ("erase", "baseline"):
            trained = TrainedModel.load(folder, side)
            found = evaluate(trained.model, data.test, torch.device("cpu")).compute()
            assert found.ne == report.side(side).ne
            assert trained.config["name"] == {"erase": "erase6", "baseline": "baseline6"}[side]
        assert trained.model.heads == () and TrainedModel.load(folder).model.heads == ("cross", "dot")


def test_an_experiment_that_is_its_own_baseline_has_one_model(tmp_path: Path) -> None:
    cfg = tiny_config("+experiment=dlrm", f"trainer.cache_dir={tmp_path / 'cache'}")
    run(cfg, tmp_path / "run")
    assert list(tmp_path.glob("run/*.safetensors")) == [tmp_path / "run/model.safetensors"]
    # A cache entry of a run that saved nothing is no use to one that saves.
    (weights,) = tmp_path.glob("cache/baselines/*.safetensors")
    weights.unlink()
    assert not run(cfg, tmp_path / "run").baseline_from_cache and weights.exists()


def test_without_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = tiny_config("+experiment=dlrm")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ConfigError, match=r"trainer\.save_model=true needs the package safetensors; install it"):
        train_model(cfg, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train_model(tiny_config("+experiment=dlrm", "trainer.save_model=false"), tmp_path / "run")
    with pytest.raises(DataError, match=r"holds no model\.json, so no model was saved there"):
        TrainedModel.load(tmp_path / "run")


def test_an_older_model_does_not_outlive_a_new_run(
    criteo_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(criteo_run, tmp_path / "run")
    monkeypatch.setattr(trial, "train_trial", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_model(tiny_config("+experiment=dlrm"), folder)
    with pytest.raises(DataError, match="no model was saved"):
        TrainedModel.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "features.json", "vocab/C7.parquet"])
def test_every_file_is_compared(criteo_run: Run, tmp_path: Path, name: str) -> None:
    folder = copy_of(criteo_run, tmp_path / "run")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: is not what was written"):
        TrainedModel.load(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"{name}: is not there"):
        TrainedModel.load(folder)


def test_folders_that_hold_no_model(criteo_run: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder; name the folder of a run"):
        TrainedModel.load(tmp_path / "none")
    folder = copy_of(criteo_run, tmp_path / "run")
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**content, "version": 9}))
    with pytest.raises(DataError, match=r"model\.json: cannot be read \(version 9, and this recsys reads version 1\)"):
        TrainedModel.load(folder)


def test_weights_of_another_model_are_refused(criteo_run: Run, tmp_path: Path) -> None:
    folder = copy_of(criteo_run, tmp_path / "run")
    content = json.loads((folder / "model.json").read_text())
    content["sides"]["erase"]["model"]["over_arch"]["hidden"] = [3]
    (folder / "model.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"model\.safetensors: does not fit the model of config\.yaml"):
        TrainedModel.load(folder)


def test_names_in_the_file_are_those_of_the_model(criteo_run: Run) -> None:
    cfg = RunRecord(criteo_run.folder).config
    state = load_file(criteo_run.folder / "model.safetensors")
    spec = TrainedModel.load(criteo_run.folder).encoder.spec
    fresh = build_model(cfg, spec, torch.device("cpu")).state_dict()
    assert state.keys() == fresh.keys() and any(OVER in name for name in state)


def test_placing_replaces(tmp_path: Path) -> None:
    for name, text in (("a", "new"), ("b", "old")):
        (tmp_path / name).write_text(text)
    place_weights(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "new" and sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_blended_and_corrected_model_predicts_as_it_was_evaluated(tmp_path: Path) -> None:
    """Also with a first-order term and several dense vectors, and once more from an exported package."""
    options = ["trainer.blend=fitted", "trainer.calibrate=true", "sparse.first_order=true", "model.dense_arch.tokens=2"]
    cfg = tiny_config(*SMALL, *options)
    train_model(cfg, tmp_path / "run")
    trained = TrainedModel.load(tmp_path / "run")
    assert set(trained.prediction.weights) == {OVER, "cross", "dot"} and trained.prediction.scale != 1
    test = build_data(cfg).test
    found = evaluate(trained.model, test, torch.device("cpu"), None, trained.prediction).predictions()[0]
    assert (found == Run(tmp_path / "run", b"").logits).all()
    exported = export_package(tmp_path / "run", tmp_path / "package")
    assert exported.agreement["exported"] < 1e-5
