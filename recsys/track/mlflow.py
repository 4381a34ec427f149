"""MLflow (the extra ``mlflow``): a SQLite store beside the runs, or the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from recsys.track.base import Param, Tracker

EXPERIMENT = "recsys"
DEFAULT_URI = "sqlite:///runs/mlflow.db"
_LONGEST = 6000  # characters of a parameter's value; MLflow refuses longer ones
_BATCH = 100  # parameters in one request, MLflow's own limit


class MLflowTracker(Tracker):
    """One MLflow run in the experiment ``recsys`` (``MLFLOW_EXPERIMENT_NAME`` chooses another).

    Args:
        folder: of the run; kept as the tag ``folder``.
        title: name of the run.
    """

    def __init__(self, folder: Path, title: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a training says nothing to anybody unasked
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI
        artifacts = None
        if uri.startswith("sqlite:///"):
            store = Path(uri.removeprefix("sqlite:///"))
            store.parent.mkdir(parents=True, exist_ok=True)
            artifacts = (store.parent / "mlflow_artifacts").absolute().as_uri()
        self._client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name, artifacts)
        self._run: str = self._client.create_run(
            experiment, run_name=title, tags={"folder": str(folder.absolute())}
        ).info.run_id

    def log_params(self, params: Mapping[str, Param]) -> None:
        """One parameter a key; a value longer than MLflow takes is cut, and whole in the artifact ``config.yaml``."""
        from mlflow.entities import Param as Entity

        entities = [Entity(key, str(value)[:_LONGEST]) for key, value in params.items()]
        for start in range(0, len(entities), _BATCH):
            self._client.log_batch(self._run, params=entities[start : start + _BATCH])

    def log_metrics(self, metrics: Mapping[str, float], rows: int) -> None:
        """One value a metric, at step ``rows``."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[Metric(key, value, now, rows) for key, value in metrics.items()])

    def log_artifact(self, path: Path) -> None:
        """Copy the file into the store's artifacts."""
        self._client.log_artifact(self._run, str(path))

    def end(self, failed: bool) -> None:
        """Set the run's state to FINISHED or FAILED."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
