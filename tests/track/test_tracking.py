"""What trackers were told is read back with their own readers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recsys.errors import ConfigError, NonFiniteError
from recsys.run import run, train_model
from recsys.track import check_names, open_tracking
from recsys.track.tracking import flatten
from recsys.train.finite import FiniteGuard
from tests.reference.tiny_run import tiny_config

TWO = tuple(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet"))  # leaves cross and dot
# MLflow with the newest SQLAlchemy; nothing that this project could change.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Store = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One run, told to both trackers; its folder and its report's figures."""
    root = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'store' / 'mlflow.db'}")
        overrides = ("+experiment=erase6", *TWO, "trackers=[tensorboard,mlflow]", f"trainer.cache_dir={root / 'cache'}")
        report = run(tiny_config(*overrides), root / "run")
    return root, report.to_dict()


def test_tensorboard_holds_curves_params_and_pictures(tracked: Store) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    root, report = tracked
    events = EventAccumulator(str(root / "run" / "tensorboard")).Reload()
    tags = events.Tags()
    assert {"baseline/valid_ne", "erase/valid_ne", "erase/valid_ne_cross", "erase/valid_ne_dot"} <= set(tags["scalars"])
    curve = [(event.step, event.value) for event in events.Scalars("erase/valid_ne")]
    assert [step for step, _ in curve] == [64, 192]
    assert curve[-1][1] == pytest.approx(_curve(root)[-1], rel=1e-6)
    assert events.Scalars("erase/test_ne")[0].value == pytest.approx(report["erase"]["ne"], rel=1e-6)
    assert events.Scalars("baseline/test_ne")[0].value == pytest.approx(report["baseline"]["ne"], rel=1e-6)
    assert "learning_curve" in tags["images"]
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in tags["tensors"]}
    assert '"optim.lr": ' in texts["params/text_summary"] and texts["report/text_summary"].startswith("# erase6")
    assert texts["state/text_summary"] == "finished"


def test_mlflow_holds_params_curves_and_files(tracked: Store) -> None:
    client, run_id = _mlflow(tracked[0])
    found = client.get_run(run_id)
    assert found.info.status == "FINISHED" and found.info.run_name == "erase6"
    assert found.data.params["trainer.batch_size"] == "64" and found.data.params["seed"] == "0"
    assert found.data.tags["folder"] == str(tracked[0] / "run")
    history = client.get_metric_history(run_id, "erase/valid_ne_cross")
    assert [metric.step for metric in history] == [64, 192]
    assert found.data.metrics["erase/test_ne"] == pytest.approx(tracked[1]["erase"]["ne"])
    assert found.data.metrics["ne_gap_percent"] == pytest.approx(tracked[1]["ne_gap_percent"])
    names = {item.path for item in client.list_artifacts(run_id)}
    own = {"config.yaml", "curve.csv", "learning_curve.png", "report.json", "report.md"}
    assert names == {*own, "features.json", "model.json"}
    copy = client.download_artifacts(run_id, "report.json", str(tracked[0]))
    assert Path(copy).read_text() == (tracked[0] / "run" / "report.json").read_text()


def test_a_failed_run_is_marked(tracked: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def fail(*_: object) -> None:
        raise NonFiniteError("NaN")

    monkeypatch.setattr(FiniteGuard, "update", fail)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tracked[0] / 'store' / 'mlflow.db'}")
    cfg = tiny_config("+experiment=dlrm", "trackers=[mlflow,tensorboard]")
    with pytest.raises(NonFiniteError):
        train_model(cfg, tmp_path / "run")
    client, run_id = _mlflow(tracked[0])
    assert client.get_run(run_id).info.status == "FAILED"
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert events.Tensors("state/text_summary")[0].tensor_proto.string_val == [b"failed"]


def test_without_trackers_nothing_of_theirs_is_loaded_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an ImportError
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with open_tracking({"trackers": [], "name": "x"}, tmp_path / "run") as tracking:
        tracking.on_point("erase")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "blocked", "remedy"),
    [
        ("tensorboard", "torch.utils.tensorboard", "pip install tensorboard"),
        ("mlflow", "mlflow.tracking", "pip install mlflow-skinny"),
    ],
)
def test_a_tracker_that_is_not_installed(
    name: str, blocked: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, blocked, None)
    with (
        pytest.raises(ConfigError, match=rf"trackers: {name} is not installed .*{remedy}.*trackers=\[\]"),
        open_tracking({"trackers": [name], "name": "x"}, tmp_path),
    ):
        pass


def test_names_are_checked_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trackers: 'tensorbord' is no tracker; did you mean tensorboard\?"):
        run(tiny_config("trackers=[tensorbord]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_names(["mlflow", "tensorboard"])


def test_flatten() -> None:
    tree: Mapping[str, Any] = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": None}
    assert flatten(tree) == {"a.b": 1, "a.c": "{}", "d": "[1, 2]", "e": None}


def _curve(root: Path) -> list[float]:
    from recsys.report import RunRecord

    return [point.ne for point in RunRecord(root / "run").curve.erase if point.ne is not None]


def _mlflow(root: Path) -> tuple[Any, str]:
    """A client, and the id of the latest run."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{root / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("recsys")
    assert experiment is not None
    latest = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])[0]
    return client, latest.info.run_id
